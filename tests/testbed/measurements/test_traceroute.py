# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.topologies import make_packet_fabric
from testbed.measurements.traces.path_discovery import (
    assemble_paths,
    host_rate_limit,
    parse_time_exceeded,
    traceroute_frames,
)
from testbed.traffic.generator import generate

K4 = FatTree(4)
TRAFFIC = generate(K4, "storage", 0.4, 0.02, 1)


def ether(**fields):
    """With both addresses given, or Scapy would ask the real network for them."""
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", **fields)


def dotted(address) -> str:
    return ".".join(str(int(address) >> shift & 255) for shift in (24, 16, 8, 0))


def reply(topology: PacketFabric, switch: int, frame: np.ndarray) -> bytes:
    """What the switch answers to a traceroute frame that expired there."""
    original = frame[14:].tobytes()
    icmp = IP(src=dotted(topology.switch_ip[switch]), dst=dotted(int.from_bytes(original[12:16])))
    return bytes(ether() / icmp / ICMP(type=11, code=0) / Raw(original[:28]))


def true_path(topology: PacketFabric, traffic, flow: int, choice: int) -> np.ndarray:
    src = topology.host_tor[traffic.src_host[flow : flow + 1]]
    dst = topology.host_tor[traffic.dst_host[flow : flow + 1]]
    paths = topology.path_sets(src, dst).paths
    return paths[choice % len(paths)]


def trace(topology, traffic, flows, choices, answered):
    """Paths from the replies of the hops in ``answered`` (1 is the first switch)."""
    frames = traceroute_frames(traffic, flows, topology)
    replies = []
    for row, flow in enumerate(flows):
        path = true_path(topology, traffic, flow, choices[row])
        tor = topology.host_tor[traffic.src_host[flow]]
        switches = [tor, *topology.link_dst[path]]
        replies += [
            reply(topology, int(switch), frames[row, hop - 1])
            for hop, switch in enumerate(switches, 1)
            if hop in answered[row]
        ]
    return assemble_paths(topology, traffic, flows, parse_time_exceeded(replies, topology))


def between_pods(topology=K4, traffic=TRAFFIC) -> np.ndarray:
    pod = topology.host_tor // topology.half
    return np.flatnonzero(pod[traffic.src_host] != pod[traffic.dst_host])


def within_pod(topology=K4, traffic=TRAFFIC) -> np.ndarray:
    pod = topology.host_tor // topology.half
    return np.flatnonzero(pod[traffic.src_host] == pod[traffic.dst_host])


def test_frames_have_the_flows_tuple_and_a_wrong_checksum():
    udp = np.flatnonzero(TRAFFIC.protocol == 17)[:3]
    tcp = np.flatnonzero(TRAFFIC.protocol == 6)[:5]
    flows = np.concatenate((tcp, udp))
    frames = traceroute_frames(TRAFFIC, flows, K4)
    assert frames.shape == (len(flows), 5, 54)
    for row, flow in enumerate(flows):
        for ttl in range(1, 6):
            packet = Ether(frames[row, ttl - 1].tobytes())
            ip, l4 = packet[IP], packet[TCP if TRAFFIC.protocol[flow] == 6 else UDP]
            assert (ip.ttl, ip.id, ip.len) == (ttl, ttl, 40)
            assert (l4.sport, l4.dport) == (TRAFFIC.src_port[flow], TRAFFIC.dst_port[flow])
            right = packet.copy()
            del right[IP].chksum
            del right[l4.__class__].chksum
            right = Ether(bytes(right))
            assert right[IP].chksum == ip.chksum
            assert right[l4.__class__].chksum != l4.chksum != 0


@given(choices=st.lists(st.integers(0, 3), min_size=6, max_size=6))
@settings(max_examples=10, deadline=None)
def test_complete_traces_give_the_whole_path(choices):
    flows = np.concatenate((between_pods()[:4], within_pod()[:2]))
    paths = trace(K4, TRAFFIC, flows, choices, [range(1, 6)] * 6)
    for row, flow in enumerate(flows):
        assert paths[row].tolist() == true_path(K4, TRAFFIC, flow, choices[row]).tolist()


# hops that answer -> which links of ToR-agg-core-agg-ToR are known
BETWEEN = [
    ((), []),
    ((1,), []),
    ((1, 2), [0]),
    ((2,), [0]),
    ((1, 2, 3), [0, 1, 2]),
    ((3,), [0, 1, 2]),
    ((1, 3), [0, 1, 2]),
    ((1, 2, 3, 4), [0, 1, 2, 3]),
    ((1, 3, 4), [0, 1, 2, 3]),
    ((1, 3, 5), [0, 1, 2, 3]),
    ((1, 2, 3, 5), [0, 1, 2, 3]),
    ((1, 2, 4, 5), [0, 3]),
    ((1, 4), [0, 3]),
    ((1, 5), []),
]


