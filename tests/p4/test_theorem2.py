# SPDX-License-Identifier: Apache-2.0
"""Theorem 2 of the Canary paper, measured in the meters of the running switch."""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from canary_softswitch import Program, Switch
from testbed.dataplane import BUCKETS, DSM, ROWS, USM, Meter

from .fabric import Fabric, monitor_dsm, monitor_usm
from .frames import Flow, frame, shimmed

W = BUCKETS


def random_flows(rng: np.random.Generator, n: int) -> list[Flow]:
    src = 0x0A000000 | rng.integers(0, 1 << 24, n)
    dst = 0x0A010000 | rng.integers(0, 1 << 16, n)  # another pod
    port = rng.integers(1024, 65536, (n, 2))
    flows = {
        Flow(int(s), int(d), int(p), int(q), 6) for s, d, (p, q) in zip(src, dst, port, strict=True)
    }
    return sorted(flows, key=lambda flow: flow.id)


def clean_rows(switch: Switch, meter: Meter, flows: list[Flow]) -> npt.NDArray[np.bool_]:
    """Run one packet of each flow; bool[F, 3]: its bucket in this row is clean. Clears."""
    frames = [frame(flow) if meter == USM else shimmed(frame(flow), 1, 1) for flow in flows]
    offsets = np.cumsum([0] + [len(data) for data in frames]).astype(np.uint64)
    data = np.frombuffer(b"".join(frames), np.uint8)
    switch.process_batch(np.full(len(flows), 1, np.uint16), data, offsets)
    clean = np.empty((len(flows), ROWS), np.bool_)
    ids = np.array([flow.id & (1 << USM.half_bits) - 1 for flow in flows], np.uint64)
    for row in range(ROWS):
        fields = meter.rows[row]
        at = [flow.bucket(row) for flow in flows]
        count = switch.register(fields["count"])
        assert int(count.sum()) == len(flows)
        clean[:, row] = switch.register(fields["dirty"])[at] == 0
        # A clean bucket is this flow's own, with its one packet.
        own = switch.register(fields["flow_lo"])[at] == ids
        assert (own & (count[at] == 1))[clean[:, row]].all()
        for name in fields.values():
            switch.register(name)[:] = 0
    return clean


@cache
def measure(program: Program, meter: Meter, n: int, trials: int) -> npt.NDArray[np.bool_]:
    """Clean buckets of n random flows, many times over: bool[trials, n, 3]."""
    fabric = Fabric(program)
    switch = fabric.switches[0]
    rng = np.random.default_rng([n, trials])
    out = np.empty((trials, n, ROWS), np.bool_)
    for trial in range(trials):
        flows = random_flows(rng, n)
        assert len(flows) == n
        table = switch.table(meter.rules)
        table.clear()
        for flow in flows:
            if meter == USM:
                monitor_usm(switch, flow.id)
            else:
                monitor_dsm(switch, flow.id, 1)
        out[trial] = clean_rows(switch, meter, flows)
    return out


def theorem2(n: int) -> float:
    return 1 - (1 - math.exp(-(n - 1) / W)) ** ROWS


@pytest.mark.parametrize(
    ("meter", "n", "trials"),
    [(USM, 50, 400), (USM, 200, 100), (USM, 400, 50), (DSM, 400, 50)],
)
def test_flows_have_a_clean_bucket_as_often_as_theorem_2_says(
    program: Program, meter: Meter, n: int, trials: int
) -> None:
    clean = measure(program, meter, n, trials)
    # One row: flows that collide do so in pairs, so the error comes from the trials' own spread.
    per_row = clean.mean(axis=1).mean(axis=1)
    error = per_row.std(ddof=1) / math.sqrt(trials)
    assert abs(per_row.mean() - math.exp(-(n - 1) / W)) < 4 * error
    # All rows: P_clean, in flows without any clean bucket (a Poisson count when they are rare).
    lost = (~clean.any(axis=2)).sum(axis=1)
    expected = n * trials * (1 - theorem2(n))
    error = max(lost.std(ddof=1) * math.sqrt(trials), math.sqrt(expected))
    assert abs(lost.sum() - expected) < 4 * error + 1
    # A meter whose rows collide together would lose that many.
    assert lost.sum() < 0.3 * n * trials * (1 - math.exp(-(n - 1) / W))


def test_rows_collide_independently_of_each_other(program: Program) -> None:
    collided = ~measure(program, USM, 400, 50).reshape(-1, ROWS)
    rate = collided.mean(axis=0)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        both = (collided[:, a] & collided[:, b]).mean()
        assert both == pytest.approx(rate[a] * rate[b], rel=0.1)
    assert collided.all(axis=1).mean() == pytest.approx(rate.prod(), rel=0.2)


def test_flows_that_share_a_bucket_in_one_row_do_not_share_it_in_another() -> None:
    flows = random_flows(np.random.default_rng(5), 4000)
    place = np.array([[flow.bucket(row) for row in range(ROWS)] for flow in flows])
    same = [np.equal.outer(row, row) for row in place.T.astype(np.int16)]  # each pair twice
    for each in same:
        np.fill_diagonal(each, False)
    pairs = math.comb(len(flows), 2)
    meet = np.array([each.sum() // 2 for each in same])
    assert meet == pytest.approx(np.full(ROWS, pairs / W), rel=0.05)
    # Two rows at once: pairs / w^2 = 7.6, a CRC with another seed per row would give 7,800.
    at_once = sum((same[a] & same[b]).sum() // 2 for a, b in combinations(range(ROWS), 2))
    assert at_once < 3 * pairs / W**2 * ROWS
