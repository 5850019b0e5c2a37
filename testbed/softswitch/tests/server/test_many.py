# SPDX-License-Identifier: Apache-2.0
"""Many switches in one process: each has its own device, addresses, log and state."""

from __future__ import annotations

import gc
import json
import resource
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import numpy as np
import pytest

from canary_softswitch.device.messages import p4runtime_pb2
from canary_softswitch.process.many import Switches
from canary_softswitch.process.single import RunningSwitch
from testbed.control.remote.thrift import RegisterClient, ThriftError
from testbed.softswitch.tests.server.client import READY, ROOT, Client, eventually
from tests.patience import PATIENCE_S

REGISTER = "CanaryIngress.dsm.row0.count"
SIZE = 2048


def wait(what: Any) -> None:
    eventually(what, timeout=PATIENCE_S)


class Many:
    """The process, and the orders it gets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "canary_softswitch.process.many"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def order(self, **order: Any) -> None:
        assert self.popen.stdin
        self.popen.stdin.write(json.dumps(order) + "\n")
        self.popen.stdin.flush()

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start(self, name: str, device: int, *arguments: str) -> None:
        words = ["--no-p4", "--device-id", str(device), "--thrift-port", "0", *arguments]
        words += ["--", "--grpc-server-addr", f"unix:{self.folder / name}"]
        self.order(start=name, namespace=None, log=str(self.log(name)), arguments=words)

    def ready(self, name: str) -> tuple[str, int]:
        """Where a switch listens that was started last, once it does."""

        def found() -> list[tuple[str, str]]:
            return READY.findall(self.log(name).read_text()) if self.log(name).exists() else []

        wait(found)
        address, port = found()[-1]
        return address, int(port)

    def stop(self) -> int:
        self.popen.terminate()
        _, self.errors = self.popen.communicate(timeout=PATIENCE_S)
        return self.popen.returncode


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Many]:
    made = Many(tmp_path)
    yield made
    if made.popen.poll() is None:
        made.popen.kill()
        made.popen.communicate()


def registers(port: int) -> RegisterClient:
    return RegisterClient(socket.create_connection(("127.0.0.1", port)), columns=True)


def count(client: RegisterClient) -> list[int]:
    [array] = client.read_all([REGISTER], [np.dtype("<u4")], [SIZE])
    return array[:3].tolist()


def test_each_has_its_device_and_its_state(many: Many) -> None:
    many.start("one", 1)
    many.start("two", 2)
    (first, first_port), (second, second_port) = many.ready("one"), many.ready("two")
    with Client(first, device=1) as a, Client(second, device=2) as b:
        a.configure()
        b.configure()
        with Client(first, device=2, connect=False) as wrong, pytest.raises(grpc.RpcError) as error:
            wrong.read(table_entry=p4runtime_pb2.TableEntry())
        assert error.value.code() == grpc.StatusCode.NOT_FOUND
        mine, yours = registers(first_port), registers(second_port)
        mine.fill([REGISTER], 1, 2, 7)
        assert (count(mine), count(yours)) == ([0, 7, 0], [0, 0, 0])

        many.order(end="one")
        many.start("one", 1)
        wait(lambda: len(READY.findall(many.log("one").read_text())) == 2)
        yours.fill([REGISTER], 0, 3, 1)
        assert count(yours) == [1, 1, 1]
    again, again_port = many.ready("one")
    with Client(again, device=1) as c:
        c.configure()
        assert count(registers(again_port)) == [0, 0, 0]
    assert (many.stop(), many.errors) == (0, "")


def order_of_start(folder: Path) -> dict[str, Any]:
    """The order to start a switch with Canary's program, for this process's ``Switches``."""
    program = str(ROOT / "p4" / "build" / "canary.json")
    servers = ["--thrift-port", "0", "--", "--grpc-server-addr", f"unix:{folder / 'one'}"]
    arguments = [program, "--device-id", "1", *servers]
    log = str(folder / "one.log")
    return {"start": "one", "namespace": None, "log": log, "arguments": arguments}


def test_a_switch_that_ended_leaves_nothing(tmp_path: Path) -> None:
    """Its registers and tables are memory that Python does not count, so they must not wait."""
    switches = Switches()
    gc.disable()
    try:
        switches.follow(order_of_start(tmp_path))
        device = switches._running["one"]._device
        device.settled()
        switch = weakref.ref(device.running().switch)
        del device
        switches.follow({"end": "one"})
        eventually(lambda: switch() is None)  # a thread of its servers may be about to end
    finally:
        gc.enable()
        switches.stop()


def test_an_order_during_the_end_of_the_process_stops_no_switch_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second stop would read the memory that the first one freed."""
    switches = Switches()
    switches.follow(order_of_start(tmp_path))
    switches._running["one"]._device.settled()
    order = threading.Thread(target=lambda: switches.follow({"end": "one"}))
    stopped, stop = [], RunningSwitch.stop

    def stop_beside_an_order(switch: RunningSwitch) -> None:
        stopped.append(switch)
        if len(stopped) == 1:
            order.start()
            order.join(0.3)
            stop(switch)

    monkeypatch.setattr(RunningSwitch, "stop", stop_beside_an_order)
    switches.stop()
    order.join()
    assert len(stopped) == 1


def test_restarts_take_no_memory(many: Many) -> None:
    """The GNU C library keeps what ended threads leave free for other threads than the next.

    Memory that is taken once is none of a restart's: a place that grows for a switch which is still
    going when the next one comes, or modules. So what counts is the median of the growth a restart
    over all pairs of restarts: 2 to 30 KiB with one place, 140 to 220 with one a thread.
    """
    resident = []
    for _ in range(20):
        many.start("one", 1)
        address, _ = many.ready("one")
        with Client(address, device=1) as client:
            client.configure()
        resident.append(int(Path(f"/proc/{many.popen.pid}/statm").read_text().split()[1]))
        many.order(end="one")
        many.log("one").unlink()
    pairs = list(combinations(enumerate(resident[2:]), 2))
    grown = median((later - earlier) / (j - i) for (i, earlier), (j, later) in pairs)
    assert grown * resource.getpagesize() < 80 << 10


def test_a_switch_that_cannot_start_ends_the_process_and_a_later_one_does_not(many: Many) -> None:
    many.start("one", 1)
    many.ready("one")
    many.order(end="one")
    many.start("one", 1, "-i", "1@nowhere")
    wait(lambda: "nowhere" in many.log("one").read_text())
    assert many.popen.poll() is None
    many.start("two", 2, "-i", "1@nowhere")
    _, errors = many.popen.communicate(timeout=PATIENCE_S)
    assert many.popen.returncode == 1
    assert errors == "canary-switch: cannot attach port 1 to nowhere: No such device\n"
    assert many.log("two").read_text() == errors


def test_more_registers_than_fit_into_a_message_are_refused(many: Many) -> None:
    many.start("one", 1)
    address, port = many.ready("one")
    with Client(address, device=1) as client:
        client.configure()
        reader, names = registers(port), [REGISTER] * 10_000
        with pytest.raises(ThriftError, match="columns:read was refused: error 3"):
            reader.read_all(names, [np.dtype("<u4")] * len(names), [SIZE] * len(names))
        with pytest.raises(ThriftError, match="columns:read was refused: error 1"):
            reader.read_all(["nothing"], [np.dtype("<u4")], [SIZE])
        assert count(reader) == [0, 0, 0]
