"""Canary's table II: memory of all switches of a K=8 fat-tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from scenarios.papers.canary_6a import FIGURE_6A, RATIO, SETTING, TRIES, sizes
from scenarios.papers.experiment import Effort, Row, Task

__all__ = ["TABLE_II"]

RATES = (1e-3, 1e-2, 1e-1)
SWITCHES = {"FlowRadar": 80, "LossRadar": 80, "FermatSketch": 80}
MONITORS = {"Canary (bottom)": 32, "Canary (top+bottom)": 48}


def network_wide(draw: int, tries: int, flows: int) -> list[Row]:
    """The same for all switches of a K=8 fat-tree that have the sketch."""
    rows = []
    for row in sizes(draw, RATES, tries, flows):
        if row.quantity == RATIO:
            rows.append(row)
            continue
        many = {row.series: SWITCHES[row.series]} if row.series in SWITCHES else MONITORS
        rows += [row._replace(series=name, value=row.value * n) for name, n in many.items()]
    return rows


def _tasks(effort: Effort) -> Mapping[str, Task]:
    flows, tries = (3_000, 4) if effort.small else (10_000, TRIES)
    return {f"draw-{n}": partial(network_wide, n, tries, flows) for n in range(effort.draws)}


TABLE_II = replace(
    FIGURE_6A,
    name="canary-table-2",
    paper="Canary, table II",
    shows="memory of all switches of a K=8 fat-tree",
    setting=f"{SETTING} One switch's memory, times 80 switches, or Canary's 32 ToRs, or 48 with "
    "the cores.",
    seconds=95,
    tasks=_tasks,
)
