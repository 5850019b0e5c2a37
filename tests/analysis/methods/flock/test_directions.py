"""The direction of a link whose failure probes that bounce have found."""

import numpy as np
import pytest

from analysis.methods.flock import search as flock_search
from analysis.methods.flock.flock import Flock
from analysis.methods.flock.search import Search
from analysis.telemetry.telemetry import Flows, Probes, Telemetry
from testbed.fabric.clos import clos
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import PathSets

FABRICS = {
    "fat-tree": FatTree(4),
    "several climbs to a top": clos(2, 2, 2, 2, wiring="complete"),
}


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


@pytest.mark.parametrize("name", FABRICS)
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
    assert "components blamed without them" in found.remarks[0]


@pytest.mark.parametrize("name", FABRICS)
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
