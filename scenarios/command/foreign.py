# SPDX-License-Identifier: Apache-2.0
"""The commands for what others bring: ``canary import`` for files, ``check-method`` for methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scenarios.command.arguments import ParametersOption, formats
from scenarios.process.signals import raise_on_signals
from testbed.fabric.names import plain


def check_method(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="A file, mine.py, or the name of a method.")
    ],
    parameters: ParametersOption = "default",
) -> None:
    """Check a method of your own.

    The checks are of order, names, cuts, ties and emptiness; the exit code is 1 if one failed.
    """
    from analysis.evaluation.parameter_sets import choose_methods
    from analysis.methods.check import check_method as checks_of

    chosen, _ = choose_methods(method, parameters, None)
    failed = 0
    for built in chosen:
        print(plain(f"{built.name} ({built.method.name})"))
        for check in checks_of(built.method):
            failed += bool(check.failed)
            print(f"  {'failed' if check.failed else 'passed'}  {check.name}")
            if check.failed:
                print(plain(f"          {check.failed}"))
    if failed:
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
) -> None:
    """Make tables for `localize` from files of other tools.

    docs/do/import.md has the formats.
    """
    from scenarios.command.imports import import_to

    raise_on_signals()
    found, written = import_to(format_, files, out, topology, hosts, tors)
    for note in found.notes:
        print(plain(note))
    for path in written:
        print(plain(str(path)))
