# SPDX-License-Identifier: Apache-2.0
"""Flows of hidden paths: alike ones together, loss-free ones, and those between pairs of ToRs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from analysis.methods.mle import hidden as hidden_module
from analysis.methods.mle.hidden import (
    HiddenFlows,
    PairFlows,
    expected_arrivals,
    explain_loss_free,
    sum_up,
)
from analysis.methods.mle.mle import Mle
from analysis.methods.mle.problem import Rows, Units
from analysis.telemetry.telemetry import MissingTelemetry
from scenarios.papers.flock_network import World, lossy_links
from testbed.fabric.clos import Fabric, clos
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree


def test_alike_flows_add_up():
    arrived, lost = np.array([100.0, 104.0, 100.0, 7.0]), np.array([0.0, 0.0, 1.0, 0.0])
    ptr, arrived, lost, times = sum_up(2, np.array([1, 1, 1, 0]), arrived, lost, 0.5)
    assert ptr.tolist() == [0, 1, 3]
    assert (arrived.tolist(), lost.tolist()) == ([7.0, 102.0, 100.0], [0.0, 0.0, 1.0])
    assert times.tolist() == [0.5, 1.0, 0.5]


PATHS = [[4, a, b] for a in (0, 1) for b in (2, 3)]


def hidden(arrived, times):
    units = np.array(PATHS, np.int32).reshape(-1)
    n = len(arrived)
    return HiddenFlows(
        set_ptr=np.array([0, 4]),
        path_ptr=np.arange(5, dtype=np.int32) * 3,
        units=units,
        many=np.ones(4, np.float32),
        flow_ptr=np.array([0, n]),
        arrived=np.array(arrived, float),
        lost=np.zeros(n),
        times=np.array(times, float),
        hops=np.array([3.0]),
    )


def test_equal_shares_without_loss():
    assert expected_arrivals(hidden([100, 10], [2, 5]), np.zeros(5)) == pytest.approx(
        [125, 125, 125, 125, 250]
    )


def test_flows_without_loss_missed_the_lossy_link():
    x = np.array([0.02, 0, 0, 0.01, 0])
    got = expected_arrivals(hidden([100, 10], [2, 5]), x)
    rate = np.array([x[path].sum() for path in PATHS])
    want = np.zeros(5)
    for arrived, times in ((100, 2), (10, 5)):
        share = np.exp(-arrived * rate) / np.exp(-arrived * rate).sum()
        for path, q in zip(PATHS, share, strict=True):
            want[path] += times * arrived * q
    assert got == pytest.approx(want)


@pytest.mark.parametrize("rate", [0.003, 0.05, 1.0])
def test_the_rate_is_that_of_the_mixture(rate):
    """Flows over one link of two; those that lost packets were traced."""
    rng = np.random.default_rng(3)
    sent = rng.integers(1, 800, 3000)
    over = rng.random(3000) < 0.5
    lost = np.where(over, rng.binomial(sent, -np.expm1(-rate)), 0)
    traced = lost > 0
    units = np.array([0, 1], np.int32)
    free, times = np.unique(sent[~traced], return_counts=True)
    h = HiddenFlows(
        np.array([0, 2]),
        np.array([0, 1, 2], np.int32),
        units,
        np.ones(2, np.float32),
        np.array([0, len(free)]),
        free.astype(float),
        np.zeros(len(free)),
        times.astype(float),
        np.ones(1),
    )
    ptr = np.array([0, 1])
    rows = Rows(
        ptr,
        units[:1],
        np.array([0, 1, 1]),
        np.zeros(1, np.int32),
        np.array([lost.sum()], float),
        np.array([(sent - lost)[traced].sum(), 0.0]),
    )
    found = explain_loss_free(
        rows, np.ones(2), np.array([True, False]), h, fault_rate=1e-3, penalty=10.0
    )
    assert found.blamed.tolist() == [True, False]
    grid = rate * np.exp(np.linspace(-0.5, 0.5, 2001))
    a, s, n = rows.arrived[0], rows.lost[0], free[:, None]
    like = s * np.log(-np.expm1(-grid)) - a * grid
    like += (times[:, None] * np.log((np.exp(-n * grid) + 1) / 2)).sum(axis=0)
    assert found.x[0] == pytest.approx(grid[like.argmax()], rel=0.02)


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
    candidate = rng.random(len(every.size)) < share
    hidden = pairs.over(every, candidate)
    sets = fabric.path_sets(pairs.src, pairs.dst)
    used = np.bincount(pairs.pair, minlength=len(pairs.src)) > 0
    g = 0
    for pair in np.flatnonzero(used):
        listed: Counter[tuple[int, ...]] = Counter()
        for path in range(sets.ptr[pair], sets.ptr[pair + 1]):
            links = sets.paths.links[sets.paths.ptr[path] : sets.paths.ptr[path + 1]]
            over = every.of_link[links]
            listed[tuple(sorted(over[candidate[over]].tolist()))] += 1
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
    each = np.bincount(pairs.pair, pairs.arrived, len(pairs.src)) / sets.width
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
    monkeypatch.setattr(hidden_module, "MOST_BYTES", 1_000)
    with pytest.raises(MissingTelemetry, match="GB for the"):
        flows(fabric, np.random.default_rng(8)).over(every, np.ones(len(every.size), np.bool_))
