# SPDX-License-Identifier: Apache-2.0
"""How commands print their results: a screen, everything, JSON, or only the path.

With ``--json`` and ``--quiet`` standard output has the result alone, so that a program can read it.
Whatever else a command says then goes to standard error.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.command.arguments import (
    FailUnderOption,
    JsonOption,
    JunitOption,
    QuietOption,
    SummaryOption,
    VerboseOption,
)
from scenarios.command.gates import Gate
from testbed.errors import UserError
from testbed.fabric.names import plain


@dataclass(frozen=True)
class Output:
    """What a command prints of its result.

    Attributes:
        quiet: Print only the path of the result.
        as_json: Print the figures as JSON.
        verbose: Print everything that the screen leaves out, too.

    Raises:
        UserError: Two of them are given.
    """

    quiet: bool = False
    as_json: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        given = [
            name
            for name, value in (
                ("--quiet", self.quiet),
                ("--json", self.as_json),
                ("--verbose", self.verbose),
            )
            if value
        ]
        if len(given) > 1:
            raise UserError(f"{' and '.join(given)} exclude each other: use one of them")

    @contextmanager
    def working(self) -> Iterator[None]:
        """Return a context manager for the work before the result: what its block prints goes to
        standard error if standard output is for the result alone."""
        if not (self.quiet or self.as_json):
            yield
            return
        with redirect_stdout(sys.stderr):
            yield

    def show(
        self,
        path: Path | None,
        figures: Callable[[], Mapping[str, Any]],
        show: Callable[[], None],
    ) -> None:
        """Print a result as asked for.

        Args:
            path: Where the result is; None if it was not written to a file.
            figures: Returns the figures, for JSON.
            show: Prints the result for a reader.

        Raises:
            UserError: ``--quiet`` is given for a result without a path.
        """
        if self.as_json:
            print(json.dumps(figures(), indent=2))
        elif self.quiet:
            self.need_path(path)
            print(plain(str(path)))
        else:
            show()

    def need_path(self, path: Path | None) -> None:
        """Check, before any work, that a result has a path to be printed with ``--quiet``.

        Raises:
            UserError: It has none.
        """
        if self.quiet and path is None:
            raise UserError("--quiet prints the path of the result: say where with --out")


def _result_options(
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    fail_under: FailUnderOption = None,
    junit: JunitOption = None,
    summary: SummaryOption = None,
) -> tuple[Output, Gate]:
    """Return what these options ask for."""
    return Output(quiet, as_json, verbose), Gate.of(fail_under, junit, summary)


def shows_result(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of `_result_options`; it takes what they ask for as its
    parameters ``output`` and ``gate``."""
    whole = inspect.signature(command, eval_str=True)
    added = inspect.signature(_result_options, eval_str=True).parameters
    own = {name: p for name, p in whole.parameters.items() if name not in ("output", "gate")}

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        """Run the command with an `Output` and a `Gate` made of its last options."""
        output, gate = _result_options(**{name: given.pop(name) for name in added})
        command(**given, output=output, gate=gate)

    parameters = own | {name: p.replace(kind=p.KEYWORD_ONLY) for name, p in added.items()}
    with_options.__dict__["__signature__"] = whole.replace(parameters=list(parameters.values()))
    with_options.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    return with_options
