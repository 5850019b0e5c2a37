# SPDX-License-Identifier: Apache-2.0
"""ROUTING=spray, on packets: how they are spread, and what the receiving leaves count of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.views.segments import read_minus_meters
from canary import run
from canary_softswitch import Program, Switch
from testbed.control.forwarding import install_forwarding
from testbed.dataplane import PROGRAM, VERDICT
from testbed.errors import UserError
from testbed.fabric.topologies import make_packet_fabric
from testbed.measurements.programs import switch_program
from testbed.measurements.registry import STANDARD, find_measurement
from testbed.measurements.spray_check.measurement import need_leaf_spine
from testbed.record.run import RunDirectory
from tests.p4.frames import TCP, Flow, frame

LEAF_SPINE = make_packet_fabric("leaf-spine:4:3", 4, 1)
SMALL: dict[str, Any] = {
    "topology": "leaf-spine:4:3",
    "routing": "spray",
    "epochs": 2,
    "epoch_ms": 500,
    "load": 0.2,
    "skew": 0,
}
FAULT = "leaf1->spine2:0.02"


@pytest.fixture(scope="module")
def program() -> Program:
    return Program.load(switch_program([], "spray"), observe=VERDICT.field)


def leaf(program: Program, mask: int = 0x10040100) -> Switch:
    """The first leaf of the fabric, with its routes."""
    switch = Switch(program)
    install_forwarding(LEAF_SPINE, 0, switch, mask, monitor=True)
    return switch


def flow(port: int = 1000, to: int = 3) -> Flow:
    host = int(np.flatnonzero(LEAF_SPINE.host_tor == to)[0])
    return Flow(int(LEAF_SPINE.host_ip[0]), int(LEAF_SPINE.host_ip[host]), port, 80, TCP)


def uplinks(switch: Switch, what: Flow, packets: int) -> list[int]:
    """The port by which each packet of a flow leaves."""
    data = frame(what)
    return [switch.process(1, data)[0][0] for _ in range(packets)]


def test_the_packets_of_a_flow_take_the_uplinks_in_turn(program: Program) -> None:
    ports = uplinks(leaf(program), flow(), 2560)
    n = len(set(ports))
    assert n == 3
    for begin in range(0, len(ports), 256):
        of_turn = Counter(ports[begin : begin + 256])
        assert sorted(of_turn.values()) == [85, 85, 86]  # 256 has a remainder of 1
        assert len({*ports[begin : begin + 3]}) == 3
    assert len({tuple(ports[i : i + 3]) for i in range(0, len(ports), 256)}) > 1


def test_flows_begin_at_any_uplink_and_each_seed_and_switch_has_its_own_order(
    program: Program,
) -> None:
    first = {mask: leaf(program, mask) for mask in (0x10040100, 0x00120008)}
    begins = {
        mask: [uplinks(switch, flow(port), 1)[0] for port in range(2000, 2600)]
        for mask, switch in first.items()
    }
    here, there = begins.values()
    assert min(Counter(here).values()) > 150 and min(Counter(there).values()) > 150
    assert here != there
    again = [uplinks(leaf(program), flow(port), 1)[0] for port in range(2000, 2010)]
    assert again == here[:10]


@pytest.fixture(scope="module")
def sprayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sprayed") / "run"
    methods = "spray-check,canary,flock,007,mle"
    run(path=path, methods=methods, faults=FAULT, noise=0, seed=2, **SMALL)
    return path


def test_a_leaf_counts_what_came_of_each_other_leaf_by_each_spine(sprayed: Path) -> None:
    record = RunDirectory(sprayed)
    fabric, flows, counts = record.fabric, record.table("flows"), record.table("spray_counts")
    came = np.zeros((4, 4), np.int64)
    np.add.at(came, (flows["src_tor"], flows["dst_tor"]), flows["sent"] - flows["lost"])
    found = np.zeros((4, 4), np.int64)
    np.add.at(found, (counts["src_tor"], counts["dst_tor"]), counts["packets"])
    assert found.sum() > 20_000
    assert (np.abs(found - came) <= 40).all()  # some are under way when the run ends
    lost = int(record.table("links")["fault_drops"][fabric.link("leaf1->spine2")])
    assert lost > 50
    ways = counts["share"] * found[counts["src_tor"], counts["dst_tor"]] - counts["packets"]
    spine = fabric.switch_names.index("spine2")
    faulty = (counts["src_tor"] == 1) & (counts["spine"] == spine)
    assert abs(ways[faulty].sum() * 1.5 - lost) < 0.2 * lost
    assert np.abs(ways[counts["src_tor"] != 1]).max() < 40
    shares = np.zeros((4, 4))
    np.add.at(shares, (counts["src_tor"], counts["dst_tor"]), counts["share"])
    assert set(np.round(shares.reshape(-1), 12)) == {0.0, 1.0}


def test_its_method_finds_the_link(sprayed: Path) -> None:
    methods: Any = RunDirectory(sprayed).summary["methods"]
    assert methods["spray-check"]["directed"]["f1"] == 1
    assert methods["spray-check"]["probe_packets"] == 0


def test_meters_that_cannot_follow_sprayed_packets_call_none_lost(sprayed: Path) -> None:
    record = RunDirectory(sprayed)
    faulty = record.fabric.link("leaf1->spine2")
    for meter in read_minus_meters(record):
        lossy = np.unique(meter.segment[meter.lost > 0])
        assert all(faulty in record.segments.paths[int(each)] for each in lossy)
    canary: Any = RunDirectory(sprayed).summary["methods"]["canary"]
    assert canary["directed"]["false_positives"] == 0
    assert any("packets were sprayed: one upstream count" in line for line in canary["remarks"])


def test_flows_have_no_path_of_their_own(sprayed: Path) -> None:
    telemetry = read_telemetry(RunDirectory(sprayed))
    assert telemetry.flows is not None and not len(telemetry.flows.listed)
    methods: Any = RunDirectory(sprayed).summary["methods"]
    for name, what in (("flock", "a flow's path is unknown"), ("007", "a traceroute shows one")):
        assert any(f"packets were sprayed: {what}" in line for line in methods[name]["remarks"])


def test_equal_seeds_spray_alike_on_any_number_of_threads(sprayed: Path, tmp_path: Path) -> None:
    methods = "spray-check,canary,flock,007,mle"
    run(path=tmp_path / "r", methods=methods, faults=FAULT, noise=0, seed=2, threads=3, **SMALL)
    one, other = (RunDirectory(path).table("spray_counts") for path in (sprayed, tmp_path / "r"))
    for name in ("src_tor", "dst_tor", "spine", "packets"):
        assert one[name].tolist() == other[name].tolist()


def test_a_drained_uplink_leaves_out_its_leaf(tmp_path: Path) -> None:
    events = "0.3 drain leaf0->spine1; 0.6 undrain leaf0->spine1"
    run(path=tmp_path / "r", methods="spray-check", faults="none", events=events, **SMALL)
    counts = RunDirectory(tmp_path / "r").table("spray_counts")
    left = {*counts["src_tor"].tolist(), *counts["dst_tor"].tolist()}
    assert 0 not in left and left == {1, 2, 3}


def test_other_fabrics_are_sprayed_and_not_checked(tmp_path: Path) -> None:
    settings = SMALL | {"topology": "fat-tree", "k": 4, "epochs": 1}
    run(path=tmp_path / "r", methods="any-loss", faults="tor0_0->agg0_1:0.2", **settings)
    assert not RunDirectory(tmp_path / "r").has("spray_counts")
    with pytest.raises(UserError, match="spray_check needs a leaf-spine in which every leaf"):
        run(path=tmp_path / "s", methods="spray-check", **settings)
    need_leaf_spine(LEAF_SPINE)


def test_a_program_that_sprays_is_for_runs_that_do() -> None:
    own = find_measurement("spray_check")
    assert switch_program(STANDARD) == PROGRAM
    assert switch_program([own], "spray") == switch_program([], "spray") == own.program
    with pytest.raises(UserError, match="spray_check counts sprayed packets: use ROUTING=spray"):
        switch_program([own])
    with pytest.raises(UserError, match="loss_radar and ROUTING=spray have a switch program each"):
        switch_program([find_measurement("loss_radar")], "spray")


def test_without_packets_nothing_is_sprayed() -> None:
    with pytest.raises(UserError, match="ROUTING=spray needs packets: leave it out"):
        run(methods="flock", backend="flow", routing="spray")
