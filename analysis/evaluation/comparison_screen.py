# SPDX-License-Identifier: Apache-2.0
"""The first screen of a comparison: F1 of each method, and whether the best one is better.

`analysis.evaluation.comparison` prints everything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from analysis.evaluation.comparison import (
    Rows,
    bench_in,
    chosen,
    defined,
    fed_share,
    good_seeds,
    mean_of,
    method_names,
    origins,
)
from analysis.evaluation.comparison_table import degraded_lines, label, no_test
from analysis.evaluation.intervals import Interval, interval, paired
from analysis.evaluation.report import COSTS, parameters_line
from analysis.evaluation.screen import (
    LINE_WIDTH,
    UNDIRECTED,
    figures_table,
    in_units,
    second_look,
    without_variants,
)
from testbed.fabric.names import plain
from testbed.measurements.measurement import ENOUGH

_NONE = "–"


def comparison_screen(rows: Rows, title: str, width: int) -> RenderableType:
    """Return the table of methods of a comparison, with the notes on it."""
    names, _ = without_variants(method_names(rows))
    best = best_of(rows, names)
    cells = [_row(rows, name, best) for name in names]
    titles = ["F1", "95 %", "behind", "differs", "collected", "probes"]
    labels = [Text(label(rows, name)) for name in names]
    runs = len(good_seeds(rows))
    return Group(
        Text.assemble((f"{runs:,} run{'s' * (runs != 1)}", "bold"), f"   {plain(title)}"),
        Text(),
        figures_table(labels, titles, cells, min(width, LINE_WIDTH)),
        *_notes(rows, names, best, width),
    )


def best_of(rows: Rows, names: Sequence[str]) -> str:
    """Return the method with the highest mean F1, the reference aside; "" if none has an F1."""
    means = {name: mean_of(chosen(rows, name)["f1"]) for name in names}
    known = [
        name
        for name, mean in means.items()
        if not math.isnan(mean) and bench_in(rows, name) != "reference"
    ]
    return max(known, key=lambda name: means[name], default="")


def behind(rows: Rows, name: str, best: str) -> tuple[Interval, str]:
    """Return how much F1 a method has less than ``best`` on the same seeds, with its 95 % interval,
    and whether they differ: ``yes``, ``no`` (the interval holds 0) or "" (too few seeds)."""
    own, other = (np.asarray(chosen(rows, each)["f1"], np.float64) for each in (name, best))
    both = ~np.isnan(own) & ~np.isnan(other)
    difference = paired((other - own)[both])
    if both.sum() < 2:
        return difference, ""
    if np.isnan(difference.low):  # equal in each run
        return difference, "yes" if difference.mean else "no"
    return difference, "yes" if difference.low > 0 or difference.high < 0 else "no"


def _row(rows: Rows, name: str, best: str) -> list[Text]:
    """Return the cells of a method behind its name."""
    own = chosen(rows, name)
    known = defined(own["f1"])
    if not len(known):
        return [Text(_NONE)] * 6
    f1 = interval(known)
    difference, differs = behind(rows, name, best) if best and name != best else (None, "")
    return [
        Text(f"{f1.mean:.3f}", "bold green" if name == best else ""),
        Text(_NONE if np.isnan(f1.low) else f"{f1.low:.2f}–{f1.high:.2f}"),
        Text(_NONE if difference is None else f"{difference.mean:.3f}"),
        Text(differs or _NONE),
        Text(in_units(mean_of(own["telemetry_bytes"]))),
        Text(f"{mean_of(own['probe_packets']):,.0f}"),
    ]


def _notes(rows: Rows, names: Sequence[str], best: str, width: int) -> Iterator[Text]:
    """Yield what the columns mean, and whose figures need a second look."""
    if best:
        yield Text(
            f"behind: F1 of {plain(best)} less that of the method, on the same seeds; differs: "
            "its 95 % interval does not hold 0",
            "dim",
        )
    mark = UNDIRECTED if any("*" in label(rows, name) for name in names) else ""
    yield from second_look(
        mark,
        {
            "starved": [name for name in names if fed_share(rows, name) < ENOUGH],
            "threshold": [name for name in names if _badly_cut(rows, name)],
            "unranked": [name for name in names if np.any(chosen(rows, name)["unranked"])],
        },
        width,
    )
    yield from (Text(line, "yellow") for line in degraded_lines(rows))
    origin = origins(rows)
    if set(origin.values()) - {"default"}:
        yield Text(plain(parameters_line(origin)))
    if line := no_test(rows):
        yield Text(line, "yellow")


def _badly_cut(rows: Rows, name: str) -> bool:
    """Return whether a method's mean F1 is far below that at the best cuts of its rankings."""
    own = chosen(rows, name)
    return mean_of(own["best_f1"]) > mean_of(own["f1"]) + COSTS
