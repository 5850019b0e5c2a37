# SPDX-License-Identifier: Apache-2.0
"""007: the paper's figure 15, vote adjustment, partial traces, causes and noise."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.evaluation.metrics import score
from analysis.methods.vigil.vigil import Ballot, Vigil, ballot
from analysis.telemetry.telemetry import Connections, Telemetry
from testbed.fabric.clos import leaf_spine
from testbed.fabric.ecmp_probabilities import EcmpProbabilities
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from tests.present import present

TOPOLOGY = FatTree(4)
ECMP = EcmpProbabilities(TOPOLOGY)


def connections(src, dst, rows, lost=None, complete=None):
    n = len(rows)
    return Connections(
        np.array(src, np.int32),
        np.array(dst, np.int32),
        np.ones(n, np.int64) if lost is None else np.array(lost, np.int64),
        Paths.from_padded(np.array(rows, np.int32).reshape(n, -1)),
        np.ones(n, np.bool_) if complete is None else np.array(complete, np.bool_),
        15 * n,
    )


def test_figure_15():
    """Node 4 is the switch in the middle; link 2-4 drops; flows 1-2 and 3-2 suffer, 1-3 does not.

    Nodes 1, 2, 3 are ToRs of three pods, node 4 a core switch; the paper's links 1-4, 4-2, 3-4 are
    the two-hop ways between ToR and core.
    """
    name = TOPOLOGY.link
    to_2 = [name("core0->agg1_0"), name("agg1_0->tor1_0")]
    one = [name("tor0_0->agg0_0"), name("agg0_0->core0")]
    three = [name("tor2_0->agg2_0"), name("agg2_0->core0")]
    src = [TOPOLOGY.tor(0, 0), TOPOLOGY.tor(2, 0)]
    dst = [TOPOLOGY.tor(1, 0)] * 2
    part = connections(src, dst, [one + to_2, three + to_2], lost=[5, 5])
    result = Vigil().localize(Telemetry(TOPOLOGY, "tor+core", connections=part))
    tally = ballot(part, ECMP).tally(TOPOLOGY.n_links)
    assert set(np.flatnonzero(tally == tally.max())) == set(to_2)
    assert tally[to_2] == pytest.approx([0.5, 0.5])
    assert tally[one + three] == pytest.approx([0.25] * 4)
    assert result.score.argmax() in to_2 and result.score.max() == pytest.approx(0.5)
    assert set(present(result.connection_cause).tolist()) <= {-1, *to_2}
    best = Vigil(threshold=0.25).decide(Telemetry(TOPOLOGY, "tor+core", connections=part))
    assert len(best.flagged) == 1 and best.flagged[0] in to_2


def test_adjustment_stops_at_the_one_bad_link():
    """Connections spread as ECMP does leave nothing to blame once their link is taken out."""
    rng = np.random.default_rng(0)
    topology = FatTree(8)
    bad = topology.link("tor1_2->agg1_0")
    src = np.full(2000, topology.tor(1, 2), np.int32)
    dst = rng.integers(0, topology.n_tors - 1, 2000).astype(np.int32)
    dst += dst >= src
    sets = topology.path_sets(src, dst)
    through = (sets.paths.padded() == bad).any(axis=1)
    chosen = [rng.choice(np.flatnonzero(through[a:b])) + a for a, b in pairwise(sets.ptr)]
    rows = sets.paths.padded()[chosen]
    telemetry = Telemetry(topology, "tor+core", connections=connections(src, dst, rows))
    assert Vigil(threshold=0.01).localize(telemetry).flagged.tolist() == [bad]
    assert len(Vigil(adjust=False, threshold=2 / topology.n_links).localize(telemetry).flagged) > 1


def shares_of_votes(votes: Ballot) -> np.ndarray:
    """The part of its connection's vote that each entry gives its link."""
    return votes.share / votes.links[votes.voter]


def test_partial_traces_vote_as_far_as_the_topology_implies():
    name = TOPOLOGY.link
    src, dst = TOPOLOGY.tor(0, 0), TOPOLOGY.tor(1, 0)
    up = [name("tor0_0->agg0_0"), name("agg0_0->core1")]
    # Past the core only one way is left.
    votes = ballot(connections([src], [dst], [[*up, -1]], complete=[False]), ECMP)
    assert sorted(votes.link) == sorted([*up, name("core1->agg1_0"), name("agg1_0->tor1_0")])
    assert votes.share.tolist() == [1.0] * 4
    assert shares_of_votes(votes).sum() == pytest.approx(1) and set(shares_of_votes(votes)) == {
        0.25
    }

    votes = ballot(connections([src], [dst], [[up[0], -1]], complete=[False]), ECMP)
    assert shares_of_votes(votes).sum() == pytest.approx(1)
    by_link = dict(zip(votes.link.tolist(), shares_of_votes(votes).tolist(), strict=True))
    assert by_link[up[0]] == pytest.approx(0.25)
    assert by_link[up[1]] == pytest.approx(0.125)


