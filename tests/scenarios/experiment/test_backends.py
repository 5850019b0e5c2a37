# SPDX-License-Identifier: Apache-2.0
"""What BACKEND=auto takes, what it says about it, and what real packets need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scenarios.experiment.backends import Choice, choose_backend, need_backend
from scenarios.experiment.settings import Settings
from scenarios.live import prompt
from testbed.network import requirements
from testbed.network.network import NetworkError
from tests.scenarios.conftest import Canary, refused


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Root on a machine of two cores with Mininet and BMv2."""
    monkeypatch.setattr(requirements, "not_installed", lambda backend: "")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return monkeypatch


@pytest.mark.parametrize(("user", "asked"), [(0, False), (1000, True)])
def test_bmv2_where_it_is_installed_and_root_is_to_be_had(
    everything: pytest.MonkeyPatch, user: int, asked: bool
) -> None:
    everything.setattr(os, "geteuid", lambda: user)
    assert choose_backend(20, asked) == Choice("bmv2", "Mininet and BMv2 are installed")


def test_virtual_time_where_bmv2_would_fall_behind(everything: pytest.MonkeyPatch) -> None:
    choice = choose_backend(80, wants_root=False)
    assert choice == Choice("virtual", "80 BMv2 switches are too many for 2 cores")
    everything.setattr(os, "cpu_count", lambda: 8)
    assert choose_backend(80, wants_root=False).backend == "bmv2"


def test_virtual_time_is_news_only_to_who_asked_for_root(everything: pytest.MonkeyPatch) -> None:
    everything.undo()
    everything.setenv("PATH", "/nonexistent")
    assert choose_backend(20, wants_root=False) == Choice("virtual", "")
    choice = choose_backend(20, wants_root=True)
    assert choice.backend == "virtual" and "is not on the PATH" in choice.reason


def test_a_user_with_bmv2_hears_how_to_use_it(everything: pytest.MonkeyPatch) -> None:
    everything.setattr(os, "geteuid", lambda: 1000)
    choice = choose_backend(20, wants_root=False)
    assert choice.backend == "virtual" and "SUDO=1" in choice.reason


def test_a_users_run_in_virtual_time_says_nothing_of_backends(
    canary: Canary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nonexistent")
    found = canary("run", "--k", "8", "--faults", "9999999links")
    refused(found, "9999999 random links")
    assert "BACKEND" not in found.out + found.err


def test_real_packets_without_root_say_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NetworkError, match="BACKEND=softswitch needs root.*SUDO=1"):
        need_backend("softswitch", tcp=False)


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
