# SPDX-License-Identifier: Apache-2.0
"""Every host reaches every other over shortest paths, and uplinks share the flows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from canary_softswitch import Program, Switch
from testbed.control.forwarding import Uplinks, group_entries, install_forwarding
from testbed.dataplane import VERDICT
from testbed.dataplane.adapted import COMPILED, adapted_program
from testbed.fabric.clos import clos, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.topologies import make_packet_fabric
from testbed.network.schedules import Packets, listed
from testbed.network.sources import Source
from testbed.network.virtual import VirtualNetwork
from testbed.traffic.flows import UDP, Traffic
from testbed.traffic.packets import headers


def all_pairs(topology: PacketFabric, ports: int) -> Traffic:
    """One packet of ``ports`` flows from every host to every other."""
    hosts = np.arange(topology.n_hosts, dtype=np.int32)
    numbers = np.arange(ports, dtype=np.int32)
    src, dst, port = (a.ravel() for a in np.meshgrid(hosts, hosts, numbers, indexing="ij"))
    keep = src != dst
    src, dst, port = src[keep], dst[keep], port[keep]
    n = len(src)
    return Traffic(
        src_host=src,
        dst_host=dst,
        src_port=(10_000 + port * 7).astype(np.uint16),
        dst_port=np.full(n, 80, np.uint16),
        protocol=np.full(n, UDP, np.uint8),
        packets=Packets(
            np.arange(n, dtype=np.uint64) * 1000,
            np.arange(n, dtype=np.uint32),
            np.full(n, 64, np.uint16),
        ),
    )


def loaded(topology: PacketFabric) -> Program:
    """The program with as many groups of uplinks as a fabric needs."""
    with TemporaryDirectory() as folder:
        files = adapted_program(Path(folder), COMPILED, group_entries(topology))
        return Program.load(files.json, observe=VERDICT.field)


def fabric_of_switches(
    topology: PacketFabric,
) -> tuple[VirtualNetwork, list[Uplinks | None]]:
    """A network of switches that forward and do not meter, and their ECMP groups."""
    program = loaded(topology)
    switches = [Switch(program, seed=i) for i in range(topology.n_switches)]
    uplinks = [
        install_forwarding(topology, index, switch, mask=1 << index % 32, monitor=False)
        for index, switch in enumerate(switches)
    ]
    return VirtualNetwork(topology, program, switches), uplinks


def sends(network: VirtualNetwork, traffic: Traffic) -> int:
    """The number of a source that sends this traffic."""
    templates, lengths = headers(traffic, network.topology)
    ends = traffic.src_host, traffic.dst_host
    return network.add_source(Source(traffic.packets, templates, lengths, *ends))


FABRICS = [
    "fat-tree",
    "fat-tree of K=6",
    "leaf-spine:6:4:0.5",
    "leaf-spine:2:1",
    "clos:3:2:2:6",
    "clos:2:4:2:4:2",
    "leaf-spine:6:4:irregular=20pct",
    "clos:3:4:3:6:irregular=30pct",
    "fat-tree:irregular=10pct",
]


def named(text: str) -> PacketFabric:
    """The fabric of a setting TOPOLOGY."""
    return FatTree(6) if text == FABRICS[1] else make_packet_fabric(text, k=4, seed=1)


@pytest.mark.parametrize("text", FABRICS)
def test_every_host_reaches_every_other_over_shortest_paths(text: str) -> None:
    topology = named(text)
    network, _ = fabric_of_switches(topology)
    traffic = all_pairs(topology, ports=8)
    source = sends(network, traffic)
    network.run_until(10**10)

    assert (network.delivered(source) == 1).all()
    src, dst = topology.host_tor[traffic.src_host], topology.host_tor[traffic.dst_host]
    sets = topology.path_sets(src, dst)
    hops = sets.paths.length[sets.ptr[:-1]]
    assert network.statistics.packet_hops == (hops + 1).sum()
    # All paths carry alike, so every uplink has its share: no polarisation of one tier by another.
    paths = np.diff(sets.ptr)
    share = np.repeat(1 / np.repeat(paths, paths), sets.paths.length)
    expected = np.bincount(sets.paths.links, share, topology.n_links)[::2]
    packets = network.link_packets()[::2]
    assert ((packets > 0.6 * expected) & (packets < 1.5 * expected))[expected > 50].all()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fat-tree", "tor0_0->agg0_1"),
        ("fat-tree of K=6", "agg2_1->core4"),
        ("leaf-spine:6:4:0.5", "leaf3->spine2"),
        ("leaf-spine:6:4:irregular=20pct", "leaf3->spine2"),
    ],
)
def test_a_drained_uplink_carries_nothing_and_nothing_is_lost(text: str, name: str) -> None:
    topology = named(text)
    link = topology.link(name)
    others = np.flatnonzero(topology.link_src == topology.link_src[link])
    others = others[(others % 2 == 0) & (others != link)]
    network, uplinks = fabric_of_switches(topology)
    group = uplinks[topology.link_src[link]]
    assert group is not None
    traffic = all_pairs(topology, ports=8)
    mixed = np.random.default_rng(1).permutation(traffic.n_flows).astype(np.uint32)
    traffic = replace(traffic, packets=replace(listed(traffic.packets), flow=mixed))
    source = sends(network, traffic)
    third = traffic.n_flows * 1000 // 3  # a packet each microsecond
    under_way = 100_000

    def carried() -> tuple[int, int]:
        packets = network.link_packets()
        return int(packets[link]), int(packets[others].sum())

    network.run_until(third)
    group.drain(link)
    network.run_until(third + under_way)
    before = carried()
    assert min(before) > 0
    network.run_until(2 * third)
    drained = carried()
    assert drained[0] == before[0] and drained[1] > before[1]
    group.undrain(link)
    network.drain()
    assert carried()[0] > drained[0]
    assert (network.delivered(source) == 1).all()


def test_uplinks_carry_as_much_as_paths_are_behind_them() -> None:
    """tor0_0 has two paths to other pods over agg0_0 and one over agg0_1, which lacks a core."""
    whole = clos(2, 2, 2, 4)
    topology = PacketFabric.of(whole.without([whole.link("agg0_1->core2") >> 1]))
    network, groups = fabric_of_switches(topology)
    heavy, light = (topology.link(f"tor0_0->agg0_{nth}") for nth in range(2))
    group = groups[0]
    assert group is not None
    of_each = [Counter(link for link, _ in members) for members in group.groups.values()]
    assert of_each == [{heavy: 2, light: 1}, {heavy: 1, light: 1}]
    source = sends(network, all_pairs(topology, ports=64))
    network.run_until(10**10)
    assert (network.delivered(source) == 1).all()
    packets = network.link_packets().astype(float)
    near = 1 / 3  # of the ToRs that are not below, which tor0_0 sends to over both alike
    expected = near / 2 + (1 - near) * 2 / 3
    assert packets[heavy] / (packets[heavy] + packets[light]) == pytest.approx(expected, abs=0.05)


def test_a_drained_uplink_stays_where_there_is_no_other() -> None:
    topology = PacketFabric.of(leaf_spine(3, 2).without([0]))  # leaf0 has spine1 alone
    network, groups = fabric_of_switches(topology)
    group = groups[1]
    assert group is not None
    group.drain(topology.link("leaf1->spine1"))
    source = sends(network, all_pairs(topology, ports=8))
    network.run_until(10**10)
    assert (network.delivered(source) == 1).all()
    to_leaf0 = (topology.n_hosts // 3) ** 2 * 8
    assert network.link_packets()[topology.link("leaf1->spine1")] == to_leaf0
