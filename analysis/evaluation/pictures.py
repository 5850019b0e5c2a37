# SPDX-License-Identifier: Apache-2.0
"""Figures as files: PNG for slides, SVG and PDF for papers. Equal figures give equal files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.record.atomic import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
_METADATA = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


@contextmanager
def own_style(name: str, **more: Any) -> Iterator[None]:
    """Return a context manager for drawing a figure.

    Matplotlib's files of settings are ignored, because it reads one from the current folder, too;
    a $ is a $.

    Args:
        name: The figure's name, from which names inside an SVG file are made.
        more: More of Matplotlib's settings.
    """
    from matplotlib import style  # makes folders in the home, which a refused run should not

    own = {"text.parse_math": False, "svg.hashsalt": name, "pdf.fonttype": 42}
    with style.context(["default", own | more]):
        yield


def save(figure: Figure, paths: Sequence[Path], dpi: int) -> None:
    """Write a figure into each of the files ``paths``, in the formats of their suffixes."""
    for path in paths:
        figure.savefig(path, dpi=dpi, metadata=_METADATA[path.suffix])
        figure.set_layout_engine("none")  # what was computed for the first file stays


def files_of(place: Path) -> Mapping[str, Path]:
    """Return the files of a figure by suffix; ``place`` is their path without one."""
    return {suffix: place.with_name(place.name + suffix) for suffix in SUFFIXES}


@contextmanager
def new_files(place: Path) -> Iterator[list[Path]]:
    """Yield temporary paths that become the files of a figure when the block succeeds."""
    with ExitStack() as stack:
        yield [stack.enter_context(atomic_write(path)) for path in files_of(place).values()]
