# SPDX-License-Identifier: Apache-2.0
"""The suite runs all of its stages whatever happens in the first, and sums them up once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stages import FOLDERS, main

ROOT = Path(__file__).parent.parent

TESTS = """
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
    """These stages use none of the plugins that are installed, which take half a second each."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


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
    (tmp_path / "test_it.py").write_text(TESTS)
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


def test_folders_of_tests_that_only_compute_have_none_of_real_packets() -> None:
    """The stage of real packets does not read them."""
    for folder in FOLDERS:
        files = list((ROOT / folder).rglob("*.py"))
        assert files and not [file for file in files if "mark.root" in file.read_text()]
