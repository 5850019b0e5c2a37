# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a switch process for each test that asks for one, and controllers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from canary_softswitch.device.device import Device
from canary_softswitch.ports.ports import Ports
from testbed.softswitch.tests.server.client import Client, Process
from testbed.softswitch.tests.server.wires import Wire


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One process for a module; its device is 0, its CPU port 100."""
    with Process("--no-p4", target=("--cpu-port", "100")) as p:
        yield p


@pytest.fixture
def device() -> Iterator[Device]:
    """A device of this process, without interfaces."""
    ports = Ports()
    device = Device(0, ports, 1)
    yield device
    device.close()
    ports.close()


@pytest.fixture
def connect(process: Process) -> Iterator[Callable[..., Client]]:
    """Makes controllers, closed after the test. Their election ids are higher than those of earlier
    tests, which the process remembers."""
    made: list[Client] = []
    base, process.elections = process.elections, process.elections + 1000

    def make(election: int = 1, **options: object) -> Client:
        number = election and base + election
        made.append(Client(process.grpc, election=number, **options))  # pyright: ignore[reportArgumentType]
        return made[-1]

    yield make
    for c in made:
        c.close()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    """The primary controller of a switch that runs the Canary program, all fresh."""
    c = connect()
    c.configure()
    return c


@pytest.fixture
def wires() -> Iterator[Callable[[int], list[Wire]]]:
    """Makes veth pairs, removed after the test."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes veth pairs")
    made: list[Wire] = []

    def make(n: int) -> list[Wire]:
        for _ in range(n):
            made.append(Wire())
        return made[-n:]

    yield make
    for w in made:
        w.close()
