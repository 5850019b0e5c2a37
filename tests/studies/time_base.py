# SPDX-License-Identifier: Apache-2.0
"""F1 of each method where the same packets take 1 to 30 seconds: `python -m tests.studies time`.

K=4 on the virtual backend, 20 seeds, as a table of Markdown, for
``docs/reference/measurements.md``. The nightly test `tests.scenarios.test_time_base` holds the same
figures to the bar of 0.03.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from analysis.methods.registry import find_methods
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings
from testbed.arrays import FloatArray
from testbed.record.documents import Summary
from tests.present import present

EPOCHS, PER_HOST = 5, 0.06 * 10  # line rate times seconds
SECONDS = (1, 3, 10, 30)
SEEDS = 20


def runs(seconds: float, seeds: int, folder: Path, methods: str | None = None) -> list[Summary]:
    """Run the main job with as many packets of a host as by default, in so many seconds."""
    asked = {
        "backend": "virtual",
        "epoch_ms": round(seconds / EPOCHS * 1000),
        "load": PER_HOST / seconds,
    }
    chosen = None if methods is None else find_methods(methods)
    return [
        run_experiment(
            layout_of(make_settings(asked | {"seed": seed})),
            folder / f"{seconds}-{seed}",
            chosen,
        )
        for seed in range(1, seeds + 1)
    ]


def scores(found: Sequence[Summary], method: str) -> FloatArray:
    """Return F1 of a method on its own terms in each run, float64[runs]."""
    entries = [summary["methods"][method] for summary in found]
    return np.array([present(entry[entry["native"]]["f1"]) for entry in entries])


def f1(found: Sequence[Summary], method: str) -> float:
    """Return the mean F1 of a method on its own terms."""
    return float(scores(found, method).mean())


def starved(found: Sequence[Summary], method: str) -> bool:
    """Return whether a method was starved in any of the runs."""
    return any(present(summary["methods"][method].get("starved")) for summary in found)


def table(found: Mapping[int, Sequence[Summary]]) -> Iterator[str]:
    """Return the lines of the table: methods by seconds, and how far those that are fed differ."""
    yield f"| method | {' | '.join(f'{seconds} s' for seconds in found)} | apart |"
    yield f"| --- |{' --- |' * (len(found) + 1)}"
    for method in next(iter(found.values()))[0]["methods"]:
        means = [(f1(own, method), starved(own, method)) for own in found.values()]
        fed = [mean for mean, less in means if not less]
        cells = [f"{mean:.3f}{' starved' if less else ''}" for mean, less in means]
        apart = f"{max(fed) - min(fed):.3f}" if fed else ""
        yield f"| `{method}` | {' | '.join(cells)} | {apart} |"


def print_time(console: Console) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {seconds: runs(seconds, SEEDS, Path(folder)) for seconds in SECONDS}
    for line in table(found):
        console.print(line, soft_wrap=True)
