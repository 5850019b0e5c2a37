# SPDX-License-Identifier: Apache-2.0
"""What BACKEND=auto takes, and what real packets need."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.experiment import backends
from scenarios.experiment.backends import need_network
from scenarios.experiment.inputs import Inputs
from scenarios.live import prompt, session
from testbed.network.kinds import SOFTSWITCH
from testbed.network.network import NetworkError
from tests.scenarios.conftest import Canary, refused


def test_nobody_gets_real_packets_who_did_not_ask_for_them(canary: Canary, tmp_path: Path) -> None:
    """Also as root, and where BMv2 is installed."""
    result = canary("run", "EPOCHS=1", "LOAD=0.01", "METHODS=canary", f"RUN={tmp_path}/run")
    assert result.code == 0
    assert '"backend": "virtual"' in (tmp_path / "run" / "config.json").read_text()


def test_a_users_run_in_virtual_time_says_nothing_of_backends(
    canary: Canary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nonexistent")
    found = canary("run", "--k", "8", "--faults", "9999999links")
    refused(found, "9999999 random links")
    assert "BACKEND" not in found.out + found.err


def test_a_kernel_that_allows_no_namespaces_is_told_before_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backends, "forbidden", lambda: "no namespaces here")
    with pytest.raises(NetworkError, match="^no namespaces here$"):
        need_network(SOFTSWITCH, tcp=False)


def test_the_prompt_needs_no_iperf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its lack said "or use TCP=0", an option that ``canary net`` does not have."""
    seen: list[Inputs] = []

    def bring_up(inputs: Inputs) -> None:
        seen.append(inputs)
        raise NetworkError("that is all")

    monkeypatch.setattr(session, "open_backend", lambda inputs, *_: bring_up(inputs))
    with pytest.raises(NetworkError, match="that is all"):
        prompt.open_prompt(session.session_layout({}), tmp_path)
    assert seen[0].tcp == 0
