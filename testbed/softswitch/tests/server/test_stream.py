# SPDX-License-Identifier: Apache-2.0
"""Digests and packets between the data plane and the controller."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any

import pytest

from canary_softswitch.device.messages import (
    ControllerHeader,
    P4Error,
    code_pb2,
    p4info_pb2,
    p4runtime_pb2,
)
from testbed.softswitch.tests.server.client import Client, Process, Refused
from testbed.softswitch.tests.server.frames import udp

HEAVY = "heavy_hitter_t"
CPU = 100


def packet_out(client: Client, frame: bytes) -> None:
    client.send(packet=p4runtime_pb2.PacketOut(payload=frame))


def digest(client: Client, size: int = 1, timeout_ms: int = 0, ack_ms: int = 60000) -> Any:
    return p4runtime_pb2.Entity(
        digest_entry=p4runtime_pb2.DigestEntry(
            digest_id=client.id("digests", HEAVY),
            config=p4runtime_pb2.DigestEntry.Config(
                max_timeout_ns=timeout_ms * 10**6, max_list_size=size, ack_timeout_ns=ack_ms * 10**6
            ),
        )
    )


@pytest.fixture
def monitor(client: Client) -> Client:
    """A switch that reports every packet of the segment 5."""
    identity = client.entry(
        "CanaryIngress.identity.identity",
        {},
        "CanaryIngress.identity.identify",
        (1, 0, 0, 0x0A0000FE),
    )
    identity.table_entry.is_default_action = True
    client.write(
        ("modify", identity),
        (
            "insert",
            client.entry(
                "CanaryIngress.heavy_hitter.segments",
                {"hdr.shim.path_bf": 5, "meta.hashpipe_count": (1, 0xFFFFFFFF)},
                "CanaryIngress.heavy_hitter.report",
                (),
                1,
            ),
        ),
    )
    return client


def samples(message: Any) -> list[list[int]]:
    return [[int.from_bytes(m.bitstring, "big") for m in d.struct.members] for d in message.data]


def test_digest_lists_and_their_acknowledgement(monitor: Client) -> None:
    monitor.write(("insert", digest(monitor)))
    packet_out(monitor, udp(path_bf=5))
    first = monitor.receive("digest")
    assert samples(first) == [[0x0A000001, 0x0A000002, 1000, 2000, 17, 5]]
    assert abs(first.timestamp / 1e9 - time.time()) < 60
    packet_out(monitor, udp(path_bf=5))  # not acknowledged: not told again
    packet_out(monitor, udp(path_bf=5, sport=1001))
    second = monitor.receive("digest")
    assert samples(second)[0][2] == 1001 and second.list_id != first.list_id
    monitor.send(
        digest_ack=p4runtime_pb2.DigestListAck(digest_id=first.digest_id, list_id=first.list_id)
    )
    packet_out(monitor, udp(path_bf=5))
    packet_out(monitor, udp(path_bf=5, sport=1001))
    assert samples(monitor.receive("digest")) == samples(first)
    with pytest.raises(queue.Empty):
        monitor.receive("digest", 0.1)
    monitor.send(digest_ack=p4runtime_pb2.DigestListAck(digest_id=first.digest_id, list_id=999))
    error = monitor.receive("error")
    assert error.canonical_code == code_pb2.NOT_FOUND
    assert error.digest_list_ack.digest_list_ack.list_id == 999


def test_digests_wait_for_company(monitor: Client) -> None:
    monitor.write(("insert", digest(monitor, size=3, timeout_ms=300)))
    start = time.monotonic()
    for sport in (1, 2):
        packet_out(monitor, udp(path_bf=5, sport=sport))
    assert len(monitor.receive("digest").data) == 2
    assert time.monotonic() - start > 0.28
    minute = 60_000
    monitor.write(("modify", digest(monitor, size=3, timeout_ms=minute)))
    for sport in range(10, 17):
        packet_out(monitor, udp(path_bf=5, sport=sport))
    assert [len(monitor.receive("digest").data) for _ in range(2)] == [3, 3]
    with pytest.raises(queue.Empty):  # the seventh waits for company
        monitor.receive("digest", 0.1)


def test_unacknowledged_digests_expire(monitor: Client) -> None:
    monitor.write(("insert", digest(monitor, ack_ms=1000)))
    packet_out(monitor, udp(path_bf=5))
    monitor.receive("digest")
    packet_out(monitor, udp(path_bf=5))
    with pytest.raises(queue.Empty):
        monitor.receive("digest", 0.1)
    time.sleep(1)
    packet_out(monitor, udp(path_bf=5))
    monitor.receive("digest")


def test_another_timeout_is_that_of_lists_sent_before(monitor: Client) -> None:
    monitor.write(("insert", digest(monitor, ack_ms=10**7)))
    packet_out(monitor, udp(path_bf=5))
    first = monitor.receive("digest")
    monitor.write(("modify", digest(monitor, ack_ms=1)))
    time.sleep(0.1)
    packet_out(monitor, udp(path_bf=5))
    assert samples(monitor.receive("digest")) == samples(first)


def test_many_digests(monitor: Client) -> None:
    monitor.write(("insert", digest(monitor, size=100, timeout_ms=50)))
    for sport in range(1000):
        packet_out(monitor, udp(path_bf=5, sport=sport))
    seen: list[int] = []
    while len(seen) < 1000:
        seen += [s[2] for s in samples(monitor.receive("digest"))]
    assert seen == list(range(1000))


def test_digest_configuration(monitor: Client) -> None:
    packet_out(monitor, udp(path_bf=5))  # nobody asked: thrown away
    with pytest.raises(queue.Empty):
        monitor.receive("digest", 0.1)
    one = digest(monitor, 7)
    with pytest.raises(Refused) as e:
        monitor.write(("modify", one), ("insert", one), ("insert", one))
    assert e.value.codes == [code_pb2.NOT_FOUND, code_pb2.OK, code_pb2.ALREADY_EXISTS]
    assert monitor.read(digest_entry=p4runtime_pb2.DigestEntry()) == [one]
    other = digest(monitor, 8)
    monitor.write(("modify", other))
    assert monitor.read(digest_entry=other.digest_entry) == [other]
    monitor.write(("delete", other))
    assert monitor.read(digest_entry=p4runtime_pb2.DigestEntry()) == []


def test_packet_in_goes_to_the_primary_only(connect: Callable[..., Client]) -> None:
    backup, primary = connect(election=3), connect(election=4)
    primary.configure()
    primary.write(("insert", primary.route(0x0A000000, 8, CPU)))
    frame = udp()
    packet_out(primary, frame)
    received = primary.receive("packet")
    assert received.payload[14:22] == frame[14:22] and received.payload[22] == 63
    backup.receive("arbitration")
    packet_out(backup, frame)
    error = backup.receive("error")
    assert error.canonical_code == code_pb2.PERMISSION_DENIED
    assert error.packet_out.packet_out.payload == frame


def test_packet_out_needs_a_cpu_port() -> None:
    with Process("--no-p4") as p, Client(p.grpc) as c:
        packet_out(c, b"x")
        assert c.receive("error").canonical_code == code_pb2.FAILED_PRECONDITION


def test_controller_headers() -> None:
    message = p4info_pb2.ControllerPacketMetadata()
    for i, (name, width) in enumerate((("port", 9), ("reason", 7), ("wide", 12)), 1):
        message.metadata.add(id=i, name=name, bitwidth=width)
    header = ControllerHeader([(m.id, m.name, m.bitwidth) for m in message.metadata])
    metadata = [
        p4runtime_pb2.PacketMetadata(metadata_id=i, value=v)
        for i, v in ((3, b"\x0a\xbc"), (1, b"\x01\x05"), (2, b"\x03"))
    ]
    packed = header.pack(metadata)
    assert packed == bytes.fromhex("8283abc0")
    packet = header.unpack(packed + b"payload")
    assert packet.payload == b"payload"
    assert [(m.metadata_id, m.value) for m in packet.metadata] == [
        (1, b"\x01\x05"),
        (2, b"\x03"),
        (3, b"\x0a\xbc"),
    ]
    with pytest.raises(P4Error, match="must have each of these once"):
        header.pack(metadata[:2])
