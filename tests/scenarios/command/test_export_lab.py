# SPDX-License-Identifier: Apache-2.0
"""An exported lab is one that containerlab takes, and is the fabric with its entries and faults."""

from __future__ import annotations

import re
from collections import Counter
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field

from scenarios.command.export_lab import export_lab
from scenarios.experiment.request import make_request
from scenarios.experiment.settings import SettingsError
from testbed.control.forwarding import routes
from testbed.control.remote.switch import parsed
from testbed.dataplane import FAULT, INGRESS_FAULT, P4INFO, ROUTING
from testbed.errors import UserError
from testbed.fabric.fat_tree import FatTree
from testbed.faults.specification import parse_faults
from testbed.network.lab_switch import entries_of
from tests.analysis.importers import world
from tests.scenarios.conftest import Canary, refused

MACHINES = ["192.0.2.1", "192.0.2.2"]
FABRIC = FatTree(8)

# What a lab uses of containerlab's `schemas/clab.schema.json` (release of 2026-08), with the same
# names, patterns, bounds and required keys; as there, nothing else may stand in these objects.


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Endpoint(Strict):
    node: str
    interface: str
    mac: Annotated[str, Field(pattern=r"^(?:[0-9A-Fa-f]{2}[:-]){5}(?:[0-9A-Fa-f]{2})")] | None = (
        None
    )


class Veth(Strict):
    type: Literal["veth"]
    endpoints: Annotated[list[Endpoint], Field(min_length=2, max_length=2)]
    mtu: int


class Vxlan(Strict):
    type: Literal["vxlan"]
    endpoint: Endpoint
    remote: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+\.\d+$")]
    vni: Annotated[int, Field(ge=1, le=16777215)]
    dst_port: Annotated[int, Field(ge=1, le=65535, alias="dst-port")]
    mtu: int


class Node(Strict):
    kind: Literal["linux"]
    labels: dict[str, str]
    exec: list[str]


class Kind(Strict):
    image: str
    network_mode: Annotated[str, Field(alias="network-mode")]
    binds: list[str]


class Topology(Strict):
    kinds: dict[Literal["linux"], Kind]
    nodes: dict[str, Node]
    links: list[Veth | Vxlan]


class Clab(Strict):
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9-._]*$")]
    topology: Topology


def export(folder: Path, hosts: str = "", **given: Any) -> Path:
    return export_lab(make_request(None, given), hosts, folder / "lab")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labs")
    return export(folder, ",".join(MACHINES), k=8, faults="10pct", seed=3, noise="0")


@pytest.fixture(scope="module")
def topologies(lab: Path) -> list[Clab]:
    files = [lab / f"topology-{n}.clab.yml" for n in (1, 2)]
    return [Clab.model_validate(yaml.safe_load(file.read_text())) for file in files]


def test_every_node_is_on_one_machine_and_its_script_is_there(
    lab: Path, topologies: list[Clab]
) -> None:
    nodes = [(name, node) for each in topologies for name, node in each.topology.nodes.items()]
    assert sorted(name for name, _ in nodes) == sorted(FABRIC.switch_names + FABRIC.host_names)
    for name, node in nodes:
        (command,) = node.exec
        script = lab / command.removeprefix("sh /lab/")
        assert script.stem == name
        assert script.read_text().startswith("#!/bin/sh\n")
    sizes = [
        Counter(node.labels["canary"] for node in t.topology.nodes.values()) for t in topologies
    ]
    assert sizes == [{"switch": 40, "host": 64}] * 2


def test_links_are_those_of_the_fabric(topologies: list[Clab]) -> None:
    tunnels: dict[int, list[tuple[int, Vxlan]]] = {}
    cables: set[frozenset[tuple[str, str]]] = set()
    macs: dict[str, str | None] = {}
    for number, each in enumerate(topologies):
        for link in each.topology.links:
            if isinstance(link, Vxlan):
                tunnels.setdefault(link.vni, []).append((number, link))
                assert link.remote == MACHINES[1 - number]
                assert link.endpoint.node in each.topology.nodes
                continue
            cables.add(frozenset((end.node, end.interface) for end in link.endpoints))
            assert {end.node for end in link.endpoints} <= each.topology.nodes.keys()
            macs |= {end.node: end.mac for end in link.endpoints if end.mac}
    for ends in tunnels.values():
        assert [number for number, _ in ends] == [0, 1]
        cables.add(frozenset((end.endpoint.node, end.endpoint.interface) for _, end in ends))
    names = FABRIC.switch_names
    src, dst = FABRIC.link_src.tolist(), FABRIC.link_dst.tolist()
    ports = zip(FABRIC.link_src_port.tolist(), FABRIC.link_dst_port.tolist(), strict=True)
    wanted = {
        frozenset([(names[a], f"eth{p}"), (names[b], f"eth{q}")])
        for a, b, (p, q) in zip(src, dst, ports, strict=True)
    }
    hosts = zip(FABRIC.host_names, FABRIC.host_tor, FABRIC.host_port, strict=True)
    wanted |= {frozenset([(h, "eth1"), (names[tor], f"eth{port}")]) for h, tor, port in hosts}
    assert cables == wanted
    # Pods are whole: each machine has half of them and half of the cores.
    assert len(tunnels) == len(names[64:]) * 8 // 2
    assert {name: int((mac or "").replace(":", ""), 16) for name, mac in macs.items()} == dict(
        zip(FABRIC.host_names, FABRIC.host_mac.tolist(), strict=True)
    )


def test_hosts_have_the_addresses_of_the_fabric(lab: Path) -> None:
    for host, name in enumerate(FABRIC.host_names):
        text = (lab / "hosts" / f"{name}.sh").read_text()
        assert f"ip addr replace {IPv4Address(int(FABRIC.host_ip[host]))}/32 dev eth1\n" in text
        gateway = IPv4Address(int(FABRIC.switch_ip[FABRIC.host_tor[host]]))
        assert f"ip route replace default via {gateway} dev eth1" in text


