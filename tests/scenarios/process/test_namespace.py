# SPDX-License-Identifier: Apache-2.0
"""An ordinary user has networks of real packets without root, and reaches them from outside."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from testbed import rootless
from testbed.network.requirements import not_installed
from testbed.record.run import RunDirectory
from testbed.rootless import forbidden
from tests.conftest import without_progress
from tests.patience import PATIENCE_S
from tests.real_packets import paced, words
from tests.scenarios.process.conftest import ROOTS, User
from tests.testbed.network.mininet.test_interruption import fabric_links, finished_epochs

LACKING = forbidden() or not_installed("softswitch")
real = pytest.mark.skipif(bool(LACKING), reason=LACKING or "never")

RUN = ("run", "BACKEND=softswitch", "METHODS=canary", "RUN=here", "TCP=0")
TWO = ("TOPOLOGY=two-switch", "FAULTS=tor0->tor1:0.5")


def epochs(number: int) -> list[str]:
    return words(paced(number, 1500, 0.1))


def printed_match(process: subprocess.Popen[str], pattern: str) -> str:
    """What a line of a command's output says, as soon as it is printed."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(process.communicate())


@real
def test_a_network_takes_no_root_and_leaves_nothing(user: User) -> None:
    links = fabric_links()
    calls = user.folder / "bin" / "sudo"
    calls.parent.mkdir()
    calls.write_text(f"#!/bin/sh\ntouch {user.folder}/called\n")
    calls.chmod(0o755)
    path = f"{calls.parent}:{os.environ['PATH']}"
    code, out, errors = user.run(*RUN, *TWO, *epochs(2), "SUDO=1", PATH=path)
    assert code == 0, errors
    assert "on soft switches" in out and not (user.folder / "called").exists()
    run = RunDirectory(user.folder / "here")
    assert run.epochs == 2 and run.network["packet_hops"] > 100
    assert (run.path / "logs" / "tor0.log").is_file()
    assert user.owners() - {calls.stat().st_uid, calls.stat().st_gid} in ({user_id()}, set())
    assert fabric_links() == links


def user_id() -> int:
    return 12345 if ROOTS else os.getuid()


@real
def test_the_page_of_a_run_is_reached_from_outside(user: User) -> None:
    process = user.start(*RUN, *TWO, *epochs(4), "WATCH=1")
    address = printed_match(process, r"^watch: (http://127\.0\.0\.1:\d+/)$")
    with urlopen(address, timeout=PATIENCE_S) as page:
        assert page.status == 200 and b"canary" in page.read().lower()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


@real
def test_a_second_terminal_has_a_shell_and_removes_what_a_killed_network_left(user: User) -> None:
    links = fabric_links()
    process = user.start("net", "K=4", stdin=subprocess.PIPE)
    printed_match(process, r"^(a fat-tree of K=4|.*is up: 20 switches)")
    routes = '[*table_entry["CanaryIngress.routing.routes"].read()]'
    ask = f"print(len({routes}) > 3, 123)\nexit\n"
    shell = user.start("shell", "agg0_1", stdin=subprocess.PIPE)
    out, errors = shell.communicate(ask, timeout=PATIENCE_S)
    assert shell.returncode == 0 and out.startswith("agg0_1 of the network that process"), errors
    assert "True 123" in out, out
    code, out, errors = user.run("clean-net")
    assert code == 0 and "still runs a network" in out, errors
    process.kill()
    process.communicate()
    code, out, errors = user.run("clean-net")
    assert code == 0 and out.startswith("ended 20 switches"), out + errors
    assert fabric_links() == links
    code, _, errors = user.run("shell", "agg0_1")
    assert code == 2 and errors.startswith("canary: this user has no running network")


FROM_PYTHON = """
import canary
made = canary.run(backend="softswitch", topology="two-switch", faults="tor0->tor1:0.5", path="here",
                  epochs=1, epoch_ms=1500, load=0.1, tcp=0, methods="canary")
print(made.faulty, made.summary["conservation"]["unaccounted"])
try:
    canary.run(backend="softswitch", injector="netem", faults="tor0_0->agg0_0:0.5", path="there",
               tcp=0, topology="two-switch")
except ValueError as error:
    print("refused:", error)
"""