@pytest.mark.parametrize(("answered", "known"), BETWEEN)
@pytest.mark.parametrize("k", [4, 8])
def test_partial_traces_between_pods(k, answered, known):
    topology = FatTree(k)
    traffic = generate(topology, "storage", 0.1, 0.01, 3)
    flow = between_pods(topology, traffic)[:1]
    paths = trace(topology, traffic, flow, [3], [answered])
    path = true_path(topology, traffic, int(flow[0]), 3)
    assert paths[0].tolist() == path[known].tolist()


@pytest.mark.parametrize(
    ("answered", "known"),
    [((), []), ((1,), []), ((1, 2), [0, 1]), ((2, 3), [0, 1]), ((1, 2, 3), [0, 1]), ((1, 3), [])],
)
def test_partial_traces_within_a_pod(answered, known):
    flow = within_pod()[:1]
    paths = trace(K4, TRAFFIC, flow, [1], [answered])
    assert paths[0].tolist() == true_path(K4, TRAFFIC, int(flow[0]), 1)[known].tolist()


@pytest.mark.parametrize("text", ["leaf-spine:6:4", "clos:3:2:2:6:2"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_on_any_clos_whole_traces_give_the_path_and_broken_ones_nothing_wrong(text, seed):
    topology = make_packet_fabric(text, 4, seed=1)
    traffic = generate(topology, "storage", 0.1, 0.01, 3)
    rng = np.random.default_rng(seed)
    flows = np.sort(rng.choice(traffic.n_flows, 8, replace=False))
    choices = rng.integers(0, 100, 8).tolist()
    hops = range(1, 2 * topology.tier.max() + 2)
    whole = trace(topology, traffic, flows, choices, [hops] * 8)
    some = [[hop for hop in hops if rng.random() < 0.6] for _ in flows]
    broken = trace(topology, traffic, flows, choices, some)
    for row, flow in enumerate(flows):
        path = true_path(topology, traffic, int(flow), choices[row]).tolist()
        assert whole[row].tolist() == path
        assert set(broken[row].tolist()) <= set(path)


def test_contradicting_replies_name_no_link():
    flow = between_pods()[:1]
    frames = traceroute_frames(TRAFFIC, flow, K4)
    path = true_path(K4, TRAFFIC, int(flow[0]), 0)
    up = int(K4.link_dst[path[0]])
    wrong_core = int(true_core(path)) ^ 2  # of the other aggregation switch
    replies = [reply(K4, up, frames[0, 1]), reply(K4, wrong_core, frames[0, 2])]
    paths = assemble_paths(K4, TRAFFIC, flow, parse_time_exceeded(replies, K4))
    assert paths[0].tolist() == [path[0]]
    at_wrong_hop = [reply(K4, up, frames[0, 2]), reply(K4, up, frames[0, 0])]
    paths = assemble_paths(K4, TRAFFIC, flow, parse_time_exceeded(at_wrong_hop, K4))
    assert paths[0].tolist() == []


def true_core(path):
    return K4.link_dst[path[1]]


def test_foreign_replies_are_ignored():
    flows = between_pods()[:2]
    frames = traceroute_frames(TRAFFIC, between_pods()[2:3], K4)
    replies = parse_time_exceeded([reply(K4, 8, frames[0, 1])], K4)
    assert len(replies.switch) == 1
    paths = assemble_paths(K4, TRAFFIC, flows, replies)
    assert len(paths) == 2 and not len(paths.links)
    assert not len(assemble_paths(K4, TRAFFIC, flows[:0], replies))


def test_parsing_skips_what_is_no_time_exceeded():
    frames = traceroute_frames(TRAFFIC, np.array([0]), K4)
    good = reply(K4, 9, frames[0, 1])
    unreachable = bytearray(good)
    unreachable[34] = 3
    stranger = bytearray(good)
    stranger[26:30] = bytes([192, 0, 2, 1])
    junk = [b"", good[:40], frames[0, 0].tobytes(), bytes(unreachable), bytes(stranger), b"x" * 99]
    replies = parse_time_exceeded([*junk, good], K4)
    assert replies.switch.tolist() == [9] and replies.ttl.tolist() == [2]
    assert replies.src_ip[0] == K4.host_ip[TRAFFIC.src_host[0]]
    assert replies.dst_port[0] == TRAFFIC.dst_port[0]
    assert replies.protocol[0] == TRAFFIC.protocol[0]
    array = np.frombuffer(good[:70] + bytes(10), np.uint8).reshape(1, -1)
    assert parse_time_exceeded(array, K4).switch.tolist() == [9]
    assert not len(parse_time_exceeded([], K4).switch)


@given(st.lists(st.binary(max_size=100), max_size=5))
@settings(max_examples=50, deadline=None)
def test_parsing_survives_any_bytes(frames):
    assert not len(parse_time_exceeded(frames, K4).switch)


def test_host_rate_limit_is_theorem_1():
    # n0 = n1 = H = 2, n2 = 4, 4 pods: 100 / 4 * min(2, 4 * 7 / (2 * 3))
    assert host_rate_limit(K4, 100) == pytest.approx(50)
    assert host_rate_limit(FatTree(8), t_max=200) == pytest.approx(200 / 16 * 4)
