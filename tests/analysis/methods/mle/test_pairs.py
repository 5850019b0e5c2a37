"""Pairs of ToRs, whose paths are not listed, are their listed paths."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from analysis.methods.mle import pairs as pairs_of_tors
from analysis.methods.mle.mle import Mle
from analysis.methods.mle.pairs import PairFlows
from analysis.methods.mle.problem import Units
from analysis.telemetry.telemetry import MissingTelemetry
from scenarios.papers.flock_world import World, lossy_links
from testbed.fabric.clos import Fabric, clos
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree

FABRICS = (
    FatTree(4),
    FatTree(6).without([3, 40]),
    clos(2, 3, 2, 4, wiring="complete"),
    clos(3, 2, 3, 4, wiring="complete").without([2, 20]),
)


def flows(fabric: Fabric, rng: np.random.Generator) -> PairFlows:
    src, dst = np.nonzero(~np.eye(fabric.n_tors, dtype=bool))
    of = rng.integers(0, len(src), 500)
    arrived = rng.integers(1, 300, 500).astype(float)
    ends = src.astype(np.int32), dst.astype(np.int32)
    return PairFlows(Ecmp(fabric), *ends, of, arrived, np.zeros(500), 1.0)


def units(fabric: Fabric) -> Units:
    return Units.of(np.arange(1, fabric.n_links + 1, dtype=np.uint64))


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.title)
@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_a_pair_has_all_its_paths(fabric: Fabric, share: float) -> None:
    rng = np.random.default_rng(5)
    pairs, every = flows(fabric, rng), units(fabric)
    may = rng.random(len(every.size)) < share
    hidden = pairs.over(every, may)
    sets = fabric.path_sets(pairs.src, pairs.dst)
    used = np.bincount(pairs.of, minlength=len(pairs.src)) > 0
    g = 0
    for pair in np.flatnonzero(used):
        listed: Counter[tuple[int, ...]] = Counter()
        for path in range(sets.ptr[pair], sets.ptr[pair + 1]):
            links = sets.paths.links[sets.paths.ptr[path] : sets.paths.ptr[path + 1]]
            over = every.of_link[links]
            listed[tuple(sorted(over[may[over]].tolist()))] += 1
        if set(listed) == {()}:
            continue  # no unit that may be blamed is on its paths
        ours: Counter[tuple[int, ...]] = Counter()
        for path in range(hidden.set_ptr[g], hidden.set_ptr[g + 1]):
            over = hidden.units[hidden.path_ptr[path] : hidden.path_ptr[path + 1]]
            ours[tuple(sorted(over.tolist()))] += int(hidden.many[path])
        assert ours == listed
        g += 1
    assert g == len(hidden.set_ptr) - 1


def test_arrivals_of_a_regular_fabric_are_those_of_all_paths_alike() -> None:
    fabric = FABRICS[2]
    pairs = flows(fabric, np.random.default_rng(6))
    sets = fabric.path_sets(pairs.src, pairs.dst)
    each = np.bincount(pairs.of, pairs.arrived, len(pairs.src)) / sets.width
    share = np.repeat(each[sets.owner], sets.paths.length)
    assert pairs.arrivals() == pytest.approx(
        np.bincount(sets.paths.links, share, fabric.n_links), rel=1e-12
    )


def test_climbs_that_share_a_core_are_found_faulty() -> None:
    """Eight ToRs, 8 climbs each to every core: 64 paths to a core."""
    fabric = clos(2, 4, 8, 4, wiring="complete", oversubscription=2)
    rng = np.random.default_rng(7)
    failed = rng.choice(fabric.n_links, 3, replace=False)
    loss = lossy_links(fabric, failed, rng.uniform(5e-3, 1e-2, 3), rng)
    world = World(Ecmp(fabric), loss, 40_000, 2_000, rng)
    found = Mle(kinds="A1+A2+P").localize(world.telemetry("A1+A2+P"))
    assert sorted(found.flagged) == sorted(failed)


def test_paths_that_would_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = FABRICS[2]
    every = units(fabric)
    monkeypatch.setattr(pairs_of_tors, "MOST_BYTES", 1_000)
    with pytest.raises(MissingTelemetry, match="GB for the"):
        flows(fabric, np.random.default_rng(8)).over(every, np.ones(len(every.size), np.bool_))