@real
def test_a_run_from_python_takes_no_root(user: User) -> None:
    python = user.command("x")
    at = python.index("-m")
    done = subprocess.run(
        [*python[:at], "-c", FROM_PYTHON],
        cwd=user.folder,
        env=user.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "['tor0->tor1'] 0", done.stderr
    assert lines[1].startswith("refused: ")


@real
@pytest.mark.nightly
def test_an_interrupted_run_can_be_diagnosed(user: User) -> None:
    process = user.start(*RUN, *epochs(8))
    deadline = time.monotonic() + PATIENCE_S
    while not finished_epochs(user.folder / "here.partial"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    assert "make analyze RUN=here.partial" in without_progress(errors)[-1]
    code, _, errors = user.run("analyze", "here.partial", "METHODS=canary")
    assert code == 0, errors


# ---- where the kernel lets users make no namespaces ----------------------------------------------


@pytest.fixture
def strict(user: User) -> Path:
    """A folder of programs: an ``unshare`` that may not, and a ``sudo`` that notes its words."""
    programs = user.folder / "bin"
    programs.mkdir()
    for name, does in (
        ("unshare", "echo 'unshare: write failed /proc/self/uid_map: no' >&2; exit 1"),
        ("sudo", f'printf "%s\\n" "$@" >{user.folder}/told; exit 7'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    if ROOTS:
        for each in (programs, *programs.iterdir()):
            shutil.chown(each, user_id(), user_id())
    return programs


def path(programs: Path) -> str:
    """A prelude, since the command itself is started by the true `unshare`."""
    return f"export PATH={programs}:$PATH\n"


def test_what_the_kernel_forbids_is_told_with_what_to_do(user: User, strict: Path) -> None:
    for command in (RUN, ("net", "K=4"), ("compare", "BACKEND=softswitch", "SEEDS=1")):
        code, out, errors = user.run(*command, prelude=path(strict))
        assert code == 2 and not out
        assert re.fullmatch(r"canary: no namespaces can be made here .*: use SUDO=1.*\n", errors)
    assert not (user.folder / "told").exists()
    code, _, errors = user.run("run", "K=4", "FAULTS=99999links", "SUDO=1", prelude=path(strict))
    assert code == 2 and "99999" in errors and not (user.folder / "told").exists()


def test_ubuntus_restriction_is_told_with_the_command_that_lifts_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setting = tmp_path / "kernel" / "apparmor_restrict_unprivileged_userns"
    setting.parent.mkdir()
    setting.write_text("1\n")
    monkeypatch.setattr(rootless, "may_make_networks", lambda: False)
    monkeypatch.setattr(rootless, "UNSHARE", ("false",))
    monkeypatch.setattr(rootless, "_SYSCTL", tmp_path)
    forbidden.cache_clear()
    try:
        wanted = "`sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0` allows it"
        assert wanted in forbidden()
        setting.write_text("0\n")
        forbidden.cache_clear()
        assert "sysctl" not in forbidden() and "SUDO=1" in forbidden()
    finally:
        forbidden.cache_clear()


def test_sudo_makes_the_namespaces_and_the_command_stays_the_users(
    user: User, strict: Path
) -> None:
    code, _, _ = user.run(*RUN, "SUDO=1", prelude=path(strict), CANARY_SEED="7")
    assert code == 7
    told = (user.folder / "told").read_text().splitlines()
    assert told[:4] == ["--", "setpriv", f"--reuid={user_id()}", f"--regid={user_id()}"]
    assert told[-len(RUN) - 2 :] == [*RUN, "SUDO=1", "--seed=7"]
    assert f"XDG_CACHE_HOME={user.cache}" in told
    code, _, errors = user.run(*RUN, "SUDO=1", "WATCH=1", prelude=path(strict))
    assert code == 2 and errors.startswith("canary: WATCH=1 does not go with SUDO=1")


@real
@pytest.mark.skipif(not ROOTS, reason="only root can do what sudo does")
def test_through_sudo_a_network_is_the_users(user: User) -> None:
    """The kernel of this test lets users make namespaces: what sudo is asked to do is right."""
    words = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
    words += ["--inh-caps=+sys_admin", "--ambient-caps=+sys_admin", "--", *rootless.UNSHARE]
    ask = ["sh", "-c", "id -u; cat /proc/self/uid_map; grep CapAmb /proc/self/status; mnexec -n id"]
    done = subprocess.run([*words, "--", *ask], capture_output=True, text=True, check=True)
    lines = done.stdout.split("\n")
    assert lines[0] == "0" and lines[1].split() == ["0", "12345", "1"]
    assert lines[2].split()[1] == "0" * 16  # none of root's capabilities is left
