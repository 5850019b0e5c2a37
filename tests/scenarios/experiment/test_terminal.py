# SPDX-License-Identifier: Apache-2.0
"""What is told of the progress where nobody sees a bar."""

from __future__ import annotations

import pytest

from scenarios.experiment import terminal
from scenarios.experiment.terminal import Bar, progress_bar


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(terminal.time, "monotonic", lambda: self.now)


def test_the_time_left_is_that_of_what_is_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, messages = Clock(monkeypatch), []
    bar = Bar(lambda *shown: messages.append(shown))
    steps = [(0, "a", 0.0), (1, "a", 0.25), (10, "a", 0.25), (20, "a", 0.5), (30, "b", 0.0)]
    steps += [(1000, "b", 0.1), (1001, "b", 1.0)]
    for at, what, share in steps:
        clock.now = 100.0 + at
        bar(what, share)
    left = ["", "", "30 s left", "20 s left", "", "2.4 h left", ""]
    assert [shown[2] for shown in messages] == left
    kept = Bar(lambda *shown: messages.append(shown))
    kept("seeds", 0.5)  # half was there already
    clock.now += 10
    kept("seeds", 0.6)
    assert messages[-1] == ("seeds", 0.6, "40 s left")


def test_lines_are_few_and_begin_late(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    with progress_bar() as bar:
        for tenth in range(400):  # 40 s in all
            clock.now = 100.0 + tenth / 10
            bar("emulation" if tenth < 300 else f"diagnosis: {tenth}", (tenth % 300) / 300)
    told, out = capsys.readouterr().err.splitlines(), capsys.readouterr().out
    assert told[0] == "... emulation: 7 %, 28 s left" and not out
    assert sum("emulation" in message for message in told) == 3
    assert sum("diagnosis" in message for message in told) == 1


def test_what_is_over_at_once_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar() as bar:
        bar("page", 0.0)
        bar("page", 1.0)
    assert capsys.readouterr() == ("", "")
