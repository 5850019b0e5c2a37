# SPDX-License-Identifier: Apache-2.0

import gzip
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, CookedLinux, Dot1AD, Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import PcapNgWriter, PcapWriter

from testbed.fabric.fat_tree import FatTree
from testbed.traffic.capture import CaptureError, read_capture
from testbed.traffic.replay import replay

K4 = FatTree(4)


def fitted(path, seed=1, duration_s=1.0):
    """All packets of a capture, and the account of them."""
    traffic, account = replay(path, K4, seed, duration_s, fit=True)
    assert account.frames == account.replayed + sum(account.refused.values())
    assert account.replayed == len(traffic.packets)
    return traffic, account


def ether(**fields):
    """With both addresses given, or Scapy would ask the real network for them."""
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", **fields)


def flow_packets(n=40, flows=8):
    """A little of everything IP, 100 us apart from second 1000 on."""
    packets = []
    for i in range(n):
        f = i % flows
        l4 = (TCP if f % 2 else UDP)(sport=1000 + f, dport=80)
        packet = ether() / IP(src=f"192.0.2.{f}", dst="198.51.100.1") / l4 / Raw(bytes(10 * i))
        packet.time = 1000 + i * 100e-6
        packets.append(packet)
    return packets


def write(path, packets, *, writer: Callable[..., Any] = PcapWriter, **options):
    with writer(str(path), **options) as out:
        for packet in packets:
            out.write(packet)
    return path


FORMATS = {
    "us.pcap": {},
    "ns.pcap": {"nano": True},
    "big.pcap": {"endianness": ">"},
    "us.pcap.gz": {"gz": True},
    "ns.pcapng": {"writer": PcapNgWriter},
}


@pytest.mark.parametrize("name", [*FORMATS, "ns.pcapng.gz"])
def test_formats(tmp_path, name):
    plain = name.removesuffix(".gz") if name.endswith("pcapng.gz") else name
    path = write(tmp_path / plain, flow_packets(), **FORMATS[plain])
    if plain != name:
        data = path.read_bytes()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data, mtime=0))
    traffic, account = replay(path, K4, seed=1, duration_s=1.0)
    assert account.refused == {} and account.seconds == 0.0039
    assert traffic.n_flows == 8 and len(traffic.packets) == 40
    gaps = np.diff(traffic.time_ns.astype(np.int64))
    assert traffic.time_ns[0] == 0 and (np.abs(gaps - 100_000) <= 1000).all()
    expected = [max(64, len(packet)) for packet in flow_packets()]
    assert traffic.size.tolist() == expected
    assert (np.bincount(traffic.flow) == 5).all()


def test_nanoseconds_are_kept(tmp_path):
    data = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    frame = bytes(ether() / IP(src="192.0.2.1", dst="192.0.2.2") / TCP())
    for ns in (999_999_999, 5, 123):
        second = 7 if ns == 999_999_999 else 8
        data += struct.pack("<IIII", second, ns, len(frame), len(frame)) + frame
    path = tmp_path / "ns.pcap"
    path.write_bytes(data)
    assert replay(path, K4, 1, 1.0)[0].time_ns.tolist() == [0, 6, 124]


def test_what_carries_ip(tmp_path):
    l4 = UDP(sport=5, dport=6) / Raw(bytes(50))
    ip = IP(src="192.0.2.1", dst="192.0.2.2")
    v6 = IPv6(src="2001:db8::1", dst="2001:db8::2")
    options = IP(src="192.0.2.3", dst="192.0.2.4", options=b"\x01" * 8)
    packets = [
        ether() / ip / l4,
        ether() / Dot1Q(vlan=3) / ip / l4,
        ether(type=0x88A8) / Dot1AD(vlan=9) / Dot1Q(vlan=3) / ip / l4,
        ether() / v6 / l4,
        ether() / options / l4,
        ether() / ARP(psrc="192.0.2.1", hwsrc="02:00:00:00:00:01"),
        ether() / ip / ICMP(),
        ether(type=0x9999) / Raw(bytes(60)),
    ]
    capture = read_capture(write(tmp_path / "mixed.pcap", packets, linktype=1))
    assert len(capture.src) == 5
    assert capture.refused == {"ARP": 1, "not IP": 1, "ICMP": 1}
    assert (capture.src_port == 5).all() and (capture.dst_port == 6).all()
    assert (capture.src[:3] == 0xC0000201).all() and (capture.dst[:3] == 0xC0000202).all()
    assert capture.src[3] >> np.uint64(63) == 1 and capture.src[3] != capture.dst[3]
    # tags are gone: the size is that of the IP packet behind a plain Ethernet header
    assert capture.length.tolist() == [92, 92, 92, 112, 100]


