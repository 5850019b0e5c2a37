# SPDX-License-Identifier: Apache-2.0
"""``canary chapter``: what was reproduced, as a chapter of a thesis."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scenarios.command.arguments import JsonOption, QuietOption
from scenarios.command.results import Output
from testbed.fabric.names import plain


def _names() -> list[str]:
    """Return the names that ``--fig`` completes."""
    from scenarios.papers.registry import EXPERIMENTS

    return list(EXPERIMENTS)


def chapter(
    fig: Annotated[
        str,
        typer.Option(
            help="Experiments that were reproduced: canary-8,007-13.", autocompletion=_names
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the chapter.")],
    runs: Annotated[
        Path, typer.Option("--in", help="Folder of the reproductions.", show_default=True)
    ] = Path("runs/reproduce"),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write what was reproduced as LaTeX.

    It has tables, vector figures, the data as CSV and the papers as BibTeX; and a PDF, if tectonic
    or latexmk is installed.
    """
    from scenarios.papers.chapter import NO_PDF, make_pdf, write_chapter
    from scenarios.papers.registry import experiments_named

    output = Output(quiet, as_json)
    names = write_chapter(experiments_named(fig), runs, out)
    pdf = make_pdf(out)

    def show() -> None:
        """Print where the chapter and its PDF are."""
        print(plain(f"chapter  {out / 'chapter.tex'}   {len(names)} files"))
        print(plain(f"pdf      {pdf}") if pdf else NO_PDF)

    made = {"path": str(out), "files": names, "pdf": None if pdf is None else str(pdf)}
    output.show(out, lambda: made, show)
