# SPDX-License-Identifier: Apache-2.0
"""The fabric of a run from a word or from a file, and a run with packets through each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from scenarios.api import localize, run
from scenarios.experiment.fabrics import fabric_of
from scenarios.experiment.settings import make_settings
from testbed.errors import UserError
from testbed.fabric.clos import leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.topologies import is_described
from testbed.record.fabric_file import write_fabric

CLAB = """
topology:
  nodes:
    {leaf1: {}, leaf2: {}, leaf3: {}, spine1: {}, spine2: {}, server1: {}, server2: {}, server3: {}}
  links:
    - endpoints: ["leaf1:e1", "spine1:e1"]
    - endpoints: ["leaf1:e2", "spine2:e1"]
    - endpoints: ["leaf2:e1", "spine1:e2"]
    - endpoints: ["leaf2:e2", "spine2:e2"]
    - endpoints: ["leaf3:e1", "spine1:e3"]
    - endpoints: ["leaf3:e2", "spine2:e3"]
    - endpoints: ["leaf3:e3", "server1:e1"]
    - endpoints: ["leaf3:e4", "server2:e1"]
    - endpoints: ["leaf3:e5", "server3:e1"]
"""
PAIRS = [(a, b) for a in ("tor1", "tor2", "tor3") for b in ("top1", "top2")]
FILES = {
    "lab.clab.yml": CLAB,
    "graph.dot": "graph dc {\n" + "\n".join(f'"{a}" -- "{b}";' for a, b in PAIRS) + "\n}\n",
    "net.json": json.dumps(
        {
            "nodes": [{"id": name} for name in ("tor1", "tor2", "tor3", "top1", "top2")],
            "links": [{"source": a, "target": b} for a, b in PAIRS],
        }
    ),
    "layer1.json": json.dumps(
        {
            "edges": [
                {
                    "node1": {"hostname": a, "interfaceName": f"to-{b}"},
                    "node2": {"hostname": b, "interfaceName": f"to-{a}"},
                }
                for a, b in PAIRS
            ]
        }
    ),
    "fabric.edges": "".join(f"{a} {b}\n" for a, b in PAIRS),
    "fabric.csv": "link,src,dst,src_tier,dst_tier\n"
    + "".join(f"{2 * i},{a},{b},0,1\n{2 * i + 1},{b},{a},1,0\n" for i, (a, b) in enumerate(PAIRS)),
}


def settings(topology: object, **given: Any) -> Any:
    return make_settings({"topology": str(topology), "backend": "virtual"} | given)


@pytest.mark.parametrize("name", FILES)
def test_files_of_all_kinds_are_one_fabric_of_three_racks(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    fabric = fabric_of(settings(path))
    wanted = leaf_spine(3, 2)
    assert (fabric.link_src == wanted.link_src).all() and (fabric.link_dst == wanted.link_dst).all()
    assert fabric.hosts_per_tor == (3 if name == "lab.clab.yml" else 2)
    hosts = fabric.hosts_per_tor
    assert fabric.title == f"the fabric of {name} (3 ToRs of {hosts} hosts, 2 switches above)"
    assert fabric_of(settings(path, hosts=5)).n_hosts == 15
    assert fabric_of(settings(path, backend="flow")).n_links == 12


def test_a_pattern_names_the_racks(tmp_path: Path) -> None:
    path = tmp_path / "fabric.edges"
    path.write_text("red x\nblue x\nred y\nblue y\n")
    with pytest.raises(UserError, match="does not say which switches are ToRs"):
        fabric_of(settings(path))
    assert fabric_of(settings(path, tier0="[rb]*")).switch_names == ["blue", "red", "x", "y"]


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        ("nowhere.csv", "TOPOLOGY=nowhere.csv: there is no such file"),
        ("folder/nowhere", "there is no such file"),
        ("ring", "TOPOLOGY=ring is unknown"),
        ("\0", "is unknown"),
        ("here.txt", "TOPOLOGY: here.txt"),
        ("here.csv", "TOPOLOGY: "),
        ("broken.clab.yml", "TOPOLOGY: "),
    ],
)
def test_what_is_no_fabric_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here.txt").write_text("nothing\n")
    Path("here.csv").write_text("one,two\n1,2\n")
    Path("broken.clab.yml").write_text("topology: {nodes: 7}\n")
    with pytest.raises(UserError, match=message) as error:
        fabric_of(settings(topology))
    assert "\n" not in str(error.value)


def test_what_hangs_on_a_tor_alone_is_a_host_if_switches_are_called_otherwise(tmp_path) -> None:
    """`db1` and `web1` are servers; `spine3`, which has one link left, is a switch as `spine1`."""
    path = tmp_path / "fabric.edges"
    above = "leaf1 spine1\nleaf2 spine1\nleaf2 spine3\n"
    path.write_text(above + "db1 leaf1\nweb1 leaf2\nweb2 leaf2\n")
    fabric = fabric_of(settings(path, backend="flow"))
    assert fabric.switch_names == ["leaf1", "leaf2", "spine1", "spine3"]
    assert fabric.hosts_per_tor == 2


SHORT: dict[str, Any] = {
    "epochs": 2,
    "epoch_ms": 200,
    "probes": 20,
    "noise": 0,
    "backend": "virtual",
}


QUICK = "leaf-spine:4:2", "leaf-spine:4:3:irregular=20pct", "lab.clab.yml", "uneven.edges"
MORE = "clos:2:2:2:4:2", "fat-tree:irregular=10pct"  # each has a program to compile


@pytest.mark.parametrize(
    "topology",
    [
        *QUICK,
        *(pytest.param(each, marks=pytest.mark.nightly) for each in MORE),
    ],
)
def test_a_run_on_packets_loses_what_the_fault_drops_and_finds_it(
    tmp_path: Path, topology: str
) -> None:
    name = topology
    if not is_described(topology):
        edges = "leaf1 spine1\nleaf1 spine2\nleaf2 spine1\nleaf3 spine1\nleaf3 spine2\n"
        (tmp_path / topology).write_text(CLAB if topology == "lab.clab.yml" else edges)
        name = str(tmp_path / topology)
    fabric = fabric_of(settings(name))
    link = fabric.link_names[3]
    made = run(
        **SHORT,
        topology=name,
        faults=f"{link}:0.2",
        methods="canary-mle,mle",
        path=tmp_path / "run",
    )
    assert made.diagnose("mle").blamed == [link]
    assert made.diagnose("canary-mle").blamed == [link]
    network = made.record.network
    counts = network["conservation"]
    drops = counts["fault_drops"] + counts["queue_drops"] + counts["ttl_drops"]
    assert counts["sent"] == counts["delivered"] + drops + network.get("other_drops", 0)
    assert counts["fault_drops"] > 100 and not network["degraded"]
    again = made.record.fabric
    assert isinstance(again, PacketFabric)
    assert (again.link_src == fabric.link_src).all() and again.title == fabric.title
    assert isinstance(fabric, PacketFabric)
    assert (again.host_ip == fabric.host_ip).all()


@pytest.mark.parametrize("name", ["graph.dot", "net.json", "fabric.edges"])
def test_telemetry_is_read_with_the_same_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name])
    rows = [
        {
            "id": i,
            "kind": "active",
            "sent": 1000,
            "lost": 100 * (path[:2] == ["tor1", "top2"]),
            "nodes": [path],
        }
        for i, path in enumerate(
            [a, top, b]
            for a in ("tor1", "tor2", "tor3")
            for top in ("top1", "top2")
            for b in ("tor1", "tor2", "tor3")
            if a != b
        )
    ]
    found = localize(tmp_path / name, pd.DataFrame(rows), "mle")
    assert found.blamed == ["tor1->top2"]
    assert any("tier 0" in line for line in found.receipt)


def test_a_file_with_a_fat_trees_links_has_hosts_of_its_own(tmp_path: Path) -> None:
    write_fabric(path := tmp_path / "fabric.parquet", FatTree(4))
    made = run(
        **SHORT,
        topology=path,
        hosts=3,
        faults="tor0_0->agg0_0:0.2",
        methods="mle",
        path=tmp_path / "run",
    )
    assert made.record.fabric.n_hosts == 24
    assert made.diagnose("mle").blamed == ["tor0_0->agg0_0"]
    assert np.array_equal(made.record.fabric.link_src, FatTree(4).link_src)
