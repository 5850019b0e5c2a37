# SPDX-License-Identifier: Apache-2.0
"""Registers over Thrift: the same client against the soft switch and BMv2."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from canary_softswitch import SoftSwitchError
from canary_softswitch.device.messages import p4runtime_pb2
from testbed.softswitch.tests.server.client import JSON, Client, Process
from testbed.softswitch.tests.server.thrift_client import RegisterClient
from tests.patience import PATIENCE_S
from tests.programs import COMMAND_LINE, needs, unusable

COUNT = "CanaryEgress.usm.row0.count"
HASHPIPE = "CanaryIngress.hashpipe.stage0.flow_id"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def bmv2(json: Path = JSON) -> Iterator[int]:
    """The Thrift port of a simple_switch without interfaces."""
    port = free_port()
    p = subprocess.Popen(
        [
            "simple_switch",
            "--thrift-port",
            str(port),
            "--notifications-addr",
            f"ipc:///tmp/softswitch-test-{os.getpid()}",
            str(json),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield port
    finally:
        p.terminate()
        p.wait()


@pytest.fixture(scope="module", params=["softswitch", "bmv2"])
def registers(request: pytest.FixtureRequest) -> Iterator[RegisterClient]:
    if request.param == "bmv2":
        if reason := unusable("simple_switch", "--version"):
            pytest.skip(reason)
        with bmv2() as port, RegisterClient(port) as client:
            yield client
    else:
        with Process(str(JSON)) as p, RegisterClient(p.thrift) as client:
            yield client


def test_read_write_reset(registers: RegisterClient) -> None:
    assert registers.read_all(COUNT).shape == (2048,)
    registers.write(COUNT, 3, 0xFFFFFFFF)
    registers.write(COUNT, 2047, 5)
    values = registers.read_all(COUNT)
    assert values.dtype == np.int64 and list(np.flatnonzero(values)) == [3, 2047]
    assert values[3] == 0xFFFFFFFF == registers.read(COUNT, 3)
    registers.reset(COUNT)
    assert not registers.read_all(COUNT).any()


def test_errors(registers: RegisterClient) -> None:
    for call in (
        lambda: registers.read_all("nothing"),
        lambda: registers.read("nothing", 0),
        lambda: registers.reset("nothing"),
    ):
        with pytest.raises(SoftSwitchError, match="no such register"):
            call()
    with pytest.raises(SoftSwitchError, match="out of range"):
        registers.read(COUNT, 2048)
    with pytest.raises(SoftSwitchError, match="out of range"):
        registers.write(COUNT, 2048, 1)
    assert registers.read(COUNT, 0) == 0  # the connection is still good


def test_a_value_too_wide_for_an_element(registers: RegisterClient) -> None:
    registers.write("CanaryEgress.usm.row0.dirty", 1, 7)
    assert registers.read("CanaryEgress.usm.row0.dirty", 1) == 1
    registers.write(HASHPIPE, 0, (1 << 63) - 1)
    assert registers.read(HASHPIPE, 0) == (1 << 63) - 1
    registers.reset(HASHPIPE)


def test_md5_of_the_program(registers: RegisterClient) -> None:
    assert registers.config_md5() == hashlib.md5(JSON.read_bytes()).digest()


def test_wide_registers_are_capped() -> None:
    with Process(str(JSON)) as p, Client(p.grpc) as c, RegisterClient(p.thrift) as r:
        entry = p4runtime_pb2.RegisterEntry(register_id=c.id("registers", HASHPIPE))
        entry.index.index, entry.data.bitstring = 4, b"\x80" + bytes(12)
        c.write(("modify", p4runtime_pb2.Entity(register_entry=entry)))
        assert r.read(HASHPIPE, 4) == (1 << 63) - 1
        assert r.read_all(HASHPIPE)[4] == (1 << 63) - 1


def test_before_a_pipeline_is_set_and_unknown_calls() -> None:
    with Process("--no-p4") as p, RegisterClient(p.thrift) as r:
        with pytest.raises(SoftSwitchError, match="no such register"):
            r.read_all(COUNT)
        with pytest.raises(SoftSwitchError, match="no method"):
            r._call("bm_make_coffee", [], None, "state")
        with socket.create_connection(("127.0.0.1", p.thrift)) as s:
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            s.settimeout(5)
            assert s.recv(100) == b""
    with pytest.raises(SoftSwitchError, match="cannot connect"):
        RegisterClient(free_port())


@needs("simple_switch_CLI")
def test_simple_switch_cli() -> None:
    with Process(str(JSON)) as p:

        def cli(commands: str) -> str:
            run = subprocess.run(
                [*COMMAND_LINE, "--thrift-port", str(p.thrift)],
                input=commands,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            return run.stdout

        out = cli(f"register_write {COUNT} 3 77\nregister_read {COUNT} 3\n")
        assert f"{COUNT}[3]= 77" in out
        cli(f"register_reset {COUNT}\n")
        with RegisterClient(p.thrift) as r:
            assert r.read(COUNT, 3) == 0
