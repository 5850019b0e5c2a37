# SPDX-License-Identifier: Apache-2.0
"""A real browser for pages: Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, Request, sync_playwright

WIDTHS = (390, 768, 1400, 1920)
"""A telephone, a tablet, a laptop and a desk."""
SCHEMES = [(width, number % 2 == 0) for number, width in enumerate(WIDTHS)]
"""Each width, in dark and in light colours in turn: no place depends on colours."""

ALONE = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""So that it asks nobody anything; root has no sandbox."""


_CUT_OFF = """() => {
  const found = [];
  const say = (part, why) => found.push(`${part.tagName} ${part.id || part.className} ${why}`);
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) say(page, `${page.scrollWidth} in ${page.clientWidth}`);
  for (const part of document.querySelectorAll('body, body *:not(svg *, option, script)')) {
    const scrolls = getComputedStyle(part).overflowX === 'auto' || part.tagName === 'svg';
    if (scrolls || !part.clientWidth || part.scrollWidth <= part.clientWidth + 1) continue;
    say(part, `${part.scrollWidth} in ${part.clientWidth}`);
  }
  for (const text of document.querySelectorAll('svg text')) {
    const [own, all] = [text, text.ownerSVGElement].map(part => part.getBoundingClientRect());
    const inside = own.left >= all.left - 1 && own.right <= all.right + 1
      && own.top >= all.top - 1 && own.bottom <= all.bottom + 1;
    if (own.width && !inside) say(text, `"${text.textContent}" leaves its drawing`);
  }
  return found;
}"""


def cut_off(page: Page) -> list[str]:
    """Return what a reader cannot see and cannot scroll to, in words; an empty list is good.

    These are elements that are narrower than what they hold, but for those that scroll, text that
    leaves its drawing, and the page itself where it is wider than the window.
    """
    return page.evaluate(_CUT_OFF)


@dataclass
class Opened:
    """A page, and what should stay empty: what it complained of, and what it asked for."""

    page: Page
    own: str = "file:"
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def clean(self) -> bool:
        assert not self.complaints, self.complaints
        assert not self.requests, self.requests
        return True

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.own, "data:", "blob:")):
            self.requests.append(request.url)


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, of the distribution or Playwright's own, or the test is skipped.

    The headless shell, which has no windows at all, takes half the time of the whole browser.
    """
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    chromium = next((path for name in names if (path := shutil.which(name))), None)
    with sync_playwright() as playwright:
        try:
            made = playwright.chromium.launch(executable_path=chromium, args=list(ALONE))
        except Error as error:
            if chromium or "Executable doesn't exist" not in error.message:
                raise
            missing = pytest.fail if os.environ.get("GITHUB_ACTIONS") else pytest.skip
            missing("no Chromium on the PATH: apt install chromium-headless-shell")
        yield made
        made.close()


@contextmanager
def opened(
    chromium: Browser, where: Path | str, width: int = 1280, dark: bool = False
) -> Iterator[Opened]:
    """A page from disk, or from a server that it alone may ask."""
    context = chromium.new_context(
        viewport={"width": width, "height": 844 if width < 500 else 800},
        color_scheme="dark" if dark else "light",
    )
    found = Opened(context.new_page(), where if isinstance(where, str) else "file:")
    found.page.on("console", lambda message: found.complaints.append(message.text))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.on("request", found._asked)
    found.page.goto(where if isinstance(where, str) else where.absolute().as_uri())
    yield found
    context.close()
