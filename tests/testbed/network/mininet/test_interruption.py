# SPDX-License-Identifier: Apache-2.0
"""A run on real packets that is ended: its network goes, its finished epochs stay."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.network.processes import state_folder
from testbed.network.requirements import missing
from testbed.record.run import RunDirectory
from tests.conftest import without_progress
from tests.patience import PATIENCE_S
from tests.real_packets import paced, words
from tests.testbed.network.mininet.test_cleanup import namespaces

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(missing("softswitch")), reason=missing("softswitch") or "never"),
]

# Without noise: of the few packets of one epoch a lost one makes a healthy link look faulty.
OPTIONS = ["--backend", "softswitch", "--faults", "agg0_0->core0:0.3", "--noise", "0"]


def run_of(epochs: int) -> list[str]:
    return ["run", *OPTIONS, *words(paced(epochs, 2500, 0.2))]


def canary(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """The command in a session of its own, as a terminal starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "scenarios.command.cli", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished_epochs(partial: Path) -> int:
    try:
        return int(json.loads((partial / "network.json").read_text())["epochs"])
    except (OSError, ValueError):
        return 0


def begin(path: Path) -> tuple[subprocess.Popen[str], str]:
    """A run that has finished an epoch of eight, and its token."""
    process = canary(*run_of(8), "--run", "here", cwd=path)
    deadline = time.monotonic() + PATIENCE_S
    while not finished_epochs(path / "here.partial"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process, token_of(process)


def token_of(process: subprocess.Popen[str]) -> str:
    """The token of a process's network, "" as long as it has none."""
    for file in state_folder().glob("*.json"):
        try:
            state = json.loads(file.read_text())
        except (OSError, ValueError):
            continue
        if state["runner"] == process.pid:
            return state["token"]
    return ""


def fabric_links() -> set[str]:
    """The interfaces of this machine that are named as ports of a fabric's nodes, `agg0_1-eth2`."""
    shown = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^\d+: ((?:tor|agg|core|h)\d[\d_]*-eth\d+)", shown, re.M))


def assert_nothing_is_left(token: str, links: set[str]) -> None:
    assert namespaces(token) == set()
    assert fabric_links() <= links
    assert not Path(f"/tmp/canary-{token[:12]}").exists()
    assert not (state_folder() / f"{token[:12]}.json").exists()


def assert_the_epochs_can_be_diagnosed(partial: Path) -> None:
    process = canary("analyze", partial.name, cwd=partial.parent)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    epochs = finished_epochs(partial)
    assert 1 <= epochs < 8
    assert f"it ended after {epochs} of 8 epochs" in " ".join(out.split())
    summary = json.loads((partial / "summary.json").read_text())
    assert summary["degraded"] == [f"it ended after {epochs} of 8 epochs"]
    assert len(summary["collection_seconds"]) == epochs
    found = summary["methods"]["canary-mle"]["directed"]
    assert (found["true_positives"], found["false_positives"]) == (1, 0)
    run = RunDirectory(partial, finished=False)
    assert (run.table("probe_counts")["lost"] >= 0).all()
    assert run.table("flows")["sent"].sum() > 1000
    assert set(np.unique(run.table("rules")["epoch"])) <= set(range(epochs))


def ctrl_c(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)


def hang_up(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGHUP)


@pytest.mark.nightly  # as `tests.scenarios.process.test_networks` tries with a user's command
@pytest.mark.usefixtures("hangup_is_heard")
@pytest.mark.parametrize(("end", "code"), [(ctrl_c, 130), (hang_up, 129)])
def test_an_interrupted_run_keeps_its_finished_epochs_and_no_network(
    tmp_path: Path, end: Callable[[subprocess.Popen[str]], None], code: int
) -> None:
    links = fabric_links()
    process, token = begin(tmp_path)
    end(process)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    estimate, last = without_progress(errors)
    assert estimate.startswith("about ")
    assert "make analyze RUN=here.partial" in last
    assert_nothing_is_left(token, links)
    assert not (tmp_path / "here").exists()
    assert_the_epochs_can_be_diagnosed(tmp_path / "here.partial")

    process = canary(*run_of(8), "--run", "here", cwd=tmp_path)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "finished epochs of an interrupted run" in errors
    assert finished_epochs(tmp_path / "here.partial")


def test_after_a_kill_the_next_run_cleans_up_and_the_epochs_are_still_there(tmp_path: Path) -> None:
    links = fabric_links()
    process, token = begin(tmp_path)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert namespaces(token)
    again = canary(*run_of(1), "--methods", "canary", "--run", "next", cwd=tmp_path)
    _, errors = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, errors
    assert_nothing_is_left(token, links)
    assert RunDirectory(tmp_path / "next").epochs == 1
    assert_the_epochs_can_be_diagnosed(tmp_path / "here.partial")


def test_interrupted_before_an_epoch_ends_leaves_nothing(tmp_path: Path) -> None:
    links = fabric_links()
    process = canary(*run_of(2), "--run", "here", cwd=tmp_path)
    while not (token := token_of(process)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    ctrl_c(process)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "nothing was kept" in errors
    assert_nothing_is_left(token, links)
    assert not list(tmp_path.iterdir())
