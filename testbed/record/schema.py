# SPDX-License-Identifier: Apache-2.0
"""Schemas of tables: columns with types, units, ranges and meanings, and the version of the files.

The tables of a run are in `testbed.record.run_tables`; runs are exchanged as FABRIC there and
OBSERVATIONS in `testbed.record.exchange`; the JSON files of a run are in
`testbed.record.documents`. ``python -m testbed.record`` prints all of them for
``docs/reference/record.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from testbed.errors import UserError

FORMAT, VERSION = "localization-telemetry", 1
"""The format and version in every file; the version changes with any column a reader needs."""

COUNT_LIMIT = 10**15
"""The largest count that a row may have, which keeps sums of rows exact."""

Type = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float64",
    "text",
    "path",  # a list of directed links
    "paths",  # a list of lists of links
    "node paths",  # a list of lists of switch names
]

Numbered = Literal[
    "links",
    "every link",  # of a host, too, where a run has them
    "switches",
    "tors",
    "hosts",
    "segments",
    "epochs",
    "flows",
    "probe_paths",
]


class TableError(UserError):
    """A file does not match its schema. One line: the file, the row and the reason."""


@dataclass(frozen=True)
class Column:
    """A column: its type, what it holds, in which unit, and what a missing value, nan or -1 means.

    An optional column may be absent. Values are from ``low`` to ``high``, or one of ``words``, or
    indices from 0 of the objects that ``numbers`` names: parts of the fabric, epochs, or rows of
    another table. -1 and nan are allowed if ``null`` says so. A path has at least ``low`` links.
    """

    name: str
    type: Type
    help: str
    unit: str = ""
    null: str = ""
    required: bool = True
    numbers: Numbered | None = None
    low: float | None = None
    high: float | None = None
    words: Sequence[str] = ()

    @property
    def nullable(self) -> bool:
        """Return True if a row may have no value in this column."""
        return bool(self.null) and not self.required


@dataclass(frozen=True)
class Schema:
    """A table: the file ``name`` (with ``.parquet``) of a run directory, in a folder a file for
    each epoch or method. Optional tables hold what only some networks know.

    If ``row_of`` is given, the table has one row for each of these objects, in order. No two rows
    have the same values in the columns ``key``.
    """

    name: str
    help: str
    columns: tuple[Column, ...]
    required: bool = True
    file: str = ""
    row_of: Numbered | None = None
    key: Sequence[str] = ()

    @property
    def header(self) -> str:
        """Return the first line of a CSV file with this table."""
        return f"# {FORMAT} {self.name} {VERSION}"

    @property
    def metadata(self) -> dict[str, str]:
        """Return the key-value metadata of a Parquet file with this table."""
        return {"format": FORMAT, "table": self.name, "version": str(VERSION)}

    def column(self, name: str) -> Column:
        """Return the column called ``name``, which must exist."""
        return next(column for column in self.columns if column.name == name)


def interval(low: float | None, high: float | None) -> str:
    """Return a range of numbers in words: ``0 to 10^15``, ``from 1``, or "" without a bound."""
    if high is None:
        return "" if low is None else f"from {low:g}"
    large = {10**15: "10^15"} | {2**n - 1: f"2^{n}-1" for n in (32, 40, 48)}
    return f"{low or 0:g} to {large.get(int(high), f'{high:g}')}"
