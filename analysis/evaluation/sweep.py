# SPDX-License-Identifier: Apache-2.0
"""The tables of a sweep for a terminal: F1 over the values of a setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from analysis.evaluation.columns import Cell
from analysis.evaluation.comparison import degraded_seeds
from analysis.evaluation.comparison_table import comparison_cells
from analysis.evaluation.report import add_heading
from testbed.fabric.names import plain

_ABREAST = 4
"""The number of columns with intervals that fit into 80 characters beside the names."""


def sweep_tables(
    setting: str, values: Sequence[str], parts: Sequence[Mapping[str, Any]]
) -> Iterator[Table]:
    """Yield as many tables as are needed for a column for each value of a setting; a row is a
    method, in blocks.

    Args:
        setting: The name of the setting.
        values: Its values.
        parts: For each value, the columns of its comparison (`comparison.COLUMNS`).
    """
    blocks: dict[str, dict[str, dict[int, Cell]]] = {}  # heading, method, number of the part
    for number, rows in enumerate(parts):
        for heading, block in comparison_cells(rows).items():
            for name, f1, *_ in block:
                blocks.setdefault(heading, {}).setdefault(name.text, {})[number] = f1
    styles = {True: "bold green", False: "red", None: ""}
    for begin in range(0, len(values), _ABREAST):
        here = range(begin, min(begin + _ABREAST, len(values)))
        table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, header_style="bold")
        table.add_column("method", overflow="fold")
        for at in here:
            without = len(degraded_seeds(parts[at]))
            title = Text(
                plain(f"{setting}={values[at]}") + f" ({without} degraded)" * bool(without)
            )
            table.add_column(title, justify="right", overflow="fold")
        for heading, block in blocks.items():
            add_heading(table, heading)
            for name, cells in block.items():
                found = [cells.get(at) for at in here]
                shown = [Text(c.text, style=styles[c.good]) if c else Text("–") for c in found]
                table.add_row(Text(name), *shown)
        yield table
