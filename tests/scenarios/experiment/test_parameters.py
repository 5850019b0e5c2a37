# SPDX-License-Identifier: Apache-2.0
"""``--methods``, ``--parameters`` and ``--fault-rate``, and where the results say them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from analysis.methods.registry import METHODS
from testbed.record.files import read_columns
from testbed.record.run import RunDirectory
from tests.present import present
from tests.scenarios.conftest import Canary, refused

FLOW = ("BACKEND=flow", "EPOCHS=1", "LOAD=0.02", "K=4")


def test_a_comparison_says_which_parameters_each_method_had(
    canary: Canary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.yaml"
    file.write_text("methods: {netbouncer: {parameters: {penalty: 2}}}")
    methods = "METHODS=netbouncer,netbouncer:penalty=3,007"
    asked = (*FLOW, "SEEDS=1", methods, "FAULT_RATE=0.01", "OUT=here")
    result = canary("compare", *asked, f"PARAMETERS={file}", "-v")
    assert result.code == 0, result.err
    assert "netbouncer:penalty=3.0" in result.out
    wanted = {
        "netbouncer": "mine.yaml, fault rate 0.01",
        "netbouncer:penalty=3.0": "mine.yaml, fault rate 0.01, as named",
        "007": "default",
        "any-loss": "default",
    }
    line = next(line for line in result.out.splitlines() if line.startswith("parameters: "))
    assert all(origin in line for origin in wanted.values())
    rows = read_columns(Path("here/results.parquet"))
    assert dict(zip(rows["method"], rows["parameters_from"], strict=True)) == {
        **wanted,
        "any-loss": "default",
    }
    assert [text[:33] for text in rows["parameters"][:2]] == [
        "penalty=2.0,scale=0.06,link_thres",
        "penalty=3.0,scale=0.06,link_thres",
    ]
    key = json.loads(Path("here/comparison.json").read_text())["parameters"]
    assert {name: entry["from"] for name, entry in key.items()} == wanted
    file.write_text("methods: {netbouncer: {parameters: {penalty: 4}}}")
    refused(canary("compare", *asked, f"PARAMETERS={file}"), "here", "other settings or code")


def test_a_run_is_analyzed_with_other_parameters(
    canary: Canary, tmp_path: Path, run_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(run_path, run)
    result = canary("analyze", str(run), "PARAMETERS=paper", "METHODS=007,flock:p_bad=0.01")
    assert result.code == 0, result.err
    assert "parameters: paper (007); paper, as named" in result.out
    entries = RunDirectory(run).summary["methods"]
    assert list(entries) == ["007", "flock:p_bad=0.01"]
    of = {name: present(entry.get("parameters")) for name, entry in entries.items()}
    assert of["007"].startswith("threshold=0.01,")
    assert of["flock:p_bad=0.01"].startswith("p_bad=0.01,p_good=0.0003,")
    again = canary("analyze", str(run))
    assert again.code == 0, again.err
    entries = RunDirectory(run).summary["methods"]
    assert set(entries) == set(METHODS)
    assert {entry.get("parameters_from") for entry in entries.values()} == {"default"}


@pytest.mark.parametrize("command", ["run", "compare", "analyze", "localize"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--parameters", "papr"), "PARAMETERS=papr: no such file"),
        (("--fault-rate", "1.5"), "FAULT_RATE=1.5: it should be less than 1"),
        (("METHOD", "flock:p_bda=1"), "no parameter p_bda: did you mean p_bad?"),
        (("METHOD", "flock:p_good=0.9"), "flock:p_good=0.9: p_good < p_bad"),
    ],
)
def test_mistakes_are_told_before_any_work(
    canary: Canary, command: str, words: tuple[str, ...], message: str
) -> None:
    option = "--method" if command == "localize" else "--methods"
    own = {"analyze": ["nowhere"], "localize": ["--topology", "a.csv", "--telemetry", "b.csv"]}
    given = [option if word == "METHOD" else word for word in words]
    refused(canary(command, *own.get(command, []), *given), message)
