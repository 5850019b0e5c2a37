"""Canary's theorems 1 and 2: the formulas, random switch IDs and flows, and the running switch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from analysis.sketches.hashing import buckets, flow_ids
from analysis.sketches.meters import FlowMeter
from analysis.sketches.sizing import clean_share
from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label
from scenarios.papers.switch_meters import clean_flows
from testbed.fabric.pathbf import bloom_mask, theorem1

__all__ = ["THEOREM_1", "THEOREM_2"]

FAIL, CLEAN = "P_fail", "P_clean"
HOPS = (3, 4, 5, 6, 7)
PAPERS_HOPS = 5
SEGMENTS = 300_000
COUNTS = (20, 50, 100, 200, 400, 800, 1600)
WIDTH = 1024


def failures(draw: int, segments: int) -> list[Row]:
    """The share of random other segments that pass the Bloom test, of switches with random IDs.

    A segment of h switches has h - 1 in its field when its last switch reads it; another one has
    the same ends and h - 2 other switches in between.
    """
    rng = np.random.default_rng([draw, 1])
    rows = []
    for hops in HOPS:
        own = np.bitwise_or.reduce(_masks(rng, segments, hops - 1), axis=1)
        other = np.bitwise_or.reduce(_masks(rng, segments, hops - 2), axis=1)
        share = float(np.mean(other & ~own == 0))
        rows.append(Row(FAIL, "random switch IDs", label(hops), draw, share))
    return rows


def _masks(rng: np.random.Generator, n: int, switches: int) -> np.ndarray:
    ids = rng.integers(0, 1 << 48, n * switches, dtype=np.uint64)
    return bloom_mask(ids).reshape(n, switches)


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


def formulas() -> list[Row]:
    fail = [Row(FAIL, "formula (1)", label(hops), 0, theorem1(hops)) for hops in HOPS]
    return fail + [
        Row(CLEAN, "formula (6)", label(n), 0, clean_share(n - 1, WIDTH)) for n in COUNTS
    ]


def _of(quantity: str) -> list[Row]:
    return [row for row in formulas() if row.quantity == quantity]


def _theorem_1(effort: Effort) -> Mapping[str, Task]:
    n = 10_000 if effort.small else SEGMENTS
    draws = {f"draw-{draw}": partial(failures, draw, n) for draw in range(effort.draws)}
    return {"formula": partial(_of, FAIL), **draws}


def _theorem_2(effort: Effort) -> Mapping[str, Task]:
    tries, counts = (2, (50,)) if effort.small else (5, (50, 100, 200, 400, 800))
    tasks: dict[str, Task] = {"formula": partial(_of, CLEAN)}
    for draw in range(effort.draws):
        tasks[f"hashes-{draw}"] = partial(clean, draw, tries)
        tasks[f"switch-{draw}"] = partial(in_the_switch, draw, counts)
    return tasks


_EXACT = theorem1(PAPERS_HOPS)
THEOREM_1 = Experiment(
    "canary-theorem-1",
    "Canary, theorem 1",
    "a path segment that cannot be decoded from 32 bits of pathBF",
    "Formula (1) with b = 32 and m = 3, and random 48-bit switch IDs under the testbed's own hash: "
    "the share of random other segments between the same ends that pass the Bloom test. The "
    "testbed draws IDs with which none does.",
    seconds=60,
    memory_mb=400,
    panels=(Panel(FAIL, "switches h on the segment", "P_fail", log_y=True),),
    tasks=_theorem_1,
    series={"theorem 1": ("formula (1)", "random switch IDs")},
    reasons=(
        Reason(
            f"Formula (1) gives {_EXACT:.4g}, which rounds to 2.86×10⁻⁵: the paper cuts it off.",
            FAIL,
            "formula (1)",
            ratio=(1.0, 1.01),
        ),
        Reason(
            "The formula takes the bits for independent and the load for its mean; three hashes "
            "also fall on one bit at times.",
            FAIL,
            "random switch IDs",
            ratio=(1.0, 4.0),
        ),
    ),
)
THEOREM_2 = Experiment(
    "canary-theorem-2",
    "Canary, theorem 2",
    "flows with a clean bucket among those that a meter watches",
    f"Formula (6) with d = 3 and w = {WIDTH}; meters of random hashes; and the running P4 program's"
    " upstream meter, with its CRC32 and registers, one packet of each flow.",
    seconds=90,
    memory_mb=400,
    panels=(Panel(CLEAN, "flows F", "P_clean", log_x=True, limits=(0.4, 1.02)),),
    tasks=_theorem_2,
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
assert math.isclose(_EXACT, 2.859e-5, rel_tol=1e-3)