def test_untraced_and_unlikely_connections():
    nothing = connections([0], [5], [[-1, -1]], complete=[False])
    assert shares_of_votes(ballot(nothing, ECMP)).sum() == pytest.approx(1)
    # A trace that fits no ECMP path, and a connection within a rack, cast no vote.
    odd = connections([0, 0], [5, 0], [[40, 41], [-1, -1]], complete=[False, True])
    assert len(ballot(odd, ECMP).link) == 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), partial=st.floats(0, 1))
def test_one_connection_one_vote(synthetic, seed, partial):
    """Whatever the traces, each connection that lost packets casts one vote, and no other does."""
    world = synthetic.make_world(k=4, seed=seed, flows=200, partial=partial, probes=False)
    part = world.telemetry.connections
    votes = ballot(part, ECMP)
    cast = np.bincount(votes.voter, shares_of_votes(votes), len(part))
    assert cast == pytest.approx(((part.lost > 0) & (part.src_tor != part.dst_tor)).astype(float))
    assert votes.tally(TOPOLOGY.n_links).sum() == pytest.approx(cast.sum())


def test_lone_drops_are_noise(synthetic):
    world = synthetic.make_world(k=4, seed=1, share=0.02, noise=2e-5, flows=6000, probes=False)
    result = Vigil(threshold=4 / 64).localize(world.telemetry)
    assert result.flagged.tolist() == world.faulty.tolist()
    assert (result.connection_cause == -1).any()
    assert set(present(result.connection_cause).tolist()) == {-1, int(world.faulty[0])}


@pytest.mark.parametrize("name", ["fat-tree", "leaf-spine"])
def test_lone_drops_that_meet_accuse_nobody(name):
    """Epochs of noise: some connections lose a packet each, anywhere, and some share links."""
    topology = {"fat-tree": FatTree(8), "leaf-spine": leaf_spine(8, 4)}[name]
    rng = np.random.default_rng(0)
    floored, papers, by_rule = [], [], []
    for lost in list(range(2, 42)) * 4:
        src = rng.integers(0, topology.n_tors, lost).astype(np.int32)
        dst = (src + rng.integers(1, topology.n_tors, lost).astype(np.int32)) % topology.n_tors
        sets = topology.path_sets(src, dst)
        chosen = sets.ptr[:-1] + rng.integers(0, sets.width)
        part = connections(src, dst, sets.paths.take(chosen).padded())
        telemetry = Telemetry(topology, "tor+core", connections=part)
        floored.append(len(Vigil(false_alarm=0.01).localize(telemetry).flagged))
        papers.append(len(Vigil(threshold=0.01).localize(telemetry).flagged))
        by_rule.append(len(Vigil().localize(telemetry).flagged))
    assert np.mean(floored) < 0.05  # false_alarm is 0.01
    assert np.mean(papers) > 1 and np.mean(by_rule) < 0.1


def test_many_lone_drops_on_one_link_are_a_failure():
    """The same number of connections, a packet each, but over one link."""
    link = TOPOLOGY.link("agg0_0->core1")
    src = np.repeat(np.int32(TOPOLOGY.tor(0, 0)), 12)
    dst = np.arange(12, dtype=np.int32) % 6 + TOPOLOGY.tor(1, 0)
    sets = TOPOLOGY.path_sets(src, dst)
    every = (sets[i].padded() for i in range(12))
    rows = np.array([paths[(paths == link).any(axis=1)][0] for paths in every])
    result = Vigil().localize(
        Telemetry(TOPOLOGY, "tor+core", connections=connections(src, dst, rows))
    )
    assert len(result.flagged) >= 1
    assert (present(result.connection_cause) >= 0).all()


@pytest.mark.parametrize(("k", "flows", "seeds", "least"), [(4, 1000, 8, 0.8), (8, 8000, 2, 0.8)])
def test_accuracy(synthetic, k, flows, seeds, least):
    f1 = []
    for seed in range(seeds):
        world = synthetic.make_world(k=k, seed=seed, packets=1, epochs=1, flows=flows, partial=0.1)
        method = Vigil(threshold=1 / world.topology.n_links, chance=0.5)
        flagged = method.localize(world.telemetry).flagged
        f1.append(score(flagged, world.faulty, world.topology)["directed"].f1)
    assert np.mean(f1) >= least
