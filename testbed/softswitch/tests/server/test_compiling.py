# SPDX-License-Identifier: Apache-2.0
"""A program that was not compiled before: calls and packets wait for it, and no answer does."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from canary_softswitch.compiler.build import compiler
from canary_softswitch.compiler.source import read_file, translate
from canary_softswitch.device.messages import p4info_pb2, p4runtime_pb2
from canary_softswitch.runtime.program import Program
from canary_softswitch.runtime.switch import Switch
from testbed.softswitch.tests.server.client import PROGRAMS, Client, Process, p4info
from testbed.softswitch.tests.server.frames import udp
from testbed.softswitch.tests.server.wires import Wire, attach
from tests.patience import PATIENCE_S

ROUTER, ROUTER_INFO = PROGRAMS / "router.json", PROGRAMS / "router.p4info.txtpb"
EVERY = p4runtime_pb2.TableEntry()


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a compiler that waits for this file before it compiles packets' code; if
    the file has a text, it fails with that."""
    gate, script = tmp_path / "gate", tmp_path / "cc"
    real = shlex.join(compiler())
    script.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *-fno-tree-slp-vectorize*) while [ ! -e {gate} ]; do sleep 0.02; done\n'
        f"  if [ -s {gate} ]; then cat {gate} >&2; exit 1; fi;; esac\n"
        f'exec {real} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", str(script))
    return gate


@pytest.fixture
def controller(gate: Path) -> Iterator[Client]:
    with Process("--no-p4", target=("--cpu-port", "100")) as p, Client(p.grpc) as c:
        yield c


def configure(client: Client) -> None:
    client.configure(info=p4info(ROUTER_INFO), code=ROUTER.read_bytes())


def test_the_call_answers_while_the_compiler_works(controller: Client, gate: Path) -> None:
    configure(controller)
    request = p4runtime_pb2.ReadRequest(device_id=0)
    request.entities.add(table_entry=EVERY)
    waiting = controller.stub.Read(request)
    with Client(controller.address, election=0):  # others are served meanwhile
        answer = controller.stub.Capabilities(p4runtime_pb2.CapabilitiesRequest())
    assert answer.p4runtime_api_version
    assert waiting.is_active()
    gate.touch()
    list(waiting)
    assert waiting.code() is grpc.StatusCode.OK


def test_a_compiler_that_fails_is_told_by_what_follows(controller: Client, gate: Path) -> None:
    gate.write_text("error: no space left\n")
    configure(controller)
    with pytest.raises(grpc.RpcError) as e:
        controller.read(table_entry=EVERY)
    error: Any = e.value
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "the program cannot run: " in error.details()
    assert "refused the C code: error: no space left" in error.details()
    gate.write_text("")
    configure(controller)
    controller.read(table_entry=EVERY)


@pytest.mark.root
def test_packets_wait_for_the_program(gate: Path, wires: Callable[[int], list[Wire]]) -> None:
    a, b = wires(2)
    source, sink = a.open(), b.open()
    source.settimeout(PATIENCE_S)
    sink.settimeout(0.2)
    with Process("--no-p4", *attach([a, b])) as p, Client(p.grpc) as c:
        c.configure(info=p4info_pb2.P4Info(), code=(PROGRAMS / "repeater.json").read_bytes())
        source.send(udp())
        with pytest.raises(TimeoutError):
            sink.recv(2000)
        gate.touch()
        sink.settimeout(PATIENCE_S)
        assert sink.recv(2000)


@pytest.mark.parametrize("name", ["state", "router", "hashes", "stacks"])
def test_optimized_code_goes_on_with_the_state_of_the_first(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same packets through one switch whose code is exchanged in between, and another."""
    path = PROGRAMS / f"{name}.json"
    plain = Switch(Program.load(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = Program(translate(read_file(path), name), None, compiled=False)
    program.compile_quickly()
    assert not program.optimized
    changed = Switch(program)
    frames = [udp(sport=number) + os.urandom(number % 7) for number in range(40)]
    for number, frame in enumerate(frames):
        if number == len(frames) // 2:
            program.compile()
            assert program.optimized
        port = number % 3
        assert changed.process(port, frame, number) == plain.process(port, frame, number)
    for register in program.registers:
        assert (changed.register(register) == plain.register(register)).all()
