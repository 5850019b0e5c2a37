# SPDX-License-Identifier: Apache-2.0

import numpy as np
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from testbed.fabric.clos import leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import PacketFabric
from testbed.measurements.bounce.probes import probe_plan
from testbed.network.schedules import listed

K4 = FatTree(4)


def test_every_host_probes_every_core_switch():
    plan = probe_plan(K4, 0.6, packets=100, seed=1)
    assert len(set(zip(plan.host.tolist(), plan.path.tolist(), strict=True))) == 16 * 4
    assert plan.frames.shape == (64, 64)
    assert len(plan.packets) == 6400
    assert (np.bincount(listed(plan.packets).flow) == 100).all()


def test_probes_are_spread_over_the_run():
    plan = listed(probe_plan(K4, 0.6, packets=100, seed=1).packets)
    assert plan.time_ns.dtype == np.uint64 and plan.flow.dtype == np.uint32
    assert (np.diff(plan.time_ns.astype(np.int64)) >= 0).all()
    assert plan.time_ns[-1] < 0.6e9
    for pair in (0, 17, 63):
        gaps = np.diff(plan.time_ns[plan.flow == pair].astype(np.int64))
        assert (np.abs(gaps - 6_000_000) <= 1).all()


def test_probes_are_deterministic():
    first, second, other = (listed(probe_plan(K4, 0.6, 10, s).packets) for s in (1, 1, 2))
    assert (first.time_ns == second.time_ns).all() and (first.flow == second.flow).all()
    assert (first.time_ns != other.time_ns).any()


def test_frames_are_ip_in_ip_with_right_checksums():
    plan = probe_plan(K4, 0.1, 1)
    for pair in (0, 5, 63):
        raw = plan.frames[pair].tobytes()
        packet = Ether(raw)
        outer, inner = packet[IP], packet[IP].payload
        assert isinstance(inner, IP) and inner.payload.name == "UDP"
        host = str(inner.src)
        assert outer.src == inner.dst == host
        core = K4.n_tors + K4.n_aggs + plan.path[pair] % 4
        assert int.from_bytes(bytes(map(int, outer.dst.split(".")))) == K4.switch_ip[core]
        assert outer.ttl == inner.ttl == 15
        assert outer.len == 50 and inner.len == 30 and inner[UDP].len == 10
        for header in (outer, inner):
            rebuilt = header.copy()
            del rebuilt.chksum
            assert IP(bytes(rebuilt)).chksum == header.chksum


def test_a_host_probes_the_switches_above_it_alone():
    """leaf0 lacks its link to spine0, so its hosts have one path less."""
    fabric = PacketFabric.of(leaf_spine(3, 2).without([0]))
    plan = probe_plan(fabric, 1.0, 1)
    tor = fabric.host_tor[plan.host]
    bounces = Ecmp(fabric).bounces()
    assert (fabric.link_src[bounces.links[bounces.ptr[plan.path]]] == tor).all()
    assert np.bincount(tor).tolist() == [fabric.hosts_per_tor * n for n in (1, 2, 2)]
