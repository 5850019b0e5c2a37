import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from testbed.topology import FatTree
from testbed.traffic.probes import parse_probe, probe_plan

K4 = FatTree(4)


def bounced(frames: np.ndarray) -> np.ndarray:
    """As hosts get them back: without the outer header, the TTL decremented on the way."""
    frames = np.concatenate((frames[:, :14], frames[:, 34:]), axis=1)
    frames[:, 22] -= 4
    return frames


def test_every_host_probes_every_core_switch():
    plan = probe_plan(K4, 0.6, packets=100, seed=1)
    assert len(set(zip(plan.host.tolist(), plan.core.tolist(), strict=True))) == 16 * 4
    assert plan.frames.shape == (64, 64)
    assert len(plan.time_ns) == len(plan.pair) == 6400
    assert (np.bincount(plan.pair) == 100).all()


def test_probes_are_spread_over_the_run():
    plan = probe_plan(K4, 0.6, packets=100, seed=1)
    assert plan.time_ns.dtype == np.uint64 and plan.pair.dtype == np.uint32
    assert (np.diff(plan.time_ns.astype(np.int64)) >= 0).all()
    assert plan.time_ns[-1] < 0.6e9
    for pair in (0, 17, 63):
        gaps = np.diff(plan.time_ns[plan.pair == pair].astype(np.int64))
        assert (np.abs(gaps - 6_000_000) <= 1).all()


def test_probes_are_deterministic():
    first, second, other = (probe_plan(K4, 0.6, 10, seed) for seed in (1, 1, 2))
    assert (first.time_ns == second.time_ns).all() and (first.pair == second.pair).all()
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
        core = K4.n_tors + K4.n_aggs + plan.core[pair]
        assert int.from_bytes(bytes(map(int, outer.dst.split(".")))) == K4.switch_ip[core]
        assert outer.ttl == inner.ttl == 15
        assert outer.len == 50 and inner.len == 30 and inner[UDP].len == 10
        for header in (outer, inner):
            rebuilt = header.copy()
            del rebuilt.chksum
            assert IP(bytes(rebuilt)).chksum == header.chksum


@pytest.mark.parametrize("k", [4, 8])
def test_returned_probes_name_their_pair(k):
    topology = FatTree(k)
    plan = probe_plan(topology, 0.1, 1)
    assert (parse_probe(bounced(plan.frames)) == np.arange(len(plan.host))).all()


def test_other_frames_are_no_probes():
    plan = probe_plan(K4, 0.1, 1)
    frames = bounced(plan.frames)[:5]
    frames[0, 29] ^= 1  # another sender
    frames[1, 23] = 6  # TCP
    frames[2, 22] = 60  # a TTL that no probe has
    frames[3, 12] = 0x86  # IPv6
    assert parse_probe(frames).tolist() == [-1, -1, -1, -1, 4]
    assert (parse_probe(plan.frames) == -1).all()  # still with the outer header
    assert parse_probe(frames[:0]).tolist() == []
