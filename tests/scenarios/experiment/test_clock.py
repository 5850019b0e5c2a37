# SPDX-License-Identifier: Apache-2.0
"""The clock of a run on real packets waits for the controller and for the switches."""

from __future__ import annotations

import pytest

from scenarios.experiment.loop import Agenda, gates, steps
from testbed.network import clock
from testbed.network.clock import RunClock
from testbed.network.schedules import FOREVER


class Network:
    """A clock of which each reading and each action takes time, and buffers that fill."""

    def __init__(self) -> None:
        self.now_ns = self.gate = 0
        self.held_s = 0.0
        self.fill: list[float] = []
        self.arrived = 0

    @property
    def queued(self) -> float:
        return self.fill.pop(0) if self.fill else 0.0

    def hold(self, gate_ns: int) -> None:
        self.gate = gate_ns

    def spend(self, ns: int) -> None:
        self.now_ns = min(self.now_ns + ns, max(self.gate, self.now_ns))

    def run_until(self, time_ns: int) -> None:
        assert self.gate >= time_ns, "the clock would never come there"
        self.now_ns = max(self.now_ns, time_ns)


def nothing() -> None:
    """An action that takes no time."""


def test_a_gate_lets_nothing_later_be_late() -> None:
    agenda: Agenda = [(10, 100, nothing), (20, 100, nothing), (30, 5, nothing), (90, 100, nothing)]
    assert gates(agenda) == [35, 35, 35, 190]


def test_an_action_that_takes_long_makes_none_later_than_it_may_be() -> None:
    network = Network()
    late: list[int] = []
    agenda: Agenda = [(at, 15, lambda: network.spend(1000)) for at in range(0, 100, 10)]
    allow = RunClock(network).allow  # type: ignore[arg-type]
    for _ in steps(network, agenda, late.append, lambda share: None, allow):  # type: ignore[arg-type]
        pass
    assert late == [0] + [5] * 9 and network.now_ns == 105


def test_the_clock_waits_while_packets_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    network, slept = Network(), 0
    made = RunClock(network)  # type: ignore[arg-type]

    def sleep(seconds: float) -> None:
        nonlocal slept
        assert network.gate == 0, "it must not go on"
        slept += 1

    monkeypatch.setattr(clock.time, "sleep", sleep)
    network.fill = [0.5, 0.5, 0.3, clock.MANY, clock.FEW / 2]
    made.allow(100)
    assert (slept, network.gate) == (3, 100)
    monkeypatch.setattr(clock, "_LOOK_S", 0.0)
    network.fill = [clock.MANY / 2]
    made.allow(200)
    assert (slept, network.gate) == (3, 200)


def test_a_switch_that_stands_still_does_not_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network()
    network.fill = [1.0] * 10_000
    monkeypatch.setattr(clock, "patience", lambda: 0.002)
    RunClock(network).allow(100)  # type: ignore[arg-type]
    assert network.gate == 100


def test_the_slowdown_is_real_time_over_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    network, now = Network(), 50.0
    monkeypatch.setattr(clock.time, "monotonic", lambda: now)
    made = RunClock(network)  # type: ignore[arg-type]
    made._begin, now, network.held_s = 50.0, 60.0, 2.0
    assert made.release() == pytest.approx(1.25)
    assert network.gate == FOREVER


def test_an_epoch_is_read_when_nothing_arrives_and_nothing_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, now = Network(), 0.0
    gates_seen: list[int] = []
    network.fill = [0.0, 0.0, 0.5, 0.0]  # the switches' process does not run for a while
    made = RunClock(network)  # type: ignore[arg-type]
    made.allow(700)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 0.06
        gates_seen.append(network.gate)
        network.arrived += now < 0.2

    monkeypatch.setattr(clock.time, "monotonic", lambda: now)
    monkeypatch.setattr(clock.time, "sleep", sleep)
    monkeypatch.setattr(clock, "slowness", lambda: 1.0)
    noted: list[int] = []
    made.settle(lambda: noted.append(network.gate))
    assert set(gates_seen) == {0} and network.gate == 700
    assert noted == [0], "what hosts counted is noted while they do not send"
    assert now >= 0.18 + 0.1, "the last packet came at 0.18"
    network.fill = [1.0] * 1000
    begin = now
    made.settle(lambda: None)  # a switch stands still
    assert clock._PATIENCE_S <= now - begin < clock._PATIENCE_S * clock.patience() + 1
