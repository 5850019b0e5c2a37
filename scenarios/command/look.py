# SPDX-License-Identifier: Apache-2.0
"""The commands that look on: ``canary explain``, ``runs``, ``diff`` and ``ui``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scenarios.command.arguments import JsonOption, QuietOption, TrustOption
from scenarios.command.results import Output
from testbed.fabric.names import plain


def _words() -> list[str]:
    """Return the words that ``canary explain`` completes."""
    from scenarios.command.explain import words

    return words()


def runs(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Settings to filter by.")
    ] = None,
    folder: Annotated[Path, typer.Option("--in", help="The folder of the runs.")] = Path("runs"),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """List finished runs, the newest first.

    Settings choose some of them: canary runs K=4 SEED=1.
    """
    from scenarios.command.book import list_runs, parse_filters, run_figures, show_runs

    output = Output(quiet, as_json)
    found, damaged = list_runs(folder, parse_filters(words or ()))
    if quiet:
        for run in found:
            print(plain(str(run.path)))
        return
    figures = [run_figures(run) for run in found]
    output.show(
        folder,
        lambda: {"runs": figures, "unreadable": damaged},
        lambda: show_runs(found, damaged, Console()),
    )


def diff(
    one: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    other: Annotated[Path, typer.Argument(help="Directory of another one.")],
    as_json: JsonOption = False,
    trust: TrustOption = False,
) -> None:
    """Say what differs between two runs.

    These are settings, F1, and the links whose verdict changed.
    """
    from scenarios.command.book import difference, show_difference
    from testbed.record.run import RunDirectory

    found = difference(*(RunDirectory(path, trust=trust) for path in (one, other)))
    Output(as_json=as_json).show(None, lambda: found, lambda: show_difference(found, Console()))


def ui(
    folder: Annotated[Path, typer.Option("--in", help="The folder of the runs.")] = Path("runs"),
) -> None:
    """Show all runs, comparisons and reproductions in a browser.

    The page is served on this machine only, until Ctrl-C.
    """
    from scenarios.command.ui import serve

    serve(folder)


def explain(
    word: Annotated[
        str | None,
        typer.Argument(
            help="A column, a mark, a measurement, a setting or a method.", autocompletion=_words
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain a word that the other commands print."""
    from scenarios.command.explain import explained, explanations

    output = Output(as_json=as_json)
    output.show(None, lambda: explanations(word), lambda: print(explained(word)))
