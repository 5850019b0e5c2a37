# SPDX-License-Identifier: Apache-2.0
"""What a reader sees of a page of a run: at every width, in both colour schemes, without a cut."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from scenarios.command.show import make_page
from testbed.record.run import RunDirectory
from tests.browser import WIDTHS, Opened, cut_off, opened

NAMES = ".fabric .switches text"


@pytest.fixture(scope="session")
def page_of_packets(run_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run with packets, of all methods."""
    path = tmp_path_factory.mktemp("pages") / "packets"
    shutil.copytree(run_path, path)
    return make_page(path)


def boxes(page: Page, selector: str) -> list[list[float]]:
    """Left, top, right and bottom of elements, in pixels of the window."""
    return page.eval_on_selector_all(
        selector,
        """all => all.map(each => {
          const box = each.getBoundingClientRect();
          return [box.left, box.top, box.right, box.bottom];
        })""",
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off(
    width: int,
    page_of_packets: Path,
    flow_run: Callable[[str], Path],
    seen: Callable[[Path, int], Opened],
) -> None:
    for file in (page_of_packets, flow_run("K=8") / "index.html"):
        it = seen(file, width)
        assert cut_off(it.page) == []
        assert it.clean()


@pytest.mark.parametrize("width", WIDTHS)
def test_matrices_are_whole_at_every_width(
    width: int, flow_run: Callable[[str], Path], chromium: Browser
) -> None:
    with opened(chromium, flow_run("K=8") / "index.html", width) as it:
        ((left, _, right, bottom),) = boxes(it.page, "#drawing")
        cards = boxes(it.page, ".pod")
        assert len(cards) == 8 and all(left <= a and c <= right for a, _, c, _ in cards)
        for i, (a, b, c, d) in enumerate(cards):
            over = [min(c, z) > max(a, x) and min(d, w) > max(b, y) for x, y, z, w in cards[:i]]
            assert not any(over), "no card lies on another"
        parts = boxes(it.page, ".cells, .cells path, .cells text")
        assert all(left <= a and c <= right and d <= bottom for a, _, c, d in parts)
        ((_, _, _, low),) = boxes(it.page, ".podgrid")
        assert bottom - low < 20, "nothing is blank below"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_panel_says_all_of_every_link(
    width: int, page_of_packets: Path, chromium: Browser
) -> None:
    with opened(chromium, page_of_packets, width) as it:
        found = it.page.evaluate(
            """() => [...document.querySelectorAll('#links .link-name')].map(button => {
              button.click();
              const panel = document.getElementById('panel');
              const cells = [...panel.querySelectorAll('.verdicts :is(th, td)')];
              const edge = Math.max(...cells.map(cell => cell.getBoundingClientRect().right));
              return [button.textContent, panel.querySelector('.name').textContent,
                panel.getBoundingClientRect().right - edge, panel.scrollWidth - panel.clientWidth];
            })"""
        )
        assert len(found) > 8 and all(wanted == shown for wanted, shown, _, _ in found)
        assert min(room for _, _, room, _ in found) > 0 and max(cut for *_, cut in found) == 0


@pytest.mark.parametrize("width", [1280, 1400])
def test_a_chosen_link_leaves_no_blank_under_the_drawing(
    width: int, page_of_packets: Path, chromium: Browser
) -> None:
    """What is known of it is longer than the drawing, and scrolls."""
    with opened(chromium, page_of_packets, width) as it:
        it.page.locator("#links .link-name").first.click()
        ((*_, keys),), ((*_, panel),) = boxes(it.page, "#keys"), boxes(it.page, "#panel")
        assert panel - keys < 100
        longer = "each => each.scrollHeight > each.clientHeight"
        assert it.page.locator("#panel").evaluate(longer), "the test has a point"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["K=4", "K=8"])
def test_every_switch_has_its_name_in_sight(
    name: str, width: int, flow_run: Callable[[str], Path], seen: Callable[[Path, int], Opened]
) -> None:
    """In the drawing of the fabric, or of a pod."""
    run = flow_run(name)
    page = seen(run / "index.html", width).page
    wanted = RunDirectory(run).fabric.switch_names
    if name == "K=8":
        page.select_option("#pod", "3")
        wanted = [each for each in wanted if re.match("core|(tor|agg)3_", each)]
    shown = page.locator(NAMES).all_text_contents()
    assert sorted(shown) == sorted(wanted)
    ((left, _, right, _),) = boxes(page, "#drawing")
    places = boxes(page, NAMES)
    assert all(box[0] >= left and box[2] <= right for box in places), "without scrolling"
    height = page.locator(".fabric").bounding_box()
    assert height is not None and height["height"] < 850, "a window high, not more"
    for i, (a, b, c, d) in enumerate(places):
        for x, y, z, w in places[:i]:
            across, down = min(c, z) - max(a, x), min(d, w) - max(b, y)
            assert min(across, down) < 3, "no name lies on another"


