# SPDX-License-Identifier: Apache-2.0
"""What becomes of a capture's frames: each is replayed, or refused for a reason."""

import gzip
import hashlib
import os
import struct

import numpy as np
import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from testbed.fabric.fat_tree import FatTree
from testbed.traffic.capture import CaptureError, read_capture
from testbed.traffic.replay import replay

K4 = FatTree(4)


def fitted(path, duration_s=1.0):
    """All packets of a capture, and the account of them."""
    traffic, account = replay(path, K4, 1, duration_s, fit=True)
    assert account.frames == account.replayed + sum(account.refused.values())
    assert account.replayed == len(traffic.packets)
    return traffic, account


def refuse(path, message):
    with pytest.raises(CaptureError, match=message) as error:
        fitted(path)
    assert "\n" not in str(error.value)


def ether(**fields):
    """With both addresses given, or Scapy would ask the real network for them."""
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", **fields)


def frame(link_type, ip):
    """The frame of an IP packet with its link header, by link type."""
    wrapped = {
        0: lambda: struct.pack("<I", 2) + ip,
        1: lambda: bytes(ether())[:12] + b"\x08\x00" + ip,
        12: lambda: ip,
        101: lambda: ip,
        108: lambda: struct.pack(">I", 2) + ip,
        113: lambda: bytes(14) + b"\x08\x00" + ip,
        276: lambda: b"\x08\x00" + bytes(18) + ip,
    }
    return wrapped[link_type]()


TCP_IP = bytes(IP(src="192.0.2.1", dst="192.0.2.2") / TCP(sport=5, dport=6) / Raw(bytes(200)))
UDP_IP6 = bytes(IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=5, dport=6))


def pcap(path, frames, link_type=1, captured=None, gap_us=100):
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link_type)
    for i, each in enumerate(frames):
        kept = each[:captured]
        data += (
            struct.pack(
                "<IIII", 1000 + i * gap_us // 10**6, i * gap_us % 10**6, len(kept), len(each)
            )
            + kept
        )
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("link_type", [0, 1, 12, 101, 108, 113, 276])
def test_every_link_type_gives_the_same_packet(tmp_path, link_type):
    capture = read_capture(pcap(tmp_path / "a.pcap", [frame(link_type, TCP_IP)], link_type))
    assert capture.src.tolist() == [0xC0000201] and capture.dst_port.tolist() == [6]
    assert capture.length.tolist() == [254] and capture.refused == {}


@pytest.mark.parametrize(
    "header", [struct.pack("<I", n) for n in (10, 24, 28, 30)] + [b"\0\0\0\x18"]
)
def test_loopback_says_ipv6_in_the_capturing_systems_way(tmp_path, header):
    capture = read_capture(pcap(tmp_path / "a.pcap", [header + UDP_IP6], 0))
    assert capture.src[0] >> np.uint64(63) == 1 and capture.dst_port.tolist() == [6]
    other = pcap(tmp_path / "b.pcap", [struct.pack("<I", 7) + UDP_IP6], 0)
    refuse(other, r"\(1 not IP\)")


@pytest.mark.parametrize("link_type", [1, 113, 276])
@pytest.mark.parametrize("tags", [b"\x81\x00\x00\x03", b"\x88\xa8\x00\x09\x81\x00\x00\x03"])
def test_vlan_tags_are_looked_behind(tmp_path, link_type, tags):
    whole = bytearray(frame(link_type, TCP_IP))
    at = {1: 12, 113: 14, 276: 0}[link_type]
    header = {1: 14, 113: 16, 276: 20}[link_type]
    whole[at : at + 2] = tags[:2]
    inner = tags[2:] + b"\x08\x00"
    path = pcap(tmp_path / "a.pcap", [bytes(whole[:header]) + inner + TCP_IP], link_type)
    capture = read_capture(path)
    assert capture.dst.tolist() == [0xC0000202] and capture.length.tolist() == [254]


def test_every_frame_is_accounted_for(tmp_path):
    ip = IP(src="192.0.2.1", dst="192.0.2.2")
    v6 = IPv6(src="2001:db8::1", dst="2001:db8::2")
    odd = IP(src="192.0.2.1", dst="192.0.2.2", proto=47)
    late = IP(src="192.0.2.1", dst="192.0.2.2", frag=9, proto=17)
    short = [ether(type=0x0800) / Raw(data) for data in (b"\x41" + bytes(60), TCP_IP[:22])]
    kinds = {
        "ARP": [ether() / ARP(psrc="192.0.2.1", hwsrc="02:00:00:00:00:01")] * 2,
        "not IP": [ether(type=0x9999) / Raw(bytes(60))] * 3,
        "ICMP": [ether() / ip / ICMP(), ether() / IPv6(nh=58) / Raw(bytes(8))],
        "neither TCP nor UDP": [ether() / odd / Raw(bytes(40))],
        "encrypted (ESP)": [ether() / IPv6(nh=50) / Raw(bytes(40))],
        "later fragment": [ether() / late / Raw(bytes(40))],
        "malformed": [*short, Raw(bytes(5))],
    }
    good = [ether() / ip / TCP(sport=i) for i in range(4)] + [ether() / v6 / UDP(sport=9)] * 2
    frames = [bytes(each) for each in [*good, *(f for those in kinds.values() for f in those)]]
    _, account = fitted(pcap(tmp_path / "mixed.pcap", frames))
    assert account.refused == {reason: len(those) for reason, those in kinds.items()}
    assert account.frames == len(frames) and account.replayed == 6 and account.as_ipv4 == 2


