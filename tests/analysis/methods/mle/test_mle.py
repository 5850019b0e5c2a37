# SPDX-License-Identifier: Apache-2.0
"""mle on every kind of telemetry: backgrounds, ties, unions, and what must not matter."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.evaluation.metrics import score
from analysis.methods.mle.mle import CanaryMle, Mle
from analysis.telemetry.telemetry import Flows, MissingTelemetry, Probes, SegmentCounts, Telemetry
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths, PathSets
from tests.analysis.conftest import path_success

K4 = FatTree(4)


def rates(fabric, seed, background, share=0.1):
    """Loss of each link, and which are faulty: 0.2 to 50 %."""
    rng = np.random.default_rng([seed, 5])
    loss = rng.uniform(0, background, fabric.n_links)
    faulty = rng.choice(fabric.n_links, round(share * fabric.n_links), replace=False)
    loss[faulty] = np.exp(rng.uniform(np.log(2e-3), np.log(0.5), len(faulty)))
    return loss, np.sort(faulty)


def world_of(synthetic, loss, seed=1, k=4, flows=4000, packets=20_000):
    return synthetic.make_world(k=k, seed=seed, loss=loss, flows=flows, packets=packets)


def with_paths(telemetry, loss, seed, lossy_only):
    """The flows with the path each took: of all (INT), or of those that lost packets (A2)."""
    rng = np.random.default_rng([seed, 9])
    flows = telemetry.flows
    first, width = flows.sets.ptr[flows.path_set], flows.sets.width[flows.path_set]
    paths = flows.sets.paths.take(first + rng.integers(0, width))
    lost = rng.binomial(flows.sent, 1 - path_success(paths, loss))
    row = np.flatnonzero(lost) if lossy_only else np.arange(len(lost))
    number = np.arange(len(row), dtype=np.int32)
    flows = Flows(PathSets.known(paths.take(row)), number, flows.sent[row], lost[row])
    return replace(telemetry, flows=flows)


def with_traces(telemetry, loss):
    """All flows, the lossy ones with the path each took."""
    took = with_paths(telemetry, loss, 1, lossy_only=False).flows
    every, lossy = telemetry.flows, np.flatnonzero(took.lost)
    sets = PathSets.join([every.sets, took.sets.take(lossy)])
    path_set = every.path_set.copy()
    path_set[lossy] = len(every.sets) + np.arange(len(lossy))
    return replace(telemetry, flows=Flows(sets, path_set, took.sent, took.lost))


@pytest.mark.parametrize("background", [0, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("kinds", ["segments", "segments+A1", "INT", "A1+INT"])
def test_backgrounds(synthetic, background, kinds):
    found = []
    for seed in range(3):
        for share in (0.0, 0.1):
            loss, faulty = rates(K4, seed, background, share)
            telemetry = world_of(synthetic, loss, seed).telemetry
            telemetry = with_paths(telemetry, loss, seed, lossy_only=False)
            result = Mle(kinds=kinds).localize(telemetry)
            assert np.isin(result.flagged, faulty).all()
            found.append(score(result.flagged, faulty, K4)["directed"].f1)
    assert np.mean(found) >= 0.97


@pytest.mark.parametrize("kinds", ["segments", "A1", "INT", "A1+A2", "A1+A2+P", "detector"])
def test_one_lossy_link(synthetic, kinds):
    loss = np.full(K4.n_links, 1e-5)
    loss[K4.link("agg1_0->core1")] = 0.02
    telemetry = world_of(synthetic, loss).telemetry
    if kinds in ("INT", "A1+A2"):
        telemetry = with_paths(telemetry, loss, 1, lossy_only=kinds == "A1+A2")
    if kinds == "A1+A2+P":
        telemetry = with_traces(telemetry, loss)
    result = Mle(kinds=kinds).localize(telemetry)
    link = K4.link("agg1_0->core1")
    both = [link & ~1, link | 1]
    assert result.flagged.tolist() == (both if result.native == "undirected" else [link])
    assert result.equivalent is not None
    undirected = kinds == "A1"
    assert (result.native == "undirected") == undirected
    assert (result.equivalent[both[0]] == result.equivalent[both[1]]) == undirected
    assert result.success[link] == pytest.approx(0.98, abs=0.006)


def test_a_link_that_no_meter_sees_is_seen_by_probes(synthetic):
    loss = np.zeros(K4.n_links)
    link = K4.link("tor0_0->agg0_1")
    loss[link] = 0.99
    telemetry = world_of(synthetic, loss).telemetry
    counts = telemetry.segments
    unseen = np.array([link in counts.segments.paths[s] for s in range(len(counts.segments))])
    counts = SegmentCounts(counts.segments, counts.sent * ~unseen, counts.lost * ~unseen)
    telemetry = replace(telemetry, segments=counts)
    assert CanaryMle().localize(telemetry).flagged.size == 0
    assert Mle(kinds="segments+A1").localize(telemetry).flagged.tolist() == [link]


def test_a_tie_is_named_whole():
    """Two links that one path alone leads over."""
    paths = Paths(np.array([0, 2]), np.array([3, 8], np.int32))
    probes = Probes(paths, np.array([1000]), np.array([100]))
    result = Mle().localize(Telemetry(K4, "tor+core", probes=probes))
    assert result.flagged.tolist() == [3, 8] and result.native == "directed"
    assert result.equivalent is not None and result.equivalent[3] == result.equivalent[8]
    assert np.isnan(np.delete(result.success, [3, 8])).all()


def test_nothing_observed_blames_nothing():
    none = np.zeros(1, np.int64)
    probes = Probes(Paths(np.array([0, 2]), np.array([3, 8], np.int32)), none, none)
    result = Mle().localize(Telemetry(K4, "tor+core", probes=probes))
    assert result.flagged.size == 0 and np.isnan(result.success).all()


def test_observations_may_be_split_and_come_in_any_order(synthetic):
    loss, _ = rates(K4, 3, 1e-4)
    telemetry = world_of(synthetic, loss, 3).telemetry
    probes = telemetry.probes
    half, lost = probes.sent // 3, probes.lost // 2
    order = np.random.default_rng(0).permutation(2 * len(probes))
    split = Probes(
        probes.paths.take(np.tile(np.arange(len(probes)), 2)[order]),
        np.concatenate((half, probes.sent - half))[order],
        np.concatenate((lost, probes.lost - lost))[order],
    )
    first = Mle(kinds="segments+A1").localize(telemetry)
    second = Mle(kinds="segments+A1").localize(replace(telemetry, probes=split))
    assert np.array_equal(first.flagged, second.flagged)
    assert first.score == pytest.approx(second.score, rel=1e-3, abs=0.1)


def test_more_packets_at_the_same_rates_lose_no_link(synthetic):
    loss, _ = rates(K4, 4, 1e-4)
    counts = world_of(synthetic, loss, 4, packets=1000).telemetry.segments
    found = set()
    for times in (1, 10, 100):
        more = SegmentCounts(counts.segments, counts.sent * times, counts.lost * times)
        now = set(CanaryMle().localize(Telemetry(K4, "tor+core", more)).flagged.tolist())
        assert found <= now
        found = now


def test_other_numbers_of_the_links_give_the_same(synthetic):
    loss, _ = rates(K4, 5, 1e-5)
    probes = world_of(synthetic, loss, 5).telemetry.detector
    new = np.random.default_rng(1).permutation(K4.n_links).astype(np.int32)
    first = Mle(kinds="detector").localize(Telemetry(K4, "tor+core", detector=probes))
    moved = Probes(Paths(probes.paths.ptr, new[probes.paths.links]), probes.sent, probes.lost)
    second = Mle(kinds="detector").localize(Telemetry(K4, "tor+core", detector=moved))
    assert np.array_equal(np.sort(new[first.flagged]), second.flagged)


def test_kinds_that_were_not_measured_are_named(synthetic):
    telemetry = world_of(synthetic, np.zeros(K4.n_links)).telemetry
    with pytest.raises(MissingTelemetry, match="INT needs the path of every flow"):
        Mle(kinds="INT").localize(telemetry)
    with pytest.raises(MissingTelemetry, match="'probes'"):
        Mle(kinds="segments+A1").localize(replace(telemetry, probes=None))
