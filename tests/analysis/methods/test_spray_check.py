# SPDX-License-Identifier: Apache-2.0
"""`spray-check` does what its docstring describes, and finds links that lose sprayed packets."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.methods.spray_check import SprayCheck
from analysis.telemetry.telemetry import MissingTelemetry, Telemetry
from analysis.telemetry.views.spray_counts import SprayCounts
from testbed.fabric.clos import Fabric, leaf_spine
from tests.analysis.references.spray_check import blamed

CASES = 60
FABRICS = {"5:3": leaf_spine(5, 3), "3:2": leaf_spine(3, 2), "8:4": leaf_spine(8, 4)}


def sprayed(
    fabric: Fabric, loss: np.ndarray, rng: np.random.Generator, packets: int, spread: float = 1.0
) -> Telemetry:
    """What leaves count if each pair sprays about so many packets; ``spread`` is how much a way
    differs from its share, over what it does if each packet is sprayed at random."""
    spines = fabric.n_switches - fabric.n_tors
    src, dst, spine = (
        each.reshape(-1)
        for each in np.indices((fabric.n_tors, fabric.n_tors, spines), dtype=np.int32)
    )
    kept = src != dst
    src, dst, spine = src[kept], dst[kept], spine[kept] + np.int32(fabric.n_tors)
    share = np.bincount(np.arange(256) % spines)[spine - fabric.n_tors] / 256
    pair = np.unique(src * fabric.n_tors + dst, return_inverse=True)[1].reshape(-1)
    of_pair = rng.poisson(packets, pair.max() + 1)[pair]
    sent = of_pair * share + spread * np.sqrt(of_pair * share) * rng.normal(size=len(src))
    link = np.zeros((fabric.n_switches, fabric.n_switches), np.int32)
    link[fabric.link_src, fabric.link_dst] = np.arange(fabric.n_links)
    through = (1 - loss[link[src, spine]]) * (1 - loss[link[spine, dst]])
    came = rng.binomial(np.maximum(np.rint(sent), 0).astype(np.int64), through)
    counts = SprayCounts(src, dst, spine, share, came)
    return Telemetry(fabric, "none", views={"spray_check": counts})


def case(seed: int, fabric: Fabric) -> Telemetry:
    """Links of all rates, spraying of any evenness, and pairs that send little or nothing."""
    rng = np.random.default_rng([seed, fabric.n_links])
    loss = rng.choice([0.0, 1e-4], fabric.n_links)
    faulty = rng.choice(fabric.n_links, rng.integers(0, fabric.n_links // 6), replace=False)
    loss[faulty] = rng.choice([1.0, 0.5, 0.1, 0.02], len(faulty))
    telemetry = sprayed(
        fabric, loss, rng, int(rng.choice([0, 40, 4000, 100_000])), float(rng.choice([0, 0.1, 1]))
    )
    counts = telemetry.views["spray_check"]
    some = rng.random(len(counts.packets)) > 0.05 * rng.integers(0, 2)  # others were left out
    rows = {name: getattr(counts, name)[some] for name in SprayCounts.__annotations__}
    return Telemetry(fabric, "none", views={"spray_check": SprayCounts(**rows)})


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("pairs", [1, 2])
def test_it_is_what_the_plain_reference_describes(name: str, pairs: int) -> None:
    fabric, any_blamed = FABRICS[name], 0
    for seed in range(CASES):
        telemetry = case(seed, fabric)
        counts = telemetry.views["spray_check"]
        ends = (counts.src_tor.tolist(), counts.spine.tolist(), counts.dst_tor.tolist())
        ways = list(zip(*ends, strict=True))
        expected = blamed(
            dict(zip(ways, counts.share.tolist(), strict=True)),
            dict(zip(ways, counts.packets.tolist(), strict=True)),
            0.05,
            1e-4,
            pairs,
        )
        verdict = SprayCheck(pairs=pairs).decide(telemetry)
        found = {(int(fabric.link_src[i]), int(fabric.link_dst[i])) for i in verdict.flagged}
        assert found == expected, seed
        any_blamed += len(found)
    assert any_blamed > 5


@pytest.mark.parametrize("spread", [0.05, 1.0])
def test_healthy_links_are_not_blamed_however_packets_are_sprayed(spread: float) -> None:
    fabric, rng = FABRICS["8:4"], np.random.default_rng(5)
    noise = np.full(fabric.n_links, 1e-4)
    wrong = [
        len(SprayCheck().localize(sprayed(fabric, noise, rng, 30_000, spread)).flagged)
        for _ in range(50)
    ]
    assert sum(wrong) <= 1


@pytest.mark.parametrize(("packets", "spread"), [(30_000, 0.05), (4_000_000, 1.0)])
def test_a_link_of_half_a_percent_is_found_alone(packets: int, spread: float) -> None:
    fabric, rng = FABRICS["8:4"], np.random.default_rng(6)
    for link in range(0, fabric.n_links, 7):
        loss = np.full(fabric.n_links, 1e-5)
        loss[link] = 0.005
        verdict = SprayCheck().localize(sprayed(fabric, loss, rng, packets, spread))
        assert verdict.flagged.tolist() == [link]


def test_a_link_that_loses_everything_is_found_and_ranked_first() -> None:
    fabric, loss = FABRICS["8:4"], np.zeros(64)
    loss[[9, 30]] = 1.0, 0.01
    verdict = SprayCheck().localize(sprayed(fabric, loss, np.random.default_rng(7), 20_000, 0.1))
    assert verdict.flagged.tolist() == [9, 30]
    assert set(np.argsort(verdict.score)[-2:].tolist()) == {9, 30}


@pytest.mark.parametrize(
    ("packets", "spread", "rate"), [(3000, 0.05, 0.005), (200_000, 1.0, 0.015)]
)
def test_pooled_ways_show_fainter_links(packets: int, spread: float, rate: float) -> None:
    fabric, rng = FABRICS["8:4"], np.random.default_rng(9)
    alone = {False: 0, True: 0}
    for link in range(0, fabric.n_links, 4):
        loss = np.full(fabric.n_links, 1e-5)
        loss[link] = rate
        telemetry = sprayed(fabric, loss, rng, packets, spread)
        for pool in alone:
            alone[pool] += SprayCheck(pool=pool).localize(telemetry).flagged.tolist() == [link]
    assert alone[True] >= 13 and alone[True] > alone[False] + 3


@pytest.mark.parametrize("spread", [0.05, 1.0])
def test_pooled_ways_of_healthy_links_raise_few_alarms(spread: float) -> None:
    fabric, rng = FABRICS["8:4"], np.random.default_rng(10)
    noise = np.full(fabric.n_links, 1e-4)
    method = SprayCheck(pool=True)
    wrong = [
        len(method.localize(sprayed(fabric, noise, rng, 30_000, spread)).flagged) for _ in range(60)
    ]
    assert sum(wrong) <= 7  # .05 a run are expected


def test_what_nobody_sent_is_not_observed() -> None:
    fabric = FABRICS["3:2"]
    telemetry = sprayed(fabric, np.zeros(12), np.random.default_rng(8), 0, 0.0)
    verdict = SprayCheck().localize(telemetry)
    assert not len(verdict.flagged) and verdict.tells is not None
    assert not verdict.tells.observed.any()
    with pytest.raises(MissingTelemetry, match="spray-check needs the telemetry part 'spray_check"):
        SprayCheck().localize(Telemetry(fabric, "none"))
