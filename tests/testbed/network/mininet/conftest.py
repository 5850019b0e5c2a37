# SPDX-License-Identifier: Apache-2.0
"""A K=4 network for each backend that can run here, once a module."""

from __future__ import annotations

import fcntl
import inspect
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from scenarios.experiment.pace import free_processors
from testbed.control.forwarding import install_forwarding
from testbed.control.switch import batch
from testbed.dataplane import P4INFO, PROGRAM
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pathbf import SegmentDecoder, bloom_mask, switch_ids
from testbed.network.mininet import MininetNetwork
from testbed.network.requirements import missing
from testbed.network.speed import patience, slowness
from testbed.network.switches import Backend
from testbed.rootless import user_outside
from tests.testbed.network.real_time import Lateness, in_turns

TOPOLOGY = FatTree(4)
SEGMENTS = TOPOLOGY.segments()
IDS = switch_ids(TOPOLOGY, SEGMENTS, 1)
DECODER = SegmentDecoder(TOPOLOGY, SEGMENTS, IDS)
MONITORS = sorted({int(switch) for switch in SEGMENTS.downstream})

RATE = {"bmv2": 1500, "softswitch": 10_000}
"""Frames a second that two cores of the usual speed carry without loss, with some reserve."""


def pace(net: MininetNetwork) -> int:
    """Frames a second that this machine carries now without loss: fewer if it is slow, or if less
    than a processor is free."""
    return round(RATE[net.backend] * min(1.0, free_processors()) / slowness())


def bring_up(path: Path, backend: Backend) -> MininetNetwork:
    """A network whose switches forward; the caller stops it."""
    net = MininetNetwork(
        TOPOLOGY,
        backend,
        PROGRAM,
        P4INFO,
        path / "logs",
        state=path / "state",
    )
    masks = bloom_mask(IDS).tolist()
    with batch(net.controls):
        for switch, control in enumerate(net.controls):
            install_forwarding(TOPOLOGY, switch, control, masks[switch], switch in MONITORS)
    return net


def some_backend() -> Backend:
    """A backend that runs here, the quicker one first; skips when there is none."""
    for backend in ("softswitch", "bmv2"):
        if not missing(backend):
            return backend
    pytest.skip(missing("softswitch"))


def died(net: MininetNetwork, one: str, how: str) -> bool:
    """Return True if nothing is wrong with a network but that a switch died, or the process of all
    soft switches."""
    names = one if net.backend == "bmv2" else "all switches"
    told = rf"{names}: died at \d\d:\d\d:\d\d \({how}\)"
    return len(net.degraded) == 1 and re.fullmatch(told, net.degraded[0]) is not None


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds * patience()
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


@contextmanager
def turn() -> Iterator[None]:
    """One at a time, whatever test processes there are: these tests are about real time."""
    name = f"canary-mininet-tests-{user_outside()}.lock"  # another user could not open it
    with open(Path(tempfile.gettempdir()) / name, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with turn():
        yield


@pytest.fixture(scope="module", params=["bmv2", "softswitch"])
def net(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MininetNetwork]:
    backend = cast(Backend, request.param)
    if reason := missing(backend):
        pytest.skip(reason)
    with turn():
        made = bring_up(tmp_path_factory.mktemp(backend), backend)
    with made:
        made.start()
        yield made


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests marked ``real_time`` are repeated as `tests.testbed.network.real_time` says."""
    if pyfuncitem.get_closest_marker("real_time") is None:
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    net = cast("MininetNetwork | None", pyfuncitem.funcargs.get("net"))
    repeated: list[str] = []
    pyfuncitem.user_properties.append(("real_time", repeated))
    in_turns(lambda: pyfuncitem.obj(**arguments), lambda: Lateness(net), repeated)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        (report.nodeid, dict(report.user_properties).get("real_time"))
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call"
    ]
    told = [(name, repeated) for name, repeated in reports if repeated is not None]
    again = sum(bool(repeated) for _, repeated in told)
    if told:
        terminalreporter.write_line(f"real-time tests repeated: {again} of {len(told)}")
    for name, repeated in told:
        for reason in repeated:
            terminalreporter.write_line(f"  {name} {reason}")
