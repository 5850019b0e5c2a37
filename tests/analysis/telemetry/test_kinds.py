# SPDX-License-Identifier: Apache-2.0
"""Kinds of observations that other tools have: round trips, counters at both ends, traces with
gaps, and paths whose links are in no order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.methods.registry import make_method
from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import MissingTelemetry, Telemetry
from testbed.fabric.clos import Fabric, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.record.fabric_file import NumberedFabric
from testbed.record.foreign import Receipt
from testbed.record.schema import TableError

FABRIC = leaf_spine(4, 4)


def read(
    tmp_path: Path, text: str, fabric: Fabric = FABRIC, receipt: Receipt | None = None
) -> Telemetry:
    path = tmp_path / "o.csv"
    path.write_text(text)
    numbered = NumberedFabric(fabric, np.arange(fabric.n_links))
    return read_observations(path, numbered, receipt or Receipt())


def counters(rng: np.random.Generator, rate: float, skew: int, polls: int = 1) -> str:
    """Polls of all links of which leaf2->spine1 loses packets at a rate; both ends are read up to
    ``skew`` packets apart."""
    rows = ["kind,nodes,sent,arrived"]
    for name in FABRIC.link_names:
        before = 0
        for _ in range(polls):
            sent = int(rng.integers(50_000, 150_000))
            lost = rng.binomial(sent, rate if name == "leaf2->spine1" else 1e-5)
            now = int(rng.integers(-skew, skew + 1))
            rows.append(f"counter,{name},{sent},{sent - lost + now - before}")
            before = now
    return "\n".join([*rows, ""])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("skew", "polls"), [(0, 1), (30, 1), (30, 5), (300, 20)])
def test_counters_read_at_different_times_blame_the_one_link(
    tmp_path: Path, seed: int, skew: int, polls: int
) -> None:
    rng = np.random.default_rng([seed, skew])
    receipt = Receipt()
    telemetry = read(tmp_path, counters(rng, 0.02, skew, polls), receipt=receipt)
    for name in ("canary", "canary-mle", "mle", "canary+acquit"):
        found = make_method(name).localize(telemetry).flagged
        assert [FABRIC.link_names[link] for link in found] == ["leaf2->spine1"], name
    message = " ".join(receipt.lines())
    assert ("counters of both ends differ by up to" in message) == (skew > 0)


@pytest.mark.parametrize("seed", range(5))
def test_skew_alone_blames_nothing(tmp_path: Path, seed: int) -> None:
    telemetry = read(tmp_path, counters(np.random.default_rng(seed), 1e-5, 30))
    for name in ("canary-mle", "mle"):
        assert not len(make_method(name).localize(telemetry).flagged)


def test_polls_of_a_link_add_up_before_the_offset_is_taken_off(tmp_path: Path) -> None:
    rows = ["counter,0,100,110", "counter,0,100,70", "counter,2,50,51", "counter,4,1000,900"]
    counts = read(tmp_path, "kind,paths,sent,arrived\n" + "\n".join(rows) + "\n").segments
    assert counts is not None
    sums = dict(
        zip(
            counts.segments.paths.links.tolist(),
            zip(counts.sent[0].tolist(), counts.lost[0].tolist(), strict=True),
            strict=True,
        )
    )
    # Link 2 shows that both ends may be one packet apart, so two packets count as read later.
    assert sums == {0: (200, 20 - 2), 2: (50, 0), 4: (1000, 100 - 2)}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("counter,0,,9,,", "arrived is missing"),
        ("counter,0,,9,1,8", "a counter has sent and arrived: leave lost out"),
        ("counter,0 1,,9,,9", "a counter is at both ends of one link"),
        ("counter,,,9,,9", "paths or nodes are missing"),
        ("counter,0,,9,,-9", "arrived is -9: 0 to 10^15 is needed"),
        ("active,0,,9,1,8", "only counter rows have arrived: give lost"),
        ("roundtrip,0,,9,1,", "a roundtrip has src and dst, and no paths"),
        ("roundtrip,,,9,1,", "a roundtrip needs src and dst"),
        ("active,,leaf0 * leaf1,9,1,", "only a connection's trace may have gaps"),
        ("active,,,9,1,", "a ping there and back is a roundtrip"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: str, reason: str) -> None:
    with pytest.raises(TableError) as raised:
        read(tmp_path, f"kind,paths,nodes,sent,lost,arrived\n{row}\n")
    assert reason in str(raised.value) and "row 0" in str(raised.value)


@pytest.mark.parametrize(
    ("nodes", "names", "complete"),
    [
        ("leaf2 spine1 leaf0", ["leaf2->spine1", "spine1->leaf0"], True),
        ("* spine1 leaf0", ["leaf2->spine1", "spine1->leaf0"], True),  # src is known
        ("leaf2 spine1 *", ["leaf2->spine1", "spine1->leaf0"], True),  # and so is dst
        ("leaf2 * leaf0", [], False),  # any spine
        ("* * *", [], False),
        ("leaf2 spine1", ["leaf2->spine1"], False),
        ("*", [], False),
    ],
)
def test_a_hop_that_did_not_answer_is_the_only_switch_that_it_can_be(
    tmp_path: Path, nodes: str, names: list[str], complete: bool
) -> None:
    text = f"kind,src,dst,nodes,retransmissions\nconnection,leaf2,leaf0,{nodes},3\n"
    part = read(tmp_path, text).connections
    assert part is not None
    assert [FABRIC.link_names[link] for link in part.paths.links] == names
    assert part.complete.tolist() == [complete]


def test_a_gap_between_two_switches_with_one_way_is_filled(tmp_path: Path) -> None:
    fabric = FatTree(4)
    text = (
        "kind,src,dst,nodes,retransmissions\n"
        "connection,tor0_0,tor1_0,tor0_0 agg0_1 * agg1_1 tor1_0,3\n"
        "connection,tor0_0,tor1_0,tor0_0 * core2 agg1_1 tor1_0,3\n"
    )
    part = read(tmp_path, text, fabric).connections
    assert part is not None and part.complete.tolist() == [False, True]
    first = [fabric.link_names[link] for link in part.paths.take(np.array([0])).links]
    assert first == ["tor0_0->agg0_1", "agg1_1->tor1_0"]  # cores 2 and 3 are between


def test_links_of_a_probe_may_be_in_any_order(tmp_path: Path) -> None:
    fabric = FatTree(4)
    paths = fabric.paths_over(
        "tor0_0->agg0_1->core2->agg1_1->tor1_0", "tor0_0->agg0_0->core0->agg0_0->tor0_0"
    )
    receipt, rng = Receipt(), np.random.default_rng(1)
    rows = []
    for i in range(2):
        links = paths.take(np.array([i])).links
        rows.append(f"active,{' '.join(map(str, rng.permutation(links)))},100,1")
        rows.append(f"active,{' '.join(map(str, links))},100,1")
    text = "kind,paths,sent,lost\n" + "\n".join(rows) + "\n"
    probes = read(tmp_path, text, fabric, receipt).probes
    assert probes is not None and probes.sent.tolist() == [200, 200]
    assert probes.paths.links.tolist() == paths.links.tolist()
    assert "links of paths put in order (" in receipt.lines()[0]
    with pytest.raises(TableError, match="the links of a path do not join up"):
        read(tmp_path, "kind,paths,sent,lost\nactive,0 8,100,1\n", fabric)


def mesh(fabric: Fabric, faulty: str, rate: float, rng: np.random.Generator, sent: int) -> str:
    """Pings between all ToRs, each of which takes any way there and any way back."""
    loss = np.where(np.array(fabric.link_names) == faulty, rate, 1e-5)
    rows = ["kind,src,dst,sent,lost"]
    tors = np.arange(fabric.n_tors, dtype=np.int32)
    for src in tors:
        for dst in tors[tors != src]:
            ways = [fabric.path_sets(np.array([a]), np.array([b])).paths for a, b in
                    ((src, dst), (dst, src))]  # fmt: skip
            left = sent
            for way in ways:
                each = [np.prod(1 - loss[way.take(np.array([p])).links]) for p in range(len(way))]
                left = rng.binomial(left, np.mean(each))
            names = fabric.switch_names[src], fabric.switch_names[dst]
            rows.append(f"roundtrip,{names[0]},{names[1]},{sent},{sent - left}")
    return "\n".join([*rows, ""])


@pytest.mark.parametrize("faulty", ["leaf2->spine1", "spine3->leaf0"])
def test_a_ping_mesh_blames_the_class_that_it_can_tell(tmp_path: Path, faulty: str) -> None:
    rng = np.random.default_rng(3)
    verdict = make_method("mle").localize(read(tmp_path, mesh(FABRIC, faulty, 0.02, rng, 4000)))
    leaf = faulty.replace("->", " ").split()[faulty.startswith("spine")]
    blamed = [FABRIC.link_names[link] for link in verdict.flagged]
    assert blamed == [name for name in FABRIC.link_names if leaf in name]
    assert len(verdict.ties) == 1 and verdict.native == "undirected"
    loss = 1 - verdict.success[FABRIC.link(faulty)]
    assert loss == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize("faulty", ["tor1_0->agg1_1", "core3->agg2_1", "agg0_0->core1"])
def test_round_trips_in_a_fat_tree(tmp_path: Path, faulty: str) -> None:
    fabric, rng = FatTree(4), np.random.default_rng(5)
    verdict = make_method("mle").localize(
        read(tmp_path, mesh(fabric, faulty, 0.02, rng, 8000), fabric)
    )
    blamed = [fabric.link_names[link] for link in verdict.flagged]
    assert faulty in blamed
    loss = 1 - verdict.success[fabric.link(faulty)]
    assert loss == pytest.approx(0.02, rel=0.3)
    assert verdict.equivalent is not None
    # One class: the cables of the ToR, or those between the pod's aggregation and the core.
    assert len(np.unique(verdict.equivalent[verdict.flagged])) == 1


def test_other_methods_say_what_they_lack_and_the_kind_is_read_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    telemetry = read(tmp_path, mesh(FABRIC, "leaf2->spine1", 0.02, rng, 4000))
    for name in ("flock", "netbouncer", "007", "canary", "detector"):
        with pytest.raises(MissingTelemetry, match="missing"):
            make_method(name).localize(telemetry)
    head, *rows = mesh(FABRIC, "leaf2->spine1", 0.02, rng, 4000).splitlines()
    rows = [f"{row}," for row in rows]
    both = read(tmp_path, "\n".join([f"{head},paths", *rows, "active,,,9,0,0 1", ""]))
    with pytest.raises(MissingTelemetry, match="reads the kind roundtrip alone"):
        make_method("mle:kinds=roundtrip+A1").localize(both)
    assert len(make_method("mle:kinds=roundtrip").localize(both).flagged) == 8
