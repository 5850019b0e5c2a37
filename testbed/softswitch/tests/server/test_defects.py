# SPDX-License-Identifier: Apache-2.0
"""A defect of the switch is seen: by the client as INTERNAL, and on stderr with its traceback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from canary_softswitch.device.controllers import Arbitration
from canary_softswitch.device.device import Device
from canary_softswitch.device.messages import code_pb2, p4runtime_pb2
from canary_softswitch.device.pipeline import Pipeline
from canary_softswitch.p4runtime.calls import P4Runtime
from canary_softswitch.p4runtime.server import Server, Threads
from testbed.softswitch.tests.server.client import Client, Refused, eventually


@pytest.fixture
def address(device: Device) -> Iterator[str]:
    threads = Threads()
    server = Server(device, "127.0.0.1:0", threads)
    yield server.address
    server.stop()
    threads.stop()


def break_(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(owner, name, broken)


def test_defect_ends_the_stream_with_internal(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    break_(monkeypatch, Arbitration, "update")
    with Client(address, connect=False) as c:
        c.stream()
        c.send(arbitration=p4runtime_pb2.MasterArbitrationUpdate())
        error = c.receive("arbitration")
    assert isinstance(error, grpc.Call)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert error.details() == "ZeroDivisionError: a defect"
    message = capfd.readouterr().err
    assert message.count("Traceback") == 1
    assert "in _message" in message


def test_defect_in_a_message_does_not_end_the_stream(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    break_(monkeypatch, P4Runtime, "_digest_ack")
    with Client(address) as c:
        for _ in range(2):
            c.send(digest_ack=p4runtime_pb2.DigestListAck())
            assert c.receive("error").canonical_code == code_pb2.INTERNAL
    assert "in broken" in capfd.readouterr().err


def test_defect_does_not_stop_a_batch(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Client(address) as c:
        c.configure()
        break_(monkeypatch, Pipeline, "write")
        with pytest.raises(Refused) as e:
            c.write(("insert", c.route(1, 32, 1)), ("insert", c.route(2, 32, 1)))
    assert e.value.codes == [code_pb2.INTERNAL] * 2
    assert capfd.readouterr().err.count("Traceback") == 2


def test_a_client_that_goes_is_no_defect(
    device: Device, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(5):
        with Client(address):
            eventually(lambda: device.arbitration.primary() is not None)
        eventually(lambda: device.arbitration.primary() is None)
    assert "Traceback" not in capfd.readouterr().err
