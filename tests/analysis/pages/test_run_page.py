# SPDX-License-Identifier: Apache-2.0
"""The page of a run in a real browser: what it draws, what it says, and that it needs nobody."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from analysis.evaluation.columns import in_bytes
from scenarios.command.show import make_page
from testbed.fabric.clos import Fabric
from testbed.fabric.fat_tree import FatTree
from testbed.record.run import RunDirectory
from tests.analysis.pages.conftest import made_up
from tests.browser import Opened, opened

LINKS = ".fabric .links .link"
HOSTILE = ("<script>alert(1)</script>", "tor'\"&amp;</title>", "${x}{{ 7*7 }}", "\u202eagg\x1b[31m")


def summary_of(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text())


def marks(page: Page) -> dict[str, int]:
    """How many verdicts of each kind are marked, in a drawing or in matrices."""
    kinds = ("right", "missed", "wrong")
    if page.locator("svg.cells").count():
        return {kind: len(cells(page, kind)) for kind in kinds}
    return {kind: page.locator(f".fabric .marks .{kind}").count() for kind in kinds}


def cells(page: Page, kind: str) -> list[int]:
    """The links that are marked as ``kind`` in the matrices."""
    found = page.eval_on_selector_all(
        f".cells .marks .{kind}", "all => all.flatMap(each => each.dataset.links.split(' '))"
    )
    return sorted(map(int, found))


def figures_of(run: Path, method: str) -> dict[str, int]:
    entry = summary_of(run)["methods"][method]
    own = entry[entry["native"]]
    names = ("true_positives", "false_negatives", "false_positives")
    return dict(zip(("right", "missed", "wrong"), (own[n] for n in names), strict=True))


def choose(page: Page, method: str) -> None:
    options = page.locator("#method option").all_inner_texts()
    page.select_option("#method", index=[o.removesuffix(" *") for o in options].index(method))


@pytest.mark.parametrize("name", ["K=4", "leaf-spine"])
def test_every_link_is_drawn_and_every_verdict_marked(
    name: str, flow_run: Callable[[str], Path], chromium: Browser
) -> None:
    run = flow_run(name)
    with opened(chromium, run / "index.html") as it:
        drawn = it.page.eval_on_selector_all(LINKS, "all => all.map(l => Number(l.dataset.link))")
        assert sorted(drawn) == list(range(RunDirectory(run).fabric.n_links))
        broken = it.page.locator(f"{LINKS}.faulty").count()
        assert broken == len(summary_of(run)["faulty_links"])
        for method in summary_of(run)["methods"]:
            choose(it.page, method)
            assert marks(it.page) == figures_of(run, method)
        assert it.clean()
    assert (run / "index.html").stat().st_size < 3_000_000


def test_the_figures_are_those_of_the_summary(
    flow_run: Callable[[str], Path], seen: Callable[[Path, int], Opened]
) -> None:
    run = flow_run("K=8")
    rows = seen(run / "index.html", 1400).page.eval_on_selector_all(
        "#comparison tbody tr:not(.bench)",
        "rows => rows.map(r => [...r.cells].map(c => c.innerText))",
    )
    for row, (name, entry) in zip(rows, summary_of(run)["methods"].items(), strict=True):
        own = entry[entry["native"]]
        assert row[0].removesuffix(" *") == name
        assert row[3] == f"{own['f1']:.3f}"
        assert row[5:7] == [str(own["false_negatives"]), str(own["false_positives"])]
        probes = entry["probe_packets"]
        assert row[10] == (f"{probes:,}" if probes < 100_000 else in_bytes(probes))


def test_a_link_is_found_pointed_at_and_gone_to_by_keys(
    flow_run: Callable[[str], Path], chromium: Browser
) -> None:
    run = flow_run("K=4")
    record = RunDirectory(run)
    truth, name = record.table("links"), summary_of(run)["faulty_links"][0]
    link = record.fabric.link(name)
    with opened(chromium, run / "index.html") as it:
        page, panel = it.page, it.page.locator("#panel")
        page.fill("#search", name)
        page.press("#search", "Enter")
        assert panel.locator(".name").inner_text() == name
        assert f"{truth['packets'][link]:,}" in panel.inner_text()
        rate = record.table("diagnoses/canary")["success"][link]
        assert f"{float(f'{100 * (1 - rate):.3g}'):g} %" in panel.inner_text()
        assert "null" not in panel.inner_text() and "undefined" not in panel.inner_text()
        page.fill("#search", "no such link")
        assert page.locator("#hits").inner_text() == "no such link"
        page.locator(".fabric").focus()
        seen = set()
        for _ in range(len(summary_of(run)["faulty_links"])):
            page.keyboard.press("ArrowRight")
            seen.add(panel.locator(".name").inner_text())
        assert name in seen
        page.keyboard.press("Escape")
        assert panel.locator(".name").count() == 0
        spot = page.locator(f'{LINKS}[data-link="{link}"]').evaluate(
            "path => { const p = path.getPointAtLength(path.getTotalLength() / 3);"
            " const b = path.ownerSVGElement.getBoundingClientRect();"
            " return [b.x + p.x, b.y + p.y]; }"
        )
        page.mouse.move(*spot)
        assert page.locator("#tip").inner_text().startswith(panel.locator(".name").inner_text())
        assert it.clean()


def test_tiers_pods_and_epochs_are_chosen(
    flow_run: Callable[[str], Path], chromium: Browser
) -> None:
    run = flow_run("K=4")
    fabric = RunDirectory(run).fabric
    with opened(chromium, run / "index.html") as it:
        page = it.page
        page.select_option("#pod", "1")
        lower = np.minimum(fabric.link_src, fabric.link_dst)
        assert page.locator(f"{LINKS}:not(.dim)").count() == (fabric.pod[lower] == 1).sum()
        page.select_option("#tier", "0")
        own = (fabric.pod[lower] == 1) & (fabric.tier[lower] == 0)
        assert page.locator(f"{LINKS}:not(.dim)").count() == own.sum()
        page.select_option("#pod", "")
        page.select_option("#tier", "")
        page.locator("#epoch").fill("1")
        assert "after 1 of 4 epochs" in page.locator("#verdict").inner_text()
        page.locator("#epoch").fill("4")
        assert marks(page) == figures_of(run, "canary")
        page.locator("#time summary").click()
        assert page.locator("#since tbody tr").count() == len(summary_of(run)["faulty_links"])
        assert it.clean()


def test_tables_are_sorted_and_saved(flow_run: Callable[[str], Path], chromium: Browser) -> None:
    run = flow_run("K=8")
    f1 = {name: e[e["native"]]["f1"] for name, e in summary_of(run)["methods"].items()}
    with opened(chromium, run / "index.html") as it:
        page = it.page
        first = page.locator("#comparison tbody tr:not(.bench) th")
        page.locator("#comparison thead .sort", has_text="F1").first.click()
        names = [text.removesuffix(" *") for text in first.all_inner_texts()]
        assert names == sorted(f1, key=lambda name: -f1[name])
        page.locator("#comparison thead .sort", has_text="F1").first.click()
        names = [text.removesuffix(" *") for text in first.all_inner_texts()]
        assert names == sorted(f1, key=lambda name: f1[name])
        with page.expect_download() as download:
            page.locator("#methods .csv").first.click()
        head, *rows = Path(download.value.path()).read_text().splitlines()
        assert head.startswith("method,prec,rec,F1") and len(rows) == len(f1)
        assert it.clean()


def test_a_run_with_packets_shows_their_way_and_the_epochs(
    run_path: Path, tmp_path: Path, chromium: Browser
) -> None:
    shutil.copytree(run_path, tmp_path / "run")
    file = make_page(tmp_path / "run")
    run = RunDirectory(tmp_path / "run")  # its manifest has no complaint
    with opened(chromium, file) as it:
        switches = it.page.locator(".fabric .switches rect.monitor")
        wanted = 8 + 4  # ToRs and cores
        assert switches.count() == wanted
        assert "hosts meters" in (switches.first.locator("title").text_content() or "")
        assert "lost here" in it.page.locator("#packet .way").inner_text()
        assert "counts it" in it.page.locator("#packet .way .monitor").first.inner_text()
        titles = it.page.locator("#epochcharts figcaption").all_inner_texts()
        assert [title.split(":")[0] for title in titles][2:] == [
            "rules installed",
            "flows monitored",
        ]
        assert it.page.locator("#epochcharts .bar").count() == 4 * run.epochs
        assert it.clean()


def go_to(page: Page, fabric: Fabric, link: int) -> tuple[float, float]:
    """Scroll to a link's cell, and return its middle: of a pod's matrix of a tier and direction, a
    row is a lower switch and a cell one of its links."""
    lower = np.minimum(fabric.link_src, fabric.link_dst)
    own = lower[link]
    beside = (fabric.pod[lower] == fabric.pod[own]) & (fabric.tier[lower] == fabric.tier[own])
    row = np.unique(lower[beside]).tolist().index(own)
    column = np.unique(np.flatnonzero(lower == own) >> 1).tolist().index(link >> 1)
    left, top, cell = page.evaluate(
        """([pod, tier, down]) => {
          const drawn = document.querySelector(`.pod[data-pod="${pod}"] svg`);
          drawn.scrollIntoView({ block: 'center' });
          const box = drawn.getBoundingClientRect();
          const head = drawn.querySelectorAll('text')[2 * tier + down];
          const row = drawn.querySelector('.healthy path').getAttribute('stroke-width');
          const [x, y] = ['x', 'y'].map(name => Number(head.getAttribute(name)));
          return [box.left + x, box.top + y + 4, Number(row) + 1];
        }""",
        [int(fabric.pod[own]), int(fabric.tier[own]), link % 2],
    )
    return left + (column + 0.5) * cell, top + (row + 0.5) * cell


def test_many_links_are_cells_of_matrices_with_every_verdict_marked(
    flow_run: Callable[[str], Path], chromium: Browser
) -> None:
    run = flow_run("K=8")
    record = RunDirectory(run)
    fabric, truth = record.fabric, np.asarray(record.table("links")["faulty"])
    with opened(chromium, run / "index.html") as it:
        page = it.page
        assert page.locator("svg.fabric").count() == 0
        links = page.eval_on_selector_all(".pod", "all => all.map(p => Number(p.dataset.links))")
        assert links == [64] * 8
        broken = page.eval_on_selector_all(
            ".cells .faulty path", "all => all.map(p => p.getAttribute('d').match(/M/g).length)"
        )
        assert sum(broken) == truth.sum()
        for method in summary_of(run)["methods"]:
            choose(page, method)
            assert marks(page) == figures_of(run, method)
        choose(page, "canary")
        blamed = np.asarray(record.table("diagnoses/canary")["flagged"])
        assert cells(page, "right") == np.flatnonzero(blamed & truth).tolist()
        page.select_option("#tier", "0")
        lower = np.minimum(fabric.link_src, fabric.link_dst)
        links = page.eval_on_selector_all(".pod", "all => all.map(p => Number(p.dataset.links))")
        assert sum(links) == (fabric.tier[lower] == 0).sum()
        assert it.clean()


def test_a_cell_is_its_link_and_a_pod_opens_as_a_drawing(
    flow_run: Callable[[str], Path], chromium: Browser
) -> None:
    run = flow_run("K=8")
    record = RunDirectory(run)
    fabric = record.fabric
    name = fabric.link_names
    lower = np.minimum(fabric.link_src, fabric.link_dst)
    with opened(chromium, run / "index.html") as it:
        page, panel = it.page, it.page.locator("#panel")
        for link in (0, 1, 63, 200, 333, fabric.n_links - 1):
            page.mouse.move(*go_to(page, fabric, link))
            assert page.locator("#tip").inner_text().startswith(name[link] + ": ")
        page.mouse.click(*go_to(page, fabric, 333))
        page.mouse.move(2, 2)
        assert (
            panel.locator(".name").inner_text() == name[333] and page.locator(".pod").count() == 8
        )
        page.locator(".openpod").nth(3).click()
        drawn = page.eval_on_selector_all(LINKS, "all => all.map(l => Number(l.dataset.link))")
        assert sorted(drawn) == np.flatnonzero(fabric.pod[lower] == 3).tolist()
        page.locator("#back").click()
        assert page.locator(".pod").count() == 8 and not page.locator("#back").is_visible()
        page.locator(".openpod").nth(5).focus()
        page.keyboard.press("ArrowRight")
        assert panel.locator(".name").inner_text() == summary_of(run)["faulty_links"][0]
        page.keyboard.press("Enter")
        assert page.locator(".fabric").count() == 1, "by the keyboard alone"
        assert it.clean()


def test_a_page_without_a_slider_says_why(
    flow_run: Callable[[str], Path], seen: Callable[[Path, int], Opened]
) -> None:
    assert seen(flow_run("K=4") / "index.html", 1400).page.locator("#noslider").count() == 0
    page = seen(flow_run("K=8") / "index.html", 1400).page
    assert not page.locator("#epoch").is_visible()
    assert "canary page --over-time" in page.inner_text("#noslider")


def test_the_largest_fabrics_have_a_page(tmp_path: Path, chromium: Browser) -> None:
    fabric = FatTree(48)
    run = made_up(tmp_path / "run", fabric, "faulty_links")
    assert (run / "index.html").stat().st_size < 3_000_000
    with opened(chromium, run / "index.html") as it:
        page = it.page
        links = page.eval_on_selector_all(".pod", "all => all.map(p => Number(p.dataset.links))")
        assert len(links) == 48 and sum(links) == fabric.n_links
        page.locator(".openpod").nth(7).click()
        drawn = page.eval_on_selector_all(LINKS, "all => all.map(l => Number(l.dataset.link))")
        lower = np.minimum(fabric.link_src, fabric.link_dst)
        assert sorted(drawn) == np.flatnonzero(fabric.pod[lower] == 7).tolist()
        room = page.locator("#drawing").evaluate("part => part.clientWidth - part.scrollWidth")
        assert room == 0, "a pod is seen without scrolling, and its many cores"
        name = summary_of(run)["faulty_links"][-1]
        page.fill("#search", name)
        page.press("#search", "Enter")
        assert page.locator("#panel .name").inner_text() == name
        assert "faulty, loses" in page.locator("#panel").inner_text()
        assert it.clean()


def test_names_are_text_whatever_they_hold(tmp_path: Path, chromium: Browser) -> None:
    fabric = Fabric(HOSTILE, np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1]), np.array([2, 3, 2, 3]))
    scenario = "</script><img src=x onerror=alert(1)>\u2028"
    run = made_up(tmp_path / "run'\"<b>", fabric, scenario)
    with opened(chromium, run / "index.html") as it:
        page = it.page
        assert page.locator("h1").inner_text().startswith("</script><img src=x")
        assert page.locator("img").count() == 0 and page.locator("script").count() == 2
        assert page.locator(LINKS).count() == 8
        page.fill("#search", "<script>alert")
        page.press("#search", "Enter")
        assert page.locator("#panel .name").inner_text().startswith("<script>alert(1)</script>->")
        message = page.locator("#links").inner_text()
        assert "\\u202eagg\\x1b[31m" in message and "\x1b" not in page.content()
        assert it.clean()