def test_frames_cut_by_the_snap_length_are_no_flows(tmp_path):
    """Without ports all flows between two hosts would become one."""
    frames = [frame(1, TCP_IP)] * 5
    refuse(pcap(tmp_path / "a.pcap", frames, captured=34), r"\(5 cut off by the snap length\)")
    refuse(pcap(tmp_path / "b.pcap", frames, captured=20), r"\(5 cut off by the snap length\)")
    assert fitted(pcap(tmp_path / "c.pcap", frames, captured=38))[1].replayed == 5


def block(kind, body):
    body += bytes(-len(body) % 4)
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


SECTION = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(link_type, snap=0):
    return block(1, struct.pack("<HHI", link_type, 0, snap))


def enhanced(number, data, us=0):
    header = struct.pack("<5I", number, 0, us, len(data), len(data))
    return block(6, header + data + bytes(-len(data) % 4))


def test_frames_of_undefined_interfaces_are_counted(tmp_path):
    path = tmp_path / "a.pcapng"
    good, bad = enhanced(0, frame(1, TCP_IP)), enhanced(7, frame(1, TCP_IP))
    path.write_bytes(SECTION + interface(1) + good + bad + good + bad + bad)
    _, account = fitted(path)
    assert account.replayed == 2 and account.refused == {"of an undefined interface": 3}
    path.write_bytes(SECTION + bad)
    refuse(path, r"\(1 of an undefined interface\)")


def test_each_section_numbers_its_own_interfaces(tmp_path):
    """As when two captures were put into one file: the second's interface 0 is another."""
    path = tmp_path / "a.pcapng"
    first = SECTION + interface(1) + enhanced(0, frame(1, TCP_IP))
    path.write_bytes(first + SECTION + interface(101) + enhanced(0, TCP_IP))
    assert fitted(path)[1].replayed == 2


def test_simple_packets_of_an_interface_without_limit(tmp_path):
    path = tmp_path / "a.pcapng"
    data = frame(1, TCP_IP)
    path.write_bytes(SECTION + interface(1) + block(3, struct.pack("<I", len(data)) + data))
    assert fitted(path)[1].replayed == 1


def test_what_does_not_fit_into_the_run_is_counted(tmp_path):
    frames = [frame(1, TCP_IP)] * 40
    path = pcap(tmp_path / "a.pcap", frames)
    traffic, account = replay(path, K4, 1, duration_s=0.00105)
    assert len(traffic.packets) == 11 and traffic.time_ns[-1] == 1_000_000
    assert account.refused == {"beyond the run's end": 29} and account.seconds == 0.0039


@pytest.mark.parametrize("n", [1, 2, 3, 2011])
@pytest.mark.parametrize("duration_s", [0.02, 1.0, 7.3])
def test_fit_keeps_every_packet(tmp_path, n, duration_s):
    path = pcap(tmp_path / "a.pcap", [frame(1, TCP_IP)] * n, gap_us=333)
    traffic, account = fitted(path, duration_s=duration_s)
    assert len(traffic.packets) == n == account.frames
    last = int(duration_s * 1e9) - 1
    assert int(traffic.time_ns[-1]) == (last if n > 1 else 0)


def test_a_long_capture_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("testbed.traffic.frames._CHUNK", 10)
    path = pcap(tmp_path / "a.pcap", [frame(1, TCP_IP)] * 100, gap_us=500_000)
    _, account = replay(path, K4, 1, duration_s=1.0)
    assert account.replayed == 2 and account.frames == 10 and 0 < account.share < 1
    assert fitted(path)[1].share == 1.0


def test_the_hash_is_the_files(tmp_path):
    path = tmp_path / "a.pcap.gz"
    path.write_bytes(gzip.compress(pcap(tmp_path / "a.pcap", [frame(1, TCP_IP)]).read_bytes()))
    assert fitted(path)[1].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(gzip.compress(path.read_bytes()))
    refuse(path, "gzipped twice: unpack it once")


def test_what_is_no_regular_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.pcap")
    refuse(tmp_path / "a.pcap", "not a regular file")


def test_a_lying_length_does_not_swallow_the_rest(tmp_path):
    path = pcap(tmp_path / "a.pcap", [frame(1, TCP_IP)] * 400)
    data = bytearray(path.read_bytes())
    record = 16 + len(frame(1, TCP_IP))
    struct.pack_into("<I", data, 24 + 5 * record + 8, 70_000_000)
    path.write_bytes(data)
    refuse(path, "damaged after 5 packets")
