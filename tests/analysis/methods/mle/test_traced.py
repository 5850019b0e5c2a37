# SPDX-License-Identifier: Apache-2.0
"""Flows that are known as they lost packets: the others are put back, and rates are right."""

import numpy as np
import pytest

from analysis.methods.mle.hidden import GIVEN, HiddenFlows
from analysis.methods.mle.mle import Mle
from analysis.methods.mle.problem import Observed, Units, observe
from analysis.methods.mle.traced import PathRates, Traces, unreported, whole
from analysis.telemetry.telemetry import Flows, Telemetry
from testbed.fabric.paths import Paths, PathSets
from tests.analysis.methods.mle.drawn import K4, drawn_flows

PATHS = [[4, a, b] for a in (0, 1) for b in (2, 3)]


def test_the_flows_that_are_missing_are_put_back():
    """With the true rates, reports give back the packets of the flows that lost none."""
    hidden = HiddenFlows(
        set_ptr=np.array([0, 4]),
        path_ptr=np.arange(5, dtype=np.int32) * 3,
        units=np.array(PATHS, np.int32).reshape(-1),
        many=np.ones(4, np.float32),
        flow_ptr=np.array([0, 1]),
        arrived=np.array([50.0]),
        lost=np.array([GIVEN]),
        times=np.array([7.0]),
        hops=np.array([3.0]),
    )
    x, mean = np.array([0.02, 0, 0, 0.01, 0]), 1e-3
    nowhere, silence = np.full(5, -1, np.int32), np.zeros(5)
    paths = PathRates.of(hidden, nowhere, silence, x)
    arrived, turned, crossed = unreported(paths, nowhere, mean, 5)
    rate = np.array([x[path].sum() for path in PATHS]) + 3 * mean
    near, last = (np.exp([-x[path[:n]].sum() for path in PATHS]) for n in (2, 3))
    traced = near * (1 - (1 - near) * (1 - last))
    divisor = (traced * -np.expm1(-50 * rate)).sum()
    want = np.zeros(5)
    for path, share in zip(PATHS, traced * np.exp(-50 * rate) / divisor, strict=True):
        want[path] += 7 * 50 * share
    assert arrived == pytest.approx(want)
    assert paths.divisors(mean) == pytest.approx(7 * np.log(divisor))
    assert turned.sum() == pytest.approx(7)
    assert crossed[4] == pytest.approx(7)


def reports(loss, seed, n=60_000):
    """Flows between ToRs of K=4 that lost packets, with the path of each."""
    src, dst, taken, sent, lost = drawn_flows(loss, seed, n)
    row = np.flatnonzero(lost)
    flows = Flows.of(
        K4,
        src[row],
        dst[row],
        np.ones(len(row), np.bool_),
        PathSets.known(taken.take(row)),
        sent[row],
        lost[row],
    )
    return Mle(kinds="A2").localize(Telemetry(K4, "tor+core", flows=flows))


@pytest.mark.parametrize("seed", range(2))
def test_links_are_found_with_their_rates(seed):
    rng = np.random.default_rng(seed)
    loss = rng.uniform(0, 1e-4, K4.n_links)
    faulty = np.sort(rng.choice(K4.n_links, 4, replace=False))
    loss[faulty] = 10 ** rng.uniform(-2.3, -1, 4)
    found = reports(loss, seed)
    assert found.flagged.tolist() == faulty.tolist()
    assert found.success is not None
    assert 1 - found.success[faulty] == pytest.approx(loss[faulty], rel=0.3)


def test_a_device_is_named():
    loss = np.full(K4.n_links, 5e-5)
    device = K4.switch_names.index("core0")
    own = np.flatnonzero((K4.link_src == device) | (K4.link_dst == device))
    loss[own] = np.geomspace(0.005, 0.3, len(own))
    found = reports(loss, 3)
    assert found.flagged.tolist() == own.tolist()
    assert found.devices.tolist() == [device]


@pytest.mark.parametrize("name", ["agg2_0->core0", "agg2_0->tor2_1"])
def test_one_link_is_blamed_and_not_all_that_its_flows_came_from_or_went_on_to(name):
    """Reports say nothing of flows that lost none: what one link loses three others might lose."""
    loss = np.zeros(K4.n_links)
    faulty = np.sort([K4.link(name), K4.link("agg1_0->tor1_1"), K4.link("core1->agg2_0")])
    loss[faulty] = 0.9
    loss[K4.link(name)] = 0.11
    assert reports(loss, 5).flagged.tolist() == faulty.tolist()


def traces_of(path, times=1):
    """Traces of a path of units, of which each even one's other direction is the next."""
    paths = Paths.from_padded(np.tile(path, (times, 1)))
    one = np.ones(times)
    units = Units.of(np.arange(1, 9, dtype=np.uint64))
    return Traces(
        observe([Observed(paths, one, one)], units),
        units.other_direction(),
        np.arange(8, dtype=np.int32),
    )


@pytest.mark.parametrize("lossy", range(8))
def test_a_trace_is_whole_by_where_the_path_turns_and_one_of_the_last_two(lossy):
    """Over links 0, 2, 4, 6; 1, 3, 5, 7 are their other directions."""
    x, kept = np.zeros(8), 0.25
    x[lossy] = -np.log(kept)
    chance = 1.0 if lossy >= 6 else kept
    if lossy < 4:  # then each of the last two crosses it, too
        chance *= 1 - (1 - kept) ** 2
    if lossy in (4, 5):
        chance = 1 - (1 - kept) ** 2
    traces = traces_of([0, 2, 4, 6], times=3)
    assert whole(traces, np.zeros(8), x) == pytest.approx(3 * np.log(chance))


def test_switches_that_many_traces_ask_answer_a_smaller_share():
    traces = traces_of([0, 2, 4, 6], times=9)
    expected = np.zeros(8)
    expected[2] = 19.0
    silence = traces.answered(np.zeros(8), expected)
    assert silence[2] == pytest.approx(np.log(2))
    assert not np.delete(silence, 2).any()


def test_reports_are_missing_where_fewer_crossed_a_link_than_were_expected():
    traces = traces_of([0, 2, 4, 6], times=2)
    missing = traces.missing(np.full(8, 4.0))
    assert missing.tolist() == [0.5, 0.5, 0.5, 0.5, 0.5, 2.0, 0.5, 2.0]
