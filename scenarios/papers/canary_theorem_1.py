"""Canary's theorem 1: segments that cannot be told apart, by formula and with random switch IDs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label
from testbed.fabric.pathbf import bloom_mask, theorem1

FAIL = "P_fail"
HOPS = (3, 4, 5, 6, 7)
PAPERS_HOPS = 5
SEGMENTS = 300_000


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


def formula() -> list[Row]:
    return [Row(FAIL, "formula (1)", label(hops), 0, theorem1(hops)) for hops in HOPS]


def _tasks(effort: Effort) -> Mapping[str, Task]:
    n = 10_000 if effort.small else SEGMENTS
    draws = {f"draw-{draw}": partial(failures, draw, n) for draw in range(effort.draws)}
    return {"formula": formula, **draws}


_EXACT = theorem1(PAPERS_HOPS)
THEOREM_1 = Experiment(
    "canary-theorem-1",
    "Canary, theorem 1",
    "a path segment that cannot be decoded from 32 bits of pathBF",
    "Formula (1) with b = 32 and m = 3, and random 48-bit switch IDs under the testbed's own hash: "
    "the share of random other segments between the same ends that pass the Bloom test. The "
    "testbed draws IDs with which none does.",
    seconds=10,
    memory_mb=350,
    panels=(Panel(FAIL, "switches h on the segment", "P_fail", log_y=True),),
    tasks=_tasks,
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
assert math.isclose(_EXACT, 2.859e-5, rel_tol=1e-3)
