# SPDX-License-Identifier: Apache-2.0
"""Flock on pairs of ToRs whose paths are not listed, the directions of links, and its rates."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.evaluation.metrics import score
from analysis.methods.flock import search as flock_search
from analysis.methods.flock.flock import Flock
from analysis.methods.flock.flow_values import Loss
from analysis.methods.flock.model import build_model
from analysis.methods.flock.search import Search
from analysis.telemetry.telemetry import Flows, Probes, Telemetry
from scenarios.papers.flock_network import World, lossy_links
from testbed.fabric.clos import clos, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets

NONE = PathSets(np.zeros(1, np.int64), Paths(np.zeros(1, np.int64), np.zeros(0, np.int32)))
LOSS = Loss(known=(0.003, 2e-4), hidden=(0.05, 1e-5))
FABRICS = {
    "fat-tree": FatTree(4),
    "leaf-spine": leaf_spine(5, 3),
    "one spine": leaf_spine(4, 1),
    "70 tops a plane": clos(3, 2, 2, 140),
    "irregular": FatTree(6).without([0, 9, 60]),
    "several climbs to a top": clos(2, 2, 2, 2, wiring="complete"),
    "some with several climbs": clos(3, 2, 2, 3, wiring="complete").without([1, 14, 20]),
}


def pair_flows(fabric, seed, n=80):
    rng = np.random.default_rng(seed)
    src, dst = (rng.integers(0, fabric.n_tors, n).astype(np.int32) for _ in range(2))
    sent = rng.integers(1, 200, 3 * n)
    lost = rng.binomial(sent, rng.choice([0, 0, 0.01, 0.3], 3 * n))
    path_set = rng.integers(0, n, 3 * n).astype(np.int32)
    return Flows(PairSets(fabric, src, dst, NONE), path_set, sent, lost)


def assert_pairs_are_listed_paths(fabric, flows, rng, undirected):
    make = {
        "probes": None,
        "loss": LOSS,
        "link_prior": -2.0,
        "device_prior": -5.0,
        "undirected": undirected,
    }
    models = [build_model(fabric, flows, **make, listed=listed) for listed in (False, True)]
    assert len(models[1].pairs.bad) == 0
    assert len(models[0].pairs.bad) and not len(models[0].listed.components)
    pairs, listed = (Search(model) for model in models)
    tolerance = 1e-9 * max(1.0, float(np.abs(listed.posterior_gain()).max()))
    for _ in range(25):
        gain = listed.posterior_gain()
        assert np.allclose(pairs.posterior_gain(), gain, rtol=0, atol=tolerance)
        component = int(rng.integers(0, len(gain)))
        pairs.flip(component)
        listed.flip(component)
    assert pairs.posterior() == pytest.approx(listed.posterior(), abs=100 * tolerance)


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("fabric", list(FABRICS.values()), ids=list(FABRICS))
def test_pairs_are_their_listed_paths(fabric, undirected):
    rng = np.random.default_rng(1)
    for seed in range(4):
        assert_pairs_are_listed_paths(fabric, pair_flows(fabric, seed), rng, undirected)


def test_many_pairs_that_miss_the_same_tops_are_their_listed_paths():
    fabric = leaf_spine(60, 2)  # more pairs a list than are added up together
    flows = pair_flows(fabric, 1, n=6000)
    assert_pairs_are_listed_paths(fabric, flows, np.random.default_rng(1), False)


def test_pairs_without_a_path_are_refused():
    fabric = leaf_spine(2, 1).without([0])
    one = np.array([5])
    src, dst = np.array([0], np.int32), np.array([1], np.int32)
    flows = Flows(PairSets(fabric, src, dst, NONE), np.zeros(1, np.int32), one, one)
    with pytest.raises(ValueError, match="no path"):
        Flock().localize(Telemetry(fabric, "tor", flows=flows))


# ---- what the telemetry cannot tell apart ----------------------------------------------------


def all_pairs(fabric, sent=100):
    src, dst = (a.ravel().astype(np.int32) for a in np.indices((fabric.n_tors, fabric.n_tors)))
    counts = np.full(len(src), sent, np.int64)
    path_set = np.arange(len(src), dtype=np.int32)
    return Flows(PairSets(fabric, src, dst, NONE), path_set, counts, np.zeros_like(counts))


def test_equivalence_classes_of_a_fat_tree():
    """Passive flows alone: the uplinks of a ToR are alike, those of a pod's aggregation layer, and
    the same downwards (section 7.6); leaving links out tells them apart."""
    topology = FatTree(8)
    flows = all_pairs(topology)
    result = Flock().localize(Telemetry(topology, "tor+core", flows=flows))
    assert result.equivalent is not None
    classes = result.equivalent
    assert len(np.unique(classes)) == 2 * topology.n_tors + 2 * topology.n_pods
    assert len({int(classes[topology.link(f"tor0_0->agg0_{i}")]) for i in range(4)}) == 1
    assert classes[topology.link("tor0_0->agg0_0")] != classes[topology.link("agg0_0->tor0_0")]
    cut = topology.without([0, 40, 81, 150, 201])
    irregular = Flock().localize(Telemetry(cut, "tor+core", flows=all_pairs(cut)))
    assert irregular.equivalent is not None
    assert len(np.unique(irregular.equivalent)) > 2 * len(np.unique(classes))


def test_asymmetry_finds_a_link_from_passive_flows_alone():
    rng = np.random.default_rng(4)
    topology = FatTree(6)
    cut = topology.without([0, 20, 70])
    link = cut.link("tor2_0->agg2_1")
    src, dst = (rng.integers(0, cut.n_tors, 8000).astype(np.int32) for _ in range(2))
    apart = src != dst
    src, dst = src[apart], dst[apart]
    sets = cut.path_sets(src, dst)
    path = sets.ptr[:-1] + rng.integers(0, sets.width)
    crosses = np.array([link in sets.paths[p] for p in path])
    sent = np.full(len(src), 200)
    lost = rng.binomial(sent, np.where(crosses, 0.05, 1e-5))
    nth = np.arange(len(src), dtype=np.int32)
    flows = Flows(PairSets(cut, src, dst, NONE), nth, sent, lost)
    result = Flock(refine=True, severe_p_bad=0.05).localize(Telemetry(cut, "tor+core", flows=flows))
    assert result.equivalent is not None
    assert result.flagged.tolist() == [link]
    assert (result.equivalent == result.equivalent[link]).sum() == 1


def test_all_of_a_tie_is_blamed():
    """Whichever uplink of a ToR loses packets, passive flows alone say: one of them."""
    rng = np.random.default_rng(5)
    topology = FatTree(4)
    uplinks = [topology.link(f"tor1_0->agg1_{i}") for i in range(2)]
    src, dst = (rng.integers(0, topology.n_tors, 6000).astype(np.int32) for _ in range(2))
    for link in uplinks:
        sets = topology.path_sets(src, dst)
        path = sets.ptr[:-1] + rng.integers(0, sets.width)
        crosses = np.array([link in sets.paths[p] for p in path])
        sent = np.full(len(src), 200)
        lost = rng.binomial(sent, np.where(crosses, 0.05, 1e-5))
        flows = Flows(
            PairSets(topology, src, dst, NONE), np.arange(6000, dtype=np.int32), sent, lost
        )
        result = Flock().localize(Telemetry(topology, "tor+core", flows=flows))
        assert result.flagged.tolist() == uplinks


def test_probes_alone_do_not_tell_the_directions_apart(synthetic):
    world = synthetic.make_world(k=4, seed=1, flows=10)
    result = Flock(inputs="probes").localize(world.telemetry)
    assert result.equivalent is not None
    assert (result.equivalent[::2] == result.equivalent[1::2]).all()


def seen(fabric, loss, seed, traced=False):
    """Probes that bounce, and flows of hidden path between any two ToRs, or of known path where
    they lost packets."""
    rng = np.random.default_rng(seed)
    bounces = Ecmp(fabric).bounces()

    def lost(paths, sent):
        padded = paths.padded()
        through = np.where(padded >= 0, 1 - loss[np.maximum(padded, 0)], 1.0).prod(axis=1)
        return rng.binomial(sent, 1 - through)

    sent = np.full(len(bounces), 2000)
    probes = Probes(bounces, sent, lost(bounces, sent))
    src, dst = (rng.integers(0, fabric.n_tors, 4000).astype(np.int32) for _ in range(2))
    sent = np.full(len(src), 300)
    sets = fabric.path_sets(src, dst)
    took = sets.paths.take(sets.ptr[:-1] + rng.integers(0, sets.width))
    missing = lost(took, sent)
    own = (missing > 0) & traced
    known = PathSets.known(took.take(np.flatnonzero(own)))
    flows = Flows.of(fabric, src, dst, own, known, sent, missing)
    assert isinstance(flows.sets, PairSets)
    return Telemetry(fabric, "tor+core", flows=flows, probes=probes)


@pytest.mark.parametrize("name", ["fat-tree", "several climbs to a top"])
def test_flows_tell_the_direction_of_links_that_probes_have_found(name, monkeypatch):
    monkeypatch.setattr(flock_search, "MANY_PAIRS", 0)
    fabric = FABRICS[name]
    for seed in range(4):
        rng = np.random.default_rng(seed)
        links = rng.choice(fabric.n_edges, 2, replace=False) * 2 + rng.integers(0, 2, 2)
        loss = np.full(fabric.n_links, 1e-5)
        loss[links] = 0.05
        found = Flock(devices=False, refine=True, conditional=True, severe_p_bad=0.05).localize(
            seen(fabric, loss, seed)
        )
        assert found.flagged.tolist() == sorted(links.tolist())


def test_many_failed_links_are_searched_for_by_what_tells_their_directions(monkeypatch):
    """Traces do, probes that bounce do not."""
    monkeypatch.setattr(flock_search, "MANY_TRIED", 0)
    fabric = FatTree(4)
    loss = np.full(fabric.n_links, 1e-5)
    loss[[3, 17]] = 0.05
    method = Flock(refine=True, conditional=True)
    assert method.localize(seen(fabric, loss, 1)).remarks == ()
    found = method.localize(seen(fabric, loss, 1, traced=True))
    assert found.flagged.tolist() == [3, 17]
    assert "components blamed: " in found.remarks[0]


@pytest.mark.parametrize("name", ["fat-tree", "several climbs to a top"])
def test_turning_links_is_as_flipping_them(name):
    fabric = FABRICS[name]
    rng = np.random.default_rng(1)
    loss = np.where(rng.random(fabric.n_links) < 0.2, 0.05, 1e-5)
    model = Flock().model(seen(fabric, loss, 1))
    start = np.arange(model.n_components) < model.n_links
    start &= rng.random(model.n_components) < 0.3
    search = Search(model, start)
    before = search.posterior()
    search.turn()
    assert search.posterior() > before
    gone = Search(model)
    gone.move_to(search.failed)
    scale = float(np.abs(gone.posterior_gain()).max())
    assert search.posterior() == pytest.approx(gone.posterior(), rel=1e-9)
    assert search.posterior_gain() == pytest.approx(gone.posterior_gain(), abs=1e-9 * scale)
    assert (search.state.pairs.bad == gone.state.pairs.bad).all()


def test_flows_of_hidden_path_do_not_acquit_a_small_fault():
    """A2+P: flows without loss may have crossed a link that loses 0.3 %, and say little of it."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        fabric = FatTree(6)
        truth = np.sort(rng.choice(fabric.n_links, 4, replace=False))
        loss = lossy_links(fabric, truth, np.full(4, 3e-3), rng)
        telemetry = World(Ecmp(fabric), loss, 40_000, 0, rng).telemetry("A2+P")
        found = Flock(p_bad=0.01, p_good=2e-4).localize(telemetry)
        assert found.flagged.tolist() == truth.tolist()


def test_large_faults_of_hidden_paths_convict_few_others(synthetic):
    """A1+P, a tenth of the links lossy at rates up to 1: with one small rate, two bad paths explain
    a lossy flow better than one, and half the fabric is blamed."""
    rng = np.random.default_rng(1)
    fabric = FatTree(8)
    truth, loss = synthetic.break_links(fabric, rng)
    telemetry = World(Ecmp(fabric), loss, 60_000, 2048, rng, packets=40).telemetry("A1+P")
    small, likelier = (
        method.localize(telemetry)
        for method in (
            Flock(device_factor=5, refine=True, p_bad=0.003),
            Flock(device_factor=5, refine=True, p_bad=0.003, severe_p_bad=0.05),
        )
    )
    figures = [score(d.flagged, truth, fabric)["directed"].f1 for d in (small, likelier)]
    assert figures[1] > figures[0] + 0.2
