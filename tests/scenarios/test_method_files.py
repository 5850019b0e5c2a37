# SPDX-License-Identifier: Apache-2.0
"""``METHODS=worst.py``: a method of one's own in a run, a comparison, and on files of telemetry."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analysis.methods.diagnosis import UNRANKED
from canary import load
from tests.conftest import without_progress
from tests.scenarios.conftest import Canary, refused

PAGE = (Path(__file__).parents[2] / "docs" / "do" / "method.md").read_text()
[METHOD] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TINY = ("BACKEND=flow", "EPOCHS=1", "LOAD=0.1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "worst.py").write_text(METHOD)
    return tmp_path


def test_in_a_run_and_again_and_from_its_files(canary: Canary, folder: Path) -> None:
    result = canary("run", *TINY, "METHODS=mine/worst.py,canary", "RUN=run")
    assert result.code == 0, result.err
    assert re.search(r"^worst\.py \(worst-segments\) +\d", result.out, re.MULTILINE)
    run = load("run")
    assert set(run.figures.index) == {"worst.py", "canary"}
    flagged = run.table("diagnoses/worst.py")["flagged"]
    assert flagged.to_numpy().any()
    verdict = run.diagnose("mine/worst.py")
    assert verdict.links.flagged.equals(flagged) and "worst-segments" in repr(verdict)
    page = (folder / "run" / "index.html").read_text()
    assert "worst.py (worst-segments)" in page
    assert re.search(r"METHODS=(worst\.py,canary|canary,worst\.py)", page)

    assert canary("analyze", "run", "METHODS=mine/worst.py").code == 0
    assert list(load("run").figures.index) == ["worst.py"]
    assert canary("page", "run", "--over-time").code == 0, "it is shown without its file"
    assert canary("export", "run", "--out", "files").code == 0
    files = ("--topology", "files/fabric.parquet", "--telemetry", "files/observations.parquet")
    result = canary("localize", *files, "--method", "mine/worst.py")
    assert result.code == 0 and "worst.py (" in result.out and ") blames" in result.out
    refused(canary("show", "run", "METHODS=mine/worst.py"), "METHODS")


def test_in_a_comparison(canary: Canary, folder: Path) -> None:
    asked = ("compare", *TINY, "SEEDS=1", "METHODS=mine/worst.py,canary", "OUT=found")
    result = canary(*asked)
    assert result.code == 0, result.err
    rows = json.loads(canary("show", "found", "--json").out)
    assert "worst.py" in json.dumps(rows)
    assert "worst.py (worst-segments)" in result.out
    assert "worst.py (worst-segments)" in (folder / "found" / "index.html").read_text()
    key = json.loads((folder / "found" / "comparison.json").read_text())
    assert list(key["methods_sha256"]) == ["worst.py"]
    (folder / "mine" / "worst.py").write_text(METHOD.replace("0.1", "0.2"))
    refused(canary(*asked), "other settings or code")


def test_a_method_without_scores_is_said_to_rank_nothing(canary: Canary, folder: Path) -> None:
    score = ", score=np.bincount(links, minlength=fabric.n_links) * 1.0"
    plain = re.sub(r"\(\s+(fabric, links), score=.*?\* 1\.0\s+\)", r"(\1)", METHOD, flags=re.DOTALL)
    assert "score" not in plain and score.strip(", ") in METHOD
    (folder / "mine" / "worst.py").write_text(
        plain.replace("limit: float = 0.1", "limit: float = 0.02")
    )
    line = "unranked: worst.py (canary explain unranked)"
    result = canary("run", *TINY, "METHODS=mine/worst.py,canary", "RUN=run")
    assert result.code == 0 and line in result.out
    assert f"worst.py: {UNRANKED}" in canary("show", "-v", "run").out.replace("\n", " ")
    result = canary("compare", *TINY, "SEEDS=1", "METHODS=mine/worst.py,canary", "OUT=found")
    assert result.code == 0 and line in result.out
    assert canary("explain", "unranked").out.startswith("unranked: ")


def test_what_goes_wrong_in_a_seed_is_its_line(canary: Canary, folder: Path) -> None:
    counted = "        sent, lost = counts.sent.sum(axis=0), counts.lost.sum(axis=0)"
    wrong = METHOD.replace(counted, "        1 / 0")
    line = 1 + wrong.splitlines().index("        1 / 0")
    (folder / "mine" / "worst.py").write_text(wrong)
    message = f"method file mine/worst.py line {line}: ZeroDivisionError: division by zero"
    compared = canary("compare", *TINY, "SEEDS=1", "METHODS=mine/worst.py", "OUT=found")
    assert compared.code == 2
    assert without_progress(compared.err) == [f"canary: no seed ran: seed 1: {message}"]
    refused(canary("run", *TINY, "METHODS=mine/worst.py", "RUN=run"), message)
    assert not (folder / "run").exists()
