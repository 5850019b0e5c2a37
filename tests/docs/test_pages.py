# SPDX-License-Identifier: Apache-2.0
"""The pages of the site: their data is known, their Python runs, their commands exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from analysis.methods.base import split
from analysis.methods.registry import METHODS, ON_REQUEST
from scenarios.experiment.settings import described
from scenarios.papers.registry import EXPERIMENTS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
FLAGS = re.MULTILINE | re.DOTALL
BEFORE = {"record": "import pandas, pyarrow.parquet\nframe = pandas.DataFrame({'sent': [1]})\n"}
"""What a page's block of Python takes for granted."""

ASKED = re.compile(r"^```\{made\} (\w+)(?: (\w+))?$", re.MULTILINE)


@pytest.fixture(scope="module")
def made_pages() -> ModuleType:
    """The module that makes tables when the site is built; docs is no package."""
    spec = importlib.util.spec_from_file_location("made_pages", DOCS / "made_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["made_pages"] = module
    spec.loader.exec_module(module)
    return module


def test_each_page_gets_what_it_asks_for(made_pages: ModuleType) -> None:
    asked = {found for page in PAGES for found in ASKED.findall(page.read_text())}
    assert {name for name, _ in asked} == set(made_pages.MAKERS), "one that no page shows is dead"
    for name, argument in asked:
        text = made_pages.MAKERS[name](*[argument] if argument else [])
        assert text.count("\n| ") > 3, (name, argument)


def test_the_options_are_those_of_the_settings(made_pages: ModuleType) -> None:
    names = re.findall(r"^\| `(\w+)` \|", made_pages.options(), re.MULTILINE)
    assert names == ["SCENARIO", *(s.name.upper() for s in described()), "CONFIG", "RUN"]


def test_data_files_name_methods_and_experiments_that_exist(made_pages: ModuleType) -> None:
    known = METHODS | ON_REQUEST
    for file in ("changes", "healthy", "comparison", "traces"):
        assert {split(row["method"])[0] for row in made_pages.rows_of(file)} <= set(known)
    assert set(made_pages._results()) <= set(EXPERIMENTS)


def test_each_experiment_of_each_paper_is_on_a_page(made_pages: ModuleType) -> None:
    papers = re.findall(r"\{made\} results (\w+)", "".join(p.read_text() for p in PAGES))
    shown = "\n".join(made_pages.results(paper) for paper in papers)
    assert set(re.findall(r"^## (\S+)$", shown, re.MULTILINE)) == set(made_pages._results())


def blocks() -> list[object]:
    """Each block of Python of each page, in its order; `tests/test_documents.py` has the first
    hour's, which looks into a run that is made before."""
    found = []
    for page in (ROOT / "README.md", *PAGES):
        if page.stem == "first_hour":
            continue
        for number, block in enumerate(
            re.findall(r"^```python\n(.*?)^```$", page.read_text(), FLAGS)
        ):
            code = BEFORE.get(page.stem, "") + block
            marks = [pytest.mark.nightly] if "run(" in code and page.stem != "README" else []
            found.append(pytest.param(code, id=f"{page.stem}-{number}", marks=marks))
    return found


@pytest.mark.parametrize("code", blocks())
def test_the_python_of_a_page_runs(code: str, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
