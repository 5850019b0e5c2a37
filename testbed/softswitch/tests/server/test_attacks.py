# SPDX-License-Identifier: Apache-2.0
"""A controller works on while others take from the switch what they can."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from p4.v1 import p4runtime_pb2_grpc

from canary_softswitch import limits
from canary_softswitch.device.messages import code_pb2, p4runtime_pb2
from testbed.softswitch.tests.server.attackers import (
    CPU,
    GARBAGE,
    NOTHING,
    Memory,
    Stream,
    arbitration,
    channel,
    closed,
    connections,
    half_sent,
    packet_out,
    thrift_works,
    works,
)
from testbed.softswitch.tests.server.client import Client, Process, eventually
from tests import sockets

MOST_MIB = 20
MAPPED = "0000000000000000FFFF0000"  # what stands before an IPv4 address in a table of IPv6


@pytest.fixture
def process() -> Iterator[Process]:
    with Process("--no-p4", target=("--cpu-port", str(CPU))) as p:
        yield p
    assert p.popen.returncode == 0 and not p.errors, p.errors[-3000:]


@pytest.fixture
def controller(process: Process) -> Iterator[Client]:
    """The primary controller of a switch that has done everything once."""
    with Client(process.grpc, election=1000) as c:
        c.configure()
        works(c)
        thrift_works(process)
        yield c


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as s:
        yield s


def test_idle_streams(process: Process, controller: Client, stack: ExitStack) -> None:
    memory = Memory(process)
    for i in range(200):
        first = (arbitration(i + 1),) if i % 2 else ()
        stack.callback(Stream(channel(process.grpc, stack), *first).close)
        if i % 50 == 0:
            works(controller)
    works(controller)
    thrift_works(process)
    assert memory.grown() < MOST_MIB


def test_streams_beyond_the_limit(process: Process, controller: Client, stack: ExitStack) -> None:
    shared = channel(process.grpc, stack)
    silent = [Stream(shared) for _ in range(300)]
    with Client(process.grpc, election=1) as c:  # it is served, though they came first
        assert c.place != code_pb2.OK
    backups = [Stream(shared, arbitration(i + 2)) for i in range(300)]
    for s in (*silent, *backups):
        stack.callback(s.close)
    assert {s.end() for s in silent[:20]} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert {s.end() for s in backups[-20:]} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    works(controller)
    with Client(process.grpc, connect=False) as c:  # calls need no stream
        assert c.read(table_entry=p4runtime_pb2.TableEntry()) == []


def test_a_primary_that_never_reads(process: Process, controller: Client, stack: ExitStack) -> None:
    route = controller.route(0x0A000000, 8, CPU)
    controller.write(("insert", route))
    memory = Memory(process)
    # Its outbox is full at once; to flood the switch for ten seconds more would show nothing.
    # Few long messages: each costs time.
    sent = {"then": packet_out(60_000), "every_s": 0.02}
    deaf = Stream(channel(process.grpc, stack), arbitration(2000), **sent)
    stack.callback(deaf.close)
    assert controller.receive("arbitration").status.code != code_pb2.OK
    assert controller.receive("arbitration", 60).status.code == code_pb2.NOT_FOUND
    controller.election = 2000
    controller.arbitrate()
    assert controller.place == code_pb2.OK
    assert deaf.sent * 60_000 > limits.OUTBOX_BYTES
    controller.write(("delete", route))
    works(controller)
    assert memory.grown() < MOST_MIB
    assert deaf.end() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_errors_that_nobody_reads(process: Process, controller: Client, stack: ExitStack) -> None:
    memory = Memory(process)
    # Few long messages: each costs time, and each comes back whole with its error.
    backup = Stream(channel(process.grpc, stack), arbitration(1), then=packet_out(60_000))
    stack.callback(backup.close)
    eventually(lambda: backup.sent > 800)
    works(controller)
    assert memory.grown() < MOST_MIB


def test_requests_that_never_come(process: Process, controller: Client, stack: ExitStack) -> None:
    memory = Memory(process)
    shared = channel(process.grpc, stack)
    calls = [half_sent(shared, rpc, stack) for rpc in ("Write", "Read", "Capabilities") * 70]
    works(controller)
    assert calls[0].code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # it gave way
    assert memory.grown() < MOST_MIB


def test_reads_that_nobody_takes(process: Process, controller: Client, stack: ExitStack) -> None:
    every = p4runtime_pb2.ReadRequest(device_id=0)
    every.entities.add().register_entry.SetInParent()
    reader = p4runtime_pb2_grpc.P4RuntimeStub(channel(process.grpc, stack))
    memory = Memory(process)
    for _ in range(70):
        stack.callback(reader.Read(every).cancel)
    works(controller)
    works(controller)
    assert memory.grown() < MOST_MIB


@pytest.mark.parametrize("says", [NOTHING, GARBAGE], ids=["nothing", "garbage"])
@pytest.mark.parametrize("port", ["grpc", "thrift"])
def test_many_connections(
    port: str, says: tuple[bytes, ...], process: Process, controller: Client
) -> None:
    memory = Memory(process)
    number = int(process.grpc.rpartition(":")[2]) if port == "grpc" else process.thrift
    with connections(number, 2000, says) as opened:
        works(controller)
        if port == "thrift":
            thrift_works(process)
        assert memory.grown() < MOST_MIB
        eventually(lambda: sum(map(closed, opened)) > 1000, 60)
    works(controller)


@pytest.mark.nightly
def test_all_at_once(process: Process, controller: Client, stack: ExitStack) -> None:
    memory = Memory(process)
    for i in range(200):
        first = (arbitration(i + 1),) if i % 2 else ()
        stack.callback(Stream(channel(process.grpc, stack), *first).close)
    deaf = Stream(channel(process.grpc, stack), arbitration(500), then=packet_out(10_000))
    stack.callback(deaf.close)
    stack.enter_context(connections(int(process.grpc.rpartition(":")[2]), 2000))
    stack.enter_context(connections(process.thrift, 2000))
    eventually(lambda: deaf.sent > 500)
    works(controller)
    thrift_works(process)
    assert memory.grown() < 2 * MOST_MIB  # of four attacks


def test_a_handshake_has_its_time(process: Process, controller: Client) -> None:
    with connections(int(process.grpc.rpartition(":")[2]), 20) as opened:
        eventually(lambda: all(map(closed, opened)), 60)  # half of what gRPC would give it


@pytest.mark.parametrize(("most", "clients"), [(100, 200), (1024, 1100)])
def test_no_files_are_left(most: int, clients: int, process: Process, controller: Client) -> None:
    resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (most, most))
    with connections(process.thrift, clients):
        thrift_works(process)
        works(controller)
    thrift_works(process)


def test_every_listener_is_on_loopback(process: Process, controller: Client) -> None:
    files = {
        os.readlink(f)
        for f in Path(f"/proc/{process.popen.pid}/fd").iterdir()
        if os.path.lexists(f)
    }
    rows = sockets.rows("tcp", "udp", "raw")
    ours = [row for row in rows if f"socket:[{row[9]}]" in files and row[3] in ("0A", "07")]
    addresses = {row[1].rpartition(":")[0].removeprefix(MAPPED) for row in ours}
    ports = {int(row[1].rpartition(":")[2], 16) for row in ours}
    assert addresses == {"0100007F"}
    assert ports == {int(process.grpc.rpartition(":")[2]), process.thrift}
