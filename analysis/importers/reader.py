# SPDX-License-Identifier: Apache-2.0
"""What a reader of another tool's files is: a name, a description, a small file, and a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from analysis.importers.places import Places
from analysis.importers.sources import Source

Row = Mapping[str, Any]
Read = Callable[[Source, Places], Iterator[Row]]


@dataclass(frozen=True)
class Importer:
    """A reader of a format.

    Attributes:
        name: Its name in ``canary import NAME``.
        what: The files that it reads, as a phrase.
        makes: ``fabric``: rows are cables, with ``src`` and ``dst``, and may have ``src_port``,
            ``dst_port`` (interfaces), ``src_role`` and ``dst_role`` (``leaf``, ``host``, ...).
            ``observations``: rows have the columns of that table but ``id``; ``path`` or
            ``nodes`` is one path, as a list.
        example: A small file.
        methods: Which methods read what it makes, as a phrase.
        read: Yields the rows of a `Source`; a fabric's reader needs no places.
    """

    name: str
    what: str
    makes: Literal["fabric", "observations"]
    example: str
    methods: str
    read: Read


def importer(
    name: str,
    what: str,
    example: str,
    makes: Literal["fabric", "observations"] = "observations",
    methods: str = "",
) -> Callable[[Read], Importer]:
    """Return a decorator that makes an `Importer` of a function; see there for the arguments."""

    def make(read: Read) -> Importer:
        return Importer(name, what, makes, example.strip("\n") + "\n", methods, read)

    return make
