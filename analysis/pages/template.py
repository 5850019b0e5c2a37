# SPDX-License-Identifier: Apache-2.0
"""Join templates, scripts and data to one HTML file that needs no other file.

Names in a record are untrusted input. Jinja2 escapes them in the HTML; in the JSON data no text can
end the script element; the scripts set text and never HTML; and the page's content security policy
forbids every other script and every request.
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
from testbed.record.atomic import output_file
from testbed.record.outputs import Kind

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
    """Return data as JSON that is safe inside a script element: ``<``, ``>``, ``&`` and
    JavaScript's line separators are escaped.

    Raises:
        ValueError: A number is nan or infinite.
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
    """Return the HTML text of a page.

    Args:
        template, styles, scripts: Names of files in `ASSETS`. The scripts are joined to one.
        data: What the scripts read, embedded as JSON.
        shown: Values of the template's variables.
    """
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


def _is_page(path: Path) -> bool:
    """Return True if a file begins as all pages do, up to the hash in the policy of `ASSETS`."""
    own = (ASSETS / "base.html").read_bytes().partition(b"{{")[0]
    with path.open("rb") as file:
        return file.read(len(own)) == own


PAGE_KIND = Kind("page of this program", "index.html", _is_page)


def write_page(path: Path, text: str) -> None:
    """Write a page atomically, so that a failure leaves no partial file.

    Raises:
        FolderError: ``path`` holds something else than a page of this program.
        OSError: The file cannot be written.
    """
    with output_file(path, PAGE_KIND, "") as new:
        new.write_text(text, encoding="utf-8")
