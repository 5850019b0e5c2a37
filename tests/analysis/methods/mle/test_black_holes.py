# SPDX-License-Identifier: Apache-2.0
"""Flows that die whole, each one trial; and losses that come in flows, not packet by packet."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.methods.mle.black_holes import as_trials, correlated, die_whole, possible_paths
from analysis.methods.mle.mle import Mle
from analysis.methods.mle.problem import Observed, Units, marks, observe
from analysis.methods.mle.search import explain, penalty_of, suspects
from analysis.telemetry.telemetry import Connections, Flows, Probes, Telemetry
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths, PathSets
from tests.analysis.methods.mle.drawn import K4, drawn_flows
from tests.present import present

HOLES = [K4.link("agg3_1->core3"), K4.link("agg1_0->tor1_0")]
NONE = Paths(np.zeros(1, np.int64), np.zeros(0, np.int32))


def observed(seed, share=0.25, n=6000):
    """Flows of hidden paths, probes that saw no hole, and traces that end where flows died."""
    rng = np.random.default_rng(seed)
    src, dst, paths, sent, _ = drawn_flows(np.zeros(K4.n_links), seed, n)
    over = [paths.owner[paths.links == hole] for hole in HOLES]
    died = np.zeros(n, np.bool_)
    died[np.concatenate(over)] = True
    died &= rng.random(n) < share
    row = np.flatnonzero(died)
    taken = [paths[f] for f in row.tolist()]
    ends = np.array([np.flatnonzero(np.isin(links, HOLES))[0] for links in taken])
    seen = [links[:end] for links, end in zip(taken, ends, strict=True)]
    links = np.concatenate([np.zeros(0, np.int32), *seen])
    traced = Paths(np.cumsum([0, *ends]), links.astype(np.int32))
    lost = sent * died
    connections = Connections(
        src[row], dst[row], lost[row], traced, np.zeros(len(row), np.bool_), traceroute_packets=0
    )
    own = np.zeros(n, np.bool_)
    flows = Flows.of(K4, src, dst, own, PathSets.known(NONE), sent, lost)
    bounces = Ecmp(K4).bounces()
    many = np.full(len(bounces), 100)
    probes = Probes(bounces, many, np.zeros(len(bounces), np.int64))
    return Telemetry(K4, "tor+core", flows=flows, probes=probes, connections=connections)


@pytest.mark.parametrize("seed", range(3))
def test_holes_are_found_by_where_traces_broke_off(seed):
    """No trace got through, and no probe was lost: without the broken traces, the plane of the
    first hole is anyone's guess."""
    result = Mle(kinds="A1+A2+P").localize(observed(seed))
    tie = [K4.link("agg3_1->core2"), K4.link("agg3_1->core3")]  # the same to every trace
    assert HOLES[1] in result.flagged
    assert len(result.flagged) == 2 and np.isin(result.flagged, tie).sum() == 1
    assert result.remarks and "some flows lose every packet" in result.remarks[0]


@pytest.mark.parametrize("seed", range(2))
def test_flows_alone_blame_ties_and_nothing_else(seed):
    result = Mle(kinds="P").localize(observed(seed))
    assert np.isin(HOLES, result.flagged).all()
    names = {K4.link_names[link].split("->")[0] for link in result.flagged}
    assert names == {"agg3_0", "agg3_1", "agg1_0", "agg1_1"} and len(result.flagged) == 6


def test_traces_alone_find_what_they_tell_apart():
    result = Mle(kinds="A2").localize(a2_of(observed(1)))
    assert HOLES[0] in result.flagged
    assert set(result.flagged) <= {K4.link("agg3_1->core2"), *HOLES}


def a2_of(seen):
    """Of flow records only those whose trace is complete: here none."""
    none = np.zeros(0, np.int64)
    end = np.zeros(0, np.int32)
    flows = Flows.of(K4, end, end, none > 0, PathSets.known(NONE), none, none)
    return Telemetry(K4, "tor+core", flows=flows, connections=seen.connections)


def test_lone_packets_are_no_dead_flows():
    """A lossy link: flows lose some of their packets, and are read packet by packet."""
    loss = np.zeros(K4.n_links)
    loss[HOLES] = 0.05
    src, dst, _, sent, lost = drawn_flows(loss, 1, 4000)
    own = np.zeros(len(sent), np.bool_)
    flows = Flows.of(K4, src, dst, own, PathSets.known(NONE), sent, lost)
    assert not die_whole(flows, None)
    assert die_whole(present(observed(1).flows), None)


