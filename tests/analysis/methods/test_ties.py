# SPDX-License-Identifier: Apache-2.0
"""Every method where links cannot be told apart, or were not observed: none picks one of a class
without a word, and none calls healthy what nothing crossed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from analysis.evaluation.metrics import score
from analysis.methods.base import diagnose
from analysis.methods.registry import METHODS, ON_REQUEST, make_method
from analysis.telemetry.silence import scarce_links, silent_segments
from analysis.telemetry.telemetry import Connections, Flows, Probes, SegmentCounts, Telemetry
from testbed.fabric.clos import Fabric, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.fabric.paths import Paths, PathSets, pointers
from testbed.fabric.segments import Segments, segments

# One connection is no evidence by 007's rule, which its threshold of section 5.1 takes it for.
NAMES = [
    "007:threshold=0.01" if name == "007" else name
    for name in (*METHODS, *ON_REQUEST)
    if name not in ("per-link-loss", "spray-check")  # no file has what they read
]
EVERY = (*NAMES, "mle:A2", "mle:INT", "netscope:inputs=segments")
SENT = 20_000


def seen(fabric: Fabric, rows: list[list[int]], faulty: int, loss: float = 0.05) -> Telemetry:
    """Every kind of telemetry over known paths ``rows`` of links, of which one loses packets."""
    paths = Paths(pointers([len(row) for row in rows]), np.concatenate(rows).astype(np.int32))
    sent = np.full(len(rows), SENT)
    lost = np.array([round(SENT * loss) if faulty in row else 0 for row in rows])
    probes = Probes(paths, sent, lost)
    src, dst = (
        np.array([end[row[at]] for row in rows], np.int32)
        for end, at in ((fabric.link_src, 0), (fabric.link_dst, -1))
    )
    own = np.ones(len(rows), np.bool_)
    flows = Flows.of(fabric, src, dst, own, PathSets.known(paths), sent, lost)
    bad = np.flatnonzero(lost)
    traced = Connections(
        src[bad], dst[bad], lost[bad], paths.take(bad), np.ones(len(bad), np.bool_), 0
    )
    epochs = np.stack([sent, sent]), np.stack([lost, lost])
    number = np.full(len(rows), -1, np.int32)
    parts = Segments(src, dst, number[:, None], paths, np.zeros(len(rows), np.int32))
    return Telemetry(
        fabric, "given", SegmentCounts(parts, *epochs), flows, probes, traced, detector=probes
    )


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("faulty", [0, 3])
def test_links_in_series_are_blamed_together(name: str, faulty: int) -> None:
    """Two leaves below one spine: a link up, and the one that all its packets take down."""
    fabric = leaf_spine(2, 1)
    found = diagnose(make_method(name), seen(fabric, [[0, 3], [2, 1]], faulty))
    if name.startswith("netbouncer") and not len(found.flagged):
        return  # its regulariser outweighs a link of one path
    assert found.flagged.tolist() in ([0, 3], [0, 1, 2, 3]), "the latter as of the spine"
    assert found.ties[0] == [0, 3] and found.score[0] == found.score[3]
    own = score(found.flagged, np.array([faulty]), fabric, found.tells)[found.native]
    if len(found.flagged) == 2:
        assert own.class_f1 == 1.0 and own.f1 == pytest.approx(2 / 3) and own.classes == 1


# Of flows that were reported as they lost packets mle weighs the paths that they might have taken.
@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("mle:A2", "mle:INT")])
def test_two_hosts_that_talk_observe_four_links(name: str) -> None:
    fabric = FatTree(4)
    path = Ecmp(fabric).draw(
        np.array([0], np.int32), np.array([7], np.int32), np.random.default_rng(1)
    )
    links = path.links.tolist()
    telemetry = seen(fabric, [links], links[1])
    found = diagnose(make_method(name), telemetry)
    alike = sorted(links)
    assert set(alike) <= set(found.flagged.tolist()), "the whole path is one class"
    assert alike in found.ties
    state = found.state
    assert {state[link] for link in alike} == {"faulty"}
    assert set(state) == {"faulty", "not observed"}, "nothing is called healthy"
    assert any("not observed" in remark for remark in found.remarks)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "mle:A2"])
def test_without_packets_there_is_no_verdict(name: str) -> None:
    fabric = leaf_spine(2, 1)
    whole = seen(fabric, [[0, 3]], 0)
    assert whole.segments and whole.probes and whole.flows and whole.connections
    none = np.zeros(1, np.int64)
    probes = Probes(whole.probes.paths, none, none)
    counts = SegmentCounts(whole.segments.segments, none[None], none[None])
    flows = Flows(whole.flows.sets, whole.flows.path_set, none, none)
    nothing = np.zeros(0, np.int32)
    traced = Connections(
        nothing, nothing, none[:0], whole.probes.paths.take(nothing), none[:0] > 0, 0
    )
    empty = Telemetry(fabric, "given", counts, flows, probes, traced, detector=probes)
    found = diagnose(make_method(name), empty)
    assert not len(found.flagged) and set(found.state) == {"not observed"}
    assert found.remarks[-1].startswith("nothing was measured")
    own = score(found.flagged, np.array([0]), fabric, found.tells)[found.native]
    assert np.isnan(own.f1) and own.unobserved and not own.missed


def test_parallel_links_are_told_apart_by_known_paths() -> None:
    """Two cables between each leaf and its spine: as many rows as ways, none tied."""
    ends = np.array([[0, 2], [0, 2], [1, 2], [1, 2]])
    fabric = Fabric(
        ["leaf0", "leaf1", "spine0"],
        np.array([0, 0, 1]),
        ends[:, 0],
        ends[:, 1],
    )
    rows = [[up, down ^ 1] for up in (0, 2) for down in (4, 6)]
    found = diagnose(make_method("canary-mle"), seen(fabric, rows, 2))
    assert found.flagged.tolist() == [2] and not found.ties


def test_silent_links_are_named() -> None:
    """A link that loses all from the start: its segments count nothing, where others count."""
    fabric = FatTree(4)
    parts = segments(Ecmp(fabric), np.isin(fabric.tier, (0, 2)))
    dead = fabric.link("tor0_0->agg0_1")
    alive = np.array([dead not in parts.paths[s].tolist() for s in range(len(parts))])
    sent = np.where(alive, 1000, 0)[None]
    told = SegmentCounts(parts, sent, sent * 0, np.where(alive, 40, 0))
    untold = SegmentCounts(parts, sent, sent * 0)
    few = SegmentCounts(parts, sent, sent * 0, np.where(alive, 2, 0))
    for counts, silent in ((told, True), (untold, False), (few, False)):
        for name in ("canary", "canary-mle"):
            found = diagnose(make_method(name), Telemetry(fabric, "tor+core", counts))
            assert not len(found.flagged) and found.state[dead] == "not observed"
            messages = [remark for remark in found.remarks if remark.startswith("silent")]
            assert len(messages) == silent and all(
                "over tor0_0->agg0_1 should" in s for s in messages
            )
    assert not any("silent" in r for r in diagnose(make_method("canary"), whole(parts)).remarks)


def whole(parts: Segments) -> Telemetry:
    sent = np.full((1, len(parts)), 1000)
    return Telemetry(
        FatTree(4), "tor+core", SegmentCounts(parts, sent, sent * 0, np.full(len(parts), 40))
    )


def test_a_segment_that_has_no_other_way_and_no_flow_is_not_silent() -> None:
    fabric = TwoSwitches()
    sent = np.array([[1000, 0]])
    counts = SegmentCounts(fabric.segments(), sent, sent * 0, np.array([40, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not silent_segments(counts, fabric).any()


def test_links_that_take_some_flows_from_the_start_are_silent_in_part() -> None:
    """Two thirds of the flows over a link never arrive: only their number shows it."""
    fabric = FatTree(8)
    parts = segments(Ecmp(fabric), np.isin(fabric.tier, (0, 2)))
    hole = fabric.link("tor0_0->agg0_1")
    over = np.zeros(len(parts), np.bool_)
    over[parts.paths.owner[parts.paths.links == hole]] = True
    rules = np.where(over, 10, 30)[None]
    sent = 50 * rules
    asked = np.ones_like(rules, np.bool_)
    for rest, short, silent in (
        (rules, asked, True),
        (rules, ~asked, False),
        (30 + 0 * rules, asked, False),
    ):
        counts = SegmentCounts(parts, sent, sent * 0, rest[0], rest, short)
        telemetry = Telemetry(fabric, "tor+core", counts)
        for name in ("canary", "canary-mle"):
            found = diagnose(make_method(name), telemetry)
            assert found.flagged.tolist() == [hole] * (silent and name == "canary-mle")
            messages = [remark for remark in found.remarks if remark.startswith("silent in part")]
            assert len(messages) == silent and all(
                "over tor0_0->agg0_1 count 40%" in s for s in messages
            )


def test_chance_makes_no_link_silent_in_part() -> None:
    fabric = FatTree(4)
    parts = segments(Ecmp(fabric), np.isin(fabric.tier, (0, 2)))
    rng = np.random.default_rng(5)
    for _ in range(50):
        rules = rng.poisson(12, (1, len(parts)))
        counts = SegmentCounts(parts, 50 * rules, 0 * rules, rules[0], rules, rules < 20)
        assert not len(scarce_links(counts, fabric).links)
