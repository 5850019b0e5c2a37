"""What the README teaches works as printed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from analysis.methods.registry import METHODS
from analysis.telemetry.observations import read_telemetry
from scenarios.experiment import run_experiment
from scenarios.scenario import load_scenario
from scenarios.settings import Settings
from testbed.record.run import RunDirectory
from tests.conftest import SMALL, quiet

README = (Path(__file__).parent.parent / "README.md").read_text()
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


@pytest.mark.parametrize("name", Settings.names())
def test_every_setting_is_in_the_option_table_and_the_makefile(name: str) -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    assert f"`{name.upper()}`" in README
    assert re.search(rf"\b{name.upper()}\b", makefile)


def test_examples_are_short_and_methods_are_described() -> None:
    assert all(len(block.splitlines()) < 30 for block in BLOCKS)
    for method in METHODS:
        assert f"**{method}**" in README
