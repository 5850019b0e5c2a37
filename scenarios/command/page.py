# SPDX-License-Identifier: Apache-2.0
"""The command ``canary page``, which writes the page of a run or comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scenarios.command.arguments import JsonOption, QuietOption, TrustOption
from scenarios.command.results import Output
from scenarios.experiment.terminal import progress_bar
from testbed.fabric.names import plain


def page(
    directory: Annotated[Path, typer.Argument(help="Directory of a finished run or comparison.")],
    over_time: Annotated[
        bool,
        typer.Option(
            "--over-time",
            help="For a run: also show the verdicts after each epoch if they take a while to "
            "compute.",
        ),
    ] = False,
    trust: TrustOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make the page (index.html) of a run or comparison."""
    from scenarios.command.show import make_page

    output = Output(quiet, as_json)
    with output.working(), progress_bar() as progress:
        path = make_page(directory, trust, over_time, progress)
    output.show(path, lambda: {"path": str(path)}, lambda: print(plain(f"page: {path}")))
