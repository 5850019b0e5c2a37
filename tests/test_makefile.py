# SPDX-License-Identifier: Apache-2.0
"""What `make` does with its own command line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """`make` as a user calls it, also below the `make` that runs these tests."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("M")}
    command = ["make", "--no-print-directory", *words]
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["scenarios"], "there is no target scenarios: did you mean make scenario?"),
        (["tests"], "there is no target tests: did you mean make test?"),
        (["analysis", "RUN=runs/one"], "there is no target analysis: did you mean make analyze?"),
        (["testbed"], "there is no target testbed: did you mean make test?"),
        (["vagrant"], "there is no target vagrant: make alone lists them"),
        (["scenario", "comapre"], "there is no target comapre: did you mean make compare?"),
        (["it's"], "there is no target it's: make alone lists them"),
    ],
)
def test_a_target_that_does_not_exist_is_one_line(words: list[str], answer: str) -> None:
    done = make(*words)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1 and answer in done.stderr


def test_all_targets_are_listed_by_help() -> None:
    listed = make().stdout
    every = (
        "scenario",
        "compare",
        "analyze",
        "show",
        "export-lab",
        "net",
        "shell",
        "doctor",
        "test",
    )
    for target in every:
        assert f"make {target} " in listed
        assert make("--dry-run", target, "RUN=a", "SWITCH=b").stderr.count("no target") == 0


def test_make_alone_is_a_screen_and_the_settings_have_a_target() -> None:
    listed = make().stdout.splitlines()
    assert len(listed) <= 20 and all(len(line) <= 80 for line in listed)
    assert not any("EPOCH_MS" in line for line in listed)
    assert "EPOCH_MS=2000" in make("help-options").stdout


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("run", "make scenario makes a run"),
        ("mn", "make net brings the network up"),
        ("clab", "make export-lab writes the network as a lab"),
        ("deploy", "make export-lab"),
        ("build", "make -C p4"),
    ],
)
def test_words_of_other_tools_are_answered(word: str, answer: str) -> None:
    done = make(word)
    assert done.returncode == 2 and f"there is no target {word}: " in done.stderr
    assert answer in done.stderr and done.stderr.count("\n") == 1
