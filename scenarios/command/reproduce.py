# SPDX-License-Identifier: Apache-2.0
"""``canary reproduce``: lists the experiments, or runs some of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from scenarios.command.arguments import JsonOption, QuietOption
from scenarios.command.results import Output
from scenarios.experiment.terminal import line, progress_bar, wide_console
from testbed.errors import UserError
from testbed.fabric.names import command

if TYPE_CHECKING:
    from scenarios.papers.experiment import Effort, Experiment
    from scenarios.papers.verdicts import Line


def _names() -> list[str]:
    from scenarios.papers.registry import EXPERIMENTS

    return ["quick", "all", *EXPERIMENTS]


def reproduce(
    fig: Annotated[
        str | None,
        typer.Option(
            help="A name of the list, several names joined by commas, quick, or all. [default: "
            "print the list]",
            autocompletion=_names,
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(
            min=2,
            max=1000,
            help="Number of repetitions with different seeds. [default: 20; 2 to 1,000]",
            show_default=False,
        ),
    ] = 20,
    trace: Annotated[
        Path | None,
        typer.Option(help="A capture for canary-7 and canary-11. [default: traffic is generated]"),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="Write the results as JSON into this file, run nothing. [default: none]"),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="A Dask scheduler's address or file. [default: this machine]"),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder in which each gets a folder.", show_default=True)
    ] = Path("runs/reproduce"),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Reproduce figures and tables of the papers, and compare."""
    from scenarios.command.compilers import need_compiler
    from scenarios.papers.experiment import Effort
    from scenarios.papers.registry import experiments_named

    output = Output(quiet, as_json)
    if results is not None:
        written = line(f"written: {_write_results(results, out)}")
        figures = {"path": str(results)}
        output.show(results, lambda: figures, lambda: wide_console().print(written, soft_wrap=True))
        return
    if fig is None:
        _show_list(output, out)
        return
    experiments = experiments_named(fig)
    need_compiler()
    effort = Effort(draws, trace=_checked(trace, experiments))
    with output.working():
        found = _run(experiments, effort, out, cluster)
    if quiet or as_json:
        output.show(
            out, lambda: {n: _figures(out / n, lines) for n, lines in found.items()}, lambda: None
        )


def _show_list(output: Output, out: Path) -> None:
    """Print the list of the experiments; those that were run are in the folder ``out``."""
    from scenarios.papers.results import experiment_figures, experiment_table

    if output.quiet:
        raise UserError("--quiet prints the path of what is reproduced: say what with FIG=")
    hint = line("make reproduce FIG=name, FIG=quick or FIG=all", "dim")
    output.show(
        None,
        lambda: experiment_figures(out),
        lambda: wide_console().print(Group(experiment_table(out), hint)),
    )


def _write_results(file: Path, out: Path) -> str:
    """Write the results of what was run in ``out`` into a file, and return its path in words."""
    from scenarios.papers.results import RESULTS, write_results
    from testbed.record.outputs import in_words, need_place

    replaces = need_place(file, RESULTS, "RESULTS=")
    write_results(file, out)
    return in_words(file, replaces)


def _run(
    experiments: Sequence[Experiment], effort: Effort, out: Path, cluster: str | None
) -> dict[str, list[Line]]:
    """Run experiments one after the other, print what comes out of each, and return it by name; the
    failed ones are reported at the end."""
    from scenarios.command.show import own_name
    from scenarios.extras import NO_PICTURE, can_draw
    from scenarios.papers.reproduce import need_out
    from scenarios.papers.reproduce import reproduce as run
    from scenarios.papers.tables import verdict_table
    from testbed.record.run import RunError

    need_out(out)
    console, failed = wide_console(), []
    found: dict[str, list[Line]] = {}
    with progress_bar() as progress:
        for experiment in experiments:
            try:
                lines = run(experiment, progress, out, effort, cluster=cluster)
            except RunError as error:
                failed.append(str(error))
                continue
            found[experiment.name] = lines
            console.print(verdict_table(experiment, lines))
            console.print(line(f"{out / experiment.name}/index.html"), soft_wrap=True)
    if not can_draw():
        console.print(line(NO_PICTURE, "yellow"), soft_wrap=True)
    if failed:
        raise RunError("; ".join(failed))
    shown = command(own_name(), "ui", *([] if out.parent == Path("runs") else ["--in", str(out)]))
    console.print(line(f"all: {shown} shows them in a browser"), soft_wrap=True)
    return found


def _figures(folder: Path, lines: Sequence[Line]) -> dict[str, Any]:
    """Return what came out of an experiment, for programs: its folder, and for each value of the
    paper ours (null if there is none) and the verdict."""
    return {
        "path": str(folder),
        "lines": [
            {
                "quantity": each.quantity,
                "series": each.series,
                "x": each.paper.x,
                "paper": each.paper.value,
                "kind": each.paper.kind,
                "ours": each.ours.mean.mean if each.ours else None,
                "verdict": each.verdict,
                "reason": each.reason,
            }
            for each in lines
        ],
    }


def _checked(trace: Path | None, experiments: Sequence[Experiment]) -> Path | None:
    """Return the capture's absolute path, because other processes read it; None if there is
    none."""
    if trace is None:
        return None
    if deaf := [each.name for each in experiments if not each.traffic]:
        raise UserError(f"TRACE has no effect on {', '.join(deaf)}")
    if not trace.is_file():
        raise UserError(f"TRACE={trace}: there is no such file")
    from testbed.traffic.capture import read_capture

    read_capture(trace, 1.0)  # raises an error before anything is computed
    return trace.absolute()