def test_a_trial_is_lost_if_most_of_its_packets_are():
    src, dst = np.zeros(4, np.int32), np.full(4, 5, np.int32)
    sent, lost = np.array([10, 10, 3, 0]), np.array([10, 5, 2, 0])
    flows = Flows.of(K4, src, dst, np.zeros(4, np.bool_), PathSets.known(NONE), sent, lost)
    trials = as_trials(flows, None)
    assert trials.sent.tolist() == [1, 1, 1, 0] and trials.lost.tolist() == [1, 0, 1, 0]


def test_the_paths_that_begin_with_a_trace():
    up = [K4.link("tor0_0->agg0_1"), K4.link("agg0_1->core2")]
    cases = [[], up[:1], up, [K4.link("tor3_0->agg3_0")]]  # the last is no beginning of any
    ptr = np.cumsum([0, *map(len, cases)])
    links = np.array([link for case in cases for link in case], np.int32)
    ends = np.zeros(4, np.int32), np.full(4, 5, np.int32)
    lost = np.ones(4, np.int64)
    traced = Connections(*ends, lost, Paths(ptr, links), np.zeros(4, np.bool_), 0)
    sets = possible_paths(K4, traced)
    assert sets.width.tolist() == [4, 2, 1, 4]
    assert sets[2][0][:2].tolist() == up


K4 = FatTree(4)
HOLE = K4.link("agg1_0->core1")


def flow_records(seed, share, whole):
    """Flows over known paths; of those over the hole ``share`` die whole, or lose that share."""
    rng = np.random.default_rng(seed)
    n = 6000
    src = rng.integers(0, K4.n_tors, n).astype(np.int32)
    dst = ((src + rng.integers(1, K4.n_tors, n)) % K4.n_tors).astype(np.int32)
    paths = Ecmp(K4).draw(src, dst, rng)
    sent = np.minimum((20 * (1 + rng.pareto(1.2, n))).astype(np.int64), 100_000)
    over = np.zeros(n, np.bool_)
    over[paths.owner[paths.links == HOLE]] = True
    died = over & (rng.random(n) < share)
    lost = sent * died if whole else rng.binomial(sent, np.where(over, share, 0.0))
    number = np.arange(n, dtype=np.int32)
    return Telemetry(K4, "tor+core", flows=Flows(PathSets.known(paths), number, sent, lost))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.02, 0.25])
def test_a_hole_is_found_and_said_to_be_one(seed, share):
    result = Mle(kinds="INT").localize(flow_records(seed, share, whole=True))
    assert result.flagged.tolist() == [HOLE]
    assert len(result.remarks) == 1
    assert result.remarks[0].endswith("black hole: agg1_0->core1")


def test_losses_of_packets_are_no_hole():
    result = Mle(kinds="INT").localize(flow_records(1, 0.25, whole=False))
    assert result.flagged.tolist() == [HOLE] and result.remarks == ()


@pytest.mark.parametrize("together", [0.0, 0.02, 0.2])
def test_the_correlation_is_estimated(together):
    """Beta-binomial losses of one link over many paths."""
    rng = np.random.default_rng(3)
    paths = Paths.from_padded(np.array([[0, 1 + nth] for nth in range(400)]))
    sent = rng.integers(100, 2000, 400)
    mean, size = 0.1, 1 / together - 1 if together else 0.0
    rate = rng.beta(mean * size, (1 - mean) * size, 400) if together else np.full(400, mean)
    lost = rng.binomial(sent, rate)
    part = Observed(paths, sent.astype(np.float64), lost.astype(np.float64))
    units = Units.of(marks([paths], 401))
    rows = observe([part], units)
    candidate = suspects(rows.lost_over(), rows.arrived, 1e-3)
    candidate[1:] = False
    penalty = penalty_of(401)
    found = explain(rows, units.size, candidate, fault_rate=1e-3, penalty=penalty)
    weighed = correlated([part], units, found)
    assert weighed.any == (together > 0)
    weight = weighed.parts[0].sent / part.sent
    assert weight == pytest.approx(1 / (1 + (sent - 1) * together), rel=0.35)
