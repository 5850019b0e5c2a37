# SPDX-License-Identifier: Apache-2.0
"""Canary's theorem 1, on segments that cannot be told apart, and theorem 2, on clean buckets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

import numpy as np

from scenarios.papers.canary_tables import Pair, frames_of
from scenarios.papers.experiment import Effort, Row, Task, by_draw, label
from scenarios.papers.sketches.meters import FlowMeter
from scenarios.papers.sketches.sizing import clean_share
from testbed.dataplane import BUCKETS, ROWS, USM
from testbed.fabric.pathbf import bloom_mask, theorem1
from testbed.measurements.sketches.hashing import buckets, flow_ids

FAIL = "P_fail"
HOPS = (3, 4, 5, 6, 7)
CLEAN = "P_clean"
COUNTS = (20, 50, 100, 200, 400, 800, 1600)
WIDTH = 1024


def theorem_1(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of theorem 1: formula (1), and random segments."""
    segments = 10_000 if effort.small else 300_000
    return {"formula": formula_1, **by_draw(effort, failures, segments)}


def formula_1() -> list[Row]:
    """Return the probability of formula (1) for each number of hops."""
    return [Row(FAIL, "formula (1)", label(hops), 0, theorem1(hops)) for hops in HOPS]


def failures(draw: int, segments: int) -> list[Row]:
    """Return the share of other random segments that pass the Bloom test of a segment.

    When the last of h switches reads the Bloom field of a packet, it holds h - 1 switches. Another
    segment has the same ends and h - 2 other switches between them.
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
    """Return the Bloom masks of random 48-bit switch IDs, uint64[n, switches]."""
    ids = rng.integers(0, 1 << 48, n * switches, dtype=np.uint64)
    return bloom_mask(ids).reshape(n, switches)


def theorem_2(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of theorem 2: formula (6), random hashes, and the compiled switch."""
    tries, counts = (2, (50,)) if effort.small else (5, (50, 100, 200, 400, 800))
    tasks: dict[str, Task] = {"formula": formula_6}
    for draw in range(effort.draws):
        tasks[f"hashes-{draw}"] = partial(random_hashes, draw, tries)
        tasks[f"switch-{draw}"] = partial(in_the_switch, draw, counts)
    return tasks


def formula_6() -> list[Row]:
    """Return the share of formula (6) for each number of flows."""
    return [Row(CLEAN, "formula (6)", label(n), 0, clean_share(n - 1, WIDTH)) for n in COUNTS]


def random_hashes(draw: int, tries: int) -> list[Row]:
    """Return the share of flows with a clean bucket, in meters with random hashes."""
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
    """Return the share of flows with a clean bucket in the compiled switch, with its own hash and
    registers."""
    shares = {flows: clean_flows(flows, seed=draw) for flows in counts}
    return [Row(CLEAN, "the switch (P4)", label(n), draw, share) for n, share in shares.items()]


@cache
def _pair() -> Pair:
    """Return a pair of monitor switches, which is made only once."""
    return Pair.make()


def clean_flows(flows: int, seed: int) -> float:
    """Return the share of random flows that have a clean bucket in some row of the switch's
    upstream meter, after each has sent one packet."""
    switch = _pair().lower
    frames, ids = frames_of(flows, seed)
    rules = switch.table(USM.rules)
    rules.clear()
    for each in ids:
        rules.add([each], USM.monitor)
    _pair().send(frames, np.zeros(flows, np.uint64))
    low = np.array([each & (1 << USM.half_bits) - 1 for each in ids], np.uint64)
    clean = np.zeros(flows, np.bool_)
    for row in range(ROWS):
        fields = {name: switch.register(field) for name, field in USM.rows[row].items()}
        owned = (fields["count"][:BUCKETS] == 1) & (fields["dirty"][:BUCKETS] == 0)
        clean |= np.isin(low, fields["flow_lo"][:BUCKETS][owned])
        for register in fields.values():
            register[:] = 0
    return float(clean.mean())
