# SPDX-License-Identifier: Apache-2.0
"""What a user's environment can make root run, through a real sudo: nothing.

Each instrument of the attack writes down its name and the user it runs as. The first test shows
that each works when root is made to use it. What no program can prevent is in SECURITY.md: through
sudo, root runs the user's own copy of this program with the user's own Python.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.network.requirements import missing
from testbed.record.run import RunDirectory
from tests.real_packets import paced, words
from tests.scenarios.process.conftest import ROOT, UID, Sudo
from tests.scenarios.process.test_root_processes import no_process_of_root

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a user who may use sudo"),
    pytest.mark.skipif(shutil.which("sudo") is None, reason="needs sudo"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, for what LD_PRELOAD loads"),
]

PRELOADED = """
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
    FILE *marks = fopen("MARKS", "a");
    if (marks) { fprintf(marks, "LD_PRELOAD %d\\n", geteuid()); fclose(marks); }
}
"""
PROGRAMS = ("gcc", "cc", "c99", "clang", "ip", "mnexec", "ifconfig", "simple_switch_grpc", "tc",
            "python3", "sh", "pkill", "ethtool", "iperf3")  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """A user who may use sudo, with instruments that write to `marks`.

    Attributes:
        sudo: What the user does.
        marks: The file: a line for each use, with the instrument and the user's number.
        tools: The folder of the instruments.
    """

    sudo: Sudo
    marks: Path
    tools: Path

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the user who calls sudo, with the instruments of each attack in it."""
        return {
            "LD_PRELOAD": f"{self.tools / 'preload.so'}",
            "PYTHONPATH": f"{self.tools}",
            "PYTHONSTARTUP": f"{self.tools / 'sitecustomize.py'}",
            "CC": f"{self.tools / 'compiler'}",
            "BASH_ENV": f"{self.tools / 'bash_env'}",
            "ENV": f"{self.tools / 'bash_env'}",
            "PATH": f"{self.tools / 'bin'}:{os.environ['PATH']}",
            "SUDO_UID": f"{UID + 1}",
            "SUDO_GID": f"{UID + 1}",
            "SUDO_USER": "stranger",
            "HOME": f"{self.sudo.folder}",
            "XDG_CACHE_HOME": f"{self.sudo.cache}",
        }

    def prelude(self, rule: str, *command: str) -> str:
        """Shell commands before a command of `Sudo`: a user, whom a rule lets use sudo, starts it.

        The user and the rule are there for the command alone. Root has compiled nothing.
        """
        lines = [f"unset {' '.join(v for v in os.environ if v.startswith('SUDO_'))} SUDO_UID"]
        entries = {
            "passwd": f"mallory:x:{UID}:{UID}::{self.sudo.folder}:/bin/sh",
            "group": f"mallory:x:{UID}:",
            "shadow": "mallory:*:19000:0:99999:7:::",
        }
        for name, entry in entries.items():
            copy = shlex.quote(f"{self.tools}/{name}")
            lines += [f"{{ cat /etc/{name}; echo '{entry}'; }} >{copy}"]
            lines += [f"mount --bind {copy} /etc/{name}"]
        lines += ["mount -t tmpfs -o mode=755 tmpfs /etc/sudoers.d"]
        lines += [f"printf '%s\\n' {shlex.quote(rule)} >/etc/sudoers.d/mallory"]
        lines += ["mkdir -p ~/.cache", "mount -t tmpfs -o mode=700 tmpfs ~/.cache"]
        lines += [f"chown {UID}:{UID} {shlex.quote(str(self.marks))}"]
        lines += [f"chmod 666 {shlex.quote(str(self.marks))}"]
        if command:
            lines += [f"set -- {shlex.join(command)}"]
        given = shlex.join(f"{name}={value}" for name, value in self.variables.items())
        user = f"setpriv --reuid={UID} --regid={UID} --clear-groups"
        lines += [f'set -- {user} /usr/bin/env {given} "$@"']
        return "".join(f"{line}\n" for line in lines)

    def used(self) -> set[tuple[str, int]]:
        """The instruments that ran, each with the users as which it did."""
        lines = (line.rpartition(" ") for line in self.marks.read_text().splitlines())
        return {(name, int(uid)) for name, _, uid in lines}

    def by_root(self) -> set[str]:
        return {name for name, uid in self.used() if uid == 0}


