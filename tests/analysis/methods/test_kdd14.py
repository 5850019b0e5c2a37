# SPDX-License-Identifier: Apache-2.0
"""KDD14 as reconstructed: one culprit a path, by hand and against a plain transcription."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import bdtrc

from analysis.methods.kdd14 import Kdd14
from analysis.telemetry.telemetry import Probes, Telemetry
from testbed.fabric.clos import Fabric, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths

NOISE, SIGNIFICANCE = 1e-3, 0.01


def telemetry(fabric: Fabric, paths: Paths, sent: np.ndarray, lost: np.ndarray) -> Telemetry:
    return Telemetry(fabric, "tor+core", probes=Probes(paths, sent, lost))


def bounced(fabric: Fabric, loss: np.ndarray, packets: int = 1000) -> Telemetry:
    """All bounces, each losing what it loses on average at these rates of directed links."""
    paths = Ecmp(fabric).bounces()
    through = np.array([np.prod(1 - loss[paths[p]]) for p in range(len(paths))])
    sent = np.full(len(paths), packets, np.int64)
    return telemetry(fabric, paths, sent, np.round(sent * (1 - through)).astype(np.int64))


def test_by_hand() -> None:
    """Two leaves, two spines, 100 probes over each link and back: a path is one link."""
    fabric = leaf_spine(2, 2)
    names = ["leaf0->spine0", "leaf0->spine1", "leaf1->spine0", "leaf1->spine1"]
    links = [fabric.link(name) for name in names]
    paths = Paths.from_padded(np.array([[link, link ^ 1] for link in links]))
    sent, lost = np.full(4, 100, np.int64), np.array([40, 0, 1, 0], np.int64)
    # At first the links have 0.4, 0, 0.01 and 0, leaf0 40 of 200 and spine0 41 of 200: the first
    # path's losses go to its link, the third path's to spine0, and there it stays with 1 of 200.
    result = Kdd14().localize(telemetry(fabric, paths, sent, lost))
    assert result.flagged.tolist() == sorted([links[0], links[0] ^ 1])
    assert not len(result.devices), "one of 200 at a usual loss of 0.001 has a chance of 0.18"
    assert result.success[links] == pytest.approx([0.6, 1.0, 1.0, 1.0])
    assert result.native == "undirected"
    # Where 0.2 may well be chance it is blamed, and with the spine both its links.
    result = Kdd14(significance=0.19).localize(telemetry(fabric, paths, sent, lost))
    assert result.devices.tolist() == [fabric.switch("spine0")]
    assert np.isin(links, result.flagged).tolist() == [True, False, True, False]
    assert result.success[links] == pytest.approx([0.6, 1.0, 0.995, 1.0])


def plain(fabric: Fabric, probes: Probes) -> tuple[set[int], set[int]]:
    """Directed links and switches to blame, by dictionaries: one-way probes."""
    suspects = []
    for p in range(len(probes)):
        on = sorted({int(link) for link in probes.paths[p]})
        ends = {int(end) for link in on for end in (fabric.link_src[link], fabric.link_dst[link])}
        suspects.append([("link", link) for link in on] + [("switch", s) for s in sorted(ends)])
    every = {each for on in suspects for each in on}
    across = {each: [p for p, on in enumerate(suspects) if each in on] for each in every}
    packets = {each: sum(int(probes.sent[p]) for p in on) for each, on in across.items()}
    caused = {each: sum(int(probes.lost[p]) for p in on) for each, on in across.items()}
    named = None
    while True:
        rank = {each: (caused[each] / max(packets[each], 1), packets[each]) for each in every}
        now = [max(on, key=lambda each: rank[each]) for on in suspects]
        if now == named:
            break
        named = now
        caused = {
            each: sum(int(probes.lost[p]) for p in across[each] if named[p] == each)
            for each in every
        }
    blamed: tuple[set[int], set[int]] = set(), set()
    for kind, number in every:
        each = kind, number
        usual = sum(
            probes.sent[p] * (1 - (1 - NOISE) ** len(set(probes.paths[p]))) for p in across[each]
        ) / max(packets[each], 1)
        if caused[each] and bdtrc(caused[each] - 1, packets[each], usual) <= SIGNIFICANCE:
            blamed[kind == "switch"].add(number)
    return blamed


@pytest.mark.parametrize("seed", range(12))
def test_as_a_plain_transcription(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fabric = FatTree(4)
    flows = fabric.path_sets(*rng.integers(0, fabric.n_tors, (2, 60)))
    paths = flows.paths.take(np.flatnonzero(flows.paths.length))
    loss = np.where(rng.random(fabric.n_links) < 0.1, rng.random(fabric.n_links), 0.001)
    sent = rng.integers(0, 300, len(paths))
    through = np.array([np.prod(1 - loss[paths[p]]) for p in range(len(paths))])
    seen = telemetry(fabric, paths, sent, rng.binomial(sent, 1 - through))
    assert seen.probes is not None
    result = Kdd14(noise=NOISE, significance=SIGNIFICANCE).localize(seen)
    links, switches = plain(fabric, seen.probes)
    assert result.native == "directed" and set(result.devices.tolist()) == switches
    ends = np.stack((fabric.link_src, fabric.link_dst))
    of_switch = set(np.flatnonzero(np.isin(ends, list(switches)).any(axis=0)).tolist())
    assert set(result.flagged.tolist()) >= links
    assert set(result.flagged.tolist()) == links | of_switch


@pytest.mark.parametrize("rate", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("link", ["tor2_1->agg2_0", "agg5_3->core13"])
def test_one_faulty_link_is_found_alone(rate: float, link: str) -> None:
    fabric = FatTree(8)
    loss = np.zeros(fabric.n_links)
    loss[fabric.link(link)] = rate
    result = Kdd14().localize(bounced(fabric, loss))
    one = fabric.link(link)
    assert result.flagged.tolist() == sorted([one, one ^ 1]) and not len(result.devices)
    assert result.success[one] == pytest.approx(1 - rate)
    assert result.score.argmax() in (one, one ^ 1)


@pytest.mark.parametrize("name", ["tor1_1", "agg3_2", "core7"])
def test_one_dead_switch_is_blamed_alone_with_its_links(name: str) -> None:
    fabric = FatTree(8)
    switch = fabric.switch(name)
    of_it = (fabric.link_src == switch) | (fabric.link_dst == switch)
    result = Kdd14().localize(bounced(fabric, np.where(of_it, 1.0, 0.0)))
    assert result.devices.tolist() == [switch]
    assert result.flagged.tolist() == np.flatnonzero(of_it).tolist()
    assert not result.success[of_it].any()


def test_the_likelier_of_two_faults_on_a_path_hides_the_other() -> None:
    """What the assumption costs: the weaker one is acquitted of half its paths."""
    fabric = FatTree(4)
    loss = np.zeros(fabric.n_links)
    weak, worse = fabric.link("tor0_0->agg0_0"), fabric.link("agg0_0->core0")
    loss[weak], loss[worse] = 0.1, 0.9
    result = Kdd14().localize(bounced(fabric, loss))
    assert result.success[weak] == pytest.approx(0.95)
    assert result.success[worse] == pytest.approx(1 - (0.91 + 0.9) / 2)


def test_what_is_usual_is_not_blamed() -> None:
    fabric = FatTree(4)
    seen = bounced(fabric, np.full(fabric.n_links, 4e-4), packets=10_000)
    assert not len(Kdd14(noise=1e-3).localize(seen).flagged)
    assert len(Kdd14(noise=1e-5).localize(seen).flagged)


@pytest.mark.parametrize(
    "given", [{"noise": -0.1}, {"noise": 1.0}, {"significance": 1.5}, {"significance": -1.0}]
)
def test_bad_parameters(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="should be (less|greater) than"):
        Kdd14(**given)
