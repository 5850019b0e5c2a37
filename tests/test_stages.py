# SPDX-License-Identifier: Apache-2.0
"""The suite runs all of its stages whatever happens in the first, and sums them up once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stages import TESTS, main

SUITE = """
import pytest

def test_good(): pass

def test_bad(): assert False

def test_skipped(): pytest.skip("no reason")

@pytest.fixture
def broken(): raise ValueError

def test_broken(broken): pass
"""


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """These stages use none of the plugins that are installed, which take half a second each, and
    none of the user's options."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


@pytest.mark.parametrize(
    ("stages", "code", "summary"),
    [
        (["good", "skipped"], 0, "1 passed, 1 skipped in "),
        (["bad", "good"], 1, "1 failed, 1 passed in "),
        (["good", "bad or broken"], 1, "1 failed, 1 passed, 1 error in "),
    ],
)
def test_both_stages_count(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    stages: list[str],
    code: int,
    summary: str,
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(SUITE)
    first, beside = ((f"stage {words}", ["-k", words]) for words in stages)
    assert main(tmp_path, first, beside) == code
    lines = capfd.readouterr().out.splitlines()
    assert [f"stage {words}:" for words in stages] == [
        line for line in lines if line.startswith("stage")
    ]
    assert lines[-1].startswith(summary)
    assert sum(" in " in line and "passed" in line for line in lines) == 1
    failed = summary.startswith("1 failed")
    assert sum(line.startswith("FAILED") for line in lines) == failed


def test_no_test_gets_the_marker_from_another_file() -> None:
    """The stage of real packets reads the files that name it."""
    others = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")]
    naming = [path.name for path in others if "mark.root" in path.read_text()]
    assert naming == ["stages.py"]
