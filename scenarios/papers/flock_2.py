"""Flock's figure 2: F by telemetry, with few failed links or devices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, together
from scenarios.papers.flock_schemes import RECALL, F, schemes, scored
from scenarios.papers.flock_world import (
    FLOWS,
    SETTING,
    device_failures,
    network,
    silent_drops,
)

TRACES = 8
DROPS_100K, DROPS_400K, DEVICES = (
    "silent drops, 100K flows",
    "silent drops, 400K flows",
    "device failures, 400K flows",
)


def few_faults(draws: range, name: str, small: bool) -> list[Row]:
    """Of each draw eight traces: 1 to 8 failed links, or one or two devices."""
    flows = (FLOWS if name != DROPS_100K else FLOWS // 4) // (100 if small else 1)
    make = device_failures if name == DEVICES else silent_drops
    rows = []
    for draw in draws:
        seeds = range(TRACES * draw, TRACES * draw + (2 if small else TRACES))
        traces = (make(network(small), seed, flows) for seed in seeds)
        rows += scored(name, schemes(small), traces, draw)
    return rows


def _tasks(effort: Effort) -> Mapping[str, Task]:
    return {
        f"{number}-{draws}": partial(few_faults, some, name, effort.small)
        for number, name in enumerate((DROPS_100K, DROPS_400K, DEVICES))
        for draws, some in together(effort.draws).items()
    }


LEVEL = (
    "Flow level has no congestion and no retransmission, so losses say more; and what is "
    "calibrated is so on our own traces, of which there are few."
)
FIGURE_2 = Experiment(
    "flock-2",
    "Flock, figure 2",
    "f-score by telemetry: silent drops and failed devices",
    SETTING + "A draw is 8 traces; the paper has 63 and draws curves, its text names the points.",
    seconds=200,
    memory_mb=3500,
    panels=(
        *(Panel(f"{F}, {n}", "", f"{F}, {n}", False) for n in (DROPS_100K, DROPS_400K, DEVICES)),
        Panel(f"{RECALL}, {DEVICES}", "", f"{RECALL}, {DEVICES}", False),
    ),
    tasks=_tasks,
    reasons=tuple(
        Reason(LEVEL, f"{what}, {name}", ratio=(0.6, 2.5))
        for what in (F, RECALL)
        for name in (DROPS_100K, DROPS_400K, DEVICES)
    ),
    quick=False,
)
