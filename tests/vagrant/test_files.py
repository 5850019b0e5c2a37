# SPDX-License-Identifier: Apache-2.0
"""The virtual machine's files and the workflows are sound, as far as that shows without running."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.methods.registry import METHODS
from scenarios.experiment.request import load_scenario
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent
PROVISION = ROOT / "vagrant" / "provision.sh"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, **options)


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not on the PATH")
    return path


def workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())


def scripts() -> dict[str, str]:
    """Every shell script of the workflows, with GitHub's expressions blanked."""
    found = {}
    for path in WORKFLOWS:
        for job, body in workflow(path.stem)["jobs"].items():
            for number, step in enumerate(body["steps"]):
                if "run" in step and step.get("shell") != "python":
                    words = step["run"].replace("${{", "EXPRESSION_").replace("}}", "")
                    found[f"{path.stem}/{job}/{number}"] = words
    return found


def test_provisioning_script_is_clean() -> None:
    assert run("bash", "-n", PROVISION).returncode == 0
    result = run(tool("shellcheck"), PROVISION)
    assert result.returncode == 0, result.stdout


def test_provisioning_script_rejects_unknown_arguments() -> None:
    result = run(PROVISION, "--unknown")
    assert (result.returncode, result.stdout) == (2, "")
    assert "usage" in result.stderr


def test_vagrantfile_is_valid(tmp_path: Path) -> None:
    vagrant = tool("vagrant")
    shutil.copytree(ROOT / "vagrant", tmp_path / "vagrant", ignore=lambda *_: {".vagrant"})
    result = run(
        vagrant,
        "validate",
        "--ignore-provider",
        cwd=tmp_path / "vagrant",
        env=os.environ
        | {"VAGRANT_HOME": str(tmp_path / "home"), "VAGRANT_CHECKPOINT_DISABLE": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_asks_for_little(path: Path) -> None:
    content = workflow(path.stem)
    assert content["permissions"] == {"contents": "read"}
    assert "concurrency" in content
    for job in content["jobs"].values():
        assert job["timeout-minutes"] <= 90
        uses = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(action.startswith("actions/") for action in uses)


def test_workflows_pass_actionlint() -> None:
    result = run(tool("actionlint"), "-no-color", *WORKFLOWS)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("name", scripts())
def test_scripts_of_workflows_are_clean(name: str) -> None:
    result = run(tool("shellcheck"), "--shell=bash", "-", input=scripts()[name])
    assert result.returncode == 0, result.stdout


def test_nightly_knows_the_scenarios() -> None:
    names = workflow("nightly")["jobs"]["scenario"]["strategy"]["matrix"]["scenario"]
    for name in names:
        load_scenario(name)


# The step that decides whether a night was good.


def judge(folder: Path, scenario: str, scores: list[tuple[float, float]], **more: Any) -> int:
    """Exit code of the step, for (canary, canary-mle) F1 of each run."""
    steps = workflow("nightly")["jobs"]["scenario"]["steps"]
    program = next(step["run"] for step in steps if step.get("shell") == "python")
    wrong = more.get("wrong", [])
    for seed, pair in enumerate(scores, start=1):
        entries = zip(("canary", "canary-mle"), pair, strict=True)
        methods = {name: {"directed": {"f1": f1, "wrong": wrong}} for name, f1 in entries}
        assert methods.keys() <= METHODS.keys()
        path = folder / "runs" / f"{scenario}-{seed}"
        path.mkdir(parents=True)
        summary = {"backend": more.get("backend", "bmv2"), "methods": methods}
        (path / "summary.json").write_text(json.dumps(summary))
    environment = {"SCENARIO": scenario, "SEEDS": more.get("seeds", "1 2"), "BACKEND": "bmv2"}
    return run(sys.executable, "-c", program, cwd=folder, env=os.environ | environment).returncode


def test_a_good_night(tmp_path: Path) -> None:
    assert judge(tmp_path, "faulty_links", [(0.6, 0.9), (0.9, 1.0)]) == 0


@pytest.mark.parametrize(
    ("scores", "more"),
    [
        ([(0.6, 0.9), (0.7, 1.0)], {}),
        ([(0.9, 0.9), (0.9, 0.9)], {}),
        ([(1.0, 1.0)], {}),
        ([], {}),
        ([(1.0, 1.0), (1.0, 1.0)], {"backend": "virtual"}),
    ],
    ids=["canary", "canary-mle", "a run is missing", "no run", "another backend"],
)
def test_a_bad_night(
    tmp_path: Path, scores: list[tuple[float, float]], more: dict[str, Any]
) -> None:
    assert judge(tmp_path, "faulty_links", scores, **more) == 1


def test_a_healthy_network_has_no_flagged_links(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    assert judge(good, "healthy", [(0.0, 0.0)], seeds="1") == 0
    assert judge(bad, "healthy", [(0.0, 0.0)], seeds="1", wrong=["tor0_0->agg0_0"]) == 1


def test_a_run_has_what_the_judge_reads(finished_run: Any) -> None:
    summary = finished_run.summary
    assert summary["backend"] == "virtual"
    for method in ("canary", "canary-mle"):
        assert summary["methods"][method]["directed"].keys() >= {"f1", "wrong"}