@pytest.mark.parametrize(
    ("link_type", "wrap"),
    [
        (1, lambda ip: ether() / ip),
        (101, lambda ip: ip),
        (228, lambda ip: ip),
        (113, lambda ip: CookedLinux(proto=0x0800) / ip),
        (276, lambda ip: Raw(b"\x08\x00" + bytes(18)) / ip),
    ],
)
def test_link_types(tmp_path, link_type, wrap):
    ip = IP(src="192.0.2.1", dst="192.0.2.2") / TCP(sport=5, dport=6) / Raw(bytes(200))
    path = write(tmp_path / "a.pcap", [Raw(bytes(wrap(ip)))], linktype=link_type)
    capture = read_capture(path)
    assert capture.src.tolist() == [0xC0000201] and capture.dst_port.tolist() == [6]
    assert capture.length.tolist() == [254]


def test_original_length_counts(tmp_path):
    """A capture with a snap length of 60 bytes, of packets up to a jumbo frame."""
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 60, 1)
    for length in (60, 700, 1514, 9000):
        frame = bytes(ether() / IP(src="192.0.2.1", dst="192.0.2.2") / TCP())[:60]
        data += struct.pack("<IIII", 1, 0, len(frame), length) + frame
    path = tmp_path / "snap.pcap"
    path.write_bytes(data)
    traffic, account = fitted(path)
    assert traffic.size.tolist() == [64, 700, 1514, 1514]
    assert account.shortened == 1


def test_packets_out_of_order_are_sorted(tmp_path):
    packets = flow_packets()
    traffic, _ = fitted(write(tmp_path / "a.pcap", packets[::-1]))
    assert traffic.time_ns[0] == 0 and (np.diff(traffic.time_ns.astype(np.int64)) > 0).all()


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 3), st.booleans()),
        min_size=1,
        max_size=60,
    ),
    st.integers(0, 2**32),
)
@settings(max_examples=25, deadline=None)
def test_flows_stay_apart_and_cross_the_fabric(tmp_path_factory, conversations, seed):
    packets = [
        ether() / IP(src=f"192.0.2.{a}", dst=f"192.0.2.{b}") / (TCP, UDP)[udp](sport=p, dport=9)
        for a, b, p, udp in conversations
    ]
    path = write(tmp_path_factory.mktemp("capture") / "a.pcap", packets)
    traffic, _ = fitted(path, seed)
    columns = (
        traffic.src_host,
        traffic.dst_host,
        traffic.src_port,
        traffic.dst_port,
        traffic.protocol,
    )
    assert traffic.n_flows == len(set(conversations))
    assert len(set(zip(*(c.tolist() for c in columns), strict=True))) == traffic.n_flows
    assert (K4.host_tor[traffic.src_host] != K4.host_tor[traffic.dst_host]).all()
    again, _ = fitted(path, seed)
    assert np.array_equal(again.src_host, traffic.src_host)
    assert np.array_equal(again.src_port, traffic.src_port)


def test_both_directions_use_the_same_hosts(tmp_path):
    packets = []
    for a in range(40):
        for src, dst, sport, dport in ((a, 77, 1000, 80), (77, a, 80, 1000)):
            ip = IP(src=f"192.0.2.{src}", dst=f"192.0.2.{dst}")
            packets.append(ether() / ip / TCP(sport=sport + a * (sport > 80), dport=dport))
    traffic, _ = fitted(write(tmp_path / "a.pcap", packets))
    src, dst = traffic.src_host[traffic.flow], traffic.dst_host[traffic.flow]
    assert (src[0::2] == dst[1::2]).all() and (dst[0::2] == src[1::2]).all()


def test_addresses_are_spread_over_all_hosts(tmp_path):
    packets = [ether() / IP(src=f"192.0.2.{i}", dst=f"198.51.100.{i}") / TCP() for i in range(160)]
    traffic, _ = fitted(write(tmp_path / "a.pcap", packets), seed=3)
    assert np.bincount(traffic.src_host, minlength=16).min() > 0


