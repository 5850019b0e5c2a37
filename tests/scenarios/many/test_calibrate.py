# SPDX-License-Identifier: Apache-2.0
"""``canary calibrate``: the same training gives the same file, which is what --parameters takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.evaluation.calibration import GRIDS, RULES
from analysis.evaluation.parameter_sets import read_set
from analysis.methods.parameters import Parameters
from analysis.methods.registry import METHODS, ON_REQUEST, check_parameters, make_method
from scenarios.experiment.settings import described
from scenarios.many.calibrate import TRAINING, TrainingList, calibrate, read_training
from tests.conftest import quiet
from tests.scenarios.conftest import Canary, refused

TINY = """\
common: {backend: flow, epochs: 1, load: 0.1, k: 4}
runs:
- {seeds: [1001, 1002], faults: 10pct, views: [A2, A1]}
- {seeds: [1003], faults: none, noise: 0.0001, views: [A1+A2+P]}
"""


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("training") / "tiny.yaml"
    file.write_text(TINY)
    return file


def test_equal_training_gives_equal_bytes(
    canary: Canary, training: Path, tmp_path: Path, run_path: Path
) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    result = [
        canary("calibrate", "METHOD=netscope,vigil", f"TRAIN={training}", f"OUT={file}")
        for file in files
    ]
    assert [each.code for each in result] == [0, 0], result
    assert files[0].read_bytes() == files[1].read_bytes()
    found = yaml.safe_load(files[0].read_text())
    assert list(found["methods"]) == ["netscope", "007"]
    entry = found["methods"]["netscope"]
    assert entry["cases"] == 3, "a run counts once where a method reads one part of it"
    assert entry["tried"] == len(GRIDS["netscope"]["omega"])
    assert 0 <= entry["f1"] <= 1 and f"F1 {entry['f1']:.3f}, precision" in result[1].out
    assert [run["seeds"] for run in found["trained"]["runs"]] == [[1001, 1002], [1003]]
    assert found["trained"]["rule"] == "f1"
    assert read_set(str(files[0])).source == "a.yaml"
    result = canary(
        "run", "BACKEND=flow", "EPOCHS=1", f"RUN={tmp_path}/run", f"PARAMETERS={files[0]}"
    )
    assert result.code == 0 and "parameters: a.yaml (007, netscope); default" in result.out


def test_what_stands_in_a_name_is_held(training: Path, tmp_path: Path, run_path: Path) -> None:
    found = calibrate("netscope:omega=0.3", [training, run_path], tmp_path / "a.yaml", quiet)
    entry = found.methods["netscope"]
    assert entry.parameters["omega"] == 0.3 and entry.cases == 4
    assert found.trained is not None and found.trained.runs[-1]["seed"] == 3


def test_views_of_a_run(training: Path) -> None:
    first, second = read_training(training, quiet)
    assert [len(views) for views in (*first.cases, *second.cases)] == [2, 2, 1]
    a2, a1 = first.cases[0]
    assert a2.telemetry.probes is None and a1.telemetry.probes is not None
    assert a2.telemetry.flows is not None and a1.telemetry.flows is None
    assert len(a1.links) == 6 and not len(second.cases[0][0].links)


@pytest.mark.parametrize(
    ("method", "text", "message"),
    [
        ("sherlock", TINY, "sherlock has no parameters to calibrate"),
        ("flok", TINY, "did you mean flock?"),
        ("007", "runs: []", "runs: list should have at least 1 item"),
        ("007", "runs: [{seeds: [1], kk: 4, views: [A1]}]", "runs[0]: KK is not a setting"),
        ("007", "runs: [{seeds: [1], views: [A3]}]", "runs[0]: TELEMETRY=A3 is unknown"),
        ("007", "runs: [{seeds: [1]}]", "runs.0.views: field required"),
        ("007", "runs: [{seeds: [1], views: [A1], faults: lots}]", "runs[0]: FAULTS item 'lots'"),
        ("007", "runs: []\nruns: []", "line 2: the key 'runs' is given twice"),
        ("007", "runs: [", "line 1: not valid YAML"),
    ],
)
def test_mistakes_are_one_line(
    canary: Canary, tmp_path: Path, method: str, text: str, message: str
) -> None:
    file = tmp_path / "list.yaml"
    file.write_text(text)
    out = tmp_path / "out.yaml"
    refused(canary("calibrate", f"METHOD={method}", f"TRAIN={file}", f"OUT={out}"), message)
    assert not out.exists()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere/out.yaml", "there is no folder"),
        (".", "is a folder: name a file in it, such as "),
    ],
)
def test_the_place_is_looked_at_before_the_work(
    canary: Canary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, message: str
) -> None:
    monkeypatch.setattr(
        "scenarios.many.calibrate.read_training", lambda *_: pytest.fail("it began")
    )
    refused(canary("calibrate", f"OUT={tmp_path / place}"), message)
    monkeypatch.setattr("scenarios.command.localize.localize", lambda *_: pytest.fail("it began"))
    files = ("--topology", "fabric.csv", "--telemetry", "observations.csv")
    refused(canary("localize", *files, "--out", str(tmp_path / place)), message)
    assert not list(tmp_path.iterdir())


def test_a_list_that_is_not_there(canary: Canary, tmp_path: Path) -> None:
    refused(canary("calibrate", "TRAIN=none.yaml", "OUT=x.yaml"), "no training list none.yaml")


def test_the_committed_list_spans_what_the_defaults_are_for() -> None:
    content = TrainingList.model_validate(yaml.safe_load(TRAINING.read_text()))
    seeds = [seed for entry in content.runs for seed in entry.seeds]
    assert min(seeds) >= 1000 and len(set(seeds)) == len(seeds), "others are judged by"
    views = [view for entry in content.runs for view in entry.views for _ in entry.seeds]
    assert all(views.count(kind) >= 10 for kind in ("A1", "A2", "A1+P", "A1+A2+P", "INT"))
    settings = [content.common | (entry.model_extra or {}) for entry in content.runs]
    assert {4, 6, 8, 10, 12, 16} <= {each.get("k") for each in settings}
    assert all(each["backend"] == "flow" for each in settings)
    known = {setting.name for setting in described()}
    assert all(each.keys() <= known for each in settings)


def test_every_grid_is_of_the_method() -> None:
    assert set(GRIDS) <= METHODS.keys() | ON_REQUEST.keys()
    for name, grid in GRIDS.items():
        start = {parameter: values[0] for parameter, values in grid.items()}
        check_parameters(Parameters("grid", {name: start}))
        assert all(len(set(values)) == len(values) > 1 for values in grid.values())


def test_the_defaults_are_what_the_committed_list_chose() -> None:
    """By `make calibrate`, all methods by one rule."""
    file = TRAINING.with_name("calibrated.yaml")
    found = yaml.safe_load(file.read_text())
    content = TrainingList.model_validate(yaml.safe_load(TRAINING.read_text()))
    known = [dict(content.common) | entry.model_dump(exclude_none=True) for entry in content.runs]
    assert found["trained"] == {"rule": "f1", "runs": known}, "calibrate again: make calibrate"
    assert found["methods"].keys() == GRIDS.keys()
    chosen = read_set(str(file))
    for name, grid in GRIDS.items():
        assert chosen.by_method[name].keys() == grid.keys()
        assert all(chosen.by_method[name][p] in _said(values) for p, values in grid.items())
        assert vars(make_method(name, chosen)) == vars(make_method(name)), name


def _said(values: Sequence[Any]) -> list[Any]:
    """As YAML has them."""
    return [list(value) if isinstance(value, tuple) else value for value in values]


def test_each_rule_by_its_name(training: Path, tmp_path: Path) -> None:
    chosen = {
        rule: calibrate("netscope", [training], tmp_path / "a.yaml", quiet, rule) for rule in RULES
    }
    assert all(found.trained and found.trained.rule == rule for rule, found in chosen.items())
    with pytest.raises(ValueError, match="RULE='f2' is unknown: "):
        calibrate("netscope", [training], tmp_path / "a.yaml", quiet, "f2")
