# SPDX-License-Identifier: Apache-2.0
"""Every host reaches every other over shortest paths, and uplinks share the flows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from canary_softswitch import Program, Switch
from testbed.control.forwarding import Uplinks, install_forwarding
from testbed.dataplane import PROGRAM, ROUTING, VERDICT
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


def fabric_of_switches(
    topology: PacketFabric,
) -> tuple[VirtualNetwork, list[Uplinks | None]]:
    """A network of switches that forward and do not meter, and their ECMP groups."""
    program = Program.load(PROGRAM, observe=VERDICT.field)
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
]


def named(text: str) -> PacketFabric:
    """The fabric of a setting TOPOLOGY."""
    return FatTree(6) if text == FABRICS[1] else make_packet_fabric(text, k=4)


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
    # Every uplink of a tier carries its share: no polarisation of one tier by the other.
    packets = network.link_packets()
    for tier in range(topology.tier.max()):
        up = packets[::2][topology.tier[topology.link_src[::2]] == tier]
        assert up.min() > 0.6 * up.mean()
        assert up.max() < 1.5 * up.mean()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fat-tree", "tor0_0->agg0_1"),
        ("fat-tree of K=6", "agg2_1->core4"),
        ("leaf-spine:6:4:0.5", "leaf3->spine2"),
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


def test_an_uplink_with_three_of_four_members_gets_three_quarters() -> None:
    """A weight of an ECMP group needs no change of the program, but members of other numbers."""
    topology = FatTree(4)
    program = Program.load(PROGRAM, observe=VERDICT.field)
    switches = [Switch(program, seed=i) for i in range(topology.n_switches)]
    groups = [
        install_forwarding(topology, index, switch, mask=1 << index, monitor=False)
        for index, switch in enumerate(switches)
    ]
    heavy, light = (topology.link(f"tor0_0->agg0_{nth}") for nth in range(2))
    group, profile = groups[0], switches[0].action_profile(ROUTING.selector)
    assert group is not None
    port, mac = topology.link_src_port[heavy], topology.switch_mac[topology.link_dst[heavy]]
    more = [profile.add_member(ROUTING.forward, (int(port), int(mac))) for _ in range(2)]
    profile.modify_group(group.group, [*group.members.values(), *more])
    network = VirtualNetwork(topology, program, switches)
    traffic = all_pairs(topology, ports=64)
    source = sends(network, traffic)
    network.run_until(10**10)
    assert (network.delivered(source) == 1).all()
    packets = network.link_packets().astype(float)
    assert 0.7 < packets[heavy] / (packets[heavy] + packets[light]) < 0.8
