# SPDX-License-Identifier: Apache-2.0
"""What make is given arrives at canary as it was written, whatever it holds, and nothing runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from scenarios.command.install import LOCKS
from scenarios.command.show import again
from scenarios.experiment.run import run_config
from scenarios.experiment.settings import Settings
from testbed.fabric.names import command
from tests.scenarios.conftest import Canary, refused

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not on the PATH")
ROOT = Path(__file__).parents[3]
SOFT_SWITCH = "testbed/softswitch/pyproject.toml"
STUB = f"""#!{sys.executable} -I
import json, os, sys
told = {{"arguments": sys.argv[1:], "environment": dict(os.environ)}}
with open(os.path.join(os.environ["TOLD"], "told"), "a") as file:
    file.write(json.dumps(told) + "\\n")
"""

HOSTILE = [
    "$(shell touch X)",
    "$(shell touch X",
    "$$(shell touch X)",
    "$$$(shell touch X)",
    "${shell touch X}",
    "$(eval $(shell touch X))",
    "$(error gone)",
    "$(value VENV)$(BIN)$@",
    "$(call quoted,$(shell touch X))",
    "`touch X`",
    "$(touch X)",
    "$$(touch X)",
    "'; touch X; '",
    "'\\''; touch X; '\\''",
    '"; touch X; "',
    "a'b\"c`d",
    "; touch X #",
    "a # b",
    "#",
    "&& touch X || touch X | touch X > X < X &",
    "a b  c\td ",
    "a\\",
    "\\$(shell touch X)\\\\",
    "a\rb",
    "~/*?[a-z]{a,b}!!^%",
    "%",
    "a=b:=c!=d",
    "!=touch X",
    ")$(shell touch X)",
    "é漢\u202e\x1b[31m",
    "--trust",
    "-rf",
    "--",
    "K=4",
    ",",
    "(",
    "",
]


class Stub:
    """A copy of the Makefile whose canary says what it was given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        shutil.copy(ROOT / "Makefile", folder)
        (folder / SOFT_SWITCH).parent.mkdir(parents=True)
        for name in (*LOCKS.values(), "pyproject.toml", SOFT_SWITCH):
            (folder / name).touch()
            os.utime(folder / name, (1, 1))
        for name in (".users", ".developers", ".plot", ".cluster"):
            (folder / ".venv" / name).touch()
        for name in ("canary", "python"):
            (programs / name).write_text(STUB)
            (programs / name).chmod(0o755)

    def run(self, *command: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
        """How a command ended, and the arguments of every program of `.venv` that it called."""
        own = {name: v for name, v in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        told = self.folder / "told"
        for left in (told, self.folder / "X"):
            left.unlink(missing_ok=True)
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=own | {"TOLD": str(self.folder)},
            capture_output=True,
            text=True,
        )
        assert not (self.folder / "X").exists(), command
        calls = (
            [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
        )
        for call in calls:
            passed = {*call["environment"]} & {word.partition("=")[0] for word in command}
            assert not passed, "make exports what it was given"
        return done, [call["arguments"] for call in calls]

    def make(self, target: str, *words: str) -> list[str]:
        """The arguments of canary, that a target called once."""
        done, calls = self.run("make", "--no-print-directory", target, *words)
        assert done.returncode == 0 and len(calls) == 1, (target, words, done.stderr)
        return calls[0]


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    return Stub(tmp_path_factory.mktemp("make"))


@pytest.mark.parametrize("value", HOSTILE)
def test_values_arrive_as_they_were_written(stub: Stub, value: str) -> None:
    words = [f"{name}={value}" for name in ("FAULTS", "RUN", "CONFIG", "METHODS", "OUT")]
    called, *arrived = stub.make("scenario", *words, "PYTHON=python3")
    assert called == "run" and sorted(arrived) == sorted(words)
    words = [f"{name}={value}" for name in ("FIG", "OUT", "TRACE", "DRAWS", "RESULTS", "CLUSTER")]
    called, *arrived = stub.make("reproduce", *words)
    assert called == "reproduce" and sorted(arrived) == sorted(words)
    assert stub.make("test", f"COVERAGE={value}")[2:] == (["--cov"] if value else [])
    if not value:
        return
    words = [f"METHODS={value}"]
    assert stub.make("analyze", f"RUN={value}", *words) == ["analyze", *words, "--", value]
    assert stub.make("show", f"RUN={value}", "TRUST=1") == ["show", "--trust", "--", value]
    assert stub.make("shell", f"SWITCH={value}") == ["shell", "--", value]


@pytest.mark.parametrize("target", ["compare", "net", "export-lab"])
def test_other_targets_pass_on_all_words(stub: Stub, target: str) -> None:
    words = [f"V{number}={value}" for number, value in enumerate(HOSTILE)]
    called, *arrived = stub.make(target, *words)
    assert called == target and sorted(arrived) == sorted(words)


@pytest.mark.parametrize("system", ["win32", "cygwin"])
def test_another_system_hears_in_one_line_what_to_take(tmp_path: Path, system: str) -> None:
    python = tmp_path / "python"
    fake = f"import sys; sys.platform = {system!r}; exec(sys.argv.pop())"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -c "{fake}" "$3"\n')
    python.chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / SOFT_SWITCH).parent.mkdir(parents=True)
    for name in ("requirements.lock", "requirements-dev.lock", "pyproject.toml", SOFT_SWITCH):
        (tmp_path / name).touch()
    run = {"cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run(["make", "--no-print-directory", "setup", f"PYTHON={python}"], **run)
    first, *rest = done.stderr.splitlines()
    assert done.returncode == 2 and "virtual machine in vagrant/" in first
    assert len(rest) == 1 and re.match(r"make(\[\d+\])?: \*\*\* ", rest[0])  # make test is one
    code = f"import sys, runpy; sys.platform = {system!r}; sys.path.insert(0, {str(ROOT)!r})"
    code += "; runpy.run_module('scenarios', run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-c", code], **run)
    assert (done.returncode, done.stderr.splitlines()) == (2, [first])


