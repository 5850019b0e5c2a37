# SPDX-License-Identifier: Apache-2.0
"""The parts of the documentation that are made from the code and from docs/data, and committed.

    python -m tests.docs.made            write all of them anew
    python -m tests.docs.made --check    say which are not what comes, and change nothing

On a page such a part stands between two comments; ``NAME`` is one of ``MAKERS`` of
`docs/made_pages.py`, with its argument:

    <!-- made: NAME -->
    ...
    <!-- end of NAME -->

The figures of the methods' pages are in ``docs/learn/methods/figures``.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from PIL import Image, ImageChops

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "learn" / "methods" / "figures"
PART = re.compile(
    r"^<!-- made: (?P<what>\w+(?: \w+)?) -->\n\n(?P<shown>.*?)\n\n<!-- end of (?P=what) -->$",
    re.MULTILINE | re.DOTALL,
)
APART = 64
"""Levels, of 255, by which a pixel differs if it is not drawn alike."""
KEY = "figures"
"""The text of a PNG file that holds the `key_of` of what it shows."""


@cache
def module(name: str) -> ModuleType:
    """Return a module of docs, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


def pages() -> list[Path]:
    """Return the pages that are written by hand or have a part that is made."""
    built = {"_build", "gallery", "figures_made"}
    return sorted(path for path in DOCS.rglob("*.md") if not built & set(path.parts))


def made(what: str) -> str:
    """Return what a part of a page should show."""
    name, *words = what.split()
    return module("made_pages").MAKERS[name](*words).strip("\n")


def remade(text: str) -> str:
    """Return the text of a page with its parts made anew."""

    def part(found: re.Match[str]) -> str:
        """Return a part with its comments."""
        what = found["what"]
        return f"<!-- made: {what} -->\n\n{made(what)}\n\n<!-- end of {what} -->"

    return PART.sub(part, text)


def drawn(folder: Path) -> Iterator[Path]:
    """Draw the figures into a folder, in the few colours that they have, and yield their files."""
    module("figures").draw_all(folder)
    for path in sorted(folder.glob("*.png")):
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(64)
        small.save(path, optimize=True)
        yield path


def difference(one: Path, other: Path) -> float:
    """Return the share of the pixels by which two pictures differ; 1 if their sizes do."""
    with Image.open(one) as a, Image.open(other) as b:
        if a.size != b.size:
            return 1.0
        apart = ImageChops.difference(a.convert("L"), b.convert("L"))
        return sum(apart.histogram()[APART:]) / (a.width * a.height)


def key_of(name: str, results: Mapping[str, Any]) -> str:
    """Return the name of an experiment and the SHA-256 of the lines of its results, as they are in
    ``docs/data/results.json``."""
    return f"{name} {hashlib.sha256(json.dumps(results['lines']).encode()).hexdigest()}"


def main() -> int:
    """Write or check the parts and figures."""
    parser = argparse.ArgumentParser(description="Write the made parts of the documentation.")
    parser.add_argument("--check", action="store_true", help="say what differs, and change nothing")
    asked = parser.parse_args()
    differing = 0
    for page in pages():
        text = page.read_text()
        if (new := remade(text)) != text:
            differing += 1
            print(page.relative_to(DOCS))
            if not asked.check:
                page.write_text(new)
    with tempfile.TemporaryDirectory() as folder:
        for path in drawn(Path(folder)):
            kept = FIGURES / path.name
            if not kept.exists() or difference(path, kept) > 0:
                differing += 1
                print(kept.relative_to(DOCS))
                if not asked.check:
                    FIGURES.mkdir(exist_ok=True)
                    kept.write_bytes(path.read_bytes())
    return differing if asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
