"""What the Canary program does to packets, on soft switches with the testbed's forwarding."""

from __future__ import annotations

import struct
from collections import Counter

import numpy as np
import pytest
from scapy.layers.inet import ICMP as ScapyICMP
from scapy.layers.inet import IP, IPerror, UDPerror
from scapy.layers.l2 import Ether

from testbed.fabric.pathbf import bloom_mask, switch_ids
from testbed.softswitch import Program, Switch

from .fabric import DSM, USM, Bucket, Fabric, bucket, monitor_dsm, monitor_usm, total
from .frames import (
    CORRUPT,
    EXPIRED,
    FAULT,
    ICMP,
    IPIP,
    LOCAL,
    MALFORMED,
    NO_ROUTE,
    TCP,
    UDP,
    Flow,
    checksum,
    ethernet,
    frame,
    ip_of,
    ipv4,
    l4,
    packet,
    shim_of,
    shimmed,
)

WINDOW_US = 1 << 17
ICMP_PER_WINDOW = 13


def flow_between(fabric: Fabric, src: int, dst: int, port: int = 0, protocol: int = UDP) -> Flow:
    return Flow(fabric.host_ip(src), fabric.host_ip(dst), 10_000 + port, 80, protocol)


def flow_over(fabric: Fabric, src: int, dst: int, *switches: int, protocol: int = UDP) -> Flow:
    """A flow from host to host that takes these switches."""
    for port in range(1000):
        flow = flow_between(fabric, src, dst, port, protocol)
        if fabric.send(src, frame(flow)).switches == list(switches):
            return flow
    raise AssertionError("no flow takes this path")


def names(fabric: Fabric, *wanted: str) -> list[int]:
    return [fabric.topology.switch(name) for name in wanted]


def is_right(ip: bytes) -> bool:
    """Whether scapy computes the same IPv4 (and ICMP) checksum."""
    parsed = IP(ip)
    given = parsed.chksum, parsed[ScapyICMP].chksum if ScapyICMP in parsed else 0
    del parsed.chksum
    if ScapyICMP in parsed:
        del parsed[ScapyICMP].chksum
    again = IP(bytes(parsed))
    return given == (again.chksum, again[ScapyICMP].chksum if ScapyICMP in again else 0)


# ---- the shim ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [TCP, UDP])
@pytest.mark.parametrize("dst", [1, 2, 15])  # same rack, same pod, another pod
def test_hosts_never_see_the_shim(fabric: Fabric, dst: int, protocol: int) -> None:
    sent = frame(flow_between(fabric, 0, dst, protocol=protocol))
    journey = fabric.send(0, sent)
    assert journey.host == dst
    *fabric_frames, received = [data for _, _, data in journey.hops]
    for data in fabric_frames:
        shim = shim_of(data)
        assert shim is not None
        assert shim.ether_type == 0x0800
    assert shim_of(received) is None
    assert len(received) == len(sent)


def test_delivered_packet_differs_from_the_sent_one_in_addresses_ttl_and_checksum_only(
    fabric: Fabric,
) -> None:
    sent = frame(flow_between(fabric, 0, 15), payload=bytes(range(200)))
    received = fabric.send(0, sent).last
    topology = fabric.topology
    tor = int(topology.host_tor[15])
    assert received[:6] == int(topology.host_mac[15]).to_bytes(6, "big")
    assert received[6:12] == int(topology.switch_mac[tor]).to_bytes(6, "big")
    before, after = ip_of(sent), ip_of(received)
    assert after[8] == before[8] - 5
    assert checksum(after[:20]) == 0
    assert after[:8] + after[9:10] + after[12:] == before[:8] + before[9:10] + before[12:]


def test_icmp_and_fragments_are_forwarded_unchanged_too(fabric: Fabric) -> None:
    src, dst = fabric.host_ip(0), fabric.host_ip(15)
    for ip in (
        ipv4(src, dst, ICMP, bytes(range(40))),
        ipv4(src, dst, UDP, bytes(range(40)), fragment=0x2010),
        ipv4(src, dst, 132, b""),
    ):
        journey = fabric.send(0, ethernet(ip))
        assert journey.host == 15
        assert ip_of(journey.last)[20:] == ip[20:]
        assert checksum(ip_of(journey.last)[:20]) == 0


def test_ip_options_survive_with_a_right_checksum(fabric: Fabric) -> None:
    ip = ipv4(fabric.host_ip(0), fabric.host_ip(15), UDP, b"payload", options=b"\x94\x04\0\0")
    journey = fabric.send(0, ethernet(ip))
    assert journey.host == 15
    received = ip_of(journey.last)
    assert received[8] == 59
    assert received[20:] == ip[20:]
    assert checksum(received[:24]) == 0


def test_checksum_with_options_is_right_at_the_carry(fabric: Fabric) -> None:
    def sent(identification: int) -> bytes:
        return ipv4(
            fabric.host_ip(0),
            fabric.host_ip(1),
            UDP,
            options=b"\x94\x04\0\0",
            identification=identification,
        )

    base = int.from_bytes(sent(0)[10:12], "big")
    for wanted in range(0xFEF8, 0xFFFF):
        ip = sent((base - wanted) % 0xFFFF)
        assert int.from_bytes(ip[10:12], "big") == wanted
        assert checksum(ip_of(fabric.send(0, ethernet(ip)).last)[:24]) == 0


# ---- pathBF --------------------------------------------------------------------------------------