@given(st.text(st.characters(blacklist_characters="\n\0", blacklist_categories=["Cs"])))
@hypothesis.settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_text_arrives(stub: Stub, text: str) -> None:
    text = text.lstrip(" \t\r\v\f")  # make begins a value at its first letter
    assert stub.make("scenario", f"FAULTS={text}") == ["run", f"FAULTS={text}"]


@pytest.mark.parametrize("target", ["scenario", "compare", "net", "reproduce", "analyze", "shell"])
def test_a_value_of_several_lines_is_refused(stub: Stub, target: str) -> None:
    """Make would take each line for a command."""
    name = {"reproduce": "FIG", "shell": "SWITCH"}.get(target, "RUN")
    for flags in ([], ["--ignore-errors"]):
        done, calls = stub.run("make", *flags, target, f"{name}=a\ntouch X\n")
        assert done.returncode == 2 and not calls
        assert done.stderr.count("\n") == 1 and f"{name}=" in done.stderr


def test_a_dry_run_runs_nothing(stub: Stub) -> None:
    done, calls = stub.run("make", "--dry-run", "scenario", "FAULTS=$(shell touch X)")
    assert done.returncode == 0 and not calls
    assert "'FAULTS=$(shell touch X)'" in done.stdout


@pytest.mark.parametrize("value", [value for value in HOSTILE if value.isprintable()])
def test_a_command_that_is_shown_passes_on_what_it_shows(stub: Stub, value: str) -> None:
    """The page's "The same again", pasted into a shell: whatever a stranger's record says."""
    for word in (f"RUN={value}", value):  # also where no option is meant
        done, _ = stub.run("sh", "-c", command("printf", "%s", word))
        assert done.stdout == word
    config = run_config(Settings(faults=value, traffic=value).as_dict() | {"scenario": value})
    method = {"parameters": f"a={value}", "parameters_from": value}
    shown = again(config, {"flock": method, value: method})
    done, calls = stub.run("sh", "-c", shown)
    assert done.returncode == 0 and len(calls) == 1, (shown, done.stderr)
    called, *arrived = calls[0]
    assert called == "run"
    assert {f"FAULTS={value}", f"TRAFFIC={value}", "K=4", "SEED=1"} <= set(arrived)
    assert any(word.startswith(f"METHODS=flock:a={value},") for word in arrived)


def test_what_cannot_be_seen_is_not_copied(stub: Stub) -> None:
    config = run_config(Settings(faults="6links\ntouch X\n\u202e").as_dict() | {"scenario": "flap"})
    shown = again(config, {})
    assert shown.isprintable()
    _, calls = stub.run("sh", "-c", shown)
    assert "FAULTS=6links\\ntouch X\\n\\u202e" in calls[0]


def test_a_folder_may_have_the_name_of_an_option(canary: Canary) -> None:
    """A sweep's folders are `K=4` and the like."""
    refused(canary("analyze", "--", "K=4"), "K=4 is not a directory")
    refused(canary("analyze", "METHODS=all", "--", "--trust"), "--trust is not a directory")
