# SPDX-License-Identifier: Apache-2.0
"""Encapsulations: the packet within is replayed on request, or one line says why not."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from scapy.compat import raw
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import PcapWriter

from testbed.fabric.fat_tree import FatTree
from testbed.traffic.capture import TUNNEL, read_capture
from testbed.traffic.demand import Demand, capture_file, make_traffic
from testbed.traffic.frames import CaptureError

ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
IN4 = raw(IP(src="192.0.2.1", dst="192.0.2.2") / TCP(sport=7, dport=8) / Raw(bytes(100)))
IN6 = raw(IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=7, dport=8) / Raw(bytes(100)))
OUT4, OUT6 = IP(src="10.0.0.1", dst="10.0.0.2"), IPv6(src="fd00::1", dst="fd00::2")


def ethernet(payload: bytes, kind: int = 0x0800) -> bytes:
    return raw(Ether(src="02:00:00:00:00:03", dst="02:00:00:00:00:04", type=kind)) + payload


def over(outer: Any, protocol: int, payload: bytes) -> bytes:
    field = "proto" if isinstance(outer, IP) else "nh"
    return raw(ETHER / outer.copy().__class__(src=outer.src, dst=outer.dst, **{field: protocol})
               / Raw(payload))  # fmt: skip


def udp(outer: Any, port: int, payload: bytes) -> bytes:
    return raw(ETHER / outer / UDP(sport=4000, dport=port) / Raw(payload))


def gre(kind: int, payload: bytes, flags: int = 0) -> bytes:
    more = sum(4 for bit in (0x8000, 0x2000, 0x1000) if flags & bit)
    return struct.pack(">HH", flags, kind) + bytes(more) + payload


def labels(*names: int) -> bytes:
    last = len(names) - 1
    return b"".join(struct.pack(">I", n << 12 | (i == last) << 8 | 64) for i, n in enumerate(names))


def extension(*headers: tuple[int, bytes]) -> bytes:
    """IPv6 with these extension headers (number, body without the next header's) before UDP."""
    body, following = raw(UDP(sport=7, dport=8) / Raw(bytes(100))), 17
    for number, content in reversed(headers):
        body, following = bytes([following]) + content + body, number
    return raw(ETHER / IPv6(src="2001:db8::1", dst="2001:db8::2", nh=following) / Raw(body))


def vxlan(payload: bytes, kind: int = 0x0800) -> bytes:
    return b"\x08" + bytes(3) + b"\x00\x00\x07\x00" + ethernet(payload, kind)


def geneve(payload: bytes, kind: int = 0x6558, options: int = 0) -> bytes:
    return struct.pack(">BBHI", options, 0, kind, 7 << 8) + bytes(4 * options) + payload


def pppoe(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BBHHH", 0x11, 0, 1, len(payload) + 2, kind) + payload


FOUND = {
    "plain": raw(ETHER)[:12] + b"\x08\x00" + IN4,
    "VLAN": raw(ETHER / Dot1Q(vlan=3, type=0x0800)) + IN4,
    "three VLANs": raw(ETHER / Dot1Q() / Dot1Q() / Dot1Q(type=0x0800)) + IN4,
    "MPLS": ethernet(labels(16) + IN4, 0x8847),
    "MPLS of three labels": ethernet(labels(16, 17, 18) + IN6, 0x8847),
    "MPLS multicast": ethernet(labels(16) + IN4, 0x8848),
    "VLAN and MPLS": ethernet(struct.pack(">HH", 3, 0x8847) + labels(16) + IN4, 0x8100),
    "PPPoE": ethernet(pppoe(0x0021, IN4), 0x8864),
    "PPPoE with IPv6": ethernet(pppoe(0x0057, IN6), 0x8864),
    "hop-by-hop options": extension((0, bytes([0]) + bytes(6))),
    "destination options": extension((60, bytes([1]) + bytes(14))),
    "a routing header": extension((43, bytes([2]) + bytes(22))),
    "a first fragment": extension((44, bytes([0, 0, 1]) + bytes(4))),
    "authentication": extension((51, bytes([4]) + bytes(22))),
    "several extension headers": extension((0, bytes(7)), (60, bytes(7)), (43, bytes(7))),
}
INNER = {
    "IP in IP": over(OUT4, 4, IN4),
    "6in4": over(OUT4, 41, IN6),
    "4in6": over(OUT6, 4, IN4),
    "6in6": over(OUT6, 41, IN6),
    "GRE": over(OUT4, 47, gre(0x0800, IN4)),
    "GRE with a key": over(OUT4, 47, gre(0x0800, IN4, 0x2000)),
    "GRE with all": over(OUT4, 47, gre(0x86DD, IN6, 0xB000)),
    "GRE of Ethernet": over(OUT4, 47, gre(0x6558, ethernet(IN4))),
    "NVGRE over IPv6": over(OUT6, 47, gre(0x6558, ethernet(IN4), 0x2000)),
    "GRE of MPLS": over(OUT4, 47, gre(0x8847, labels(16) + IN4)),
    "ERSPAN I": over(OUT4, 47, gre(0x88BE, ethernet(IN4))),
    "ERSPAN II": over(OUT4, 47, gre(0x88BE, bytes(8) + ethernet(IN4), 0x1000)),
    "ERSPAN III": over(OUT4, 47, gre(0x22EB, bytes(12) + ethernet(IN4), 0x1000)),
    "VXLAN": udp(OUT4, 4789, vxlan(IN4)),
    "VXLAN over IPv6": udp(OUT6, 4789, vxlan(IN6, 0x86DD)),
    "VXLAN of Linux's port": udp(OUT4, 8472, vxlan(IN4)),
    "VXLAN with a VLAN in it": udp(OUT4, 4789, vxlan(b"\x00\x03\x08\x00" + IN4, 0x8100)),
    "Geneve": udp(OUT4, 6081, geneve(ethernet(IN4))),
    "Geneve with options": udp(OUT4, 6081, geneve(ethernet(IN4), options=3)),
    "Geneve of IP": udp(OUT4, 6081, geneve(IN4, 0x0800)),
    "VXLAN in GRE": over(OUT4, 47, gre(0x0800, raw(OUT4 / UDP(dport=4789) / Raw(vxlan(IN4))))),
}
NONE = {
    "ESP": (over(OUT6, 50, bytes(60)), "encrypted (ESP)"),
    "GRE of CLNS": (over(OUT4, 47, gre(0x00FE, bytes(60))), "neither TCP nor UDP"),
    "MPLS of a pseudowire": (ethernet(labels(16) + bytes(60), 0x8847), "not IP"),
    "PPPoE's discovery": (ethernet(bytes(60), 0x8863), "not IP"),
    "a later fragment": (extension((44, bytes([0, 8, 1]) + bytes(4))), "later fragment"),
}


def capture(tmp_path: Path, *frames: bytes) -> Path:
    path = tmp_path / "a.pcap"
    with PcapWriter(str(path), linktype=1) as writer:
        for frame in frames:
            writer.write(frame)
    return path


def ports(path: Path, inner: bool) -> tuple[list[int], list[int]]:
    found = read_capture(path, inner=inner)
    return found.src_port.tolist(), found.dst_port.tolist()


@pytest.mark.parametrize("name", FOUND)
def test_one_ip_packet_is_found_behind_its_headers(name: str, tmp_path: Path) -> None:
    for inner in (False, True):
        assert ports(capture(tmp_path, FOUND[name]), inner) == ([7], [8])


@pytest.mark.parametrize("name", INNER)
def test_the_packet_in_a_tunnel_is_replayed_on_request(name: str, tmp_path: Path) -> None:
    path = capture(tmp_path, INNER[name])
    found = read_capture(path, inner=True)
    assert (found.src_port.tolist(), found.dst_port.tolist()) == ([7], [8])
    assert found.tunnels == 1
    bare = 14 + (len(IN4) if found.protocol.tolist() == [6] else len(IN6))
    assert found.length.tolist() == [bare]
    if "Geneve" in name or (name.startswith("VXLAN") and "GRE" not in name):
        outer = read_capture(path)
        assert outer.src_port.tolist() == [4000] and outer.tunnels == 1
    else:
        with pytest.raises(CaptureError) as refused:
            read_capture(path)
        assert TUNNEL in str(refused.value)


@pytest.mark.parametrize("name", NONE)
def test_what_has_no_packet_says_so(name: str, tmp_path: Path) -> None:
    data, reason = NONE[name]
    with pytest.raises(CaptureError) as refused:
        read_capture(capture(tmp_path, data), inner=True)
    assert f"(1 {reason})" in str(refused.value)


def test_at_least_25_of_32_kinds_are_replayed() -> None:
    assert len(FOUND) + len(INNER) + len(NONE) >= 32 and len(FOUND) + len(INNER) >= 25


def test_the_setting_and_its_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = capture(tmp_path, *[INNER["VXLAN"]] * 20)
    assert capture_file(f"{path}:inner:fit") == capture_file(f"{path}:fit:inner") == path

    def replayed(wishes: str) -> list[int]:
        demand = Demand(f"{path}{wishes}", 0.1, 1e9, 1.0, 1)
        caplog.clear()
        return make_traffic(demand, FatTree(4))[0].dst_port.tolist()

    assert replayed(":fit") == [4789]
    assert "20 of the packets of a.pcap are tunnels" in caplog.text
    assert replayed(":inner:fit") == [8]
    assert "tunnels" not in caplog.text


def test_all_at_one_time_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.pcap"
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    frame = FOUND["plain"]
    record = struct.pack("<IIII", 5, 5, len(frame), len(frame)) + frame
    path.write_bytes(header + record * 30)
    make_traffic(Demand(f"{path}:fit", 0.1, 1e9, 1.0, 1), FatTree(4))
    assert "all 30 packets of a.pcap have the same time: they are sent at once" in caplog.text
