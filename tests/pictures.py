# SPDX-License-Identifier: Apache-2.0
"""The pictures of the README: ``python -m tests.pictures RUN COMPARISON``, of their pages, and
``python -m tests.pictures runs/reproduce/canary-8``, of a figure, which holds the key of what
it shows: a test compares it with that of ``docs/data/results.json``.

``python -m tests.pictures look OUT PAGE...`` takes whole pages, from disk or an address, at the
widths of `tests.browser`, light and dark: to be looked at.
"""

from __future__ import annotations

import io
import sys
from itertools import product
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import Locator

from scenarios.command.show import make_page
from scenarios.papers.registry import EXPERIMENTS
from scenarios.papers.reproduce import read_reproduction
from scenarios.papers.results import results_of
from tests.browser import WIDTHS, browser, opened
from tests.docs.made import KEY, key_of

PICTURES = Path(__file__).parent.parent / "docs"


def main(run: Path, comparison: Path) -> None:
    with browser() as chromium:
        with opened(chromium, make_page(run)) as it:
            page = it.page
            page.select_option("#method", label="netbouncer *")
            page.locator("#panel .link-name").first.click()
            page.locator("h1").click()  # no focus on anything
            _take(page.locator("#fabric"), "run.png")
        with opened(chromium, make_page(comparison), width=1000) as it:
            _take(it.page.locator("#means"), "comparison.png")


def figure(of: Path) -> None:
    """Write the picture of an experiment that was run in the folder ``of``."""
    reproduction = read_reproduction(EXPERIMENTS[of.name], of.parent)
    assert reproduction is not None, f"{of}: it was not run to its end"
    picture = Image.open(of / "figure.png").convert("RGB")
    picture.thumbnail((1200, 1200))
    info = PngInfo()
    info.add_text(KEY, key_of(of.name, results_of(reproduction)))
    picture.quantize(256).save(PICTURES / "reproduced.png", optimize=True, pnginfo=info)


def look(out: Path, pages: list[str]) -> None:
    """Write eight pictures of each page into the folder ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        for number, page in enumerate(pages):
            where = page if page.startswith("http://127.0.0.1:") else Path(page)
            for width, dark in product(WIDTHS, (False, True)):
                scheme = "dark" if dark else "light"
                with opened(chromium, where, width, dark) as it:
                    it.page.wait_for_timeout(1000 if isinstance(where, str) else 100)
                    name = out / f"{number}-{width}-{scheme}.png"
                    it.page.screenshot(path=name, full_page=True)
                    print(f"{name}: {page}", *it.complaints)


def _take(part: Locator, name: str) -> None:
    """Write a picture of a part of a page, in the few colours that it has."""
    picture = Image.open(io.BytesIO(part.screenshot()))
    picture.convert("RGB").quantize(256).save(PICTURES / name, optimize=True)


if __name__ == "__main__":
    words = [Path(word) for word in sys.argv[1:]]
    if sys.argv[1:2] == ["look"]:
        look(words[1], sys.argv[3:])
    else:
        main(*words) if len(words) == 2 else figure(*words)
