# SPDX-License-Identifier: Apache-2.0
"""The pages of the site: their data is known, their Python runs, their commands exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image, ImageChops

from analysis.methods.registry import METHODS, ON_REQUEST
from analysis.methods.variants import split
from scenarios.experiment.settings import described
from scenarios.papers.registry import EXPERIMENTS
from tests.docs import made
from tests.docs.made import PART

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = made.pages()
FLAGS = re.MULTILINE | re.DOTALL
BEFORE = {"record": "import pandas, pyarrow.parquet\nframe = pandas.DataFrame({'sent': [1]})\n"}
"""What a page's block of Python takes for granted."""


@pytest.fixture(scope="module")
def made_pages() -> ModuleType:
    """The module that makes parts of pages."""
    return made.module("made_pages")


PARTS = [(page, found["what"]) for page in PAGES for found in PART.finditer(page.read_text())]


def test_each_maker_has_a_part_and_each_mark_is_of_one(made_pages: ModuleType) -> None:
    assert {what.split()[0] for _, what in PARTS} == set(made_pages.MAKERS), "a dead maker"
    marks = sum(page.read_text().count("<!-- made:") for page in PAGES)
    assert marks == len(PARTS) == 19, "a mark without its end is no part"


@pytest.mark.parametrize(("page", "what"), PARTS, ids=[what for _, what in PARTS])
def test_what_is_made_is_committed(page: Path, what: str) -> None:
    shown = next(each["shown"] for each in PART.finditer(page.read_text()) if each["what"] == what)
    assert shown == made.made(what), "python -m tests.docs.made writes it anew"
    assert shown.count("\n| ") > 3


@pytest.mark.nightly
def test_the_figures_are_what_the_methods_say(tmp_path: Path) -> None:
    drawn = {path.name: path for path in made.drawn(tmp_path)}
    assert drawn.keys() == {path.name for path in made.FIGURES.glob("*.png")}
    for name, path in drawn.items():
        share = made.difference(path, made.FIGURES / name)
        assert share < 0.005, f"{name}: python -m tests.docs.made draws it anew"


def test_a_figure_with_a_point_elsewhere_differs(tmp_path: Path) -> None:
    """By more than the test above allows, so that it can fail."""
    with Image.open(made.FIGURES / "canary.png") as picture:
        moved = ImageChops.offset(picture.convert("RGB"), 5, 0)
    moved.save(tmp_path / "moved.png")
    assert made.difference(tmp_path / "moved.png", made.FIGURES / "canary.png") > 0.005


def test_the_picture_of_a_reproduction_shows_its_results() -> None:
    with Image.open(DOCS / "reproduced.png") as picture:
        key = picture.info[made.KEY]
    name = key.partition(" ")[0]
    results = json.loads((DOCS / "data" / "results.json").read_text())[name]
    again = f"make reproduce FIG={name}; python -m tests.pictures runs/reproduce/{name}"
    assert key == made.key_of(name, results), again


def test_the_options_are_those_of_the_settings(made_pages: ModuleType) -> None:
    names = re.findall(r"^\| `(\w+)` \|", made_pages.options(), re.MULTILINE)
    assert names == ["SCENARIO", *(s.name.upper() for s in described()), "CONFIG", "RUN"]


def test_data_files_name_methods_and_experiments_that_exist(made_pages: ModuleType) -> None:
    known = METHODS | ON_REQUEST
    for file in ("changes", "healthy", "comparison", "traces"):
        assert {split(row["method"])[0] for row in made_pages.rows_of(file)} <= set(known)
    assert set(made_pages._results()) <= set(EXPERIMENTS)


def test_each_experiment_of_each_paper_is_on_a_page(made_pages: ModuleType) -> None:
    papers = [what.split()[1] for _, what in PARTS if what.startswith("results ")]
    shown = "\n".join(made_pages.results(paper) for paper in papers)
    assert set(re.findall(r"^## (\S+)$", shown, re.MULTILINE)) == set(made_pages._results())


def blocks() -> list[object]:
    """Each block of Python of each page, in its order; `tests/test_documents.py` has the first
    hour's, which looks into a run that is made before, and the gallery's notebook has the tasks."""
    found = []
    for page in (ROOT / "README.md", *PAGES):
        if page.stem in ("first_hour", "python"):
            continue
        for number, block in enumerate(
            re.findall(r"^```python\n(.*?)^```$", page.read_text(), FLAGS)
        ):
            code = BEFORE.get(page.stem, "") + block
            slow = ("run(" in code and page.stem != "README") or "canary.net(" in code
            marks = [pytest.mark.nightly] if slow else []
            found.append(pytest.param(code, id=f"{page.stem}-{number}", marks=marks))
    return found


@pytest.mark.parametrize("code", blocks())
def test_the_python_of_a_page_runs(code: str, tmp_path: Path) -> None:
    (tmp_path / "testbed").symlink_to(ROOT / "testbed")
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
