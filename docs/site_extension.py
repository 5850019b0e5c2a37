# SPDX-License-Identifier: Apache-2.0
"""What the site adds to Sphinx: pages made from the code and from data files, and formulas.

Markdown pages say ``{made} NAME`` where something is made when the site is built: the Markdown that
the function NAME of `MAKERS` returns stands there. Formulas are MathML, which browsers draw
without a script.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from docutils.utils.math.latex2mathml import tex2mathml
from figures import draw_all
from made_pages import MAKERS
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Made(SphinxDirective):
    """``{made} NAME``: Markdown that `made_pages.MAKERS` makes."""

    required_arguments = 1
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the parsed text that the named function makes."""
        name, *words = self.arguments
        if name not in MAKERS:
            raise self.error(f"nothing makes {name!r}: known are {', '.join(MAKERS)}")
        text = MAKERS[name](*words)
        holder = nodes.Element()
        self.state.nested_parse(
            StringList(text.splitlines(), name), self.content_offset, holder, match_titles=True
        )
        return holder.children


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


def _draw(app: Sphinx) -> None:
    """Draw the figures of the methods that are not there; `make clean` removes them."""
    draw_all(Path(app.srcdir) / "figures_made")


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
    app.add_directive("made", Made)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("builder-inited", _draw)
    app.connect("autodoc-process-docstring", _hide_colon, priority=400)
    app.connect("autodoc-process-docstring", _show_colon, priority=600)
    app.connect("autodoc-process-signature", _short_types)
    app.connect("doctree-read", _wrap_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
