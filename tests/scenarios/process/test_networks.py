# SPDX-License-Identifier: Apache-2.0
"""Networks of a user's command: root's alone, and gone when the command is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from testbed.network.requirements import missing
from testbed.record.run import RunDirectory
from tests.conftest import without_progress
from tests.patience import PATIENCE_S
from tests.present import present
from tests.real_packets import paced, words
from tests.scenarios.process.conftest import UID, Sudo
from tests.scenarios.process.test_root_processes import USER, WHO, no_process_of_root, who_ran
from tests.testbed.network.mininet.test_interruption import fabric_links, finished_epochs

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(missing("softswitch")), reason=missing("softswitch") or "never"),
]

REAL = ("BACKEND=softswitch", "METHODS=canary")


def epochs(number: int) -> list[str]:
    return words(paced(number, 1500, 0.1))


def begun(sudo: Sudo) -> subprocess.Popen[str]:
    """A run of eight epochs that has finished one."""
    process = sudo.start("run", *REAL, *epochs(8), "TCP=0", "RUN=here")
    deadline = time.monotonic() + PATIENCE_S
    while not finished_epochs(sudo.folder / "here.partial"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def served(module: str) -> list[int]:
    """The processes of root that run a module of `scenarios`."""
    found = subprocess.run(["pgrep", "-f", f"scenarios.{module}"], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def test_a_network_is_roots_and_all_else_is_the_users(sudo: Sudo) -> None:
    (sudo.folder / "who.py").write_text(WHO)
    shutil.chown(sudo.folder / "who.py", UID, UID)
    links = fabric_links()
    code, out, errors = sudo.run("run", *REAL, *epochs(2), "SCENARIO=who.py", "RUN=here")
    assert code == 0, errors
    assert "on soft switches" in out
    assert who_ran(sudo) == [USER, USER]
    assert sudo.owners() == {UID}
    run = RunDirectory(sudo.folder / "here")
    assert run.epochs == 2 and run.network["packet_hops"] > 1000
    assert (run.path / "logs" / "agg0_1.log").is_file()
    assert int(present(run.network.get("tcp"))["transfers"]) > 0
    assert no_process_of_root() and fabric_links() == links


def test_an_interrupted_run_is_the_users_and_its_network_goes(sudo: Sudo) -> None:
    links = fabric_links()
    process = begun(sudo)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    assert "make analyze RUN=here.partial" in without_progress(errors)[-1]
    assert no_process_of_root() and fabric_links() == links
    assert sudo.owners() == {UID}
    assert (sudo.folder / "here.partial" / "logs" / "agg0_1.log").is_file()
    code, _, errors = sudo.run("analyze", "here.partial", "METHODS=canary")
    assert code == 0, errors
    assert sudo.owners() == {UID}


@pytest.mark.nightly
def test_a_network_goes_with_a_command_that_was_killed(sudo: Sudo) -> None:
    links = fabric_links()
    process = begun(sudo)
    process.kill()
    process.communicate()
    assert no_process_of_root() and fabric_links() == links
    assert finished_epochs(sudo.folder / "here.partial") >= 1
    assert sudo.owners() == {UID}


@pytest.mark.nightly
def test_a_killed_process_of_root_is_told_in_one_line(sudo: Sudo) -> None:
    process = begun(sudo)
    for pid in served("live.root_worker"):
        os.kill(pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    _, last = without_progress(errors)
    assert last.startswith("canary: the process that runs the network as root has died; ")
    assert "epochs were finished" in last
    code, out, errors = sudo.run("clean-net")
    assert code == 0 and "ended" in out, errors


@pytest.mark.nightly
def test_a_comparison_has_a_network_a_seed(sudo: Sudo) -> None:
    code, out, errors = sudo.run("compare", *REAL, *epochs(1), "TCP=0", "SEEDS=1-2", "OUT=many")
    assert code == 0, errors
    assert (sudo.folder / "many" / "seed-2.parquet").is_file(), out
    assert sudo.owners() == {UID}
    assert no_process_of_root()


def test_a_capture_at_the_prompt_is_written_with_the_users_rights(
    sudo: Sudo, tmp_path: Path
) -> None:
    (tmp_path / "roots.pcap").write_text("root's")
    (sudo.folder / "link.pcap").symlink_to(tmp_path / "roots.pcap")
    os.lchown(sudo.folder / "link.pcap", UID, UID)
    process = sudo.start("net", "K=4", stdin=subprocess.PIPE)
    said = "capture agg0_0 core0 link.pcap\ncapture agg0_0 core0 mine.pcap\ncapture\nexit\n"
    out, errors = process.communicate(said, timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert "capture: link.pcap exists and is no capture of ours" in out
    assert "packets in mine.pcap" in out
    assert (tmp_path / "roots.pcap").read_text() == "root's"
    assert (sudo.folder / "mine.pcap").stat().st_size >= 24
    assert sudo.owners() == {UID}
