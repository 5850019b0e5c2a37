# SPDX-License-Identifier: Apache-2.0
"""Canary's meters and HashPipe at any size."""

from __future__ import annotations

import numpy as np
import pytest

from scenarios.papers.sketches.hashpipe import HashPipe
from scenarios.papers.sketches.meters import FlowMeter, minus
from scenarios.papers.sketches.sizing import clean_share
from testbed.measurements.sketches.hashing import buckets, flow_ids


def places(n, rows, width, seed):
    return buckets(*flow_ids(n, np.random.default_rng(seed)), rows, width, seed)


@pytest.mark.parametrize("width", [44, 447, 1024])
def test_flows_have_a_clean_bucket_as_often_as_theorem_2_says(width):
    n, share = width // 2, []
    for seed in range(200):
        meter = FlowMeter(places(n, 3, width, seed), width)
        meter.add(np.arange(n), np.ones(n, np.int64))
        share.append(meter.read()[1].mean())
    error = np.std(share, ddof=1) / np.sqrt(200)
    assert abs(np.mean(share) - clean_share(n - 1, width)) < 4 * error + 0.002


def test_clean_buckets_tell_losses_exactly():
    rng = np.random.default_rng(1)
    for seed in range(50):
        n, width = 30, 40
        at = places(n, 3, width, seed)
        sent = rng.integers(1, 50, n)
        lost = np.where(rng.random(n) < 0.2, sent, rng.binomial(sent, 0.1))
        up, down = FlowMeter(at, width), FlowMeter(at, width)
        order = rng.permutation(n)  # of first packets, which need not be that of the arrivals
        up.add(order, sent[order])
        down.add(np.arange(n), sent - lost)
        counted, missing, known = minus(up, down)
        assert known.mean() > 0.6
        assert np.array_equal(counted[known], sent[known])
        assert np.array_equal(missing[known], lost[known])
        assert not counted[~known].any() and not missing[~known].any()


def test_a_bucket_is_its_first_flows_and_counts_all():
    meter = FlowMeter(np.zeros((2, 1), np.int32), 1)
    meter.add(np.array([1, 0, 1]), np.array([2, 3, 4]))
    assert meter.owner[0, 0] == 1 and meter.dirty[0, 0] and meter.count[0, 0] == 9
    assert not meter.read()[1].any()


class Published:
    """Algorithm 1 of "Heavy-Hitter Detection Entirely in the Data Plane" (SOSR 2017), plainly."""

    def __init__(self, places, stages) -> None:
        self.places, self.stages = places, [{} for _ in range(stages)]

    def insert(self, key):
        """Return what all stages hold of the flow, or 1 if it was not in the first."""
        first, at = self.stages[0], int(self.places[key, 0])
        held = first.get(at)
        if held is not None and held[0] == key:
            first[at] = (key, held[1] + 1)
            own = [s.get(int(self.places[key, n])) for n, s in enumerate(self.stages)]
            return sum(entry[1] for entry in own if entry is not None and entry[0] == key)
        first[at] = (key, 1)  # always insert
        carried = held
        for number, stage in enumerate(self.stages[1:], 1):
            if carried is None:
                break
            at = int(self.places[carried[0], number])
            held = stage.get(at)
            if held is None:
                stage[at] = carried
                break
            if held[0] == carried[0]:
                stage[at] = (held[0], held[1] + carried[1])
                break
            if held[1] < carried[1]:  # keep the larger, carry the smaller on
                stage[at], carried = carried, held
        return 1


@pytest.mark.parametrize(("stages", "entries"), [(1, 4), (3, 32), (6, 56)])
def test_hashpipe_is_the_published_algorithm(stages, entries):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        at = places(300, stages, entries, seed)
        sequence = np.minimum(rng.geometric(0.02, 3000) - 1, 299)
        pipe, plain = HashPipe(at, entries), Published(at, stages)
        learned = pipe.add(sequence)
        assert learned.tolist() == [plain.insert(int(flow)) for flow in sequence]
        for number, stage in enumerate(plain.stages):
            held = np.flatnonzero(pipe.flow[number] >= 0)
            got = {int(i): (int(pipe.flow[number, i]), int(pipe.count[number, i])) for i in held}
            assert got == stage
        total = np.zeros(300, np.int64)
        for stage in plain.stages:
            for flow, packets in stage.values():
                total[flow] += packets
        assert np.array_equal(pipe.read(), total)
        pipe.clear()
        assert not pipe.read().any()


def test_sizes_are_those_of_section_iv_f():
    """176 entries and 6 stages are what 3 x 256 DSM buckets and the small HashPipe take."""
    assert HashPipe(places(1, 3, 32, 0), 32).bytes == 1632
    assert HashPipe(places(1, 6, 56, 0), 56).bytes == 5712
    assert HashPipe(places(1, 6, 176, 0), 176).bytes == 17_952
