# SPDX-License-Identifier: Apache-2.0
"""Meters and idle timeouts through P4Runtime."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from canary_softswitch.device.messages import code_pb2, p4runtime_pb2
from testbed.softswitch.tests.server.client import PROGRAMS, Client, Process, Refused, p4info

INFO, CODE = PROGRAMS / "rates.p4info.txtpb", PROGRAMS / "rates.json"
ENTRIES = "I.entries"
RATES = {"cir": 1, "cburst": 2, "pir": 3, "pburst": 4}
BURSTS = {"cir": 0, "cburst": 2, "pir": 0, "pburst": 4}  # alone count, however late packets are


@pytest.fixture
def client(process: Process) -> Iterator[Client]:
    with Client(process.grpc) as c:
        c.configure(info=p4info(INFO), code=CODE.read_bytes())
        yield c


def meter(client: Client, index: int | None = None, **config: int) -> Any:
    e = p4runtime_pb2.Entity()
    e.meter_entry.meter_id = client.id("meters", "I.array")
    if index is not None:
        e.meter_entry.index.index = index
    if config:
        e.meter_entry.config.CopyFrom(p4runtime_pb2.MeterConfig(**config))
    return e


def entry(client: Client, key: int, timeout_ns: int = 0, **config: int) -> Any:
    e = client.entry(ENTRIES, {"hdr.h.key": key}, "I.note")
    e.table_entry.idle_timeout_ns = timeout_ns
    if config:
        e.table_entry.meter_config.CopyFrom(p4runtime_pb2.MeterConfig(**config))
    return e


def sent(client: Client, key: int, n: int) -> list[tuple[int, int]]:
    """(colour, own colour) of packets that come back by the CPU port."""
    for _ in range(n):
        client.send(packet=p4runtime_pb2.PacketOut(payload=bytes([key, 9, 9, *bytes(20)])))
    packets = [client.receive("packet").payload for _ in range(n)]
    return [(p[1], p[2]) for p in packets]


def test_meters_colour_packets_and_are_read_back(client: Client) -> None:
    assert sent(client, 7, 3) == [(0, 0)] * 3
    client.write(("modify", meter(client, 1, **BURSTS)))
    assert [c for c, _ in sent(client, 7, 6)] == [0, 0, 1, 1, 2, 2]
    (one,) = client.read(meter_entry=meter(client, 1).meter_entry)
    assert one.meter_entry.config == p4runtime_pb2.MeterConfig(**BURSTS)
    every = client.read(meter_entry=p4runtime_pb2.MeterEntry())
    assert [e.meter_entry.index.index for e in every] == [0, 1, 2, 3]
    assert [e.meter_entry.HasField("config") for e in every] == [False, True, False, False]
    client.write(("modify", meter(client, 1)))  # without a config: as from the start
    assert sent(client, 7, 3) == [(0, 0)] * 3
    client.write(("modify", meter(client, **RATES)))
    assert all(e.meter_entry.HasField("config") for e in client.read(meter_entry=one.meter_entry))


def test_meters_of_entries(client: Client) -> None:
    config = {"cir": 1, "cburst": 30, "pir": 2, "pburst": 60}
    client.write(("insert", entry(client, 1, **config)), ("insert", entry(client, 2)))
    assert [own for _, own in sent(client, 1, 4)] == [0, 1, 2, 2]
    assert [own for _, own in sent(client, 2, 4)] == [0, 0, 0, 0]
    table = client.id("tables", ENTRIES)
    wanted = p4runtime_pb2.TableEntry(table_id=table)
    wanted.meter_config.SetInParent()
    assert [e.table_entry.HasField("meter_config") for e in client.read(table_entry=wanted)] == [
        True,
        False,
    ]
    direct = p4runtime_pb2.DirectMeterEntry(table_entry=entry(client, 2).table_entry)
    direct.table_entry.ClearField("action")
    direct.config.CopyFrom(p4runtime_pb2.MeterConfig(**config))
    client.write(("modify", p4runtime_pb2.Entity(direct_meter_entry=direct)))
    assert [own for _, own in sent(client, 2, 3)] == [0, 1, 2]
    read = client.read(direct_meter_entry=p4runtime_pb2.DirectMeterEntry())
    assert [e.direct_meter_entry.config.pburst for e in read] == [60, 60]
    client.write(("modify", entry(client, 2)))  # without a config: as from the start
    assert [own for _, own in sent(client, 2, 3)] == [0, 0, 0]


def test_wrong_meters(client: Client) -> None:
    bad = code_pb2.INVALID_ARGUMENT
    cases = [
        ("modify", meter(client, 4, **RATES), code_pb2.OUT_OF_RANGE),
        ("insert", meter(client, 1, **RATES), bad),
        ("delete", meter(client, 1), bad),
        ("modify", meter(client, 1, **{**RATES, "cir": 9}), bad),
        ("modify", meter(client, 1, **{**RATES, "cburst": -1}), bad),
        ("modify", meter(client, 1, **{**RATES, "cir": -1}), bad),
        (
            "modify",
            p4runtime_pb2.Entity(meter_entry=p4runtime_pb2.MeterEntry(meter_id=5)),
            code_pb2.NOT_FOUND,
        ),
        ("insert", entry(client, 1, -1), bad),
        ("insert", entry(client, 1, 0, cir=9), bad),
    ]
    with pytest.raises(Refused) as e:
        client.write(*[(kind, entity) for kind, entity, _ in cases])
    assert e.value.codes == [code for _, _, code in cases]
    assert " 9 and 3 a second" in e.value.details[3][1]  # as they were written
    assert not client.read(table_entry=p4runtime_pb2.TableEntry())


def idle(client: Client) -> list[int]:
    """Keys of the entries that the next notification names."""
    message = client.receive("idle_timeout_notification")
    assert abs(message.timestamp - time.time_ns()) < 60e9
    return [int.from_bytes(e.match[0].exact.value, "big") for e in message.table_entry]


def test_idle_entries_are_told_after_each_timeout_without_a_hit(client: Client) -> None:
    begin = time.monotonic()
    client.write(("insert", entry(client, 1, 300_000_000)), ("insert", entry(client, 3)))
    for times in (1, 2, 3):
        assert idle(client) == [1]
        assert time.monotonic() - begin >= 0.29 * times
    client.write(("modify", entry(client, 1)))  # without a timeout
    with pytest.raises(queue.Empty):
        while client.receive("idle_timeout_notification", 0.7):  # one may have been under way
            pass
    client.write(("modify", entry(client, 1, 300_000_000)), ("insert", entry(client, 2, 10**9)))
    assert idle(client) == [1]
    assert time.monotonic() - begin >= 0.29
    wanted = p4runtime_pb2.TableEntry(table_id=client.id("tables", ENTRIES))
    wanted.time_since_last_hit.SetInParent()
    found = {e.table_entry.match[0].exact.value[0]: e for e in client.read(table_entry=wanted)}
    assert found[1].table_entry.idle_timeout_ns == 300_000_000
    assert found[1].table_entry.time_since_last_hit.elapsed_ns >= 300_000_000
    assert not found[3].table_entry.HasField("time_since_last_hit")


def test_state_lives_through_a_reconciliation(client: Client) -> None:
    client.write(
        ("modify", meter(client, 2, **RATES)), ("insert", entry(client, 5, 10**12, **RATES))
    )
    info = p4info(INFO)
    info.pkg_info.name = "another"
    client.configure("RECONCILE_AND_COMMIT", info, CODE.read_bytes())
    (found,) = client.read(table_entry=entry(client, 5).table_entry)
    assert found.table_entry.idle_timeout_ns == 10**12
    read = client.read(meter_entry=p4runtime_pb2.MeterEntry())
    assert [e.meter_entry.HasField("config") for e in read] == [False, False, True, False]
    with pytest.raises(grpc.RpcError):
        client.configure("RECONCILE_AND_COMMIT", info, b"{}")
