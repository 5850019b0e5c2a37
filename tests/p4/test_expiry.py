# SPDX-License-Identifier: Apache-2.0
"""TTL, time-exceeded messages, tunnels, and packets to nobody."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP as ScapyICMP
from scapy.layers.inet import IP, IPerror, UDPerror
from scapy.layers.l2 import Ether

from canary_softswitch import Program
from testbed.control.forwarding import needed_entries
from testbed.dataplane import EXPIRY, VERDICT
from testbed.dataplane.adapted import IcmpLimit, adapted_program
from testbed.fabric.fat_tree import FatTree

from .fabric import Fabric, flow_between
from .frames import (
    EXPIRED,
    ICMP,
    ICMP_PER_WINDOW,
    IPIP,
    LOCAL,
    MALFORMED,
    NO_ROUTE,
    TCP,
    UDP,
    WINDOW_US,
    Flow,
    checksum,
    ethernet,
    frame,
    ip_of,
    ipv4,
    is_right,
    l4,
    packet,
    shimmed,
)


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


@pytest.mark.parametrize("per_s", [10, pytest.param(400, marks=pytest.mark.nightly)])
def test_a_program_with_another_limit_keeps_that_one(per_s: int, tmp_path: Path) -> None:
    limit = IcmpLimit.of(per_s)
    # The tables of testbed/control/test_capacity.py: both are compiled once.
    large = FatTree(12)
    entries = needed_entries(large, large.segments("tor"))
    program = Program.load(adapted_program(tmp_path, limit, entries).json, observe=VERDICT.field)
    fabric = Fabric(program)
    expiring = frame(flow_between(fabric, 0, 15), ttl=1)
    for window in (0, 1, 5):
        start = window << limit.shift
        answered = [
            fabric.send(0, expiring, start + (i << limit.shift) // 40).host == 0 for i in range(40)
        ]
        assert sum(answered) == limit.messages and all(answered[: limit.messages])


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
    assert int(fabric.switches[0].register(EXPIRY.icmp_window)[0]) == 1


def echo(payload: bytes = b"0123456789", kind: int = 8, code: int = 0) -> bytes:
    """An ICMP message of an echo."""
    message = struct.pack(">BBHHH", kind, code, 0, 77, 5) + payload
    return message[:2] + struct.pack(">H", checksum(message)) + message[4:]


def test_expired_echo_requests_bring_time_exceeded_back(fabric: Fabric) -> None:
    """What mtr sends by default: 8 bytes of the request are quoted."""
    src, dst = fabric.host_ip(0), fabric.host_ip(15)
    for ttl in range(1, 6):
        sent = ipv4(src, dst, ICMP, echo(bytes(range(50)), code=ttl - 1), ttl)
        journey = fabric.send(0, ethernet(sent))
        assert journey.host == 0 and journey.expired
        reply = IP(ip_of(journey.last)[:56])
        assert is_right(bytes(reply)) and reply.len == 56
        address = int(fabric.topology.switch_ip[journey.switches[ttl - 1]])
        assert reply.src == str(IPv4Address(address))
        assert (reply[ScapyICMP].type, reply[ScapyICMP].code) == (11, 0)
        quoted = bytes(ip_of(journey.last)[28:56])
        assert quoted[8] == 1 and checksum(quoted[:20]) == 0
        assert quoted[12:28] == sent[12:28]


@pytest.mark.parametrize("host", [0, 7, 15])
def test_every_switch_answers_an_echo_request_from_every_pod(fabric: Fabric, host: int) -> None:
    own = fabric.host_ip(host)
    for switch, address in enumerate(fabric.topology.switch_ip.tolist()):
        payload = bytes([switch]) * switch  # of odd lengths, too
        journey = fabric.send(host, ethernet(ipv4(own, address, ICMP, echo(payload))))
        assert journey.host == host, fabric.topology.switch_names[switch]
        assert switch in journey.switches
        reply = ip_of(journey.last)
        assert is_right(reply)
        assert (reply[12:16], reply[16:20]) == (address.to_bytes(4, "big"), own.to_bytes(4, "big"))
        assert reply[20:] == echo(payload, kind=0)


def test_echo_replies_and_time_exceeded_share_a_budget(fabric: Fabric) -> None:
    own, tor = fabric.host_ip(0), int(fabric.topology.switch_ip[0])
    ping = ethernet(ipv4(own, tor, ICMP, echo()))
    expiring = frame(flow_between(fabric, 0, 15), ttl=1)
    sent = [ping, expiring] * ICMP_PER_WINDOW
    answered = [fabric.send(0, each, 5).host == 0 for each in sent]
    assert answered == [True] * ICMP_PER_WINDOW + [False] * ICMP_PER_WINDOW


def test_other_packets_to_a_switch_are_not_answered(fabric: Fabric) -> None:
    own, tor = fabric.host_ip(0), int(fabric.topology.switch_ip[0])
    for ip in (
        ipv4(own, tor, ICMP, echo(kind=0)),
        ipv4(own, tor, ICMP, echo(kind=13)),
        ipv4(own, tor, ICMP, echo(), fragment=0x0010),
        packet(Flow(own, tor, 4000, 7)),
    ):
        journey = fabric.send(0, ethernet(ip))
        assert (journey.host, journey.cause) == (None, LOCAL)
    short = ipv4(own, tor, ICMP, echo()[:6])  # no whole request
    assert fabric.send(0, ethernet(short)).cause == MALFORMED


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
