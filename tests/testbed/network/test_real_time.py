# SPDX-License-Identifier: Apache-2.0
"""Which failures of tests in real time are repeated."""

from __future__ import annotations

import ctypes
import time

import pytest

from tests.testbed.network.real_time import TURNS, Lateness, in_turns


class FixedLateness(Lateness):
    """A machine that is as late as it is told."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self._reason = reason

    def reason(self) -> str:
        return self._reason


class Test:
    """Fails some times, then passes."""

    __test__ = False

    def __init__(self, failures: int) -> None:
        self.failures, self.runs = failures, 0

    def __call__(self) -> None:
        self.runs += 1
        assert self.runs > self.failures, f"run {self.runs}"


def test_a_failure_on_a_machine_in_time_is_one_at_once() -> None:
    test = Test(1)
    with pytest.raises(AssertionError, match="run 1"):
        in_turns(test, lambda: FixedLateness(""), [])
    assert test.runs == 1


def test_a_failure_on_a_late_machine_is_repeated_and_told() -> None:
    test = Test(1)
    told: list[str] = []
    in_turns(test, lambda: FixedLateness("frames were up to 64 ms late"), told)
    assert test.runs == 2
    assert len(told) == 1
    assert told[0].startswith("because frames were up to 64 ms late; it failed with: run 1")


def test_what_fails_on_every_turn_fails() -> None:
    test, told = Test(TURNS), []
    with pytest.raises(AssertionError, match=f"run {TURNS}"):
        in_turns(test, lambda: FixedLateness("late"), told)
    assert (test.runs, len(told)) == (TURNS, TURNS - 1)


def test_a_thread_that_sleeps_too_long_is_told() -> None:
    with Lateness() as watch:
        for _ in range(3):
            time.sleep(0.01)  # the watching thread sleeps, too
            ctypes.PyDLL(None).usleep(60_000)  # keeps the interpreter, as a stalled machine would
    assert "ms too long" in watch.reason()
