# SPDX-License-Identifier: Apache-2.0
"""Pages for everybody: from the keyboard, in both colour schemes, on paper, and over time."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from playwright.sync_api import Browser

from analysis.pages.template import ASSETS
from scenarios.command.show import make_page
from tests.analysis.pages.test_run_page import choose, figures_of, marks, summary_of
from tests.browser import Opened, opened

TEXTS = ("text", "soft", "accent", "good", "bad", *(f"s{n}" for n in range(4)))
LINES = ("right", "wrong", "missed", *(f"r{n}" for n in range(6)), *(f"c{n}" for n in range(8)))


def schemes() -> list[dict[str, str]]:
    """The colours by name: of the light scheme, and of the dark."""
    found: list[dict[str, str]] = [{}, {}]
    for name in ("page.css", "comparison.css"):
        light, _, dark = (ASSETS / name).read_text().partition("prefers-color-scheme: dark")
        for colours, text in zip(found, (light, dark.partition("\n}")[0]), strict=True):
            colours |= re.findall(r"--(\w+): (#[0-9a-f]{3,6});", text)
    return found


def linear(colour: str) -> npt.NDArray[np.float64]:
    """Red, green and blue as light, float64[3]."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = np.array([int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))


@pytest.mark.parametrize("colours", schemes(), ids=["light", "dark"])
def test_colours_stand_out(colours: dict[str, str]) -> None:
    """WCAG 2.2: 4.5 to 1 of text, 3 to 1 of what is drawn."""
    for least, names in ((4.5, TEXTS), (3.0, LINES)):
        for name in names:
            for back in ("back", "card"):
                low, high = sorted(luminance(colours[each]) for each in (name, back))
                assert (high + 0.05) / (low + 0.05) >= least, (name, back)


def oklab(light: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Lightness and two opponent colours, in which equal distances look equal (Ottosson, 2020)."""
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    opponents = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return opponents @ np.cbrt(cones @ light)


SEEN = {
    "all cones": np.eye(3),
    "no red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no blue": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
"""How red, green and blue light look without one kind of cone (Machado and others, 2009)."""


@pytest.mark.parametrize("colours", schemes(), ids=["light", "dark"])
def test_loss_rates_can_be_told_apart(colours: dict[str, str]) -> None:
    """Neighbouring ranges differ to every reader, and go from most to least contrast."""
    scale = [linear(colours[f"r{n}"]) for n in range(6)]
    least = {"all cones": 0.1}
    for reader, seen in SEEN.items():
        looks = np.array([oklab(np.clip(np.asarray(seen) @ each, 0, 1)) for each in scale])
        apart = np.linalg.norm(np.diff(looks, axis=0), axis=1)
        assert apart.min() > least.get(reader, 0.075), (reader, apart)
    lightness = np.array([oklab(each)[0] for each in scale])
    away = np.abs(lightness - oklab(linear(colours["back"]))[0])
    assert (np.diff(away) < -0.05).all(), "the more is lost, the more a link stands out"
    healthy = oklab(linear(colours["healthy"]))
    assert min(np.linalg.norm(oklab(each) - healthy) for each in scale) > 0.2


def test_a_page_is_used_from_the_keyboard(
    flow_run: Callable[[str], Path], chromium: Browser
) -> None:
    with opened(chromium, flow_run("K=4") / "index.html") as it:
        page, reached = it.page, []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id"))
            style = "getComputedStyle(document.activeElement).outlineStyle"
            assert page.evaluate(style) != "none", "focus can be seen"
        assert {"method", "tier", "pod", "epoch", "search"} <= set(reached)
        page.locator(".fabric").focus()
        first = page.locator("#panel .name").inner_text()
        page.keyboard.press("ArrowRight")
        assert page.locator("#panel .name").inner_text() != first
        page.keyboard.press("Escape")
        assert page.locator("#panel .name").count() == 0
        button = page.locator("#comparison thead .sort").nth(1)
        button.focus()
        page.keyboard.press("Enter")
        assert page.locator("#comparison thead th").nth(1).get_attribute("aria-sort")
        assert it.clean()


def test_a_page_is_printed_in_light_colours_and_without_controls(
    flow_run: Callable[[str], Path], chromium: Browser
) -> None:
    with opened(chromium, flow_run("K=4") / "index.html", dark=True) as it:
        it.page.emulate_media(media="print", color_scheme="dark")
        assert not it.page.locator(".controls").first.is_visible()
        assert it.page.locator(".fabric").is_visible()
        back = it.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert back == "rgb(255, 255, 255)"


def test_what_was_said_after_each_epoch_of_a_larger_run(
    flow_run: Callable[[str], Path],
    seen: Callable[[Path, int], Opened],
    tmp_path: Path,
    chromium: Browser,
) -> None:
    run, heard = tmp_path / "run", []
    before = seen(flow_run("K=8") / "index.html", 1400).page
    assert "canary page --over-time" in before.inner_text("#time")
    assert not before.locator("#epoch").is_visible()
    shutil.copytree(flow_run("K=8"), run)
    make_page(run, over_time=True, progress=lambda what, share: heard.append(what))
    assert any(what.startswith("first 3 epochs: canary") for what in heard)
    assert (run / "index.html").stat().st_size < 3_000_000
    with opened(chromium, run / "index.html") as it:
        page = it.page
        choose(page, "canary")
        assert marks(page) == figures_of(run, "canary")
        assert page.locator("#overtime polyline").count() == 2  # found, and blamed wrongly
        page.locator("#epoch").fill("1")
        early = marks(page)
        # Some were not observed yet.
        assert 45 < early["right"] + early["missed"] <= len(summary_of(run)["faulty_links"])
        message = f"canary after 1 of 3 epochs: {early['right']} found, {early['missed']} missed"
        assert page.inner_text("#verdict").startswith(message)
        page.locator("#time summary").click()
        rows = page.locator("#since tbody tr")
        assert rows.count() == len(summary_of(run)["faulty_links"])
        at_once = sum(row.split("\t")[-1] == "1" for row in rows.all_inner_texts())
        assert 0 < at_once <= early["right"]
        assert it.clean()
