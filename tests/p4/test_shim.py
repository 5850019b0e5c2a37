# SPDX-License-Identifier: Apache-2.0
"""The shim that the first switch puts in and the last one takes out, and what is no packet."""

from __future__ import annotations

import struct

import pytest

from .fabric import Fabric, flow_between
from .frames import (
    CORRUPT,
    ICMP,
    MALFORMED,
    TCP,
    UDP,
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
