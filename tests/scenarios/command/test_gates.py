# SPDX-License-Identifier: Apache-2.0
"""Bars on F1: exit codes, JUnit XML, Markdown, and the fixture for pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.command.gates import Gate, parse_bars, scores_of
from testbed.errors import UserError
from tests.scenarios.conftest import Canary, refused

QUICK = ["--backend", "flow", "--epochs", "1", "--methods", "canary,netbouncer"]
MISSING = {"f1": 0.5, "false_negatives": 3, "false_positives": 1}


def figures(**f1: float | None) -> dict:
    """The figures of a run with these methods."""
    methods = {
        name: {
            "native": "directed",
            "directed": MISSING | {"f1": value},
            "telemetry_bytes": 2048.0,
            "probe_packets": 12,
        }
        for name, value in f1.items()
    }
    return {
        "methods": methods,
        "faulty_links": ["a->b", "b->c"],
        "rates": {"a->b": 0.5, "b->c": 0.01},
    }


@pytest.fixture
def run_path(tmp_path: Path, canary: Canary) -> Path:
    path = tmp_path / "run"
    assert canary("run", *QUICK, "--run", str(path)).code == 0
    return path


def test_a_method_under_its_bar_ends_with_code_1(run_path: Path, canary: Canary) -> None:
    good = canary("show", "--fail-under", "canary=0", str(run_path))
    assert good.code == 0 and not good.err
    bad = canary("show", "--fail-under", "canary=1,netbouncer=1", str(run_path))
    assert bad.code == 1
    for line in bad.err.splitlines():
        assert re.fullmatch(r"canary: (canary|netbouncer): F1 0\.\d{3}, less than 1", line), line
    assert bad.out == good.out, "the screen is the same"
    assert canary("analyze", "--fail-under", "netbouncer=1", str(run_path)).code == 1
    assert canary("show", "FAIL_UNDER=netbouncer=1", "--", str(run_path)).code == 1


def test_a_bar_for_a_method_that_does_not_run_is_one_line_before_any_work(
    tmp_path: Path, canary: Canary
) -> None:
    path = tmp_path / "run"
    result = canary("run", *QUICK, "--run", str(path), "--fail-under", "canry=0.9")
    refused(result, "--fail-under canry", "did you mean canary?")
    assert not path.exists()
    compared = ["compare", *QUICK, "--seeds", "1", "--out", str(path)]
    refused(canary(*compared, "--fail-under", "mle=0.9"), "--fail-under mle", "choose from")
    assert not path.exists()


@pytest.mark.parametrize(
    "text", ["canary", "canary=", "=0.9", "canary=2", "canary=-1", "a=nan", "0.9"]
)
def test_a_wrong_bar_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match="say a method and its least F1: canary=0.95") as error:
        parse_bars(text)
    assert "\n" not in str(error.value)


def test_bars_are_read_with_the_parameters_of_methods() -> None:
    assert parse_bars("flock:p_bad=0.01=0.9, 007=0.5") == {"flock:p_bad=0.01": 0.9, "007": 0.5}
    assert parse_bars("") == {}


@given(st.text())
def test_any_text_is_bars_or_one_line(text: str) -> None:
    try:
        assert all(0 <= bar <= 1 for bar in parse_bars(text).values())
    except UserError as error:
        assert len(str(error).splitlines()) == 1


def test_the_report_has_a_test_for_each_method(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    gate = Gate.of("good=0.9,bad=0.6,none=0.1", file, None)
    assert not gate.passes("runs/<one>&\x1b", figures(good=0.95, bad=0.5, none=None, other=0.1))
    suites = ElementTree.parse(file).getroot()
    assert suites.get("tests") == "4" and suites.get("failures") == "2"
    cases = {case.get("name"): case.find("failure") for case in suites.iter("testcase")}
    failed = {name for name, failure in cases.items() if failure is not None}
    assert failed == {"F1 of bad", "F1 of none"}
    bad = cases["F1 of bad"]
    assert bad is not None
    message = bad.get("message")
    assert message == "bad: F1 0.500, less than 0.6"
    assert gate.passes("again", figures(good=0.95, bad=0.6, none=0.2)), "replaces its own file"
    assert ElementTree.parse(file).getroot().get("failures") == "0"


def test_what_is_no_report_is_not_overwritten(
    tmp_path: Path, run_path: Path, canary: Canary
) -> None:
    other = tmp_path / "notes.xml"
    other.write_text("<notes/>")
    result = canary("show", "--junit", str(other), str(run_path))
    refused(result, "--junit", "is no JUnit report of canary")
    assert other.read_text() == "<notes/>"
    refused(canary("show", "--summary", str(tmp_path / "no" / "s.md"), str(run_path)), "no folder")


def test_the_summary_is_appended_and_names_the_links(tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    gate = Gate.of("good=0.9,bad=0.6", None, file)
    gate.passes("a|b", figures(good=0.95, bad=0.5, other=0.1))
    text = file.read_text()
    assert text.startswith("before\n### a\\|b\n")
    assert "| ✅ | good | 0.950 | 0.9 |" in text and "| ❌ | bad | 0.500 | 0.6 |" in text
    assert "|  | other | 0.100 |  |" in text
    assert "2 broken links, the faintest first: b-\\>c 1 %, a-\\>b 50 %" in text
    assert {line.count(" | ") for line in text.splitlines() if line.startswith("| ")} == {4}


def test_comparisons_and_sweeps_have_bars_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: Canary
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["compare", *QUICK, "--seeds", "1", "--fail-under", "netbouncer=1", "-q"]
    result = canary(*words, "--out", "one", "--junit", "one.xml")
    assert (result.code, result.out) == (1, "one\n") and "netbouncer: F1" in result.err
    result = canary(*words, "--sweep", "FAULTS=6links:0.5;6links:0.001", "--out", "swept")
    assert result.code == 1 and "netbouncer at FAULTS=6links:0.001: F1" in result.err
    suite = ElementTree.parse("one.xml").getroot()
    assert suite.get("tests") == "3", "the methods and the reference"


def test_a_sweep_has_a_score_for_each_value() -> None:
    rows = [{"value": v, "method": "m", "f1": f, "runs": 2} for v, f in (("4", 0.9), ("8", None))]
    assert [score.name for score in scores_of({"setting": "k", "rows": rows})] == [
        "m at K=4",
        "m at K=8",
    ]


def test_pytest_has_a_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "seen = []\n"
        "asked = dict(k=4, seed=2, backend='flow', epochs=1, methods='canary-mle')\n"
        "def test_one(canary_run):\n"
        "    run = canary_run(**asked)\n"
        "    seen.append(run)\n"
        "    assert run.figures.f1['canary-mle'] > 0.5\n"
        "def test_two(canary_run):\n"
        "    assert canary_run(**asked) is seen[0]\n"
        "    assert not seen[0].path.is_relative_to('.')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    own = [] if _registered() else ["-p", "scenarios.pytest_fixture"]
    done = subprocess.run(
        [*command, *own, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


def _registered() -> bool:
    """Whether this installation has the entry point; one of before has not."""
    from importlib.metadata import entry_points

    return any(point.name == "canary" for point in entry_points(group="pytest11"))


def test_the_workflow_of_the_documents_is_ten_lines_of_yaml() -> None:
    import yaml

    root = Path(__file__).parents[3]
    [text] = re.findall(
        r"```yaml\n(.*?)```", (root / "docs" / "do" / "ci.md").read_text(), re.DOTALL
    )
    assert len(text.splitlines()) == 10
    steps = yaml.safe_load(text)["jobs"]["canary"]["steps"]
    assert any("--fail-under" in step.get("run", "") for step in steps)
