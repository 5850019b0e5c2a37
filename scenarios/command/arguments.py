# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands share and their completion in a shell, and lists of seeds in the
form ``1-50`` or ``1,2,10-12``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from testbed.errors import UserError


def _scenarios() -> list[str]:
    """Return the names of scenarios for the shell's completion."""
    from scenarios.experiment.request import scenario_names

    return scenario_names()


def _methods() -> list[str]:
    """Return the names of methods for the shell's completion."""
    from analysis.methods.registry import method_names

    return ["all", *method_names()]


QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the path of the result.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the figures as JSON, for programs.")
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print all columns, budgets and blamed links.")
]
FailUnderOption = Annotated[
    str | None,
    typer.Option(
        "--fail-under",
        help="Exit with code 1 if F1 of a method is less: canary=0.95,mle=0.9. [default: none]",
    ),
]
JunitOption = Annotated[
    Path | None,
    typer.Option("--junit", help="Write JUnit XML, a test for each method. [default: none]"),
]
SummaryOption = Annotated[
    Path | None,
    typer.Option(
        "--summary",
        help="Append a table in Markdown to this file, such as GitHub's step summary. "
        "[default: none]",
    ),
]


def formats() -> list[str]:
    """Return the names that FORMAT of ``canary import`` completes."""
    from analysis.importers.registry import importer_names

    return importer_names()


def calibrated() -> list[str]:
    """Return the names that ``--method`` of ``canary calibrate`` completes."""
    from analysis.evaluation.calibration import GRIDS

    return ["all", *GRIDS]


RunArgument = Annotated[Path, typer.Argument(help="Directory of a finished run.")]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Read a run that was changed afterwards, too.")
]

WatchOption = Annotated[
    bool,
    typer.Option("--watch", help="Show the run in a browser of this machine while it runs."),
]

SudoOption = Annotated[
    bool,
    typer.Option("--sudo", help="Make namespaces through sudo, where users may make none."),
]

ScenarioOption = Annotated[
    str | None,
    typer.Option(
        help="Name of a scenario, or the path of a scenario file. [default: faulty_links]",
        autocompletion=_scenarios,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        help="Settings from a YAML file, or of an earlier run: its config.json. Options win over "
        "it. [default: none]"
    ),
]
MethodsOption = Annotated[
    str,
    typer.Option(help="all, or a list: flock,007,mine.py.", autocompletion=_methods),
]
OwnMethodsOption = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="all, or a list: flock:p_bad=0.01,007,mine.py. [default: those of the testbed]",
        autocompletion=_methods,
    ),
]
ParametersOption = Annotated[
    str,
    typer.Option(
        help="Parameters of the methods: default, paper (as the papers print them), or a file of "
        "canary calibrate. Parameters in a method's name override it.",
        autocompletion=lambda: ["default", "paper"],
    ),
]
FaultRateOption = Annotated[
    float | None,
    typer.Option(
        help="The loss rate from which on a link is faulty, for methods with a parameter for it. "
        "[default: 0.001; 0 to 1]",
        show_default=False,
    ),
]
KOption = Annotated[
    int,
    typer.Option(
        help="Ports of a switch: the fat-tree's K, an even number. [default: 4; 4 to 128]",
        show_default=False,
    ),
]


MOST_SEEDS = 100_000


def parse_seeds(text: str) -> list[int]:
    """Return the seeds in a text such as ``1-50`` or ``1,2,10-12``, as ascending numbers without
    repetition.

    Raises:
        ValueError: The text has another form (one line).
    """
    seeds: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or part.strip().endswith("-"):
            raise UserError(f"--seeds {text!r}: {part.strip()!r} is no seed: use 1-50 or 1,2,7")
        if max(len(first), len(last)) > 10 or max(int(first), int(last or 0)) >= 2**32:
            raise UserError(f"--seeds {text!r}: seeds are 0 to {2**32 - 1:,}")
        low, high = int(first), int(last or first)
        if high < low:
            raise UserError(f"--seeds {text!r}: {part.strip()!r} runs backwards: use {high}-{low}")
        if len(seeds) + high - low >= MOST_SEEDS:
            raise UserError(
                f"--seeds {text!r}: that is more than {MOST_SEEDS:,} seeds: compare fewer at a time"
            )
        seeds.update(range(low, high + 1))
    return sorted(seeds)


def in_ranges(seeds: Sequence[int]) -> str:
    """Return ascending numbers of seeds as the text that `parse_seeds` reads: ``1-3,7``."""
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][1] + 1:
            runs[-1][1] = seed
        else:
            runs.append([seed, seed])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
