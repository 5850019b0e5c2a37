"""A real browser for pages: Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

__all__ = ["Opened", "browser", "opened"]

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
    """Chromium, of the distribution or Playwright's own, or the test is skipped."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for name in names if (path := shutil.which(name))), None)
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        if chromium is None and not Path(own).exists():
            missing = pytest.fail if os.environ.get("GITHUB_ACTIONS") else pytest.skip
            missing("no chromium on the PATH: apt install chromium")
        made = playwright.chromium.launch(executable_path=chromium or own, args=list(ALONE))
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
    found.page.on("console", lambda said: found.complaints.append(said.text))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.on("request", found._asked)
    found.page.goto(where if isinstance(where, str) else where.absolute().as_uri())
    yield found
    context.close()
