# SPDX-License-Identifier: Apache-2.0
"""sudo is called where the user says so, and nowhere else."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.scenarios.process.conftest import UID, Sudo

pytestmark = [
    pytest.mark.root,
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user"),
    pytest.mark.skipif(shutil.which("mnexec") is None, reason="needs Mininet"),
]

RUN = ("run", "TOPOLOGY=two-switch", "FAULTS=99links", "EPOCHS=1")
NOT_ROOT = f'set -- setpriv --reuid={UID} --regid={UID} --clear-groups "$@"\n'


@pytest.fixture
def told(sudo: Sudo) -> Path:
    """The file to which a ``sudo`` that does nothing says its arguments, beside a BMv2."""
    programs, told = sudo.folder / "bin", sudo.folder / "told"
    programs.mkdir()
    (programs / "sudo").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{told}\nexit 7\n')
    (programs / "simple_switch_grpc").write_text("#!/bin/sh\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    return told


def run(sudo: Sudo, *words: str, **more: str) -> tuple[int, str, str]:
    path = f"{sudo.folder}/bin:{os.environ['PATH']}"
    return sudo.run(*RUN, *words, prelude=NOT_ROOT, PATH=path, **more)


def test_a_user_who_does_not_say_so_calls_no_sudo(sudo: Sudo, told: Path) -> None:
    """It asked nothing of this user, so the whole command became root."""
    code, out, errors = run(sudo)
    assert code == 2 and "99" in errors  # the faults that do not fit, in virtual time
    assert not told.exists()
    assert not out  # what is wrong is all that is said


def test_real_packets_without_root_call_no_sudo(sudo: Sudo, told: Path) -> None:
    code, _, errors = run(sudo, "BACKEND=softswitch")
    assert code == 2 and not told.exists()
    assert "BACKEND=softswitch needs root" in errors and "SUDO=1" in errors


def test_sudo_is_called_with_the_whole_command(sudo: Sudo, told: Path) -> None:
    code, _, _ = run(sudo, "SUDO=1", "BACKEND=auto")
    assert code == 7
    program = ["--", sys.executable, "-P", "-B", "-m", "scenarios"]
    assert told.read_text().splitlines() == [*program, *RUN, "SUDO=1", "BACKEND=auto"]


def test_sudo_of_the_environment_brings_its_options_along(sudo: Sudo, told: Path) -> None:
    code, _, _ = run(sudo, CANARY_SUDO="1", CANARY_SEED="7", CANARY_BACKEND="softswitch")
    assert code == 7
    assert told.read_text().splitlines()[-2:] == ["--seed=7", "--backend=softswitch"]


def test_virtual_time_needs_no_sudo(sudo: Sudo, told: Path) -> None:
    code, _, errors = run(sudo, "SUDO=1", "BACKEND=virtual")
    assert code == 2 and "99" in errors
    assert not told.exists()
