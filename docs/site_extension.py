# SPDX-License-Identifier: Apache-2.0
"""What the site adds to Sphinx: formulas, and links for the tree that lead to pages of the site.

Formulas are MathML, which browsers draw without a script. In the tree a page links to an example's
program; on the site, to its page with what it prints.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def _wrap_tables(app: Sphinx, doctree: nodes.document) -> None:
    """Let a wide table scroll by itself, so that a page is never wider than a telephone."""
    for table in list(doctree.findall(nodes.table)):
        if not isinstance(table.parent, nodes.container):
            wrapper = nodes.container(classes=["wide"])
            table.replace_self(wrapper)
            wrapper += table


_ROOT_PAGES = {
    f"project/{name.lower()}": name for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")
}
"""The files of the project's root that are pages of the site."""


def _as_on_the_site(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace what a page says for readers of the tree by what the site has in its place."""
    if name in _ROOT_PAGES:
        source[0] = f"```{{include}} ../../{_ROOT_PAGES[name]}.md\n:relative-docs: docs/\n```\n"
        return
    text = source[0].replace("examples/GALLERY_HEADER.rst)", "gallery/index.rst)")
    source[0] = re.sub(r"\bexamples/(\d\w+)\.py\)", r"gallery/\1.rst)", text)


_COLON = "\ue000"
"""Stands for a colon while napoleon reads a constant's text."""


def _hide_colon(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Keep napoleon from taking what stands before a colon in a constant's text for its type."""
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(":", _COLON)


def _show_colon(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def _short_types(
    app: Sphinx, what: str, name: str, thing: object, options: object, arguments: str, result: str
) -> tuple[str, str]:
    """Write the names of types of arrays without what Sphinx puts around them."""
    short = [
        re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text) if text else text
        for text in (arguments, result)
    ]
    return short[0], short[1]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive, the renderer of formulas and the event handlers with Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("source-read", _as_on_the_site)
    app.connect("autodoc-process-docstring", _hide_colon, priority=400)
    app.connect("autodoc-process-docstring", _show_colon, priority=600)
    app.connect("autodoc-process-signature", _short_types)
    app.connect("doctree-read", _wrap_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
