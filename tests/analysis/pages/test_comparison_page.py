# SPDX-License-Identifier: Apache-2.0
"""The page of a comparison in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from analysis.evaluation.comparison import COLUMNS
from analysis.evaluation.intervals import interval
from scenarios.command.show import again_all, figures_of, make_page
from scenarios.many.compare import read_comparison
from testbed.fabric.paths import Paths
from testbed.record.files import write_columns
from tests.browser import SCHEMES, cut_off, opened

METHODS = ("canary", "netbouncer", "flock:p_bad=0.01,<b>'\"</b>")
SEEDS = (1, 2, 3, 7)
F1 = np.array([[1.0, 0.9, 0.8, 1.0], [0.5, 0.7, 0.6, 0.4], [0.9, 0.9, 0.9, 0.9]])


def made_up(folder: Path, **columns: object) -> Path:
    """A comparison as `canary compare` leaves it, of figures that are made up or given."""
    n = len(METHODS) * len(SEEDS)
    numbers = {name: np.tile(F1.reshape(-1), 1) for name in COLUMNS}
    rows = numbers | {
        "seed": np.tile(SEEDS, len(METHODS)),
        "method": [name for name in METHODS for _ in SEEDS],
        "bench": [bench for bench in ("published", "published", "project") for _ in SEEDS],
        "own_name": [""] * n,
        "unranked": np.zeros(n, int),
        "native": [kind for kind in ("directed", "undirected", "directed") for _ in SEEDS],
        "faulty": np.full(n, 3),
        "telemetry_bytes": np.full(n, 10**6),
        "probe_packets": np.full(n, 6400),
        "fed": np.ones(n),
        "parameters": ["p=1"] * n,
        "parameters_from": ["default"] * n,
        "found_at": Paths(np.arange(n + 1) * 3, np.tile([1, 2, 5], n).astype(np.int32)),
        "degraded": [""] * n,
        "tries": np.ones(n, int),
    }
    rows |= columns
    write_columns(folder / "results.parquet", {name: rows[name] for name in COLUMNS})
    key = {"scenario": "</script><i>", "backend": "flow", "k": 8, "seed": 0, "methods": []}
    key["parameters"] = {name: {"values": "p=1", "from": "default"} for name in METHODS[:2]}
    (folder / "comparison.json").write_text(json.dumps(key))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made_up(tmp_path)


def test_figures_dots_and_tables_are_those_of_the_results(folder: Path, chromium: Browser) -> None:
    with opened(chromium, make_page(folder)) as it:
        page = it.page
        rows = page.eval_on_selector_all(
            "#comparison tbody tr:not(.bench)",
            "rows => rows.map(r => [...r.cells].map(c => c.innerText))",
        )
        for name, row, f1 in zip(METHODS, rows, F1, strict=True):
            bounds = interval(f1)
            assert row[0].removesuffix(" *") == name
            assert row[1] == f"{bounds.mean:.3f} {bounds.low:.2f}–{bounds.high:.2f}"
        assert page.locator("#f1 .dot").count() == F1.size
        assert (
            page.locator("#f1 .mean").count() == page.locator("#names li:not(.bench)").count() == 3
        )
        page.locator("#f1 .dot").nth(3).dispatch_event("click")
        assert page.locator("#seeds tr.chosen th").inner_text() == "7"
        page.locator("#seeds thead .sort", has_text="canary").click()
        assert page.locator("#seeds tbody th").all_inner_texts()[-1] == "3"
        assert page.locator("h1").inner_text().startswith("</script><i>:")
        assert page.locator("i, b").count() == 0
        assert it.clean()


def test_sorting_keeps_methods_in_their_blocks(folder: Path, chromium: Browser) -> None:
    with opened(chromium, make_page(folder)) as it:
        page = it.page
        blocks = "all => all.map(body => [...body.rows].map(row => row.cells[0].innerText))"
        last = METHODS[2]
        for clicks in range(3):
            if clicks:
                page.locator("#comparison thead .sort", has_text="F1").first.click()
            published, ours = page.eval_on_selector_all("#comparison tbody", blocks)
            order = ["canary", "netbouncer *"]
            assert published == ["as published", *(order[::-1] if clicks == 2 else order)]
            assert ours == ["this project's", last]
        with page.expect_download() as download:
            page.locator("#means .csv").first.click()
        head, *rows = Path(download.value.path()).read_text().splitlines()
        assert head.endswith(",block")
        assert [row.rpartition(",")[2] for row in rows] == ["as published"] * 2 + ["this project's"]
        assert page.locator("#f1 text.bench").all_text_contents() == [
            "as published",
            "this project's",
        ]
        assert it.clean()


def test_a_method_that_blames_nothing_has_no_precision(tmp_path: Path, chromium: Browser) -> None:
    precision = F1.copy()
    precision[0] = np.nan
    precision[2, :3] = np.nan
    folder = made_up(tmp_path, precision=precision.reshape(-1), bench=["published"] * F1.size)
    found = json.loads(json.dumps(figures_of(folder), allow_nan=False))
    assert found["means"]["canary"]["precision"] is None
    counts = [figures["runs with precision"] for figures in found["means"].values()]
    assert counts == [0, 4, 1]
    with opened(chromium, make_page(folder)) as it:
        cells = it.page.locator("#comparison tbody td:nth-child(3)")
        assert cells.all_inner_texts() == ["– 0/4", "0.55 0.31–0.79", "0.90 1/4"]
        for last in ("– 0/4", "– 0/4"):
            it.page.locator("#comparison thead .sort", has_text="precision").click()
            assert cells.last.inner_text() == last, "whichever way it is sorted"
        assert it.page.locator("#curve .own").count() == 2
        assert it.clean()


def test_a_verdict_is_near_its_own_curve(tmp_path: Path, chromium: Browser) -> None:
    """Half of the runs leave out one of six faulty links, to which they give no score at all."""
    n = len(METHODS) * len(SEEDS)
    found = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 64]] * (n // 2)
    recall, precision = np.tile([1, 5 / 6], n // 2), np.ones(n)
    paths = Paths(np.arange(n + 1) * 6, np.concatenate(found).astype(np.int32))
    folder = made_up(tmp_path, recall=recall, precision=precision, found_at=paths)
    with opened(chromium, make_page(folder)) as it:
        mark, curve, size = it.page.locator("#curve").evaluate(
            """holder => {
              const own = holder.querySelector('.own').getBoundingClientRect();
              const all = holder.querySelector('svg').getBoundingClientRect();
              const mark = [own.x + own.width / 2 - all.x, own.y + own.height / 2 - all.y];
              const points = [...holder.querySelector('polyline.curve').points];
              const grid = holder.querySelector('line.grid').getBBox();
              return [mark, points.map(p => [p.x, p.y]), grid.height];
            }"""
        )
        drop = min(y - mark[1] for x, y in curve if x >= mark[0] - 0.5) / size
        assert 0 <= drop < 0.1, "the curve falls only where verdicts end"
        assert it.clean()


@pytest.mark.parametrize(("width", "dark"), SCHEMES)
def test_nothing_is_cut_off(width: int, dark: bool, folder: Path, chromium: Browser) -> None:
    with opened(chromium, make_page(folder), width, dark) as it:
        assert cut_off(it.page) == []
        assert it.clean()


def test_a_comparison_is_shown_and_made_again(folder: Path) -> None:
    found = figures_of(folder)
    assert found["means"]["canary"]["F1"] == pytest.approx(0.925)
    assert len(found["rows"]) == F1.size
    assert json.loads(json.dumps(found)) == found
    result = again_all(read_comparison(folder))
    command, _, settings = result.partition(" compare ")
    assert Path(command).name in ("make", "canary"), "of a clone, or of an installed package"
    assert "SEEDS=1-3,7" in settings and "K=8" in settings
    shown = subprocess.run(
        [sys.executable, "-m", "scenarios", "show", str(folder)], capture_output=True, text=True
    )
    assert "0.925 " in shown.stdout and shown.stdout.startswith("4 runs ")
    table = [line for line in shown.stdout.splitlines() if line.startswith(("method", "canary"))]
    assert len(table) > 1 and max(map(len, table)) <= 80


def spoiled(**changes: object) -> Callable[[Path], object]:
    """Change what ``comparison.json`` says."""

    def spoil(folder: Path) -> None:
        file = folder / "comparison.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "results.parquet").unlink(), "has no results yet"),
        (lambda folder: (folder / "results.parquet").write_bytes(b"PAR1"), "is not readable"),
        (
            lambda folder: write_columns(folder / "results.parquet", {"seed": np.arange(2)}),
            "was changed after canary compare wrote it",
        ),
        (lambda folder: (folder / "comparison.json").write_text("[]"), "is damaged"),
        (lambda folder: (folder / "comparison.json").write_text("[" * 10**5), "is damaged"),
        (spoiled(scenario=5), r"comparison.json is damaged: scenario: should be a valid string"),
        (spoiled(k="x"), "comparison.json is damaged: k: should be a valid integer"),
        (spoiled(parameters=[]), "is damaged: parameters: "),
        (spoiled(parameters={"canary": {"values": ""}}), "is damaged: parameters.canary.from: "),
    ],
)
def test_what_is_no_comparison_is_one_line(
    folder: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(folder)
    with pytest.raises(ValueError, match=message):
        make_page(folder)
