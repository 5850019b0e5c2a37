# SPDX-License-Identifier: Apache-2.0
"""A command that sudo started is its user's: whose its files are, and what it cannot read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.scenarios.process.conftest import ROOT, UID, Sudo

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be what sudo makes"),
]

RUN = ("run", "K=4", "EPOCHS=1", "METHODS=canary", "BACKEND=virtual")

WHO = '''
"""Says who runs it, and tries to be root again."""
import json, os
from scenarios.experiment.request import Scenario
from testbed.faults.plan import FaultPlan

def who(when):
    again = []
    for call in (lambda: os.setuid(0), lambda: os.seteuid(0), lambda: os.setgid(0),
                 lambda: os.setgroups([0]), lambda: open("/etc/shadow").read()):
        try:
            call()
            again.append("did")
        except PermissionError:
            again.append("refused")
    with open(f"{when}.json", "w") as file:
        json.dump([os.getresuid(), os.getresgid(), os.getgroups(), again], file)

def faults(topology, settings):
    who("faults")
    return FaultPlan()

who("import")
SCENARIO = Scenario(make_faults=faults)
'''
USER = [[UID] * 3, [UID] * 3, [UID], ["refused"] * 5]


def who_ran(sudo: Sudo) -> list[object]:
    return [json.loads((sudo.folder / f"{when}.json").read_text()) for when in ("import", "faults")]


def processes_of_root() -> list[str]:
    """The root servers and workers that are there."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if " -m scenarios.process.root_server" in line or " -m scenarios.live.root_worker" in line:
            found.append(line)
    return found


def no_process_of_root(seconds: float = 60) -> bool:
    """Whether they soon end."""
    deadline = time.monotonic() + seconds
    while processes_of_root() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not processes_of_root()


def test_a_scenario_file_is_run_by_the_user_and_the_run_is_theirs(sudo: Sudo) -> None:
    (sudo.folder / "who.py").write_text(WHO)
    shutil.chown(sudo.folder / "who.py", UID, UID)
    code, _, errors = sudo.run(*RUN, "SCENARIO=who.py", "RUN=new/folders/run")
    assert code == 0, errors
    assert who_ran(sudo) == [USER, USER]
    assert (sudo.folder / "new" / "folders" / "run" / "manifest.json").is_file()
    assert sudo.owners() == {UID}
    assert no_process_of_root()


@pytest.mark.beside
@pytest.mark.parametrize(
    "option", ["CONFIG=secret", "FAULTS=secret.yaml", "TRAFFIC=secret.pcap", "SCENARIO=secret.py"]
)
def test_what_only_root_may_read_is_not_read(sudo: Sudo, option: str) -> None:
    for name in ("secret", "secret.yaml", "secret.pcap", "secret.py"):
        (sudo.folder / name).write_text("open sesame: 7")
        (sudo.folder / name).chmod(0o600)
    code, out, errors = sudo.run(*RUN, option)
    assert code == 2
    assert "sesame" not in out + errors
    said = errors.splitlines()[-1]
    assert said.startswith("canary: ") and re.search("denied|not readable", said), errors
    assert "Traceback" not in errors


@pytest.mark.beside
def test_a_run_is_not_written_through_a_link_to_a_folder_of_roots(
    sudo: Sudo, tmp_path: Path
) -> None:
    (sudo.folder / "here").symlink_to(tmp_path)
    (sudo.folder / "there").symlink_to("/etc")
    for place in ("here", "there/canary-run"):
        code, _, errors = sudo.run(*RUN, f"RUN={place}")
        assert code == 2 and errors.startswith("canary: "), errors
    assert not list(tmp_path.iterdir()) and not Path("/etc/canary-run").exists()
    assert not Path("/etc/canary-run.partial").exists()


@pytest.mark.beside
def test_commands_without_a_network_have_no_root_at_all(sudo: Sudo) -> None:
    code, _, errors = sudo.run("plan", "K=4", "OUT=paths.parquet")
    assert code == 0, errors
    assert sudo.owners() == {UID}
    code, _, errors = sudo.run("plan", "K=4", "OUT=/etc/paths.parquet")
    assert code == 2 and not Path("/etc/paths.parquet").exists()


def test_what_is_about_roots_networks_stays_root(sudo: Sudo) -> None:
    code, out, errors = sudo.run("clean-net")
    assert (code, errors) == (0, ""), errors
    assert out


@pytest.mark.beside
def test_a_program_that_the_user_cannot_read_is_told(sudo: Sudo) -> None:
    closed = ROOT / "scenarios" / "process"
    prelude = f"mount -t tmpfs tmpfs /mnt\ncp -r {closed} /mnt/root\nchmod 700 /mnt/root\n"
    prelude += f"mount --bind /mnt/root {closed}\n"
    code, out, errors = sudo.run("plan", "K=4", prelude=prelude)
    assert (code, out) == (2, "")
    assert errors.startswith(f"canary: {UID}, who called sudo, cannot read ")
    assert errors.count("\n") == 1


@pytest.mark.beside
def test_an_id_that_is_none_is_told(sudo: Sudo) -> None:
    code, _, errors = sudo.run("plan", "K=4", SUDO_UID="me")
    assert code == 2
    assert errors == "canary: SUDO_UID=me in the environment is no ID: unset it, or use sudo\n"


def test_a_root_server_serves_its_user_alone_and_ends_with_the_command() -> None:
    program = (
        "import os, sys\n"
        "from scenarios.process.root_server import start_root_server\n"
        "print(start_root_server(12345), flush=True)\n"
        "sys.stdin.read()\n"
    )
    knock = (
        "import os, socket, sys\n"
        "os.setuid(int(sys.argv[2]))\n"
        "peer = socket.socket(socket.AF_UNIX)\n"
        "peer.connect('\\0' + sys.argv[1])\n"
        "peer.settimeout(1)\n"
        "try:\n"
        "    print(len(peer.recv(1)))\n"
        "except TimeoutError:\n"
        "    print('waits')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        name = command.stdout.readline().strip()

        def ask(uid: int) -> str:
            call = [sys.executable, "-c", knock, name, str(uid)]
            return subprocess.run(call, capture_output=True, text=True, check=False).stdout.strip()

        assert ask(54321) == "0"  # the end at once
        assert ask(UID) == "waits"  # somebody is there to read the order
        assert processes_of_root()
    assert no_process_of_root()
