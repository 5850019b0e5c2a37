"""What the README teaches works as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

from analysis.methods.registry import METHODS, find_methods
from analysis.telemetry.observations import read_telemetry
from scenarios.command.cli import app
from scenarios.command.options import help_lines, table_row
from scenarios.experiment.request import make_request
from scenarios.experiment.run import run_experiment
from scenarios.experiment.scenario import load_scenario, scenario_names
from scenarios.experiment.settings import described
from testbed.fabric.topologies import make_fabric
from testbed.record.run import RunDirectory
from tests.conftest import SMALL

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_example_scenario_runs(tmp_path: Path) -> None:
    file = tmp_path / "my_failure.py"
    file.write_text(BLOCKS[0])
    scenario = load_scenario(str(file))
    summary = run_experiment(str(file), scenario, SMALL, tmp_path / "run")
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
    assert table[1:-2] == [table_row(setting) for setting in described()]
    assert all(f"`{name}`" in table[0] for name in scenario_names())
    assert table[-2].startswith("| `CONFIG` |") and table[-1].startswith("| `RUN` |")


@pytest.fixture
def _own_make(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS"):
        monkeypatch.delenv(name, raising=False)  # of the make that runs these tests


@pytest.mark.usefixtures("_own_make")
def test_what_make_lists_is_that_of_the_settings() -> None:
    scenario, *listed, config, run = (
        (ROOT / "scenarios" / "command" / "options.txt").read_text().splitlines()
    )
    assert listed == [line for setting in described() for line in help_lines(setting)]
    assert all(name in scenario for name in scenario_names())
    assert config.strip().startswith("CONFIG=") and run.strip().startswith("RUN=")
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(line in said.stdout for line in (scenario, *listed, config, run))


@pytest.mark.usefixtures("_own_make")
def test_make_passes_on_whatever_it_is_given() -> None:
    given = ["SCENARIO=flap", "EPOCH_MS=50", "FAULTS=6links, none", "COLOUR=re'd", "k=8"]
    command = ["make", "--no-print-directory", "--dry-run", "scenario", *given]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert sorted(shlex.split(said.splitlines()[-1])[2:]) == sorted(given)


CANARY = ".venv/bin/canary"


def commands(file: str) -> list[list[str]]:
    """The words of each command of make or canary that a page teaches."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / file).read_text(), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    words = [line[1:] if line[:1] == ["sudo"] else line for line in words]
    return [line for line in words if line[:1] in (["make"], [CANARY])]


@pytest.mark.parametrize("file", ["README.md", "docs/start/first_hour.md"])
def test_the_commands_taught_are_understood(file: str) -> None:
    taught = commands(file)
    targets = set(
        re.findall(r"^([a-z-]+)(?= .*:|:)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )
    targets |= {"analyze", "show"}
    own = {"SCENARIO", "RUN", "SEEDS", "METHODS", "OUT"}
    asked = 0
    for program, command, *words in taught:
        if program == CANARY:
            known = get_command(app).commands[command]  # type: ignore[attr-defined]
            known.make_context(command, words)  # an option that does not exist is refused
            continue
        assert command in targets, command
        given = dict(word.split("=", 1) for word in words)
        if command in ("scenario", "compare", "net"):
            settings = {name.lower(): v for name, v in given.items() if name not in own}
            request = make_request(given.get("SCENARIO"), settings)
            made = request.settings("virtual" if request.backend == "auto" else None)
            request.scenario.faults(make_fabric(made.topology, made.k, made.seed), made)
            find_methods(given.get("METHODS", "all"))
            asked += 1
    assert asked > 3


def test_examples_are_short_and_methods_are_described() -> None:
    assert all(len(block.splitlines()) < 30 for block in BLOCKS)
    for method in METHODS:
        assert f"**{method}**" in README