@pytest.mark.parametrize("monitors", ["tor", "tor+core"])
def test_path_bf_at_each_monitor_is_what_the_decoder_expects_on_every_path(
    program: Program, monitors: str
) -> None:
    fabric = Fabric(program, 4, "tor" if monitors == "tor" else "tor+core")
    topology = fabric.topology
    is_monitor = (topology.tier == 0) | ((topology.tier == 2) & (monitors == "tor+core"))
    seen = set()
    for src in range(0, topology.n_hosts, 2):
        for dst in range(1, topology.n_hosts, 2):
            for port in range(24):
                journey = fabric.send(src, frame(flow_between(fabric, src, dst, port)))
                assert journey.host == dst
                since = [journey.switches[0]]
                for (_, _, data), arrived in zip(journey.hops, journey.switches[1:], strict=False):
                    shim = shim_of(data)
                    assert shim is not None
                    since.append(arrived)
                    if is_monitor[arrived]:
                        segment = fabric.segment(*since)
                        assert shim.path_bf == fabric.decoder.path_bf[segment]
                        decoded = fabric.decoder.decode(
                            np.array([arrived]), np.array([shim.path_bf])
                        )
                        assert decoded == [segment]
                        seen.add(segment)
                        since = [arrived]
    assert seen == set(range(len(fabric.segments))), "a segment carried no packet"


# ---- ECMP ----------------------------------------------------------------------------------------


def test_packets_of_one_flow_keep_one_path(fabric: Fabric) -> None:
    for port in range(20):
        flow = flow_between(fabric, 0, 15, port)
        paths = {
            tuple(fabric.send(0, frame(flow, ttl, bytes(size)), now).switches)
            for ttl in (64, 33)
            for size in (0, 100, 1400)
            for now in (0, 10**9)
        }
        assert len(paths) == 1


