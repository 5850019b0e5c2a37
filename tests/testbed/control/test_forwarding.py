"""Every host reaches every other over shortest paths, and uplinks share the flows."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.control.forwarding import install_forwarding
from testbed.dataplane import PROGRAM, VERDICT
from testbed.fabric.fat_tree import FatTree
from testbed.network.schedules import Packets
from testbed.network.sources import Source
from testbed.network.virtual import VirtualNetwork
from testbed.softswitch import Program, Switch
from testbed.traffic.flows import UDP, Traffic
from testbed.traffic.packets import headers


def all_pairs(topology: FatTree, ports: int) -> Traffic:
    """One packet of ``ports`` flows from every host to every other."""
    hosts = np.arange(topology.n_hosts, dtype=np.int32)
    src, dst, port = (a.ravel() for a in np.meshgrid(hosts, hosts, np.arange(ports), indexing="ij"))
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


@pytest.mark.parametrize("k", [4, 6])
def test_every_host_reaches_every_other_over_shortest_paths(k: int) -> None:
    topology = FatTree(k)
    program = Program.load(PROGRAM, observe=VERDICT.field)
    switches = [Switch(program, seed=i) for i in range(topology.n_switches)]
    for index, switch in enumerate(switches):
        install_forwarding(topology, index, switch, mask=1 << index % 32, monitor=False)
    network = VirtualNetwork(topology, program, switches)
    traffic = all_pairs(topology, ports=8)
    templates, lengths = headers(traffic, topology)
    source = network.add_source(
        Source(
            traffic.packets,
            templates,
            lengths,
            traffic.src_host,
            traffic.dst_host,
        )
    )
    network.run_until(10**10)

    assert (network.delivered(source) == 1).all()
    src, dst = topology.host_tor[traffic.src_host], topology.host_tor[traffic.dst_host]
    same_pod = src // topology.half == dst // topology.half
    hops = np.where(src == dst, 1, np.where(same_pod, 3, 5)).sum()
    assert network.statistics.packet_hops == hops
    # Every uplink of a tier carries its share: no polarisation of one tier by the other.
    packets = network.link_packets()
    for up in (packets[: topology.n_edges : 2], packets[topology.n_edges :: 2]):
        assert up.min() > 0.6 * up.mean()
        assert up.max() < 1.5 * up.mean()
