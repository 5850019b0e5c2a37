# SPDX-License-Identifier: Apache-2.0
"""What the prompt's own commands say, on a network that is made up: no root is needed.

`tests/testbed/network/mininet/test_prompt.py` has a session on a real one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analysis.methods.diagnosis import Diagnosis
from analysis.methods.registry import BuiltMethod
from scenarios.live.prompt import Prompt
from testbed.fabric.fat_tree import FatTree

K4 = FatTree(4)
LINK = K4.link("agg0_1->core2")


class Live:
    """Measures nothing; remembers which methods were asked."""

    topology = K4
    faults = ()
    measures = True

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.taken_back: list[tuple[str, int]] = []

    def restore_taken(self) -> list[tuple[str, int]]:
        back, self.taken_back = self.taken_back, []
        return back

    def diagnose(self, methods: list[BuiltMethod]) -> dict[str, Diagnosis]:
        names = [method.name for method in methods]
        self.asked.append(names)
        every = np.zeros(K4.n_links)
        found = np.array([LINK], np.int32)
        return {name: Diagnosis(name, "directed", found, every, every, 0.0) for name in names}


class Network:
    def __init__(self) -> None:
        self.cables_down: list[tuple[str, str]] = []
        self.degraded: list[str] = []
        self.disappeared: list[str] = []
        self.stopped_switches: list[int] = []
        self.stopped_hosts: list[str] = []

    def restore_hosts(self) -> None:
        """All hosts have their routes."""


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> Prompt:
    monkeypatch.setattr("mininet.cli.CLI.__init__", lambda *_: None)
    made: Any = Prompt(None, Network(), Live())  # type: ignore[arg-type]
    made.lastcmd = ""
    return made


@pytest.mark.parametrize(
    ("line", "methods"),
    [
        ("diagnose", []),
        ("diagnose canary", ["canary"]),
        ("diagnose canary vigil", ["canary", "007"]),
        (
            "diagnose flock:p_bad=0.01,link_prior=-15, 007",
            ["flock:p_bad=0.01,link_prior=-15.0", "007"],
        ),
    ],
)
def test_diagnose_takes_methods(
    prompt: Any, capsys: pytest.CaptureFixture[str], line: str, methods: list[str]
) -> None:
    capsys.readouterr()
    prompt.onecmd(line)
    assert prompt._live.asked == [methods]
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [row.split() for row in lines[:-1]] == [[name, "agg0_1->core2"] for name in methods]


def test_a_method_that_does_not_exist_sends_no_traffic(
    prompt: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    prompt.onecmd("diagnose canry")
    assert capsys.readouterr().out.startswith(
        "diagnose: there is no method 'canry': did you mean canary?"
    )
    assert prompt._live.asked == []


def test_what_is_switched_off_is_told_beside_what_is_injected(
    prompt: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    prompt.onecmd("fault")
    assert capsys.readouterr().out == "injected: nothing\n"
    prompt._network.cables_down = [("agg0_1", "core2"), ("tor0_0", "h0_0_0")]
    prompt.onecmd("fault")
    assert capsys.readouterr().out == (
        "injected: nothing\nnot a fault: switched off: "
        "agg0_1--core2, tor0_0--h0_0_0 (mend: link agg0_1 core2 up)\n"
    )
    prompt._network.stopped_hosts = ["h0_0_0"]
    prompt._network.stopped_switches = [0]
    prompt.onecmd("fault")
    assert capsys.readouterr().out == (
        "injected: nothing\nnot a fault: switched off: "
        "agg0_1--core2, h0_0_0, tor0_0 (mend: link agg0_1 core2 up)\n"
    )


def test_what_is_wrong_with_switches_is_said_with_every_command(
    prompt: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt._network.degraded = ["core1: died at 12:00:00 (signal SIGKILL)"]
    prompt._live.taken_back = [("tor0_0", 3)]
    capsys.readouterr()
    died = "core1: died at 12:00:00 (signal SIGKILL)\n"
    for line, back in (("fault", True), ("heal", False)):
        prompt.onecmd(line)
        printed = capsys.readouterr().out
        restored = "tor0_0 is back from another controller: 3 entries restored\n"
        assert printed == (restored if back else "") + died + "injected: nothing\n"
    prompt.onecmd("")
    assert capsys.readouterr().out == ""


def test_commands_that_need_mininets_switches_are_not_here(
    prompt: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    prompt.onecmd("dpctl show")
    assert capsys.readouterr().out == "dpctl: there is no such command: see help\n"
    assert "do_dpctl" not in prompt.get_names() and "do_pingall" in prompt.get_names()
