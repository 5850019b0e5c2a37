"""Canary's table II: memory of all switches of a K=8 fat-tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from analysis.sketches.sizing import clean_width
from scenarios.papers.canary_6a import DECODED, FIGURE_6A, FORMULA, RATIO, SETTING, TRIES, sizes
from scenarios.papers.experiment import Effort, Panel, Row, Task, label
from scenarios.papers.two_switches import CLEAN, kilobytes

RATES = (1e-3, 1e-2, 1e-1)
SWITCHES = {"FlowRadar": 80, "LossRadar": 80, "FermatSketch": 80}
MONITORS = {"Canary (bottom)": 32, "Canary (top+bottom)": 48}
PRINTED = "KB, of the items that the cells mean"
ITEMS = {
    "FlowRadar": (10_000, 10_000, 10_000),
    "LossRadar": (834, 8_333, 83_333),
    "FermatSketch": (627, 4_966, 9_998),
    "Canary": (799, 90, 15),
}
"""Flows, lost packets (833,333 times the rate), flows with losses, and flows monitored: the last
two are not in the paper, but its cells mean these."""


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


def as_printed() -> list[Row]:
    """The cells of the paper from a number of items each: the least width at which 80 % have a
    bucket of their own, one switch's kilobytes to one decimal, times the switches; of Canary the
    kilobytes of both switches of a link to one decimal, times half of the monitors."""
    rows = []
    for sketch, every in ITEMS.items():
        for loss, items in zip(RATES, every, strict=True):
            one = kilobytes(sketch, clean_width(items, CLEAN))
            if sketch in SWITCHES:
                rows.append(Row(PRINTED, sketch, label(loss), 0, SWITCHES[sketch] * round(one, 1)))
                continue
            both = round(2 * one, 1)
            rows += [
                Row(PRINTED, name, label(loss), 0, monitors * both / 2)
                for name, monitors in MONITORS.items()
            ]
    return rows


def _tasks(effort: Effort) -> Mapping[str, Task]:
    flows, tries = (3_000, 4) if effort.small else (10_000, TRIES)
    draws = {f"draw-{n}": partial(network_wide, n, tries, flows) for n in range(effort.draws)}
    return {"printed": as_printed, **draws}


TABLE_II = replace(
    FIGURE_6A,
    name="canary-table-2",
    paper="Canary, table II",
    shows="memory of all switches of a K=8 fat-tree",
    setting=f"{SETTING} One switch's memory, times 80 switches, or Canary's 32 ToRs, or 48 with "
    "the cores. And the cells that follow from a whole number of items each: 10,000 flows; 834, "
    "8,333 and 83,333 lost packets; 627, 4,966 and 9,998 flows with losses; 799, 90 and 15 flows "
    "monitored.",
    seconds=100,
    panels=(
        Panel(PRINTED, "loss rate of the link", "KB", log_x=True, log_y=True),
        *FIGURE_6A.panels,
    ),
    tasks=_tasks,
    quantities={"KB": (FORMULA, DECODED, PRINTED)},
)