def test_entries_and_faults_are_those_of_the_network(lab: Path) -> None:
    info = parsed((lab / "p4" / "canary.p4info.txtpb").read_text())
    ids = {table.preamble.name: table.preamble.id for table in info.tables}
    thresholds = {
        action.preamble.id: action.preamble.name
        for action in info.actions
        if action.preamble.name in (FAULT.lossy, FAULT.blackhole)
    }
    lossy: dict[int, float] = {}
    for switch, name in enumerate(FABRIC.switch_names):
        request = entries_of(lab / "switches" / f"{name}.txtpb")
        assert request.device_id == switch + 1
        entries = [
            u.entity.table_entry for u in request.updates if u.entity.HasField("table_entry")
        ]
        prefixes = set()
        for entry in entries:
            if entry.table_id == ids[ROUTING.routes]:
                key = [(int.from_bytes(m.lpm.value, "big"), m.lpm.prefix_len) for m in entry.match]
                prefixes.add(key[0] if key else (0, 0))
            elif entry.table_id == ids[FAULT.faults]:
                port = int.from_bytes(entry.match[0].exact.value, "big")
                (link,) = np.flatnonzero(
                    (FABRIC.link_src == switch) & (FABRIC.link_src_port == port)
                )
                action = entry.action.action
                dead = thresholds[action.action_id] == FAULT.blackhole
                number = 2**32 if dead else int.from_bytes(action.params[0].value, "big")
                lossy[int(link)] = number / 2**32
        assert prefixes == {(route.prefix, route.length) for route in routes(FABRIC, switch)}
    plan = parse_faults(str(lab / "faults.yaml"), FABRIC, 1)
    assert len(lossy) == 51
    assert lossy == pytest.approx({fault.link: fault.rate for fault in plan.faults}, abs=1e-9)


@pytest.mark.parametrize(
    ("injector", "line"), [("netem", "loss random 25%"), ("nft", "< 250000000")]
)
def test_faults_of_the_kernel_are_lines_of_the_switch_that_sends(
    tmp_path: Path, injector: str, line: str
) -> None:
    lab = export(
        tmp_path,
        topology="two-switch",
        faults="tor0->tor1:0.25",
        noise="0",
        injector=injector,
        backend="bmv2",
    )
    first, second = ((lab / "switches" / f"tor{n}.sh").read_text() for n in (0, 1))
    assert line in first
    assert re.search(r"^simple_switch_grpc .* -i 1@eth1 -i 2@eth2 ", first, re.M)
    assert not re.search(r"\b(tc|nft) ", second)
    Clab.model_validate(yaml.safe_load((lab / "topology.clab.yml").read_text()))


def test_links_of_hosts_are_broken_by_entries_of_their_tor(tmp_path: Path) -> None:
    given = {"topology": "two-switch", "faults": "h0->tor0:0.25", "noise": "0"}
    with pytest.raises(SettingsError, match="INJECTOR=nft breaks no links of hosts in a lab"):
        export(tmp_path, injector="nft", **given)
    lab = export(tmp_path, **given)
    table = parsed(P4INFO.read_text()).tables
    (ids,) = ({t.preamble.id} for t in table if t.preamble.name == INGRESS_FAULT.faults)
    for tor, broken in (("tor0", 1), ("tor1", 0)):
        updates = entries_of(lab / "switches" / f"{tor}.txtpb").updates
        assert sum(update.entity.table_entry.table_id in ids for update in updates) == broken


@pytest.mark.parametrize(
    ("given", "hosts", "message"),
    [
        ({"backend": "flow"}, "", "BACKEND=flow has no switches for a lab"),
        ({"load": 0.1}, "", "LOAD has no effect on a lab"),
        ({"faults": "tor0_0->agg0_9:0.1"}, "", "agg0_9"),
        ({}, "192.0.2.1", "two different addresses"),
        ({}, "192.0.2.1,$(id)", "give IPv4 addresses"),
        ({}, "192.0.2.1,192.0.2.2,192.0.2.3,192.0.2.4,192.0.2.5", "4 pods"),
        ({"scenario": "flap"}, "", "no clock"),
    ],
)
def test_what_cannot_be_a_lab_is_one_line_and_leaves_nothing(
    tmp_path: Path, given: dict[str, Any], hosts: str, message: str
) -> None:
    given = dict(given)
    with pytest.raises(UserError, match=re.escape(message)) as raised:
        export_lab(make_request(given.pop("scenario", None), given), hosts, tmp_path / "lab")
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["folder", "link"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    place = tmp_path / "lab"
    if there == "folder":
        place.mkdir()
        (place / "mine").touch()
    else:
        place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="exists already|is a symbolic link"):
        export(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lab"]


def test_the_machines_and_the_hosts_of_a_file_are_two_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: Canary
) -> None:
    """HOSTS= is a setting of the fabric: both stood behind one name, and no lab could be written
    for several machines."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dc.clab.yml").write_text(world.clab())
    words = ("TOPOLOGY=dc.clab.yml", "HOSTS=3", "MACHINES=192.0.2.1,192.0.2.2", "OUT=lab")
    result = canary("export-lab", *words, "--quiet")
    assert (result.code, result.out) == (0, "lab\n"), result
    assert {path.name for path in (tmp_path / "lab").glob("topology-*")} == {
        "topology-1.clab.yml",
        "topology-2.clab.yml",
    }
    assert len(list((tmp_path / "lab" / "hosts").iterdir())) == 3 * 4
    refused(canary("export-lab", "MACHINES=here"), "MACHINES=here: give IPv4 addresses")