@pytest.mark.parametrize(("k", "limit"), [(4, 16.3), (8, 37.7)])  # chi-square, 99.9 %
def test_flows_spread_evenly_over_all_paths_and_tiers_choose_independently(
    program: Program, k: int, limit: float
) -> None:
    fabric = Fabric(program, k)
    rng = np.random.default_rng(k)
    dst = fabric.topology.n_hosts - 1
    paths = Counter()
    flows = 250 * (k // 2) ** 2
    for src_port, dst_port in rng.integers(1024, 65536, (flows, 2)).tolist():
        flow = Flow(fabric.host_ip(0), fabric.host_ip(dst), src_port, dst_port, TCP)
        _, agg, core, _, _ = fabric.send(0, frame(flow)).switches
        paths[agg, core] += 1
    # A core is reached through one aggregation switch alone, so 16 (4) paths, not more; were the
    # tiers polarised, most of them would stay empty.
    assert len(paths) == (k // 2) ** 2
    assert sum((n - 250) ** 2 / 250 for n in paths.values()) < limit


@pytest.mark.parametrize("counting", ["source port", "destination port", "both"])
@pytest.mark.parametrize("k", [4, 8])
def test_flows_with_consecutive_ports_spread_over_all_paths_too(
    program: Program, k: int, counting: str
) -> None:
    """As clients with ephemeral ports and parallel streams do; a bare CRC leaves paths unused."""
    fabric = Fabric(program, k)
    src, dst = fabric.host_ip(0), fabric.host_ip(fabric.topology.n_hosts - 1)
    paths = (k // 2) ** 2
    for first in (1024, 10_000, 40_000):
        count = Counter()
        for i in range(32 * paths):
            src_port = first + i * (counting != "destination port")
            dst_port = 5201 + i * (counting != "source port")
            count[fabric.send(0, frame(Flow(src, dst, src_port, dst_port, TCP))).switches[2]] += 1
        assert len(count) == paths
        assert sum((n - 32) ** 2 / 32 for n in count.values()) < 2.5 * paths


# ---- TTL, ICMP, tunnels --------------------------------------------------------------------------


def test_each_switch_decrements_the_ttl_and_keeps_the_checksum_right(fabric: Fabric) -> None:
    journey = fabric.send(0, frame(flow_between(fabric, 0, 15), ttl=64))
    for hop, (_, _, data) in enumerate(journey.hops):
        assert ip_of(data)[8] == 63 - hop
        assert is_right(ip_of(data))


@pytest.mark.parametrize("protocol", [TCP, UDP])
@pytest.mark.parametrize("ttl", [1, 2, 3, 4, 5])
def test_expired_packet_brings_time_exceeded_back_from_the_switch_it_reached(
    fabric: Fabric, ttl: int, protocol: int
) -> None:
    flow = flow_between(fabric, 0, 15, protocol=protocol)
    path = fabric.send(0, frame(flow)).switches
    sent = packet(flow, ttl, payload=bytes(300))
    journey = fabric.send(0, ethernet(sent))
    assert journey.host == 0
    assert journey.expired
    assert journey.switches[:ttl] == path[:ttl]
    assert all(len(data) <= 77 for _, _, data in journey.hops[ttl - 1 :])
    reply = IP(ip_of(journey.last))
    assert is_right(ip_of(journey.last)[: reply.len])
    assert reply.len == 56
    address = int(fabric.topology.switch_ip[path[ttl - 1]])
    assert reply.src == ".".join(map(str, address.to_bytes(4, "big")))
    assert (reply[ScapyICMP].type, reply[ScapyICMP].code) == (11, 0)
    quoted = bytes(ip_of(journey.last)[28:56])
    # The quote is the header as it arrived, with its TTL of 1 and a right checksum, and 8 bytes.
    assert quoted[:8] == sent[:8]
    assert quoted[8] == 1
    assert checksum(quoted[:20]) == 0
    assert quoted[12:28] == sent[12:28]
    if protocol == UDP:
        assert IPerror in reply
        assert reply[UDPerror].sport == flow.src_port
    assert Ether(journey.last).type == 0x0800


@pytest.mark.parametrize("payload", [0, 1, 8])
def test_time_exceeded_for_a_short_packet_is_complete(fabric: Fabric, payload: int) -> None:
    flow = flow_between(fabric, 0, 15)
    for ttl in (1, 3):
        received = ip_of(fabric.send(0, frame(flow, ttl, bytes(payload))).last)
        assert len(received) >= 56
        assert is_right(received[:56])


def test_time_exceeded_takes_nothing_of_its_own_header_from_the_expired_packet(
    fabric: Fabric,
) -> None:
    flow = flow_between(fabric, 0, 15)
    sent = ipv4(flow.src, flow.dst, UDP, l4(flow), 1, fragment=0x4000, tos=0xB8, identification=99)
    journey = fabric.send(0, ethernet(sent))
    reply = IP(ip_of(journey.last))
    assert (reply.tos, reply.id, int(reply.flags), reply.frag, reply.ttl) == (0, 0, 0, 0, 64)
    assert reply.ihl == 5
    assert bytes(ip_of(journey.last)[28:56]) == sent[:28]


def test_expired_ttl_0_counts_as_expired(fabric: Fabric) -> None:
    assert fabric.send(0, frame(flow_between(fabric, 0, 15), ttl=0)).expired


def test_time_exceeded_is_limited_to_13_in_each_window(fabric: Fabric) -> None:
    expiring = frame(flow_between(fabric, 0, 15), ttl=1)
    for window in (0, 1, 2, 9, 1 << 24):  # the last is where the window number wraps
        start = window * WINDOW_US
        answered = [
            fabric.send(0, expiring, start + i * (WINDOW_US // 40)).host == 0 for i in range(40)
        ]
        assert answered == [True] * ICMP_PER_WINDOW + [False] * (40 - ICMP_PER_WINDOW)


def test_refused_time_exceeded_is_a_drop_by_ttl(fabric: Fabric) -> None:
    expiring = frame(flow_between(fabric, 0, 15), ttl=1)
    journeys = [fabric.send(0, expiring, 5) for _ in range(ICMP_PER_WINDOW + 1)]
    assert journeys[-1].host is None
    assert journeys[-1].cause == EXPIRED


def test_expired_icmp_and_fragments_bring_nothing_back(fabric: Fabric) -> None:
    src, dst = fabric.host_ip(0), fabric.host_ip(15)
    for ip in (
        ipv4(src, dst, ICMP, bytes(40), ttl=1),
        ipv4(src, dst, UDP, bytes(40), ttl=1, fragment=0x0010),
        ipv4(src, dst, UDP, bytes(40), ttl=1, options=bytes(4)),
        ipv4(src, dst, IPIP, packet(flow_between(fabric, 0, 15)), ttl=1),
    ):
        journey = fabric.send(0, ethernet(ip))
        assert journey.host is None
        assert journey.cause == EXPIRED
    # They do not use up the window either.
    assert fabric.send(0, frame(flow_between(fabric, 0, 15), ttl=1)).host == 0
    assert int(fabric.switches[0].register("CanaryIngress.expiry.icmp_window")[0]) == 1


def test_core_bounces_an_ip_in_ip_probe_back(fabric: Fabric) -> None:
    topology = fabric.topology
    for src in (0, 7):
        for core in range(topology.n_cores):
            to_core = int(topology.switch_ip[topology.core(core)])
            own = fabric.host_ip(src)
            inner = packet(Flow(own, own, 4000 + core, 33434), ttl=61, payload=b"probe")
            journey = fabric.send(src, ethernet(ipv4(own, to_core, IPIP, inner)))
            assert journey.host == src
            tor, agg, middle, down_agg, down_tor = journey.switches
            assert middle == topology.core(core)
            assert (tor, agg) == (down_tor, down_agg)
            for _, _, data in journey.hops[:2]:
                assert ip_of(data)[9] == IPIP
                assert ip_of(data)[20:] == inner
            received = ip_of(journey.last)
            assert received[9] == UDP
            assert received[8] == 61 - 3
            assert is_right(received)
            assert received[12:] == inner[12:]


def test_ip_in_ip_for_somebody_else_is_forwarded_as_it_is(fabric: Fabric) -> None:
    inner = packet(flow_between(fabric, 3, 4))
    journey = fabric.send(0, ethernet(ipv4(fabric.host_ip(0), fabric.host_ip(15), IPIP, inner)))
    assert journey.host == 15
    assert ip_of(journey.last)[20:] == inner


@pytest.mark.parametrize("switch", ["tor0_0", "agg0_0", "core0"])
def test_packet_to_a_switch_itself_is_dropped_there(fabric: Fabric, switch: str) -> None:
    index = fabric.topology.switch(switch)
    address = int(fabric.topology.switch_ip[index])
    port = int(fabric.topology.k // 2 + 1 if switch.startswith("tor") else 1)
    data = shimmed(frame(Flow(fabric.host_ip(5), address, 1, 2)))
    journey = fabric.inject(index, port, data)
    assert (journey.switches, journey.cause) == ([index], LOCAL)


def test_packets_to_nobody_are_dropped_for_want_of_a_route(fabric: Fabric) -> None:
    for dst in (0x0A0000FE, 0x0A03F001, 0x0AC80000):
        journey = fabric.send(0, frame(Flow(fabric.host_ip(0), dst, 1, 2)))
        assert journey.host is None
        assert journey.cause == NO_ROUTE


# ---- what is not a packet ------------------------------------------------------------------------


def test_truncated_packets_are_dropped_at_every_length(fabric: Fabric) -> None:
    plain = frame(flow_between(fabric, 0, 15))
    switch = fabric.switches[0]
    for data, whole in ((plain, 14 + 20 + 8), (shimmed(plain), 21 + 20 + 8)):
        for length in range(len(data)):
            out = switch.process(1, data[:length])
            if length < whole:
                assert out == []
                assert switch.observed >> 8 == MALFORMED
            else:
                assert len(out) == 1


@pytest.mark.parametrize("kind", [0x0806, 0x86DD, 0x8100, 0x0000])
def test_other_ether_types_are_dropped(fabric: Fabric, kind: int) -> None:
    ip = packet(flow_between(fabric, 0, 15))
    assert fabric.send(0, ethernet(ip, kind)).cause == MALFORMED
    inside = bytearray(shimmed(ethernet(ip)))
    inside[19:21] = struct.pack(">H", kind)
    assert fabric.inject(0, 3, bytes(inside)).cause == MALFORMED


@pytest.mark.parametrize(("version", "ihl"), [(6, 5), (0, 5), (4, 4), (4, 0), (5, 6)])
def test_header_that_is_not_ip_version_4_is_dropped(fabric: Fabric, version: int, ihl: int) -> None:
    flow = flow_between(fabric, 0, 15)
    ip = ipv4(flow.src, flow.dst, UDP, l4(flow), version=version, ihl=ihl)
    assert fabric.send(0, ethernet(ip)).cause == MALFORMED


def test_packet_with_a_wrong_checksum_is_dropped_as_corrupt(fabric: Fabric) -> None:
    data = bytearray(frame(flow_between(fabric, 0, 15)))
    for byte in range(14, 34):
        if byte in (14, 12 + 14):  # a wrong header length is another matter
            continue
        data[byte] ^= 0x10
        assert fabric.send(0, bytes(data)).cause == CORRUPT
        assert fabric.inject(0, 3, shimmed(bytes(data))).cause == CORRUPT
        data[byte] ^= 0x10
    assert fabric.send(0, bytes(data)).host == 15


# ---- meters --------------------------------------------------------------------------------------

PATH = ("tor0_0", "agg0_0", "core0", "agg3_0", "tor3_1")  # host 0 to host 15


def counts(switch: Switch, meter: str, flow: Flow, parity: int) -> list[Bucket]:
    return [bucket(switch, meter, row, flow.bucket(row, parity)) for row in range(3)]


@pytest.mark.parametrize("upstream_parity", [0, 1])
@pytest.mark.parametrize("downstream_parity", [0, 1])
def test_both_meters_count_a_flow_by_the_parity_of_the_packet(
    fabric: Fabric, upstream_parity: int, downstream_parity: int
) -> None:
    tor, agg, core, _, _ = path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, tor, agg, core)
    fabric.set_parity(tor, upstream_parity)
    fabric.set_parity(core, downstream_parity)
    for _ in range(5):
        fabric.send(0, frame(flow))
    up, down = fabric.switches[tor], fabric.switches[core]
    path_bf = int(fabric.decoder.path_bf[fabric.segment(tor, agg, core)])
    assert counts(up, USM, flow, upstream_parity) == [Bucket(flow.id, 5, False)] * 3
    assert counts(down, DSM, flow, upstream_parity) == [Bucket(flow.id, 5, False, path_bf)] * 3
    assert total(up, USM) == total(down, DSM) == [5, 5, 5]  # nothing in the other instance
    assert total(up, DSM) == total(down, USM) == [0, 0, 0]


def test_packets_under_way_when_the_epochs_change_are_counted_in_the_same_epoch_at_both_ends(
    fabric: Fabric,
) -> None:
    tor, agg, core, _, _ = path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, tor, agg, core)
    up, down = fabric.switches[tor], fabric.switches[core]
    for parity_up, parity_down, n in ((0, 0, 4), (0, 1, 3), (1, 1, 2), (1, 0, 6)):
        fabric.set_parity(tor, parity_up)
        fabric.set_parity(core, parity_down)
        for _ in range(n):
            fabric.send(0, frame(flow))
    for parity, n in ((0, 7), (1, 8)):
        assert [b.count for b in counts(up, USM, flow, parity)] == [n] * 3
        assert [b.count for b in counts(down, DSM, flow, parity)] == [n] * 3


@pytest.mark.parametrize("parity", [0, 1])
def test_the_mark_is_set_and_cleared_segment_by_segment(fabric: Fabric, parity: int) -> None:
    path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.set_parity(path[0], parity)
    fabric.set_parity(path[2], 1 - parity)

    def marks() -> list[tuple[int, int]]:
        shims = [shim_of(data) for _, _, data in fabric.send(0, frame(flow)).hops[:-1]]
        return [(shim.counted, shim.parity) for shim in shims if shim]

    assert marks() == [(0, 0)] * 4
    fabric.monitor(flow.id, *path[:3])
    assert marks() == [(1, parity)] * 2 + [(0, 0)] * 2
    fabric.monitor(flow.id, *path[2:])
    assert marks() == [(1, parity)] * 2 + [(1, 1 - parity)] * 2


def test_a_flow_over_two_segments_is_in_both_meters_of_the_core(fabric: Fabric) -> None:
    tor, _, core, _, last = path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, *path[:3])
    fabric.monitor(flow.id, *path[2:])
    for parity in (0, 1):
        fabric.set_parity(core, parity)
        fabric.send(0, frame(flow))
    first, second = (
        int(fabric.decoder.path_bf[fabric.segment(*part)]) for part in (path[:3], path[2:])
    )
    middle = fabric.switches[core]
    assert counts(fabric.switches[tor], USM, flow, 0) == [Bucket(flow.id, 2, False)] * 3
    assert counts(middle, DSM, flow, 0) == [Bucket(flow.id, 2, False, first)] * 3
    for parity in (0, 1):
        assert counts(middle, USM, flow, parity) == [Bucket(flow.id, 1, False)] * 3
        at_last = counts(fabric.switches[last], DSM, flow, parity)
        assert at_last == [Bucket(flow.id, 1, False, second)] * 3


def test_a_flow_within_a_pod_is_one_segment_from_tor_to_tor(fabric: Fabric) -> None:
    path = names(fabric, "tor0_0", "agg0_1", "tor0_1")
    flow = flow_over(fabric, 0, 2, *path)
    fabric.monitor(flow.id, *path)
    fabric.send(0, frame(flow))
    assert total(fabric.switches[path[0]], USM) == total(fabric.switches[path[2]], DSM) == [1] * 3
    assert total(fabric.switches[path[1]], USM) == total(fabric.switches[path[1]], DSM) == [0] * 3


def test_traffic_within_a_rack_is_never_counted(fabric: Fabric) -> None:
    flow = flow_between(fabric, 0, 1)
    monitor_usm(fabric.switches[0], flow.id)
    monitor_dsm(fabric.switches[0], flow.id, int(fabric.masks[0]))
    fabric.send(0, frame(flow))
    assert total(fabric.switches[0], USM) == total(fabric.switches[0], DSM) == [0] * 3


def test_packets_that_may_expire_on_their_way_are_never_counted(fabric: Fabric) -> None:
    path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, *path[:3])
    fabric.monitor(flow.id, *path[2:])
    tor, core, last = (fabric.switches[path[i]] for i in (0, 2, 4))
    for ttl in range(16):
        fabric.send(0, frame(flow, ttl), ttl * WINDOW_US)
    assert [total(s, m) for s in (tor, core, last) for m in (USM, DSM)] == [[0] * 3] * 6
    # 16 at the first switch is counted there and at the end of that segment, not on the next.
    fabric.send(0, frame(flow, 16))
    assert total(tor, USM) == total(core, DSM) == [1] * 3
    assert total(core, USM) == total(last, DSM) == [0] * 3
    fabric.send(0, frame(flow, 18))
    assert total(core, USM) == total(last, DSM) == [1] * 3


def test_time_exceeded_messages_and_probes_in_tunnels_are_not_counted_as_the_flow(
    fabric: Fabric,
) -> None:
    flow = flow_between(fabric, 0, 15)
    for switch in fabric.switches:
        monitor_usm(switch, flow.id)
    fabric.send(0, frame(flow, ttl=3))
    outer = ipv4(fabric.host_ip(0), fabric.host_ip(15), IPIP, packet(flow))
    assert fabric.send(0, ethernet(outer)).host == 15
    assert all(total(switch, USM) == [0] * 3 for switch in fabric.switches)


def test_dsm_counts_marked_packets_only(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    flow = flow_between(fabric, 0, 15)
    handle = monitor_dsm(core, flow.id, 0x77)
    for counted, parity, n in ((0, 0, 3), (0, 1, 4), (1, 0, 5), (1, 1, 6)):
        for _ in range(n):
            core.process(1, shimmed(frame(flow), 0x77, counted, parity))
    assert [b.count for b in counts(core, DSM, flow, 0)] == [5] * 3
    assert [b.count for b in counts(core, DSM, flow, 1)] == [6] * 3
    assert core.table("CanaryIngress.dsm.rules").counter(handle)[0] == 18


def test_dsm_counts_only_on_the_segment_of_its_rule(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    flow = flow_between(fabric, 0, 15)
    monitor_dsm(core, flow.id, 0x77)
    core.process(1, shimmed(frame(flow), 0x78, 1))
    core.process(1, shimmed(frame(flow_between(fabric, 0, 15, 1)), 0x77, 1))
    assert total(core, DSM) == [0] * 3


def test_transit_switches_count_nothing_and_leave_the_marks_alone(fabric: Fabric) -> None:
    index = fabric.topology.switch("agg0_0")
    agg = fabric.switches[index]
    flow = flow_between(fabric, 0, 15)
    monitor_usm(agg, flow.id)
    monitor_dsm(agg, flow.id, 0x77)
    [(_, data)] = agg.process(1, shimmed(frame(flow), 0x77, 1, 1))
    shim = shim_of(data)
    assert shim is not None
    assert (shim.counted, shim.parity) == (1, 1)
    assert shim.path_bf == 0x77 | int(fabric.masks[index])
    assert total(agg, USM) == total(agg, DSM) == [0] * 3


def colliding(first: Flow, row: int) -> Flow:
    """Another flow with the same bucket in one row only."""
    for port in range(1024, 65536):
        other = Flow(first.src, first.dst, port, 81, first.protocol)
        if [other.bucket(r) == first.bucket(r) for r in range(3)] == [r == row for r in range(3)]:
            return other
    raise AssertionError("no such flow")


@pytest.mark.parametrize("row", [0, 1, 2])
def test_usm_bucket_that_two_flows_share_is_dirty(fabric: Fabric, row: int) -> None:
    """Algorithm 2."""
    tor = fabric.switches[0]
    a = flow_between(fabric, 0, 15)
    b = colliding(a, row)
    for flow in (a, b):
        monitor_usm(tor, flow.id)
    for flow in (a, a, b, a):
        tor.process(1, frame(flow))
    for r in range(3):
        shared = bucket(tor, USM, r, a.bucket(r))
        assert shared.flow_id == a.id  # the first flow keeps it
        assert shared.dirty == (r == row)
        if r != row:
            assert shared.count == 3
            assert bucket(tor, USM, r, b.bucket(r)) == Bucket(b.id, 1, False)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_dsm_bucket_that_two_flows_share_is_dirty(fabric: Fabric, row: int) -> None:
    """Algorithm 1."""
    core = fabric.switches[fabric.topology.core(0)]
    a = flow_between(fabric, 0, 15)
    b = colliding(a, row)
    for flow in (a, b):
        monitor_dsm(core, flow.id, 0x77)
    for flow in (a, a, b, a):
        core.process(1, shimmed(frame(flow), 0x77, 1))
    for r in range(3):
        shared = bucket(core, DSM, r, a.bucket(r))
        assert (shared.flow_id, shared.path_bf, shared.dirty) == (a.id, 0x77, r == row)
        if r != row:
            assert shared.count == 3
            assert bucket(core, DSM, r, b.bucket(r)) == Bucket(b.id, 1, False, 0x77)


def test_dsm_buckets_are_dirty_when_the_flow_changes_its_path(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    flow = flow_between(fabric, 0, 15)
    for path_bf in (0x77, 0x78):
        monitor_dsm(core, flow.id, path_bf)
    core.process(1, shimmed(frame(flow), 0x77, 1))
    assert not any(b.dirty for b in counts(core, DSM, flow, 0))
    core.process(1, shimmed(frame(flow), 0x78, 1))
    assert all(b.dirty and b.path_bf == 0x77 for b in counts(core, DSM, flow, 0))
    core.process(1, shimmed(frame(flow), 0x78, 1, 1))
    assert counts(core, DSM, flow, 1) == [Bucket(flow.id, 1, False, 0x78)] * 3


# ---- faults --------------------------------------------------------------------------------------

ANY = (0, 0)
ALL32, ALL16, ALL8 = 0xFFFFFFFF, 0xFFFF, 0xFF
ALWAYS = 0xFFFFFFFF


def fault(
    switch: Switch,
    side: str,
    port: int,
    action: str,
    params: tuple[int, ...] = (),
    match: tuple[tuple[int, int], ...] = (ANY,) * 5,
    priority: int = 1,
) -> int:
    control = f"Canary{side}.fault"
    return switch.table(f"{control}.faults").add(
        [port, *match], f"{control}.{action}", params, priority
    )


def dropped(switch: Switch, side: str, port: int) -> tuple[int, int]:
    return tuple(switch.counter(f"Canary{side}.fault.dropped")[port].tolist())


def the_link(fabric: Fabric, name: str) -> tuple[int, int, int, int]:
    """Switch and port at the beginning and the end of a link."""
    t = fabric.topology
    link = t.link(name)
    ends = (t.link_src, t.link_src_port, t.link_dst, t.link_dst_port)
    src, src_port, dst, dst_port = (int(a[link]) for a in ends)
    return src, src_port, dst, dst_port


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
@pytest.mark.parametrize("link", ["tor0_0->agg0_0", "agg0_0->core0"])
def test_fault_acts_after_the_usm_and_before_the_dsm(fabric: Fabric, side: str, link: str) -> None:
    path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, *path[:3])
    fabric.set_parity(path[0], 1)
    src, src_port, dst, dst_port = the_link(fabric, link)
    at, port = (src, src_port) if side == "Egress" else (dst, dst_port)
    handle = fault(fabric.switches[at], side, port, "blackhole")
    journey = fabric.send(0, frame(flow))
    assert journey.host is None
    assert (journey.cause, journey.switches[-1]) == (FAULT, at)
    # The verdict tells the environment that a counted packet was lost, and its parity.
    assert fabric.switches[at].observed & 3 == 3
    assert total(fabric.switches[path[0]], USM) == [1] * 3
    assert total(fabric.switches[path[2]], DSM) == [0] * 3
    assert dropped(fabric.switches[at], side, port)[0] == 1
    assert fabric.switches[at].table(f"Canary{side}.fault.faults").counter(handle)[0] == 1


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
@pytest.mark.parametrize("rate", [0.001, 0.05, 0.5, 0.98])
def test_lossy_link_drops_with_its_probability(program: Program, side: str, rate: float) -> None:
    fabric = Fabric(program)
    core = fabric.switches[fabric.topology.core(0)]
    port = 4 if side == "Egress" else 1
    fault(core, side, port, "lossy", (round(rate * 2**32),))
    n = 200_000
    data = np.frombuffer(shimmed(frame(flow_between(fabric, 0, 15))), np.uint8)
    offsets = np.arange(n + 1, dtype=np.uint64) * len(data)
    out = core.process_batch(np.full(n, 1, np.uint16), np.tile(data, n), offsets)
    lost = n - len(out.ports)
    assert abs(lost - n * rate) < 3.29 * (n * rate * (1 - rate)) ** 0.5  # 99.9 %
    assert dropped(core, side, port)[0] == lost
    assert ((out.observed >> np.uint64(8)) == FAULT).sum() == lost


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
def test_lossy_with_threshold_0_drops_nothing(fabric: Fabric, side: str) -> None:
    fault(fabric.switches[0], side, 1, "lossy", (0,))
    assert all(fabric.send(0, frame(flow_between(fabric, 0, 1))).host == 1 for _ in range(100))


FLOW = Flow(0x0A000002, 0x0A030103, 4000, 80, TCP)
MATCHES = [
    ((FLOW.src, ALL32), ANY, ANY, ANY, ANY),
    (ANY, (FLOW.dst, ALL32), ANY, ANY, ANY),
    (ANY, ANY, (TCP, ALL8), ANY, ANY),
    (ANY, ANY, ANY, (FLOW.src_port, ALL16), ANY),
    (ANY, ANY, ANY, ANY, (FLOW.dst_port, ALL16)),
    ((0x0A000000, 0xFF000001), (0x0A030100, 0xFFFFFF00), ANY, (0, 1), ANY),
]
OTHERS = [
    Flow(FLOW.src + 1, FLOW.dst, FLOW.src_port, FLOW.dst_port, TCP),
    Flow(FLOW.src, 0x0A030002, FLOW.src_port, FLOW.dst_port, TCP),
    Flow(FLOW.src, FLOW.dst, FLOW.src_port, FLOW.dst_port, UDP),
    Flow(FLOW.src, FLOW.dst, FLOW.src_port + 1, FLOW.dst_port, TCP),
    Flow(FLOW.src, FLOW.dst, FLOW.src_port, FLOW.dst_port + 1, TCP),
    Flow(FLOW.src, FLOW.dst, FLOW.src_port + 1, FLOW.dst_port, TCP),
]


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
@pytest.mark.parametrize(("match", "other"), list(zip(MATCHES, OTHERS, strict=True)))
def test_fault_on_a_flow_pattern_hits_only_matching_packets(
    fabric: Fabric, side: str, match: tuple[tuple[int, int], ...], other: Flow
) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    fault(core, side, 4 if side == "Egress" else 1, "blackhole", match=match)
    assert core.process(1, shimmed(frame(FLOW))) == []
    assert len(core.process(1, shimmed(frame(other)))) == 1
    assert len(core.process(2 if side == "Ingress" else 1, shimmed(frame(other)))) == 1


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
def test_fault_acts_on_its_port_only(fabric: Fabric, side: str) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    fault(core, side, 4 if side == "Egress" else 1, "blackhole")
    assert core.process(1, shimmed(frame(FLOW))) == []
    other = FLOW if side == "Ingress" else Flow(FLOW.src, 0x0A020102, 1, 2)
    assert len(core.process(2, shimmed(frame(other)))) == 1


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
def test_ports_of_a_packet_without_ports_match_as_0(fabric: Fabric, side: str) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    port = 4 if side == "Egress" else 1
    handle = fault(
        core, side, port, "blackhole", match=(ANY, ANY, ANY, (FLOW.src_port, ALL16), ANY)
    )
    for ip in (
        ipv4(FLOW.src, FLOW.dst, ICMP, bytes(20)),
        ipv4(FLOW.src, FLOW.dst, TCP, bytes(20), fragment=5),
    ):
        core.process(1, shimmed(frame(FLOW)))
        assert len(core.process(1, shimmed(ethernet(ip)))) == 1
    faults = core.table(f"Canary{side}.fault.faults")
    assert faults.counter(handle)[0] == 2
    fault(core, side, port, "blackhole", match=(ANY, ANY, ANY, (0, ALL16), ANY))
    assert core.process(1, shimmed(ethernet(ipv4(FLOW.src, FLOW.dst, ICMP, bytes(20))))) == []


def test_the_fault_of_the_highest_priority_wins(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    fault(core, "Egress", 4, "blackhole", priority=1)
    fault(core, "Egress", 4, "healthy", match=(ANY, ANY, (TCP, ALL8), ANY, ANY), priority=2)
    assert len(core.process(1, shimmed(frame(FLOW)))) == 1
    assert core.process(1, shimmed(frame(OTHERS[2]))) == []


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
def test_corrupted_packet_is_discarded_by_the_next_hop_and_counted_as_sent(
    fabric: Fabric, side: str
) -> None:
    path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, *path[:3])
    tor, tor_port, agg, agg_port = the_link(fabric, "tor0_0->agg0_0")
    at, port = (tor, tor_port) if side == "Egress" else (agg, agg_port)
    fault(fabric.switches[at], side, port, "corrupt", (ALWAYS,))
    journey = fabric.send(0, frame(flow))
    next_hop = path[path.index(at) + 1]
    assert (journey.cause, journey.switches[-1]) == (CORRUPT, next_hop)
    assert not is_right(ip_of(journey.hops[-2][2]))
    assert fabric.switches[next_hop].observed & 2  # the lost packet was counted upstream
    assert total(fabric.switches[path[0]], USM) == [1] * 3
    assert total(fabric.switches[path[2]], DSM) == [0] * 3
    assert dropped(fabric.switches[at], side, port) == (0, 0)


def test_corruption_on_arrival_is_not_undone_by_a_lucky_departure(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    fault(core, "Ingress", 1, "corrupt", (ALWAYS,))
    fault(core, "Egress", 4, "corrupt", (0,))
    [(_, data)] = core.process(1, shimmed(frame(FLOW)))
    assert not is_right(ip_of(data))


@pytest.mark.parametrize("rate", [0.02, 0.6])
def test_corrupting_link_corrupts_with_its_probability(program: Program, rate: float) -> None:
    fabric = Fabric(program)
    core = fabric.switches[fabric.topology.core(0)]
    fault(core, "Egress", 4, "corrupt", (round(rate * 2**32),))
    n = 50_000
    data = np.frombuffer(shimmed(frame(FLOW)), np.uint8)
    offsets = np.arange(n + 1, dtype=np.uint64) * len(data)
    out = core.process_batch(np.full(n, 1, np.uint16), np.tile(data, n), offsets)
    frames = out.data.reshape(n, len(data))
    right = (frames[:, 31:33] != data[31:33]).any(axis=1)  # the checksum followed the TTL
    assert abs((~right).sum() - n * rate) < 3.29 * (n * rate * (1 - rate)) ** 0.5


# ---- heavy hitters -------------------------------------------------------------------------------

ETA = 5


def select(switch: Switch, path_bf: int, eta: int = ETA) -> None:
    switch.table("CanaryIngress.heavy_hitter.segments").add(
        [path_bf, (eta, 0xFFFFFFFF)], "CanaryIngress.heavy_hitter.report", priority=1
    )


def digests(switch: Switch) -> list[tuple[int, ...]]:
    [samples] = switch.digests().values()
    return [row[:6] for row in samples.tolist()]


def fields(flow: Flow, path_bf: int) -> tuple[int, ...]:
    return (flow.src, flow.dst, flow.src_port, flow.dst_port, flow.protocol, path_bf)


def test_heavy_hitter_is_reported_from_eta_packets_on_with_its_segment(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    select(core, 0x77)
    for n in range(1, 10):
        core.process(1, shimmed(frame(FLOW), 0x77))
        assert digests(core) == ([fields(FLOW, 0x77)] if n >= ETA else [])


def test_heavy_hitter_is_reported_only_on_a_segment_that_asks(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    select(core, 0x77)
    for _ in range(20):
        core.process(1, shimmed(frame(FLOW), 0x78))
    assert digests(core) == []
    core.process(1, shimmed(frame(FLOW), 0x77))
    assert digests(core) == [fields(FLOW, 0x77)]


@pytest.mark.parametrize("counted", [0, 1])
def test_monitored_flow_is_neither_reported_nor_in_hashpipe(fabric: Fabric, counted: int) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    select(core, 0x77)
    monitor_dsm(core, FLOW.id, 0x77)
    for _ in range(20):
        core.process(1, shimmed(frame(FLOW), 0x77, counted))
    assert digests(core) == []
    assert not core.register("CanaryIngress.hashpipe.stage0.counts").any()
    for _ in range(ETA):
        core.process(1, shimmed(frame(FLOW), 0x78))  # on another segment it is not monitored
    assert int(core.register("CanaryIngress.hashpipe.stage0.counts").sum()) == ETA


def test_heavy_hitter_report_names_the_segment_it_came_on_in_a_real_fabric(
    fabric: Fabric,
) -> None:
    tor, agg, core, _, last = path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    segments = [(tor, agg, core), tuple(path[2:])]
    for segment in segments:
        select(fabric.switches[segment[-1]], int(fabric.decoder.path_bf[fabric.segment(*segment)]))
    for _ in range(ETA):
        fabric.send(0, frame(flow))
    for segment in segments:
        [report] = digests(fabric.switches[segment[-1]])
        decoded = fabric.decoder.decode(np.array([segment[-1]]), np.array([report[5]]))
        assert decoded == [fabric.segment(*segment)]
        assert report[:5] == fields(flow, 0)[:5]
    assert digests(fabric.switches[tor]) == []
    assert last == path[-1]


def test_packets_from_hosts_and_expiring_or_portless_ones_stay_out_of_hashpipe(
    fabric: Fabric,
) -> None:
    tor = fabric.switches[0]
    select(tor, 0, 1)
    tor.process(1, frame(Flow(FLOW.src, FLOW.dst, 1, 2)))
    tor.process(3, shimmed(frame(FLOW, ttl=15)))
    tor.process(3, shimmed(ethernet(ipv4(FLOW.src, FLOW.dst, ICMP, bytes(20)))))
    tor.process(3, shimmed(ethernet(ipv4(FLOW.src, FLOW.dst, UDP, bytes(20), fragment=3))))
    assert digests(tor) == []
    assert not tor.register("CanaryIngress.hashpipe.stage0.counts").any()


def test_transit_switches_report_nothing(fabric: Fabric) -> None:
    agg = fabric.switches[fabric.topology.switch("agg0_0")]
    select(agg, 0x77, 1)
    agg.process(1, shimmed(frame(FLOW), 0x77))
    assert digests(agg) == []


def test_switch_ids_give_masks_of_at_most_three_bits(fabric: Fabric) -> None:
    masks = bloom_mask(switch_ids(fabric.topology, fabric.segments, seed=1))
    assert (masks == fabric.masks).all()
    assert all(1 <= int(mask).bit_count() <= 3 for mask in masks)
