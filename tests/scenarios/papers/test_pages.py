# SPDX-License-Identifier: Apache-2.0
"""The pages of reproductions in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from scenarios.command.shelf import Shelf
from scenarios.command.show import make_page
from scenarios.papers import reproduce as module
from scenarios.papers.experiment import Effort, Experiment, Panel, Printed, Row, by_draw
from scenarios.papers.reproduce import reproduce
from tests.browser import SCHEMES, cut_off, opened
from tests.conftest import quiet
from tests.scenarios.papers.test_frame import Here

HOSTILE = "</script><b>'\"</b>"
PANELS = (
    Panel("F1", "x", "y"),
    Panel("loss", "rate", "loss", log_x=True, log_y=True),
    Panel("kind", "what", "how many", numeric=False, limits=(0, 2)),
)
PAPER = (
    Printed("F1", HOSTILE, "2", 0.5, "stated", section="1", quote="0.5"),
    Printed("F1", "b", "1", 0.9, "derived", section="1", quote="0.5", arithmetic="0.5 + 0.4"),
    Printed("loss", "b", "0.1", 0.4, "bound", "below", section="2", quote="less"),
    Printed("kind", "b", "wörter", 7.0, "stated", section="2", quote="7"),
)


def draw(number: int) -> list[Row]:
    near = 0.01 * (number % 5 - 2)
    rows = [Row("F1", series, x, number, 0.5 + near) for series in (HOSTILE, "b") for x in "12"]
    rows += [Row("loss", "b", x, number, value + near / 10) for x, value in LOSS.items()]
    return rows + [
        Row("kind", s, x, number, 1.0) for s in (HOSTILE, "b") for x in ("wörter", "<i>")
    ]


LOSS = {"0.001": 0.01, "0.1": 0.2, "1": 0.0}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a reproduction, which tests only read."""
    toy = Experiment(
        name="toy",
        paper="a figure",
        shows=HOSTILE,
        setting="A toy.",
        seconds=1,
        memory_mb=1,
        panels=PANELS,
        tasks=partial(by_draw, task=draw),
        values=PAPER,
    )
    folder = tmp_path_factory.mktemp("reproduced")
    known = {"toy": toy, "other": replace(toy, name="other", values=())}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EXPERIMENTS", known)
        reproduce(toy, quiet, folder, Effort(5), workers=Here(1))
        yield folder


@pytest.fixture
def changed(out: Path, tmp_path: Path) -> Path:
    """A copy of that folder, to be changed."""
    return shutil.copytree(out, tmp_path / "changed")


@pytest.mark.parametrize(("width", "dark"), SCHEMES)
def test_figure_table_and_words(width: int, dark: bool, out: Path, chromium: Browser) -> None:
    with opened(chromium, out / "toy" / "index.html", width, dark) as it:
        page = it.page
        assert page.locator("h1").inner_text() == f"a figure: {HOSTILE}"
        assert page.locator("b, i").count() == 0
        assert page.locator("#panels svg").count() == 3
        assert page.locator("#panels .point").count() == 11
        assert page.locator("#panels .printed").count() == 3
        assert page.locator("#panels .bounded").count() == 1
        message = page.locator("#panels .point").first.get_attribute("aria-label") or ""
        assert message.startswith(f"{HOSTILE} at 1: 0.5, 0.4") and message.endswith("(5 draws)")
        verdicts = [text.split()[1] for text in page.locator(".verdict").all_inner_texts()]
        assert verdicts == ["agrees", "not", "agrees", "not"]
        page.locator("#values thead .sort").nth(1).click()
        assert page.locator("#values tbody tr").first.inner_text().startswith("b, kind at w")
        page.locator("#names button").last.focus()
        assert page.locator("#panels .alone").count() == 6  # ours and the paper's
        assert "0.5 + 0.4" in page.inner_text("#quotes")
        assert page.inner_text("#command").startswith("make reproduce FIG=toy DRAWS=5 OUT=")
        assert page.locator(".files a", has_text="figure.svg").count() == 1
        assert cut_off(page) == []
        assert it.clean()


def test_names_of_kinds_stand_under_their_marks(out: Path, chromium: Browser) -> None:
    with opened(chromium, out / "toy" / "index.html") as it:
        panel = it.page.locator("#panels svg").last
        middle = """all => all.map(each => {
          const box = each.getBoundingClientRect();
          return box.x + box.width / 2;
        })"""
        marks = panel.locator(".own").evaluate_all(middle)
        names = panel.locator("text", has_text=re.compile("wörter|<i>")).evaluate_all(middle)
        assert len(marks) == 4 and len(names) == 2
        wanted = [(marks[i] + marks[i + 2]) / 2 for i in range(2)]  # two series, each at both
        assert names == pytest.approx(wanted, abs=2)


@pytest.mark.parametrize(("width", "dark"), SCHEMES)
def test_the_list_of_all(
    width: int, dark: bool, out: Path, tmp_path: Path, chromium: Browser
) -> None:
    """As `canary ui` shows it."""
    (tmp_path / "list.html").write_text(Shelf(out).page())
    with opened(chromium, tmp_path / "list.html", width, dark) as it:
        page = it.page
        cells = page.locator("#experiments tbody td").all_inner_texts()
        assert cells[1:6] == ["2", "0", "2", "0", "5"]
        assert page.locator(".gallery svg").count() == 1
        assert page.locator("b").all_inner_texts() == ["toy"]  # no hostile one
        addresses = page.locator("#experiments a, .gallery a").evaluate_all(
            "all => all.map(each => each.getAttribute('href'))"
        )
        assert addresses == ["toy/"] * 2
        assert cut_off(page) == []
        assert it.clean()


def test_a_page_is_made_again_and_damage_is_one_line(out: Path, changed: Path) -> None:
    before = (out / "toy" / "index.html").read_text().replace(str(out), str(changed))
    picture = (changed / "toy" / "figure.png").read_bytes()
    (changed / "toy" / "index.html").unlink()
    (changed / "toy" / "figure.png").write_bytes(b"of other code")
    assert make_page(changed / "toy") == changed / "toy" / "index.html"
    assert (changed / "toy" / "index.html").read_text() == before
    assert (changed / "toy" / "figure.png").read_bytes() == picture
    setting = json.loads((changed / "toy" / "setting.json").read_text())
    for spoilt in ("{", "[]", json.dumps(setting | {"experiment": "no such"})):
        (changed / "toy" / "setting.json").write_text(spoilt)
        with pytest.raises(ValueError, match="toy is damaged or unfinished"):
            make_page(changed / "toy")
    (changed / "toy" / "results.parquet").write_bytes(b"PAR1")
    page = Shelf(changed).page()
    assert "toy is damaged or unfinished" in page and 'href="toy/"' not in page
