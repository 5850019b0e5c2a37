# SPDX-License-Identifier: Apache-2.0
"""The commands for what others bring: ``canary import`` for files, ``check-method`` for methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scenarios.command.arguments import JsonOption, ParametersOption, QuietOption, formats
from scenarios.command.results import Output
from scenarios.process.signals import raise_on_signals
from testbed.fabric.names import plain


def check_method(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="A file, mine.py, or the name of a method.")
    ],
    parameters: ParametersOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Check a method of your own.

    The checks are of order, names, cuts, ties and emptiness; the exit code is 1 if one failed.
    """
    from analysis.evaluation.parameter_sets import choose_methods
    from analysis.methods.check import check_method as checks_of

    output = Output(as_json=as_json)
    chosen, _ = choose_methods(method, parameters, None)
    figures: dict[str, dict[str, str]] = {}
    with output.working():  # what is printed while the checks go on
        for built in chosen:
            print(plain(f"{built.name} ({built.method.name})"))
            figures[plain(built.name)] = {}
            for check in checks_of(built.method):
                figures[plain(built.name)][check.name] = plain(check.failed)
                print(f"  {'failed' if check.failed else 'passed'}  {check.name}")
                if check.failed:
                    print(plain(f"          {check.failed}"))
    if as_json:  # the reason why a check failed, "" if it passed
        output.show(None, lambda: figures, lambda: None)
    if any(failed for checks in figures.values() for failed in checks.values()):
        raise typer.Exit(1)


def import_(
    format_: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT", help="The format: flock, pingmesh, gnmi, ...", autocompletion=formats
        ),
    ],
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Its files.")],
    out: Annotated[Path, typer.Option(help="Folder for the tables.")],
    topology: Annotated[
        Path | None,
        typer.Option(
            help="The fabric of observations: a table, the folder of an import, or a file of a "
            "fabric's format. [default: none]"
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            help="Which ToR has which address: leaf{1}=10.{1}.0.0/16, or a file of both. "
            "[default: none]"
        ),
    ] = None,
    tors: Annotated[
        str | None,
        typer.Option(help="The names of a fabric's ToRs: leaf*. [default: by role and name]"),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make tables for `localize` from files of other tools.

    docs/do/import.md has the formats.
    """
    from scenarios.command.imports import import_to

    raise_on_signals()
    output = Output(quiet, as_json)
    with output.working():
        found, written = import_to(format_, files, out, topology, hosts, tors)
    notes, paths = ([plain(str(each)) for each in lines] for lines in (found.notes, written))
    output.show(
        out,
        lambda: {"path": str(out), "files": paths, "notes": notes},
        lambda: print(*notes, *paths, sep="\n"),
    )
