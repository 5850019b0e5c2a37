"""007: the paper's figure 15, vote adjustment, partial traces, causes and noise."""

import numpy as np
import pytest

from analysis.ecmp import continuations, shared_votes
from analysis.metrics import score
from analysis.telemetry import Connections, Telemetry
from analysis.vigil import Vigil, ballot
from testbed.topology import FatTree, Paths

TOPOLOGY = FatTree(4)


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
    part = connections(src, dst, [one + to_2, three + to_2])
    result = Vigil().localize(Telemetry(TOPOLOGY, "tor+core", connections=part))
    assert set(np.flatnonzero(result.score == result.score.max())) == set(to_2)
    assert result.score[to_2] == pytest.approx([0.5, 0.5])
    assert result.score[one + three] == pytest.approx([0.25] * 4)
    assert set(result.connection_cause.tolist()) <= set(to_2)
    assert len(result.flagged) == 1 and result.flagged[0] in to_2


@pytest.mark.parametrize("link", ["tor0_0->agg0_1", "agg0_1->core2", "core2->agg0_1"])
def test_shared_votes_against_simulation(link):
    """The closed form is what uniform connections over uniform paths give."""
    link = TOPOLOGY.link(link)
    votes = np.zeros(TOPOLOGY.n_links)
    for src in range(TOPOLOGY.n_tors):
        for dst in range(TOPOLOGY.n_tors):
            if src == dst:
                continue
            paths = TOPOLOGY.ecmp_paths(np.array([src]), np.array([dst]))[0]
            paths = [p[p >= 0] for p in paths if p[0] >= 0]
            for path in paths:
                if link in path:
                    votes[path] += 1 / len(paths) / len(path)
    assert shared_votes(TOPOLOGY, link) == pytest.approx(votes / votes[link])


def test_adjustment_stops_at_the_one_bad_link():
    """Connections spread as ECMP does leave nothing to blame once their link is taken out."""
    rng = np.random.default_rng(0)
    topology = FatTree(8)
    bad = topology.link("tor1_2->agg1_0")
    src = np.full(2000, topology.tor(1, 2), np.int32)
    dst = rng.integers(0, topology.n_tors - 1, 2000).astype(np.int32)
    dst += dst >= src
    paths = topology.ecmp_paths(src, dst)
    through = (paths == bad).any(axis=2)
    chosen = np.array([rng.choice(np.flatnonzero(t)) for t in through])
    rows = paths[np.arange(2000), chosen]
    telemetry = Telemetry(topology, "tor+core", connections=connections(src, dst, rows))
    assert Vigil().localize(telemetry).flagged.tolist() == [bad]
    assert len(Vigil(adjust=False, relative_threshold=2).localize(telemetry).flagged) > 1


def test_partial_traces_vote_as_far_as_the_topology_implies():
    name = TOPOLOGY.link
    src, dst = TOPOLOGY.tor(0, 0), TOPOLOGY.tor(1, 0)
    up = [name("tor0_0->agg0_0"), name("agg0_0->core1")]
    links, chance = continuations(TOPOLOGY, src, dst, np.array(up, np.int32))
    # Past the core only one way is left.
    assert sorted(links) == sorted([*up, name("core1->agg1_0"), name("agg1_0->tor1_0")])
    assert chance.tolist() == [1.0] * 4
    part = connections([src], [dst], [[*up, -1]], complete=[False])
    votes = ballot(part, TOPOLOGY)
    assert votes.vote.sum() == pytest.approx(1) and set(votes.vote) == {0.25}

    first = connections([src], [dst], [[up[0], -1]], complete=[False])
    votes = ballot(first, TOPOLOGY)
    assert votes.vote.sum() == pytest.approx(1)
    by_link = dict(zip(votes.link.tolist(), votes.vote.tolist(), strict=True))
    assert by_link[up[0]] == pytest.approx(0.25)
    assert by_link[up[1]] == pytest.approx(0.125)
    # With all weight on the break, only the two links that may have been next are accused.
    votes = ballot(first, TOPOLOGY, break_weight=1.0)
    accused = votes.link[votes.vote > 0].tolist()
    assert accused == sorted([up[1], name("agg0_0->core0")])


def test_untraced_and_unlikely_connections():
    nothing = connections([0], [5], [[-1, -1]], complete=[False])
    votes = ballot(nothing, TOPOLOGY)
    assert votes.vote.sum() == pytest.approx(1)
    # A trace that fits no ECMP path, and a connection within a rack, cast no vote.
    odd = connections([0, 0], [5, 0], [[40, 41], [-1, -1]], complete=[False, True])
    assert len(ballot(odd, TOPOLOGY).vote) == 0


def test_lone_drops_are_noise(synthetic):
    world = synthetic.make_world(k=4, seed=1, share=0.02, noise=2e-5, flows=6000, probes=False)
    result = Vigil(relative_threshold=4).localize(world.telemetry)
    assert result.flagged.tolist() == world.faulty.tolist()
    assert (result.connection_cause == -1).any()
    assert set(result.connection_cause.tolist()) == {-1, int(world.faulty[0])}


@pytest.mark.parametrize(("k", "flows", "seeds", "least"), [(4, 1000, 8, 0.8), (8, 8000, 2, 0.8)])
def test_accuracy(synthetic, k, flows, seeds, least):
    f1 = []
    for seed in range(seeds):
        world = synthetic.make_world(k=k, seed=seed, packets=1, epochs=1, flows=flows, partial=0.1)
        flagged = Vigil().localize(world.telemetry).flagged
        f1.append(score(flagged, world.faulty, world.topology)["directed"].f1)
    assert np.mean(f1) >= least
