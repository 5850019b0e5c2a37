# SPDX-License-Identifier: Apache-2.0
"""``canary runs`` and ``canary diff``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from scenarios.command.book import parse_filters
from testbed.errors import UserError
from tests.scenarios.conftest import Canary, refused

QUICK = {"backend": "flow", "epochs": 1, "methods": "canary,netbouncer"}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three runs, the newest called ``third``."""
    from canary import run

    folder = tmp_path_factory.mktemp("book") / "runs"
    folder.mkdir()
    run(path=folder / "first", seed=1, **QUICK)  # type: ignore[arg-type]
    run(path=folder / "second", seed=2, **QUICK)  # type: ignore[arg-type]
    run("healthy", path=folder / "third", seed=2, **QUICK)  # type: ignore[arg-type]
    return folder


def listed(canary: Canary, folder: Path, *words: str) -> list[str]:
    result = canary("runs", *words, "--in", str(folder), "--quiet")
    assert result.code == 0, result
    return [Path(line).name for line in result.out.splitlines()]


def test_runs_are_listed_newest_first_and_by_setting(book: Path, canary: Canary) -> None:
    assert listed(canary, book) == ["third", "second", "first"]
    assert listed(canary, book, "SEED=2") == ["third", "second"]
    assert listed(canary, book, "seed=2", "SCENARIO=faulty_links") == ["second"]
    assert listed(canary, book, "NOISE=0..0.0001", "K=4.0") == ["third", "second", "first"]
    assert listed(canary, book, "K=8") == []
    shown = canary("runs", "--in", str(book)).out.splitlines()
    assert shown[0].split()[:5] == ["run", "scenario", "K", "seed", "backend"]
    assert [line.split()[1] for line in shown[1:]] == ["healthy", "faulty_links", "faulty_links"]
    figures = json.loads(canary("runs", "SEED=1", "--in", str(book), "--json").out)
    [only] = figures["runs"]
    assert only["settings"]["seed"] == 1 and set(only["f1"]) == {"canary", "netbouncer"}
    assert "no run has these settings" in canary("runs", "K=8", "--in", str(book)).out


def test_what_is_no_run_is_left_out_and_a_damaged_one_is_said(
    book: Path, tmp_path: Path, canary: Canary
) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(book, folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "link").symlink_to(book / "first")
    (folder / "second" / "summary.json").write_text("{")
    assert listed(canary, folder) == ["third", "first"]
    assert "cannot be read: " in canary("runs", "--in", str(folder)).out


@pytest.mark.parametrize("word", ["K", "COLOUR=red", "=4", "--"])
def test_a_wrong_filter_is_one_line(word: str) -> None:
    with pytest.raises(UserError, match="is no setting|there is no setting") as error:
        parse_filters([word])
    assert "\n" not in str(error.value)


def test_no_folder_is_one_line(tmp_path: Path, canary: Canary) -> None:
    refused(canary("runs", "--in", str(tmp_path / "none")), "there is no folder")


def test_a_difference_has_settings_scores_and_verdicts(book: Path, canary: Canary) -> None:
    words = ["diff", str(book / "first"), str(book / "second")]
    found = json.loads(canary(*words, "--json").out)
    assert found["settings"] == {"seed": [1, 2]} and found["same_links"]
    from canary import load

    one, other = load(book / "first"), load(book / "second")
    assert set(found["faulty_only_in"][0]) == set(one.faulty) - set(other.faulty)
    for method in ("canary", "netbouncer"):
        blamed = [
            set(v.link[(v.method == method) & v.blamed]) for v in (one.verdicts, other.verdicts)
        ]
        assert set(found["verdicts"][method]["only_first"]) == blamed[0] - blamed[1]
        assert set(found["verdicts"][method]["only_second"]) == blamed[1] - blamed[0]
        assert found["f1"][method] == [one.figures.f1[method], other.figures.f1[method]]
    shown = canary(*words).out
    assert "SEED         1 -> 2" in shown and "canary: A alone blames" in shown


def test_a_run_does_not_differ_from_itself(book: Path, canary: Canary) -> None:
    path = str(book / "first")
    found = json.loads(canary("diff", path, path, "--json").out)
    assert not found["settings"] and not found["verdicts"] and not any(found["faulty_only_in"])
    assert "the settings are the same" in canary("diff", path, path).out


def test_runs_of_other_fabrics_are_compared_by_scores(
    book: Path, tmp_path: Path, canary: Canary
) -> None:
    from canary import run

    run(path=tmp_path / "larger", k=6, **QUICK)  # type: ignore[arg-type]
    result = canary("diff", str(book / "first"), str(tmp_path / "larger"))
    assert result.code == 0 and "the runs have other links" in result.out
    refused(canary("diff", str(book / "first"), str(tmp_path)), "not a complete run")
