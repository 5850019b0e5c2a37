# SPDX-License-Identifier: Apache-2.0
"""A small router: parsing, checksums, tables, counters, the observed field."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from canary_softswitch import Program, SoftSwitchError, Switch

ROUTE = [(0x0A000000, 8)]


def csum(data: bytes) -> int:
    """Internet checksum, computed the plain way."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(
    dst: int = 0x0A000001,
    tos: int = 0,
    dport: int = 1000,
    payload: bytes = b"abc",
    good: bool = True,
    version: int = 4,
) -> bytes:
    """Ethernet, IPv4, UDP."""
    ip = struct.pack(
        ">BBHHHBBHII", version << 4 | 5, tos, 28 + len(payload), 7, 0, 64, 17, 0, 0x01020304, dst
    )
    value = csum(ip) if good else csum(ip) ^ 1
    ip = ip[:10] + struct.pack(">H", value) + ip[12:]
    udp = struct.pack(">HHHH", 5, dport, 8 + len(payload), 0)
    return bytes(12) + b"\x08\x00" + ip + udp + payload


@pytest.fixture
def sw(load: Callable[..., Program]) -> Switch:
    return Switch(load("router", "meta.verdict"))


def test_forward_rewrites_and_counts(sw: Switch) -> None:
    h = sw.table("I.routes").add(ROUTE, "I.forward", [3, b"\x00\xaa\x00\x00\x00\x07"])
    sent = packet()
    [(port, data)] = sw.process(2, sent)
    assert port == 3
    assert data[:6] == b"\x00\xaa\x00\x00\x00\x07"
    assert data[22] == 63
    assert csum(data[14:34]) == 0
    udp_len = struct.unpack(">H", data[38:40])[0]
    pseudo = data[26:34] + b"\0" + data[23:24] + data[38:40]
    assert udp_len == 11
    assert csum(pseudo + data[34:]) == 0
    routes = sw.table("I.routes")
    assert routes.counter(h) == (1, len(sent))
    assert routes.counters([h, h]).tolist() == [[1, len(sent)]] * 2
    assert routes.counters([]).shape == (0, 2)
    with pytest.raises(SoftSwitchError, match=r"no entry has this handle \(77\)"):
        routes.counters([h, 77])
    assert sw.counter("I.ports")[2].tolist() == (1, len(sent))
    assert sw.observed == 0


def test_default_action_and_reset(sw: Switch) -> None:
    t = sw.table("I.routes")
    assert sw.process(0, packet()) == []
    assert sw.observed == 1
    t.set_default("forward", [4, 0])
    assert [p for p, _ in sw.process(0, packet())] == [4]
    t.reset_default()
    assert sw.process(0, packet()) == []


@pytest.mark.parametrize(
    ("data", "port", "verdict"),
    [
        (packet()[:20], 9, 200),  # too short: PacketTooShort
        (b"\0" * 3, 9, 200),
        (b"", 9, 200),
        (packet(version=5), 9, 201),  # verify() fails
        (bytes(12) + b"\x86\xdd" + b"xy", 8, 0),  # not IPv4
    ],
)
def test_parser_errors(sw: Switch, data: bytes, port: int, verdict: int) -> None:
    [(out, back)] = sw.process(1, data)
    assert (out, sw.observed) == (port, verdict)
    if verdict == 200:
        assert back == data  # what was not parsed leaves as it came


def test_wrong_checksum_is_seen(sw: Switch) -> None:
    sw.table("I.routes").add(ROUTE, "forward", [3, 0])
    assert sw.process(0, packet(good=False)) == []
    assert sw.observed == 202


def test_const_entries_hit_and_action_run(sw: Switch) -> None:
    sw.table("I.routes").add(ROUTE, "forward", [3, 0])
    sw.table("I.kind").add([5], "mark", [50])
    sw.table("I.kind").add([6], "drop")

    def hops(data: bytes) -> int | None:
        out = sw.process(0, data)
        return struct.unpack(">H", out[0][1][18:20])[0] if out else None

    assert hops(packet()) == 0
    assert hops(packet(dport=53)) == 1
    assert sw.observed == 53
    assert hops(packet(dport=53, tos=5)) == 3
    assert sw.observed == 50
    assert hops(packet(tos=6)) is None  # drop and exit: no route lookup
    acl = sw.table("I.acl")
    assert [e.match for e in acl.entries()] == [(53, 1), (80, 1)]
    with pytest.raises(SoftSwitchError, match=r"const"):
        acl.add([1, 1], "mark", [1])
    with pytest.raises(SoftSwitchError, match=r"const"):
        acl.set_default("mark", [1])


