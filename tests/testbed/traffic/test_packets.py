# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether

from testbed.fabric.fat_tree import FatTree
from testbed.traffic.generator import generate
from testbed.traffic.packets import headers, internet_checksum, put

K4 = FatTree(4)


@given(st.binary(min_size=2, max_size=60).filter(lambda b: len(b) % 2 == 0))
def test_checksum_of_a_checksummed_block_is_zero(data):
    block = np.frombuffer(data, np.uint8)
    checksum = int(internet_checksum(block))
    whole = np.frombuffer(data + checksum.to_bytes(2, "big"), np.uint8)
    assert internet_checksum(whole) == 0


def test_put_broadcasts_big_endian():
    frames = np.zeros((2, 3, 6), np.uint8)
    put(frames, 1, np.array([[1], [0x10203]]), 4)
    assert frames[0, 2].tolist() == [0, 0, 0, 0, 1, 0]
    assert frames[1, 0].tolist() == [0, 0, 1, 2, 3, 0]


def test_headers_dissect_as_the_flows():
    traffic = generate(K4, "hadoop", 0.4, 0.02, 1)
    frames, lengths = headers(traffic, K4)
    assert frames.shape == (traffic.n_flows, 54)
    for flow in range(0, traffic.n_flows, 5):
        tcp = traffic.protocol[flow] == 6
        assert lengths[flow] == (54 if tcp else 42)
        assert not frames[flow, lengths[flow] :].any()
        packet = Ether(frames[flow, : lengths[flow]].tobytes())
        src, dst = traffic.src_host[flow], traffic.dst_host[flow]
        assert int(packet.src.replace(":", ""), 16) == K4.host_mac[src]
        assert int(packet.dst.replace(":", ""), 16) == K4.switch_mac[K4.host_tor[src]]
        ip = packet[IP]
        assert (ip.version, ip.ihl, ip.ttl, ip.frag) == (4, 5, 64, 0)
        assert int.from_bytes(bytes(map(int, ip.src.split(".")))) == K4.host_ip[src]
        assert int.from_bytes(bytes(map(int, ip.dst.split(".")))) == K4.host_ip[dst]
        l4 = packet[TCP if tcp else UDP]
        assert (l4.sport, l4.dport) == (traffic.src_port[flow], traffic.dst_port[flow])
        if tcp:
            assert l4.dataofs == 5 and l4.flags == "A"


@pytest.mark.parametrize("k", [4, 8])
def test_headers_of_distinct_flows_are_distinct(k):
    topology = FatTree(k)
    traffic = generate(topology, "storage", 0.3, 0.02, 2)
    frames, _ = headers(traffic, topology)
    assert len(np.unique(frames, axis=0)) == traffic.n_flows
