"""The limits of the gRPC server, each reached with few clients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from p4.v1 import p4runtime_pb2_grpc

from testbed.softswitch.server import limits
from testbed.softswitch.server.device import Device
from testbed.softswitch.server.grpc_server import Server
from testbed.softswitch.server.messages import code_pb2, p4runtime_pb2
from testbed.softswitch.server.p4runtime import P4Runtime
from tests.testbed.softswitch.server.attackers import (
    Stream,
    arbitration,
    channel,
    half_sent,
    packet_out,
)
from tests.testbed.softswitch.server.client import Client, eventually

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
LATE = grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as s:
        yield s


@pytest.fixture
def serve(
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    stack: ExitStack,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Callable[..., str]]:
    """Start a server with limits of its own, and give its address. It must say nothing."""

    def start(**changed: float) -> str:
        for name, value in changed.items():
            monkeypatch.setattr(limits, name, value)
        server = Server(device, "127.0.0.1:0")
        stack.callback(server.stop)
        return server.address

    yield start
    stack.close()
    assert capfd.readouterr().err == ""


def test_a_request_has_its_time(serve: Callable[..., str], stack: ExitStack) -> None:
    address = serve(CALL_SECONDS=0.2)
    call = half_sent(channel(address, stack), "Write", stack)
    assert (call.code(), call.details()) == (LATE, "no request came in 0.2 s")


def test_a_call_without_a_request(serve: Callable[..., str], stack: ExitStack) -> None:
    call = channel(serve(), stack).stream_stream("/p4.v1.P4Runtime/Read")(iter(()))
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_oldest_call_gives_way(serve: Callable[..., str], stack: ExitStack) -> None:
    address = serve(COMING_CALLS=3)
    shared = channel(address, stack)
    first = half_sent(shared, "Read", stack)
    for _ in range(4):
        half_sent(shared, "Write", stack)
    assert first.code() is EXHAUSTED
    capabilities = p4runtime_pb2.CapabilitiesRequest()
    for _ in range(5):
        p4runtime_pb2_grpc.P4RuntimeStub(shared).Capabilities(capabilities, timeout=10)


@pytest.mark.parametrize("limit", ["CALLS", "IN_WORK_BYTES"])
def test_calls_in_work_have_a_limit(
    limit: str, serve: Callable[..., str], stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    stack.callback(go_on.set)

    def slow(self: P4Runtime, request: Any) -> Any:
        go_on.wait(20)
        return p4runtime_pb2.WriteResponse()

    monkeypatch.setattr(P4Runtime, "Write", slow)
    stub = p4runtime_pb2_grpc.P4RuntimeStub(channel(serve(**{limit: 3}), stack))
    request = p4runtime_pb2.WriteRequest(device_id=1)  # 2 bytes
    calls = [stub.Write.future(request, timeout=30) for _ in range(5)]
    eventually(lambda: any(c.done() for c in calls))
    refused = [c for c in calls if c.done()]
    assert {c.code() for c in refused} == {EXHAUSTED}
    go_on.set()
    assert {c.code() for c in calls if c not in refused} <= {grpc.StatusCode.OK, EXHAUSTED}
    assert stub.Write(request, timeout=10) == p4runtime_pb2.WriteResponse()


def test_an_answer_has_its_time(serve: Callable[..., str], stack: ExitStack) -> None:
    address = serve(CALL_SECONDS=0.5)
    with Client(address) as c:
        c.configure()
        every = p4runtime_pb2.ReadRequest(device_id=0)
        for _ in range(40):  # more than what is under way to the client
            every.entities.add().register_entry.register_id = c.info.registers[0].preamble.id
        slow = p4runtime_pb2_grpc.P4RuntimeStub(channel(address, stack)).Read(every)
        threading.Event().wait(3)
        with pytest.raises(grpc.RpcError):
            for _ in slow:
                pass
        assert slow.code() is LATE


def test_a_client_that_ends_its_stream_reads_what_is_there(
    serve: Callable[..., str], device: Device
) -> None:
    with Client(serve()) as c:
        for _ in range(100):
            c.send(digest_ack=p4runtime_pb2.DigestListAck())
        c.outbox.put(None)
        for _ in range(100):
            assert c.receive("error").canonical_code == code_pb2.FAILED_PRECONDITION
        eventually(lambda: device.arbitration.primary() is None)


def test_a_client_that_ends_its_stream_and_does_not_read(
    serve: Callable[..., str], device: Device, stack: ExitStack
) -> None:
    address = serve(OUTBOX_SECONDS=0.3)
    deaf = Stream(channel(address, stack), arbitration(1), *[packet_out(10_000)] * 1500)
    stack.callback(deaf.close)
    deaf.half_close()
    eventually(lambda: device.arbitration.primary() is None, 60)
    assert deaf.end() is EXHAUSTED