@pytest.fixture
def attack(sudo: Sudo) -> Iterator[Attack]:
    tools, marks = sudo.folder / "tools", sudo.folder / "marks"
    (tools / "bin").mkdir(parents=True)
    marks.touch()

    def script(path: Path, name: str) -> None:
        path.write_text(f'#!/bin/sh\necho "{name} $(/usr/bin/id -u)" >>{marks}\n')
        path.chmod(0o755)

    script(tools / "compiler", "CC")
    script(tools / "bash_env", "BASH_ENV")
    for name in PROGRAMS:
        own = shutil.which(name)
        script(tools / "bin" / name, "PATH")
        with (tools / "bin" / name).open("a") as file:
            file.write(f'exec {own} "$@"\n' if own else "exit 127\n")
    (tools / "sitecustomize.py").write_text(
        f"import os\nopen({str(marks)!r}, 'a').write(f'PYTHONPATH {{os.geteuid()}}\\n')\n"
    )
    source = tools / "preload.c"
    source.write_text(PRELOADED.replace("MARKS", str(marks)))
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tools / "preload.so", source], check=True)
    for path in (tools, *tools.rglob("*"), marks):
        shutil.chown(path, UID, UID)
    made = Attack(sudo, marks, tools)
    code, _, errors = sudo.run(prelude=made.prelude(FREE, "sudo", "-n", "true"))
    if code:
        pytest.skip(f"sudo cannot be used here: {errors.strip()}")
    marks.write_text("")
    yield made


FREE = "mallory ALL=(ALL) NOPASSWD: ALL"


def test_the_instruments_work(attack: Attack) -> None:
    """Root uses each of them if somebody hands it the user's environment."""
    given = {name: attack.variables[name] for name in ("LD_PRELOAD", "PYTHONPATH", "CC", "PATH")}
    words = shlex.join(f"{name}={value}" for name, value in given.items())
    bash = f"BASH_ENV={attack.variables['BASH_ENV']}"
    script = f"sudo /usr/bin/env {words} sh -c '{sys.executable} -c pass; $CC x; gcc --version'; "
    script += f"sudo /usr/bin/env {bash} bash -c :"
    code, _, errors = attack.sudo.run(prelude=attack.prelude(FREE, "/bin/sh", "-c", script))
    assert code == 0, errors
    assert attack.by_root() == {"LD_PRELOAD", "PYTHONPATH", "CC", "PATH", "BASH_ENV"}


MADE = Path(sys.prefix) == ROOT / ".venv" and (ROOT / ".venv" / ".users").exists()


@pytest.mark.skipif(bool(missing("softswitch")), reason=missing("softswitch") or "never")
@pytest.mark.parametrize("way", ["SUDO=1", "sudo canary", "sudo make", "sudo without secure_path"])
def test_root_uses_nothing_of_the_users(attack: Attack, way: str) -> None:
    run = attack.sudo.folder / "here"
    real = [
        "K=4",
        "BACKEND=softswitch",
        "METHODS=canary",
        *words(paced(1, 1500, 0.1)),
        f"RUN={run}",
    ]
    rule, command = FREE, []
    if way == "sudo without secure_path":
        rule = f"Defaults:mallory !secure_path\n{FREE}"
    if way == "sudo make":
        if not MADE:
            pytest.skip("this folder was not set up by make")
        command = ["sudo", "make", "-C", str(ROOT), "scenario", *real]
    prelude = attack.prelude(rule, *command)
    if way == "SUDO=1":
        real.append("SUDO=1")
    elif not command:
        prelude = prelude.replace('"$@"\n', 'sudo -- "$@"\n')
    code, out, errors = attack.sudo.run("run", *real, prelude=prelude)
    assert code == 0, errors
    assert "on soft switches" in out
    assert attack.by_root() == set()
    if way == "SUDO=1":  # the user's own process did, before it called sudo
        assert ("LD_PRELOAD", UID) in attack.used()
    assert RunDirectory(run).epochs == 1
    assert (run / "summary.json").stat().st_uid == UID
    assert no_process_of_root()
