# SPDX-License-Identifier: Apache-2.0
"""The connections of the Thrift server, and what it reads of them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from canary_softswitch import limits
from canary_softswitch.device.device import Device
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.thrift.server import ThriftServer
from testbed.softswitch.tests.server.attackers import closed
from testbed.softswitch.tests.server.client import eventually
from testbed.softswitch.tests.server.test_thrift_hostile import answer, message
from testbed.softswitch.tests.server.thrift_client import RegisterClient
from tests.patience import PATIENCE_S

CALL = "standard:bm_mgmt_get_info"
MIB = 1 << 20


@pytest.fixture
def port(device: Device) -> Iterator[int]:
    server = ThriftServer(device, 0)
    yield server.port
    server.stop()


def text(n: int, number: int = 1) -> bytes:
    return struct.pack(">bhi", 11, number, n) + bytes(n)


def test_a_message_has_a_limit(port: int) -> None:
    assert answer(port, message(CALL, text(MIB // 2) + b"\0"))
    assert not answer(port, message(CALL, text(MIB // 2) + text(MIB // 2, 2) + b"\0"))


@pytest.mark.parametrize("n", [-1, 100_000, (1 << 31) - 1])
@pytest.mark.parametrize("kind", ["string", "list", "set", "map"])
def test_lengths_are_checked_before_anything_is_read(kind: str, n: int, port: int) -> None:
    head = {
        "string": struct.pack(">bhi", 11, 1, n if n < 0 else max(n, 2 * MIB)),
        "list": struct.pack(">bhbi", 15, 1, 2, n),
        "set": struct.pack(">bhbi", 14, 1, 2, n),
        "map": struct.pack(">bhbbi", 13, 1, 2, 2, n),
    }
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as s:
        s.sendall(message(CALL, head[kind]))
        assert s.recv(1) == b""  # it does not wait for the rest


def test_a_message_without_a_version(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as s:
        s.sendall(struct.pack(">i", (1 << 31) - 1))
        assert s.recv(1) == b""


def test_who_has_called_is_missed_the_most(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "THRIFT_CONNECTIONS", 5)
    with RegisterClient(port) as first:
        assert len(first.config_md5()) == 16
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
        eventually(lambda: sum(map(closed, idle)) == 26)
        assert [closed(s) for s in idle[-4:]] == [False] * 4
        assert len(first.config_md5()) == 16
        others = []
        for _ in range(5):
            others.append(RegisterClient(port))
            assert len(others[-1].config_md5()) == 16
        with pytest.raises(SoftSwitchError):  # it has been idle for longest by now
            first.config_md5()
        for s in (*idle, *others):
            s.close()


def test_a_call_must_come_and_go_on(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "THRIFT_SECONDS", 0.2)
    half = message(CALL, b"\0")[:10]
    with RegisterClient(port) as client:
        assert len(client.config_md5()) == 16
        for sent in (b"", half):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as s:
                s.sendall(sent)
                assert s.recv(1) == b""
        assert len(client.config_md5()) == 16  # between its calls it may be idle
