"""F1 over the values of a setting, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from analysis.evaluation.comparison import comparison_cells
from testbed.fabric.names import plain

__all__ = ["sweep_tables"]

_ABREAST = 4
"""Columns of figures with intervals that 80 characters hold beside names."""


def sweep_tables(
    setting: str, values: Sequence[str], parts: Sequence[Mapping[str, Any]]
) -> Iterator[Table]:
    """A row for each method, a column for each value, as many tables as that takes.

    Args:
        values: The setting's.
        parts: Of each value the rows of its comparison (`comparison.COLUMNS`).
    """
    cells = [{row[0].text: row[1] for row in comparison_cells(rows)} for rows in parts]
    names = dict.fromkeys(name for part in cells for name in part)
    styles = {True: "bold green", False: "red", None: ""}
    for begin in range(0, len(values), _ABREAST):
        here = slice(begin, begin + _ABREAST)
        table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, header_style="bold")
        table.add_column("method", overflow="fold")
        for value in values[here]:
            table.add_column(Text(plain(f"{setting}={value}")), justify="right", overflow="fold")
        for name in names:
            found = [part.get(name) for part in cells[here]]
            shown = [Text(c.text, style=styles[c.good]) if c else Text("–") for c in found]
            table.add_row(Text(name), *shown)
        yield table
