# SPDX-License-Identifier: Apache-2.0
"""Comparisons over the values of a setting: what may be swept, what is kept, and what is said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from scenarios.command.show import figures_of, make_page
from scenarios.many.sweep import folder_of, parse_sweep, read_sweep
from tests.browser import SCHEMES, cut_off, opened
from tests.scenarios.conftest import Canary, refused

WORDS = ("BACKEND=flow", "LOAD=0.02", "EPOCHS=1", "SEEDS=1001-1002", "METHODS=canary,netbouncer")


@pytest.mark.parametrize(
    ("text", "setting", "values"),
    [
        ("K=4,8", "k", ["4", "8"]),
        ("epoch_ms= 50 , 100", "epoch_ms", ["50", "100"]),
        ("FAULTS=6links:0.001;1links:0.1,2links", "faults", ["6links:0.001", "1links:0.1,2links"]),
    ],
)
def test_a_setting_and_its_values(text: str, setting: str, values: list[str]) -> None:
    assert parse_sweep(text) == (setting, values)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SWEEP=K=4"], "give 2 to 100 values"),
        (["SWEEP=K=4,4"], "each once"),
        (["SWEEP=K=4,,8"], "give 2 to 100 values"),
        (["SWEEP=KK=4,8"], "did you mean K?"),
        (["SWEEP=4,8"], "is not a setting"),
        (["SWEEP=SEED=1,2"], "use SEEDS= for seeds"),
        (["SWEEP=K=4,8", "K=4"], "leave out K="),
        (["SWEEP=K=4,5"], "K=5 is not a fat-tree"),
        (["SWEEP=K=4,x"], "K=x"),
        (["SWEEP=TCP=0,0.1"], "TCP=0.1 needs real hosts"),
    ],
)
def test_what_cannot_be_swept_is_one_line(
    words: list[str], message: str, canary: Canary, tmp_path: Path
) -> None:
    refused(canary("compare", *words, f"OUT={tmp_path / 'out'}", "BACKEND=virtual"), message)
    assert not (tmp_path / "out").exists()


def test_names_of_folders_are_names_and_differ() -> None:
    assert folder_of("k", "4") == "K=4"
    names = {folder_of("faults", value) for value in ("../a/b", "..;a/b", "a b", "x" * 300)}
    assert len(names) == 4
    assert all("/" not in name and len(name) < 110 for name in names)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("swept") / "here"


def test_a_sweep_is_run_kept_shown_and_drawn(
    swept: Path, canary: Canary, chromium: Browser
) -> None:
    """In one, for the runs take seconds."""
    faults = "SWEEP=FAULTS=agg0_0->core0:0.3;agg0_0->core0:0.3,tor0_0->agg0_1:0.02"
    result = canary("compare", *WORDS, faults, f"OUT={swept}")
    assert result.code == 0, result.err
    table = result.out.partition("F1: ")[0].splitlines()
    assert len(table) >= 4 and max(len(line) for line in table) <= 80
    sweep = read_sweep(swept)
    assert (sweep.setting, len(sweep.parts)) == ("faults", 2)
    assert all((part.folder / "index.html").is_file() for part in sweep.parts)
    seeds = [part.folder / "seed-1001.parquet" for part in sweep.parts]
    before = [seed.stat().st_mtime_ns for seed in seeds]

    figures = figures_of(swept)
    assert json.loads(json.dumps(figures)) == figures
    by_name = {(row["value"], row["method"]): row for row in figures["rows"]}
    assert len(by_name) == 6 and all(row["runs"] == 2 for row in by_name.values())
    shown = canary("show", str(swept))
    assert shown.out.splitlines()[0] in result.out

    with opened(chromium, make_page(swept)) as it:
        page = it.page
        marks = page.locator("#chart a")
        assert marks.count() == 6
        rows = page.locator("#comparison tbody tr:not(.bench)")
        for row in rows.all():
            value, method, f1 = row.locator("th, td").all_inner_texts()[:3]
            mean = by_name[value, method.removesuffix(" *")]["f1"]
            assert f1.startswith(f"{mean:.3f}")
            assert page.locator(
                f'#chart a[aria-label*="{method} at {value}: {float(f"{mean:.4g}"):g}"]'
            ).count()
        page.select_option("#figure", "recall")
        assert page.inner_text("#what") == "recall"
        page.locator("#names button").first.focus()
        assert page.locator("#chart .method.alone").count() == 1
        page.locator("#comparison thead .sort").nth(2).click()
        assert rows.first.locator("td").nth(1).get_attribute("data-value") is not None
        assert "SWEEP=FAULTS=" in page.inner_text("#command")
        page.locator("#chart a").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/FAULTS[^/]*/index.html"))
        assert "the methods on 2 seeds" in page.locator("h1").inner_text()
        assert it.clean()
    for width, dark in SCHEMES:
        with opened(chromium, swept / "index.html", width, dark) as it:
            assert cut_off(it.page) == []
            assert it.clean()

    assert canary("compare", *WORDS, faults, f"OUT={swept}").code == 0
    assert [seed.stat().st_mtime_ns for seed in seeds] == before, "kept seeds are not run again"
    refused(canary("compare", *WORDS, "SWEEP=K=4,6", f"OUT={swept}"), "sweep of another setting")
    refused(canary("compare", *WORDS, f"OUT={swept}"), "is no comparison")


@pytest.mark.parametrize(
    ("spoil", "message"), [("{", "is damaged"), ('{"setting": "k"}', "has no results yet")]
)
def test_what_is_no_sweep_is_one_line(spoil: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(spoil)
    with pytest.raises(ValueError, match=message):
        make_page(tmp_path)