def test_batch_equals_single(sw: Switch, load: Callable[..., Program]) -> None:
    other = Switch(load("router", "meta.verdict"))
    packets = [
        packet(dst=0x0A000000 + i, dport=50 + i % 8, payload=bytes(i), good=i % 5 > 0)
        for i in range(60)
    ] + [packet()[:i] for i in range(40)]
    for s in (sw, other):
        s.table("I.routes").add([(0x0A000000, 27)], "forward", [3, 1])
        s.table("I.routes").add([(0x0A000010, 28)], "forward", [4, 1])
    offsets = np.cumsum([0] + [len(p) for p in packets]).astype(np.uint64)
    data = np.frombuffer(b"".join(packets), dtype=np.uint8)
    ports = np.arange(len(packets), dtype=np.uint16) % 16
    r = sw.process_batch(ports, data, offsets, now_us=np.arange(len(packets), dtype=np.uint64))
    expected, observed = [], []
    for i, p in enumerate(packets):
        expected += [(i, q, d) for q, d in other.process(int(ports[i]), p, i)]
        observed.append(other.observed)
    got = [
        (
            int(r.source[k]),
            int(r.ports[k]),
            r.data[int(r.offsets[k]) : int(r.offsets[k + 1])].tobytes(),
        )
        for k in range(len(r.ports))
    ]
    assert got == expected
    assert r.observed.tolist() == observed
    assert (sw.counter("I.ports") == other.counter("I.ports")).all()


def test_batch_checks_its_arguments(sw: Switch) -> None:
    ports, data = np.zeros(1, np.uint16), np.zeros(4, np.uint8)
    with pytest.raises(SoftSwitchError, match="offsets"):
        sw.process_batch(ports, data, np.array([0, 5], np.uint64))
    with pytest.raises(SoftSwitchError, match="offsets"):
        sw.process_batch(ports, data, np.array([0], np.uint64))
    with pytest.raises(SoftSwitchError, match="port 600"):
        sw.process_batch(np.array([600], np.uint16), data, np.array([0, 4], np.uint64))
    empty = sw.process_batch(np.zeros(0, np.uint16), data, np.zeros(1, np.uint64))
    assert len(empty.ports) == 0
    assert empty.offsets.tolist() == [0]


def test_descriptions(load: Callable[..., Program]) -> None:
    p = load("router")
    t = p.tables["I.routes"]
    assert [(k.match, k.width) for k in t.key] == [("lpm", 32)]
    assert t.size == 64
    assert t.counters
    assert t.default_action == "I.drop"
    assert p.actions["I.forward"].params == (("port", 9), ("mac", 48))
    assert p.counters["I.ports"].size == 16
    assert p.tables["I.acl"].const
    assert p.process_address
    assert p.digests_pending_address


def test_wrong_calls_have_one_line_messages(sw: Switch, load: Callable[..., Program]) -> None:
    routes = sw.table("I.routes")
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: sw.table("routes"), "I.routes"),
        (lambda: sw.register("x"), "no register"),
        (lambda: sw.counter("I.routed"), "direct"),
        (lambda: routes.add([5], "forward", [1, 1]), "prefix_len"),
        (lambda: routes.add([(1 << 32, 8)], "forward", [1, 1]), "32 bits"),
        (lambda: routes.add([(0, 33)], "forward", [1, 1]), "prefix length 33"),
        (lambda: routes.add([(0, 8), 1], "forward", [1, 1]), "1 keys"),
        (lambda: routes.add(ROUTE, "forward", [1]), "2 parameters"),
        (lambda: routes.add(ROUTE, "forward", [512, 1]), "9 bits"),
        (lambda: routes.add(ROUTE, "forwart", [1, 1]), "near names"),
        (lambda: routes.add(ROUTE, "drop", priority=3), "no priority"),
        (lambda: routes.delete(3), "handle"),
        (lambda: routes.add_member_entry(ROUTE, 1), "no action profile"),
        (lambda: sw.process(512, b""), "9 bits"),
        (lambda: sw.action_profile("x"), "action profile"),
        (lambda: load("router", "meta.nothing"), "no field"),
        (lambda: load("router", "eth.type").tables["x"], ""),
    ]
    for call, text in calls[:-1]:
        with pytest.raises(SoftSwitchError, match=text) as e:
            call()
        assert "\n" not in str(e.value)