def test_the_ranking_is_seen_at_once_until_a_link_is_chosen(
    page_of_packets: Path, chromium: Browser
) -> None:
    with opened(chromium, page_of_packets, 1400) as it:
        page = it.page
        page.set_viewport_size({"width": 1400, "height": 900})
        ((_, top, _, bottom),) = boxes(page, "#ranking")
        assert 0 < top < bottom <= 900
        summary = json.loads((page_of_packets.parent / "summary.json").read_text())
        own = {name: entry[entry["native"]] for name, entry in summary["methods"].items()}
        blocks = [
            [row.split("\t") for row in body.locator("tr:not(.bench)").all_inner_texts()]
            for body in page.locator("#ranking tbody").all()
        ]
        for block in blocks:
            f1 = [float(row[1]) for row in block]
            assert f1 == sorted(f1, reverse=True)
        rows = [row for block in blocks for row in block]
        assert {row[0].removesuffix(" *"): row[1:] for row in rows} == {
            name: [f"{e['f1']:.3f}", f"{e['false_negatives']}", f"{e['false_positives']}"]
            for name, e in own.items()
        }
        worst = page.locator("#ranking .choice").last
        message = worst.inner_text()
        worst.press("Enter")
        assert page.inner_text("#verdict").startswith(message.removesuffix(" *"))
        assert page.inner_text("#ranking .chosen th") == message
        assert page.evaluate("document.activeElement.innerText") == message
        page.locator("#links .link-name").first.click()
        assert page.locator("#ranking").count() == 0
        page.locator(".fabric").press("Escape")
        assert page.locator("#ranking").count() == 1
        assert it.clean()


def test_a_telephone_shows_what_methods_missed_and_blamed_wrongly(
    page_of_packets: Path, chromium: Browser
) -> None:
    with opened(chromium, page_of_packets, 390) as it:
        heads = it.page.locator("#comparison thead th").all_inner_texts()
        cells = boxes(it.page, "#comparison tbody:first-of-type tr:nth-child(2) > *")
        ((_, _, edge, _),) = boxes(it.page, ".wide:has(#comparison)")
        for title in ("F1", "miss", "wrong"):
            assert cells[heads.index(title)][2] <= edge - 12, "and not under the shade"
        it.page.locator(".wide:has(#comparison)").evaluate("part => { part.scrollLeft = 999; }")
        moved = boxes(it.page, "#comparison tbody:first-of-type tr:nth-child(2) > *")
        assert moved[-1][2] <= edge + 1 < cells[-1][2], "the rest is reached by scrolling"
        assert moved[0] == cells[0], "and the names stay"


@pytest.mark.parametrize("width", WIDTHS)
def test_names_of_methods_are_not_broken_within_a_word(
    width: int, page_of_packets: Path, seen: Callable[[Path, int], Opened]
) -> None:
    it = seen(page_of_packets, width)
    words = it.page.evaluate(
        """() => [...document.querySelectorAll('tbody th')].flatMap(head => {
          const found = [];
          const texts = document.createTreeWalker(head, NodeFilter.SHOW_TEXT);
          while (texts.nextNode()) {
            const text = texts.currentNode, range = document.createRange();
            for (const word of text.data.matchAll(/\\w+/g)) {
              range.setStart(text, word.index);
              range.setEnd(text, word.index + word[0].length);
              found.push([word[0], range.getClientRects().length]);
            }
          }
          return found;
        })"""
    )
    assert {"acquit", "conditional", "severe"} <= {word for word, _ in words}
    assert {word for word, lines in words if lines > 1} == set()
    assert it.clean()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_way_of_a_packet_is_pointed_at_as_it_goes(
    width: int, page_of_packets: Path, seen: Callable[[Path, int], Opened]
) -> None:
    page = seen(page_of_packets, width).page
    parts = boxes(page, "#packet .way > li")
    arrows = page.eval_on_selector_all(
        "#packet .wire", "all => all.map(each => getComputedStyle(each, '::after').content)"
    )
    assert len(parts) == 2 * len(arrows) + 1 >= 5
    pairs = list(pairwise(parts))
    if set(arrows) == {'"→"'}:
        assert all(before[2] <= after[0] for before, after in pairs), "in one row"
    else:
        assert set(arrows) == {'"↓"'}
        assert all(before[3] <= after[1] for before, after in pairs), "one below the other"


def test_arrow_heads_show_where_links_lead(
    flow_run: Callable[[str], Path], seen: Callable[[Path, int], Opened]
) -> None:
    """Of all links at K=4, and of those of a pod at K=8."""
    heads = """paths => paths.map(path => {
      const [way, head] = path.getAttribute('d').split('M').slice(1)
        .map(part => part.match(/[-.\\d]+/g).map(Number));
      if (!head) return null;
      const along = [way.at(-2) - way[0], way.at(-1) - way[1]];
      const tip = [0, 1].map(i => head[i + 2] - (head[i] + head[i + 4]) / 2);
      const lengths = Math.hypot(...along) * Math.hypot(...tip);
      return (along[0] * tip[0] + along[1] * tip[1]) / lengths;
    })"""
    for name, selector in (("K=4", ".link"), ("K=8", ".link")):
        for width in (390, 1400):
            page = seen(flow_run(name) / "index.html", width).page
            if name == "K=8":
                page.select_option("#pod", "3")
            turns = page.eval_on_selector_all(f".fabric .links {selector}", heads)
            assert turns and all(turn is not None and turn > 0.9 for turn in turns)