# ---- files that are no good ------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    return {
        name: write(folder / name, flow_packets(), **o).read_bytes() for name, o in FORMATS.items()
    }


def refuse(path, message):
    with pytest.raises(CaptureError, match=message) as error:
        fitted(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("cut", [1, 4, 9, 17, 40, 200])
def test_truncated(tmp_path, good, name, cut):
    path = tmp_path / name
    path.write_bytes(good[name][:-cut])
    refuse(path, r"truncated or damaged after \d+ packets: copy it again")


def test_pcap_cut_at_every_byte(tmp_path, good):
    """Only a cut between two records cannot be told from a shorter capture."""
    data = good["us.pcap"][:400]
    boundaries, at = set(), 24
    while at <= len(good["us.pcap"]) - 16:
        boundaries.add(at)
        at += 16 + struct.unpack_from("<I", good["us.pcap"], at + 8)[0]
    for length in range(len(data)):
        path = tmp_path / "cut.pcap"
        path.write_bytes(data[:length])
        if length in boundaries and length > 24:
            assert len(fitted(path)[0].packets)
        else:
            refuse(path, "is empty|is not a capture|holds no packet|truncated or damaged")


def test_gzip_damage(tmp_path, good):
    data = bytearray(good["us.pcap.gz"])
    data[len(data) // 2] ^= 0xFF
    path = tmp_path / "bad.pcap.gz"
    path.write_bytes(data)
    refuse(path, "truncated or damaged|is not a capture")
    path.write_bytes(b"\x1f\x8b garbage that is no gzip stream at all")
    refuse(path, "truncated or damaged|is not a capture")
    path.write_bytes(gzip.compress(b"not a capture " * 20))
    refuse(path, "is not a capture: use pcap or pcapng")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\n\nhello, I am text\n" * 9, "is not a capture"),
        (bytes(500), "is not a capture"),
        (b"\xd4\xc3\xb2\xa1", "is not a capture|truncated"),
        (struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1), "holds no packet"),
    ],
)
def test_no_capture_at_all(tmp_path, content, message):
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    refuse(path, message)


def test_nothing_usable(tmp_path):
    refuse(
        write(
            tmp_path / "arp.pcap", [ether() / ARP(psrc="192.0.2.1", hwsrc="02:00:00:00:00:01")] * 3
        ),
        r"no TCP or UDP .*\(3 ARP\)",
    )
    odd = write(tmp_path / "odd.pcap", [Raw(bytes(80))], linktype=127)
    refuse(odd, "1 of link type 127")


def test_missing_and_unreadable(tmp_path):
    refuse(tmp_path / "absent.pcap", "no capture .*absent.pcap: check TRAFFIC")
    refuse(tmp_path, "cannot read .*: Is a directory")


def test_a_file_made_to_fill_the_machine_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("testbed.traffic.frames._FEW_BYTES", 1 << 16)
    plain = write(tmp_path / "plain.pcap", flow_packets(n=1))
    header, record = plain.read_bytes()[:24], plain.read_bytes()[24:]
    bomb = tmp_path / "bomb.pcap.gz"
    bomb.write_bytes(gzip.compress(header + 20_000 * record))
    assert len(record) * 20_000 > 100 * bomb.stat().st_size
    with pytest.raises(CaptureError, match=r"bomb\.pcap\.gz unpacks to more than 100 times"):
        read_capture(bomb)
    few = tmp_path / "few.pcap.gz"
    few.write_bytes(gzip.compress(header + 500 * record))
    assert read_capture(few).frames == 500


def test_more_packets_than_memory_is_for_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("testbed.traffic.capture.MOST_PACKETS", 39)
    path = write(tmp_path / "a.pcap", flow_packets(n=40))
    with pytest.raises(CaptureError, match="holds more than 39 packets: keep its first ones"):
        read_capture(path)


def test_progress_is_the_share_that_was_read(tmp_path, monkeypatch):
    monkeypatch.setattr("testbed.traffic.frames._CHUNK", 10)
    path = write(tmp_path / "a.pcap", flow_packets(n=95))
    shares = []
    read_capture(path, progress=shares.append)
    assert len(shares) == 10 and shares == sorted(shares) and shares[-1] == 1.0
