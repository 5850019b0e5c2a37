"""What BACKEND=auto picks, and what it says about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios import backends, prompt
from scenarios.backends import Choice, choose_backend
from scenarios.options import Given
from scenarios.settings import Settings
from scenarios.sudo import new_run, pick_backend
from testbed.network import installed
from testbed.network.network import NetworkError


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Root on a machine of two cores with Mininet and BMv2."""
    monkeypatch.setattr(installed, "not_installed", lambda backend: "")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return monkeypatch


def test_bmv2_where_it_is_installed_and_we_are_root(everything: pytest.MonkeyPatch) -> None:
    assert choose_backend(20) == Choice("bmv2", "Mininet and BMv2 are installed")


def test_virtual_time_where_bmv2_would_fall_behind(everything: pytest.MonkeyPatch) -> None:
    assert choose_backend(80) == Choice("virtual", "80 BMv2 switches are too many for 2 cores")
    everything.setattr(os, "cpu_count", lambda: 8)
    assert choose_backend(80).backend == "bmv2"


def test_virtual_time_where_bmv2_is_not_installed(everything: pytest.MonkeyPatch) -> None:
    everything.undo()
    everything.setenv("PATH", "/nonexistent")
    choice = choose_backend(20)
    assert choice.backend == "virtual"
    assert "is not on the PATH" in choice.reason


@pytest.mark.parametrize("asks", [False, True])
def test_root_is_taken_where_sudo_gives_it(
    everything: pytest.MonkeyPatch, tmp_path: Path, asks: bool
) -> None:
    (tmp_path / "sudo").write_text(f"#!/bin/sh\nexit {int(asks)}\n")
    (tmp_path / "sudo").chmod(0o755)
    everything.setenv("PATH", str(tmp_path))
    everything.setattr(os, "geteuid", lambda: 1000)
    choice = choose_backend(20)
    assert (choice.backend, choice.sudo) == (("virtual", False) if asks else ("bmv2", True))
    assert "sudo" in choice.reason


def test_the_command_goes_on_as_root_with_what_was_picked(
    everything: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[list[str]] = []
    everything.setattr(
        backends, "choose_backend", lambda switches: Choice("bmv2", "because", sudo=True)
    )
    everything.setattr(os, "execvp", lambda file, arguments: calls.append(arguments))
    everything.setattr("sys.argv", ["canary", "run", "--k", "4"])
    assert pick_backend(20, Given(environment={"--seed": "7"})) == "bmv2"
    assert calls[0][:2] == ["sudo", "-n"]
    assert calls[0][-6:] == ["run", "--k", "4", "--seed=7", "--backend", "bmv2"]
    assert capsys.readouterr().out == "BACKEND=auto: bmv2 (because)\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_sudo_writes_belongs_to_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1235")
    (tmp_path / "theirs").write_text("")
    with new_run(tmp_path / "runs" / "a", numbered=False) as writer:
        writer.text("truth.yaml", "faults: []")
        writer.finish()
    owners = {path.name: path.stat().st_uid for path in tmp_path.rglob("*")}
    of_run = dict.fromkeys(
        ("runs", "a", "registers", "diagnoses", "truth.yaml", "manifest.json"), 1234
    )
    assert owners == {"theirs": 0} | of_run


def test_auto_says_what_it_picked(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scenarios.cli", "run", "--k", "8", "--faults", "9999999links"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 2
    assert found.stdout.startswith("BACKEND=auto: ")


def test_the_prompt_needs_no_iperf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its lack said "or use TCP=0", an option that ``canary net`` does not have."""
    seen: list[Settings] = []

    def bring_up(settings: Settings, *_: object) -> None:
        seen.append(settings)
        raise NetworkError("that is all")

    monkeypatch.setattr(prompt, "open_backend", bring_up)
    with pytest.raises(NetworkError, match="that is all"):
        prompt.open_prompt(4, "softswitch", tmp_path)
    assert seen[0].tcp == 0
