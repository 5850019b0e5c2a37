# SPDX-License-Identifier: Apache-2.0
"""Batches: what is held back, and that nothing of the second comes before all of the first."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from testbed.control.switch import batch, for_each


class Held:
    """A switch over the wire whose writes are notes in a shared log."""

    remote = True
    lost = ""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log
        self._held: list[str] | None = None

    def hold(self) -> None:
        self._held = self._held or []

    @property
    def waiting(self) -> bool:
        return bool(self._held)

    def write(self, what: str) -> None:
        if self._held is None:
            self.log.append(f"{self.name}{what}")
        else:
            self._held.append(what)

    def send(self) -> None:
        held, self._held = self._held or [], None
        self.log.extend(f"{self.name}{what}" for what in held)


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def switches(log: list[str]) -> list[Held]:
    return [Held(name, log) for name in "abc"]


def test_a_batch_is_sent_at_its_end_each_switch_in_its_order(switches, log) -> None:
    with batch(switches):
        for what in "12":
            for switch in switches[:2]:
                switch.write(what)
        assert log == []
    for name in "ab":
        assert [entry for entry in log if entry[0] == name] == [f"{name}1", f"{name}2"]
    switches[2].write("3")
    assert log[-1] == "c3"  # nothing is held back after a batch, of an idle switch neither


def test_two_batches_follow_each_other(switches, log) -> None:
    for what in "12":
        with batch(switches):
            for switch in switches:
                switch.write(what)
    assert [entry[1] for entry in log] == list("111222")


def test_a_batch_within_a_batch_sends_what_was_held_before(switches, log) -> None:
    with batch(switches):
        switches[0].write("1")
        with batch(switches):
            switches[0].write("2")
        assert log == ["a1", "a2"]
    assert log == ["a1", "a2"]


def test_what_was_written_before_an_error_is_sent(switches, log) -> None:
    with pytest.raises(KeyError), batch(switches):
        switches[0].write("1")
        raise KeyError
    assert log == ["a1"]


def test_switches_over_the_wire_are_asked_at_once(switches) -> None:
    together = threading.Barrier(3, timeout=10)
    ask: Callable[[Held], int] = lambda switch: together.wait()  # noqa: E731
    assert sorted(for_each(switches, ask)) == [0, 1, 2]
