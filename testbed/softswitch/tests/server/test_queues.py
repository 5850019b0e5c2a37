# SPDX-License-Identifier: Apache-2.0
"""Queues of ports: rates, depths, and links that are slower than what they get."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from canary_softswitch import Program, Switch
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.ports.ports import Capture, Port, Ports
from testbed.softswitch.tests.server.client import JSON, eventually
from testbed.softswitch.tests.server.frames import udp
from testbed.softswitch.tests.server.wires import Wire, ip
from tests.patience import PATIENCE_S

TBF = ("tbf", "rate", "8mbit", "burst", "3000", "limit", "1000000")


def forwarding(ports: Ports) -> Switch:
    """All packets leave by port 2."""
    switch = Switch(Program.load(JSON))
    switch.table("CanaryIngress.routing.routes").add(
        [(0x0A000000, 8)], "CanaryIngress.routing.deliver", [2, 1]
    )
    ports.attach(switch)
    return switch


@pytest.fixture
def ports(tmp_path: Path):
    made = Ports([Port(i, str(tmp_path / str(i))) for i in (1, 2)], capture=Capture(files=True))
    forwarding(made)
    yield made
    made.close()


def test_rate_spreads_packets(ports: Ports) -> None:
    ports.limit_queues(2, rate=200)
    start = time.monotonic()
    for _ in range(21):
        ports.inject(1, udp())
    while (sent := ports.counters()[2].tx_packets) < 21:
        assert sent <= 1 + 200 * (time.monotonic() - start)
        assert time.monotonic() < start + PATIENCE_S
        time.sleep(0.005)
    assert time.monotonic() - start >= 0.095
    ports.limit_queues(2, rate=0)  # and at once again
    ports.inject(1, udp())
    assert ports.counters()[2].tx_packets == 22


def test_full_queue_drops(ports: Ports) -> None:
    ports.limit_queues(depth=10, rate=1)
    for _ in range(30):
        ports.inject(1, udp())
    found = ports.counters()[2]
    assert found.tx_packets == 1 and found.tx_dropped == 19


def test_wrong_queues(ports: Ports) -> None:
    for where in ((7, None), (2, 1)):
        with pytest.raises(SoftSwitchError, match="no queue"):
            ports.limit_queues(*where, rate=1)


def test_ports_come_and_go(ports: Ports, tmp_path: Path) -> None:
    ports.remove(2)
    ports.inject(1, udp())
    assert ports.totals()["unknown_port"] == 1
    with pytest.raises(SoftSwitchError, match="no port 2"):
        ports.remove(2)
    ports.add(Port(2, str(tmp_path / "2")))
    ports.inject(1, udp())
    assert ports.counters()[2].tx_packets == 1
    assert [p.number for p in ports.ports] == [1, 2]
    with pytest.raises(SoftSwitchError, match="already in use"):
        ports.add(Port(1, str(tmp_path / "3")))


@pytest.fixture
def slow_link(wires: Callable[[int], list[Wire]]) -> Iterator[tuple[Ports, Wire]]:
    """Ports 1 and 2; what goes to 2 gets 250 packets, of which its socket takes fewer."""
    a, b = wires(2)
    shaped = subprocess.run(
        ["tc", "qdisc", "add", "dev", b.port, "root", *TBF],
        capture_output=True,
    )
    if shaped.returncode:
        pytest.skip("no tbf in this kernel")
    b.open()
    made = Ports([Port(1, a.port), Port(2, b.port)])
    forwarding(made)
    for _ in range(250):
        made.inject(1, udp(size=1000))
    first = made.counters()[2]
    assert first.tx_packets < 250 and not first.tx_dropped
    yield made, b
    made.close()


@pytest.mark.root
def test_slow_link_keeps_packets_waiting(slow_link: tuple[Ports, Wire]) -> None:
    made, b = slow_link
    assert b.socket
    for _ in range(250):
        assert len(b.socket.recv(2000)) == 1014
    assert made.counters()[2].tx_packets == 250


@pytest.mark.root
def test_slow_link_that_goes_down(slow_link: tuple[Ports, Wire]) -> None:
    made, b = slow_link
    ip("link", "set", b.port, "down")
    eventually(lambda: made.counters()[2].tx_packets + made.counters()[2].tx_dropped == 250)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.15  # no thread polls an interface that is down
    ip("link", "set", b.port, "up")
    made.inject(1, udp(size=1000))
    counted = made.counters()[2]
    assert counted.tx_packets + counted.tx_dropped == 251
