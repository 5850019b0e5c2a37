# SPDX-License-Identifier: Apache-2.0
"""The command line within this process: quicker than a new one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from scenarios.command.cli import main
from tests.conftest import without_progress

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Canary = Callable[..., Outcome]


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Where a script of this checkout is, beside an interpreter as after an installation."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    return lambda script: Path(shutil.copy(ROOT / script, folder))


@pytest.fixture
def canary(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Canary:
    """``canary("plan", "--k", "4")``."""

    def call(*arguments: str) -> Outcome:
        monkeypatch.setattr("sys.argv", ["canary", *arguments])
        monkeypatch.setattr("signal.signal", lambda *_: None)
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return Outcome(int(end.value.code or 0), printed.out, printed.err)

    return call


def refused(outcome: Outcome, *words: str) -> None:
    """One line on standard error that has these words, and exit code 2."""
    assert outcome.code == 2, outcome
    (line,) = without_progress(outcome.err)
    assert line.startswith("canary: "), line
    for word in words:
        assert word in line
