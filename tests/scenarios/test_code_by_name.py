# SPDX-License-Identifier: Apache-2.0
"""Files never choose the code that is run: only who gives the command, or calls the API, does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canary import run
from scenarios.experiment.run import run_config
from scenarios.experiment.settings import Settings
from tests.scenarios.conftest import Canary, refused

FLOW = ["BACKEND=flow", "EPOCHS=2", "METHODS=netbouncer"]


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario file that tells when it is run."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "evil.py"
    file.write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
        "from canary import Scenario\nSCENARIO = Scenario()\n"
    )
    return file


def scenario_in(file: Path, name: str) -> Path:
    file.write_text(f"scenario: {json.dumps(name)}\nbackend: flow\n")
    return file


@pytest.mark.parametrize(
    "name", ["evil.py", "./evil.py", "{evil}", "evil", "../library/flap", "os"]
)
def test_a_settings_file_names_scenarios_of_the_library_only(
    canary: Canary, evil: Path, name: str
) -> None:
    name = name.format(evil=evil)
    theirs = scenario_in(evil.with_name("theirs.yaml"), name)
    for command in (["run", "RUN=run"], ["compare", "SEEDS=1,2", "OUT=out"]):
        refused(canary(*command, f"CONFIG={theirs}"), f"{theirs}: ", name, "SCENARIO=")
    with pytest.raises(ValueError, match="library"):
        run(config=theirs, path="run")
    config = evil.with_name("config.json")
    recorded = run_config(Settings(backend="flow", epochs=2).as_dict() | {"scenario": "flap"}) | {
        "record_version": 1
    }
    config.write_text(json.dumps(recorded | {"scenario": name}))
    for place in (config, config.parent):
        refused(canary("run", f"CONFIG={place}", "RUN=run"), "SCENARIO=")
    assert not evil.with_name("ran").exists()


def test_a_training_list_names_scenarios_of_the_library_only(canary: Canary, evil: Path) -> None:
    for own in ("", "common: {epochs: 2}\n"):
        train = evil.with_name("train.yaml")
        run = f"{{seeds: [1], views: [A1], scenario: {json.dumps(str(evil))}}}"
        train.write_text(f"{own}runs:\n- {run}\n")
        result = canary("calibrate", "--method", "netbouncer", "--train", str(train), "--out", "c")
        refused(result, "train.yaml: runs[0]", "library")
    assert not evil.with_name("ran").exists()


def test_the_command_line_names_a_file(canary: Canary, evil: Path) -> None:
    theirs = scenario_in(evil.with_name("theirs.yaml"), str(evil))
    result = canary("run", f"CONFIG={theirs}", "SCENARIO=evil.py", "RUN=run", *FLOW)
    assert result.code == 0, result.err
    assert evil.with_name("ran").exists()
