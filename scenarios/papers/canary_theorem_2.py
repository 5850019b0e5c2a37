"""Canary's theorem 2: flows with a clean bucket, by formula, random hashes and the P4 program."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from analysis.sketches.hashing import buckets, flow_ids
from analysis.sketches.meters import FlowMeter
from analysis.sketches.sizing import clean_share
from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label
from scenarios.papers.switch_meters import clean_flows

CLEAN = "P_clean"
COUNTS = (20, 50, 100, 200, 400, 800, 1600)
WIDTH = 1024


def clean(draw: int, tries: int) -> list[Row]:
    """The share of flows with a clean bucket, in meters of random hashes."""
    rows = []
    for flows in COUNTS:
        share = []
        for number in range(tries):
            ids = flow_ids(flows, np.random.default_rng([draw, number]))
            meter = FlowMeter(buckets(*ids, 3, WIDTH, number), WIDTH)
            meter.add(np.arange(flows), np.ones(flows, np.int64))
            share.append(meter.read()[1].mean())
        rows.append(Row(CLEAN, "random hashes", label(flows), draw, float(np.mean(share))))
    return rows


def in_the_switch(draw: int, counts: tuple[int, ...]) -> list[Row]:
    """The same in the running switch, its own hash and its registers."""
    rows = []
    for flows in counts:
        share = clean_flows(flows, seed=draw)
        rows.append(Row(CLEAN, "the switch (P4)", label(flows), draw, share))
    return rows


def formula() -> list[Row]:
    return [Row(CLEAN, "formula (6)", label(n), 0, clean_share(n - 1, WIDTH)) for n in COUNTS]


def _tasks(effort: Effort) -> Mapping[str, Task]:
    tries, counts = (2, (50,)) if effort.small else (5, (50, 100, 200, 400, 800))
    tasks: dict[str, Task] = {"formula": formula}
    for draw in range(effort.draws):
        tasks[f"hashes-{draw}"] = partial(clean, draw, tries)
        tasks[f"switch-{draw}"] = partial(in_the_switch, draw, counts)
    return tasks


THEOREM_2 = Experiment(
    "canary-theorem-2",
    "Canary, theorem 2",
    "flows with a clean bucket among those that a meter watches",
    f"Formula (6) with d = 3 and w = {WIDTH}; meters of random hashes; and the running P4 program's"
    " upstream meter, with its CRC32 and registers, one packet of each flow.",
    seconds=90,
    memory_mb=490,
    panels=(Panel(CLEAN, "flows F", "P_clean", log_x=True, limits=(0.4, 1.02)),),
    tasks=_tasks,
    series={"theorem 2": ("formula (6)", "random hashes", "the switch (P4)")},
    reasons=(
        Reason(
            "Formula (6) gives 0.9999 for 50 flows: the paper cuts it off.",
            CLEAN,
            x=("50",),
            ratio=(1.0, 1.0011),
        ),
    ),
)
