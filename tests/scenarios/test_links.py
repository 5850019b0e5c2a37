# SPDX-License-Identifier: Apache-2.0
"""Nothing is written through a link, nor outside of the folder that a command names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analysis.methods.registry import find_methods
from scenarios.command.show import make_page
from scenarios.experiment.run import analyze
from scenarios.many.work import hold_folder
from scenarios.papers.experiment import Effort
from scenarios.papers.registry import EXPERIMENTS
from scenarios.papers.reproduce import reproduce
from tests.conftest import quiet
from tests.scenarios.papers.test_frame import Here


@pytest.fixture
def run(run_path: Path, tmp_path: Path) -> Path:
    """A finished run that may be changed."""
    return Path(shutil.copytree(run_path, tmp_path / "run"))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a file, which nobody named."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_text("kept")
    return folder


def unchanged(outside: Path) -> bool:
    files = {path.name: path.read_text() for path in outside.iterdir()}
    return files == {"precious": "kept"}


@pytest.mark.parametrize("name", ["diagnoses", "registers"])
def test_a_folder_of_a_run_that_leads_elsewhere(run: Path, outside: Path, name: str) -> None:
    shutil.rmtree(run / name)
    (run / name).symlink_to(outside)
    for command in (
        lambda: analyze(run, quiet, trust=True, methods=find_methods("netbouncer")),
        lambda: make_page(run, trust=True),
    ):
        with pytest.raises(ValueError, match="is a symbolic link|is missing") as caught:
            command()
        assert "\n" not in str(caught.value)
    assert unchanged(outside)


@pytest.mark.parametrize("name", ["summary.json", "index.html", "diagnoses/netbouncer.parquet"])
def test_a_file_of_a_run_that_leads_elsewhere(run: Path, outside: Path, name: str) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside / "precious")
    with pytest.raises(ValueError):
        analyze(run, quiet, trust=True, methods=find_methods("netbouncer"))
    with pytest.raises(ValueError):
        make_page(run, trust=True)
    assert unchanged(outside)
    assert (run / name).is_symlink()


@pytest.mark.parametrize("name", ["seed-1-failure.txt", "comparison.json"])
def test_a_comparison_with_a_link_does_not_go_on(tmp_path: Path, outside: Path, name: str) -> None:
    folder = tmp_path / "comparison"
    folder.mkdir()
    (folder / "comparison.json").touch()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside / "precious")
    with (
        pytest.raises(ValueError, match=f"{name} is a symbolic link"),
        hold_folder(folder, "comparison.json", "comparison", lambda key: True),
    ):
        pass
    linked = tmp_path / "linked"
    linked.symlink_to(outside)
    with (
        pytest.raises(ValueError, match="linked is a symbolic link"),
        hold_folder(linked, "comparison.json", "comparison", lambda key: True),
    ):
        pass
    assert unchanged(outside)


def test_a_copied_reproduction_leaves_the_page_beside_it(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["canary-table-3"]
    reproduce(experiment, quiet, tmp_path / "runs", Effort(draws=2, small=True), workers=Here(1))
    place = tmp_path / "mine"
    place.mkdir()
    (place / "index.html").write_text("my own page")
    folder = shutil.copytree(tmp_path / "runs" / experiment.name, place / "copied")
    (folder / "index.html").unlink()
    assert make_page(folder) == folder / "index.html"
    assert (folder / "index.html").exists()
    assert (place / "index.html").read_text() == "my own page"
