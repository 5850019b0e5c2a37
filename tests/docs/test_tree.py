# SPDX-License-Identifier: Apache-2.0
"""The documentation can be read in the repository, without building the site."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = {"_build", "gallery", "figures_made", ".venv", "runs", ".git", "node_modules"}
PAGES = sorted(path for path in ROOT.rglob("*.md") if not BUILT & set(path.relative_to(ROOT).parts))
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
FENCED = re.compile(
    r"^(?P<fence>```+|:::+)(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=fence)$", re.M | re.S
)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def without_blocks(text: str) -> str:
    return FENCED.sub(lambda block: block["body"] if block["fence"][0] == ":" else "", text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.*?) *$", without_blocks(page.read_text()), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = 0
        while (anchor := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(anchor)
    return found


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_link_is_dead(page: Path) -> None:
    for link in LINK.findall(without_blocks(page.read_text())):
        if re.match(r"[a-z][a-z+.-]*:", link):
            continue
        name, _, anchor = link.partition("#")
        target = Path(os.path.normpath(page.parent / name)) if name else page
        assert target.exists(), f"{link} leads nowhere"
        assert not BUILT & set(target.relative_to(ROOT).parts), f"{link} is only on the built site"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_block_is_empty(page: Path) -> None:
    for block in FENCED.finditer(page.read_text()):
        assert block["body"].strip(), f"{block['info']} shows nothing"
        assert not re.match(r"\{(made|include)\}", block["info"].strip())


def test_the_words_of_other_tools_are_answered() -> None:
    """The table of docs/compared.md; other tests hold the answers."""
    text = (ROOT / "docs" / "compared.md").read_text()
    assert all(f"`{word}" in text for word in ("--topo", "make run", "clab deploy", "sudo mn"))
