"""What the README teaches works as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

from analysis.methods.registry import METHODS
from analysis.telemetry.observations import read_telemetry
from scenarios.experiment import run_experiment
from scenarios.options import help_lines, table_row
from scenarios.scenario import load_scenario, scenario_names
from scenarios.settings import described
from testbed.record.run import RunDirectory
from tests.conftest import SMALL, quiet

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_example_scenario_runs(tmp_path: Path) -> None:
    file = tmp_path / "my_failure.py"
    file.write_text(BLOCKS[0])
    scenario = load_scenario(str(file))
    summary = run_experiment(str(file), scenario, SMALL, tmp_path / "run", quiet)
    assert summary["scenario"] == "my_failure"
    assert len(summary["faulty_links"]) == 8
    assert set(RunDirectory(tmp_path / "run").table("drops")["cause"]) == {"corrupt"}


def test_the_example_method_diagnoses(finished_run: RunDirectory) -> None:
    names: dict[str, type] = {}
    exec(BLOCKS[1], names)
    diagnosis = names["WorstSegments"]().localize(read_telemetry(finished_run))
    truth = np.flatnonzero(finished_run.table("links")["faulty"])
    assert len(np.intersect1d(diagnosis.flagged, truth)) > 0


def test_the_option_table_is_that_of_the_settings() -> None:
    table = README.partition("| `SCENARIO` |")[2].partition("\n\n")[0].splitlines()
    assert table[1:-1] == [table_row(setting) for setting in described()]
    assert all(f"`{name}`" in table[0] for name in scenario_names())
    assert table[-1].startswith("| `RUN` |")


def test_what_make_lists_is_that_of_the_settings() -> None:
    scenario, *listed, run = (ROOT / "scenarios" / "options.txt").read_text().splitlines()
    assert listed == [line for setting in described() for line in help_lines(setting)]
    assert all(name in scenario for name in scenario_names())
    assert run.strip().startswith("RUN=")
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(line in said.stdout for line in (scenario, *listed, run))


def test_make_passes_on_whatever_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS"):
        monkeypatch.delenv(name, raising=False)  # of the make that runs these tests
    given = ["SCENARIO=flap", "EPOCH_MS=50", "FAULTS=6links, none", "COLOUR=red"]
    command = ["make", "--no-print-directory", "--dry-run", "scenario", *given]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    options = shlex.split(said.splitlines()[-1])[2:]
    pairs = dict(zip(options[::2], options[1::2], strict=True))
    assert pairs == {
        "--scenario": "flap",
        "--epoch-ms": "50",
        "--faults": "6links, none",
        "--colour": "red",
    }


def test_examples_are_short_and_methods_are_described() -> None:
    assert all(len(block.splitlines()) < 30 for block in BLOCKS)
    for method in METHODS:
        assert f"**{method}**" in README
