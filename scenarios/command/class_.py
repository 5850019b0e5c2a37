# SPDX-License-Identifier: Apache-2.0
"""``canary class make`` and ``canary class grade``, for lecturers."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from scenarios.command.arguments import ConfigOption, JsonOption, QuietOption, ScenarioOption
from scenarios.command.options import SettingsCommand, WordsCommand
from scenarios.command.results import Output
from scenarios.experiment.terminal import progress_bar
from testbed.errors import UserError
from testbed.fabric.names import command, plain

classes = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@classes.command(cls=SettingsCommand)
def make(
    ctx: typer.Context,
    students: Annotated[int, typer.Option(help="How many handouts. [1 to 1,000]")],
    scenario: ScenarioOption = None,
    config: ConfigOption = None,
    out: Annotated[Path, typer.Option(help="Folder of the class.", show_default=True)] = Path(
        "runs/class"
    ),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a handout for each student, and apart from them the answers.

    SEED= makes the same class again; without it, one is drawn and printed.
    """
    from scenarios.command.classroom import ANSWERS, HANDOUTS, make_class
    from scenarios.command.compilers import need_compiler
    from scenarios.experiment.request import make_request

    output = Output(quiet, as_json)
    given = dict(ctx.obj.settings)
    seed = int(given.pop("seed", secrets.randbelow(2**32)))
    request = make_request(scenario, given, config)
    settings = request.settings()
    need_compiler()
    with output.working(), progress_bar() as progress:
        make_class(request.name, request.scenario, settings, students, seed, out, progress)
    handouts, answers = out / HANDOUTS, out / ANSWERS

    def show() -> None:
        """Print where the handouts and the answers are, and how to grade."""
        print(plain(f"handouts  {handouts}   a folder for each student"))
        print(plain(f"answers   {answers}   keep them: they hold the truth; SEED={seed}"))
        print(plain(f"grade     {command('canary', 'class', 'grade', str(handouts))}"))

    made = {"path": str(out), "handouts": str(handouts), "answers": str(answers), "seed": seed}
    output.show(out, lambda: made, show)


@classes.command(cls=WordsCommand)
def grade(
    handed_in: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder for each student, with answer.csv.")
    ],
    answers: Annotated[
        Path | None, typer.Option(help="Folder of the answers. [default: answers beside FOLDER]")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Grade what the students of a class handed in."""
    from analysis.evaluation.screen import figures_table, print_screen
    from scenarios.command.classroom import ANSWERS, grade_class

    where = handed_in.absolute().parent / ANSWERS if answers is None else answers
    grades = grade_class(handed_in, where)
    if not grades:
        raise UserError(f"{handed_in} holds nothing to grade")

    def show() -> None:
        """Print a row for each student."""
        console = Console()
        width = console.width if console.is_terminal else 120
        titles = ["1", "2", "3", "found", "missed", "wrong", "F1", "rates", "remark"]
        rows = []
        for each in grades:
            cells = ["yes" if right else "no" for right in each.right]
            links = [str(n) for n in (each.found, each.missed, each.wrong)]
            links += [f"{each.f1:.3f}", f"{each.estimated} of {each.found}"]
            graded = [*cells, *links, ""] if not each.trouble else ["–"] * 8 + [each.trouble]
            rows.append([Text(plain(cell)) for cell in graded])
        names = [Text(plain(each.student)) for each in grades]
        print_screen(figures_table(names, titles, rows, width, "student"), {}, console, width)

    figures = [{**asdict(each), "f1": None if each.trouble else each.f1} for each in grades]
    Output(as_json=as_json).show(handed_in, lambda: {"grades": figures}, show)
