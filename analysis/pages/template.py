"""Templates, scripts and data joined to one HTML file that needs nothing else.

Names come from whoever made the run. In the HTML Jinja2 escapes them, in the data nothing can end
the script element, the scripts set text and never HTML, and the page's own policy lets no other
script run and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from testbed.fabric.names import plain
from testbed.record.atomic import atomic_write

ASSETS = Path(__file__).parent / "assets"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["plain"] = lambda value: plain(str(value))
    return made


def embedded(data: Any) -> Markup:
    """Return data as JSON for a script element: it has no ``<`` and no end of a line for
    JavaScript.

    Raises:
        ValueError: A number is nan.
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def render_page(
    template: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Mapping[str, Any],
    **shown: Any,
) -> str:
    """Return a page: ``template`` with ``shown``, and ``scripts`` that find ``data`` in it."""
    script = "".join(
        ["(function () {\n'use strict';\n", *((ASSETS / s).read_text() for s in scripts), "})();\n"]
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup("".join((ASSETS / s).read_text() for s in styles)),
            script=Markup(script),
            digest=digest,
            data=embedded(data),
            **shown,
        )
    )


def write_page(path: Path, text: str) -> None:
    """Write a page, so that the file is whole or not there at all.

    Raises:
        OSError: It cannot be written.
    """
    with atomic_write(path) as new:
        new.write_text(text, encoding="utf-8")
