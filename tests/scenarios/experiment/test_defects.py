# SPDX-License-Identifier: Apache-2.0
"""A mistake of the user is one line; a defect of the testbed shows its traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEFECT = """
import sys
import numpy as np
from analysis.methods.canary import Canary

def broken(self, telemetry):
    return np.zeros(3) + np.zeros(4)

Canary.localize = broken
sys.argv[0] = "canary"
from scenarios.command.cli import main
main()
"""


def run(program: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", program, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )


def test_a_defect_shows_its_traceback_and_asks_for_a_report(tmp_path: Path) -> None:
    said = run(DEFECT, "run", "EPOCHS=1", "LOAD=0.05", "METHODS=canary", folder=tmp_path)
    assert said.returncode == 1
    assert "Traceback" in said.stderr and "in broken" in said.stderr
    assert "could not be broadcast" in said.stderr
    assert said.stderr.rstrip().splitlines()[-1].startswith("canary: this is a defect of canary")
    assert not list(tmp_path.rglob("config.json")), "nothing half-written stays"


@pytest.mark.parametrize(("words", "lines"), [((), 1), (("--debug",), 5)])
def test_a_mistake_is_one_line_and_a_traceback_if_asked_for(
    tmp_path: Path, words: tuple[str, ...], lines: int
) -> None:
    program = "import sys; sys.argv[0] = 'canary'; from scenarios.command.cli import main; main()"
    said = run(program, *words, "run", "FAULTS=core9->agg0_0", folder=tmp_path)
    assert said.returncode == 2
    found = said.stderr.strip().splitlines()
    assert (len(found) == 1) == (lines == 1), said.stderr
    assert len(found) >= lines
    assert found[-1].startswith("canary: ")
