# SPDX-License-Identifier: Apache-2.0
"""A command that sudo started is its user's: who it runs as, and what it cannot read."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.scenarios.process.conftest import ROOT, UID, User

RUN = ("run", "K=4", "EPOCHS=1", "LOAD=0.02", "METHODS=canary", "BACKEND=virtual")

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


def test_a_scenario_file_is_run_by_the_user_and_the_run_is_theirs(sudo: User) -> None:
    (sudo.folder / "who.py").write_text(WHO)
    shutil.chown(sudo.folder / "who.py", UID, UID)
    code, _, errors = sudo.run(*RUN, "SCENARIO=who.py", "RUN=new/folders/run")
    assert code == 0, errors
    for when in ("import", "faults"):
        assert json.loads((sudo.folder / f"{when}.json").read_text()) == USER
    assert (sudo.folder / "new" / "folders" / "run" / "manifest.json").is_file()
    assert sudo.owners() == {UID}


def test_what_only_root_may_read_is_not_read(sudo: User) -> None:
    (sudo.folder / "secret.yaml").write_text("open sesame: 7")
    (sudo.folder / "secret.yaml").chmod(0o600)
    code, out, errors = sudo.run(*RUN, "FAULTS=secret.yaml")
    assert code == 2 and "sesame" not in out + errors
    message = errors.splitlines()[-1]
    assert message.startswith("canary: ") and re.search("denied|not readable", message), errors


def test_a_program_that_the_user_cannot_read_is_told(sudo: User) -> None:
    prelude = f"mount -t tmpfs -o mode=700 tmpfs {ROOT.parent}\n"
    kept = f"mount -t tmpfs tmpfs /mnt && mkdir /mnt/1 && mount --bind {ROOT.parent} /mnt/1\n"
    again = f"mkdir -p {ROOT} && mount --bind /mnt/1/{ROOT.name} {ROOT}\n"
    code, out, errors = sudo.run("plan", "K=4", prelude=kept + prelude + again)
    assert code == 2 and not out
    assert errors.startswith(f"canary: {UID}, who called sudo, cannot read "), errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("text", ["me", "-1", "4294967295"])
def test_an_id_that_is_none_is_told(sudo: User, text: str) -> None:
    code, _, errors = sudo.run("plan", "K=4", SUDO_UID=text)
    assert code == 2
    message = f"canary: SUDO_UID={text} in the environment is no ID: unset it, or use no sudo\n"
    assert errors == message
