# SPDX-License-Identifier: Apache-2.0
"""What is left of a killed run is ended and told by what it was. Nothing here needs root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.command.machine import ended_in_words
from testbed.network.network import NetworkError
from testbed.network.processes import TOKEN, Cleaned, clean
from testbed.network.switches import running_switch

TOKEN_OF_RUN = "0123456789abcdef-test"
SHELL = ["--norc", "--noediting", "-is"]
SWITCH = ["--device-id", "1", "--", "--grpc-server-addr"]
STARTED = [
    [*SHELL, "mininet:h0_0_0"],
    [*SHELL, "mininet:agg0_1"],
    [*SWITCH, "unix:/tmp/canary-0123456789ab/agg0_1.grpc"],
    [*SWITCH, "unix:/tmp/canary-0123456789ab/core0.grpc"],
    ["whatever"],
    ["mininet is not what this is"],
]


@pytest.fixture
def killed_run(tmp_path: Path) -> Iterator[Path]:
    """The state folder of a run whose runner is dead and whose processes are not."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    state = {"token": TOKEN_OF_RUN, "runner": dead.pid, "sockets": str(tmp_path / "sockets")}
    (tmp_path / "run.json").write_text(json.dumps(state))
    wait = "import time; print('up', flush=True); time.sleep(600)"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", wait, *words],
            env={**os.environ, TOKEN: TOKEN_OF_RUN},
            stdout=subprocess.PIPE,
        )
        for words in STARTED
    ]
    try:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield tmp_path
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_what_was_ended_is_counted_by_kind(killed_run: Path) -> None:
    cleaned = clean(killed_run)
    program = Path(sys.executable).resolve().name[:15]
    assert (cleaned.switches, cleaned.hosts) == (2, 1)
    assert len(cleaned.others) == 2 and not cleaned.alive
    message = ended_in_words(cleaned)
    assert message.startswith("ended 2 switches, 1 host, 2 other processes (")
    assert "\n" not in message and message.count(program[:6]) == 1


def test_nothing_was_left(tmp_path: Path) -> None:
    assert ended_in_words(clean(tmp_path)) == "nothing was left"
    assert ended_in_words(Cleaned(switches=1)) == "ended 1 switch"
    assert ended_in_words(Cleaned(others=["sleep"])) == "ended 1 other process (sleep)"


@pytest.mark.parametrize("runtime", [False, True])
def test_a_shell_without_a_network_says_how_to_start_one(
    runtime: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("testbed.network.processes.user_outside", lambda: 987654)
    with pytest.raises(NetworkError, match="^this user has no running network: .* `make net`"):
        running_switch("agg0_1")
    assert not list(tmp_path.iterdir()), "looking makes no folder"
    with pytest.raises(NetworkError, match="^this user has no running network"):
        running_switch("agg0_1", tmp_path)
