# SPDX-License-Identifier: Apache-2.0
"""The figure of a comparison: F1 with intervals, and precision against recall."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.evaluation.columns import BENCHES
from analysis.evaluation.comparison import (
    Rows,
    bench_in,
    chosen,
    defined,
    mean_curve,
    mean_of,
    method_names,
    origins,
)
from analysis.evaluation.comparison_table import label
from analysis.evaluation.intervals import interval
from analysis.evaluation.pictures import own_style, save
from analysis.evaluation.report import parameters_line
from testbed.fabric.names import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")


def plot(rows: Rows, title: str, paths: Sequence[Path]) -> None:
    """Draw F1 with intervals, and the mean precision-recall curves, into each of ``paths``."""
    names = method_names(rows)
    from matplotlib.figure import Figure

    with own_style("f1"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # names in scripts that the font lacks
        figure = Figure(figsize=(11, 1.8 + 0.45 * max(len(names), 5)), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
        titles = plain(title), plain(parameters_line(origins(rows)))
        figure.suptitle("\n".join(titles), fontsize=11)
        _plot_f1(left, rows, names)
        _plot_curves(right, rows, names)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
        save(figure, paths, 150)


def _plot_f1(axes: Axes, rows: Rows, names: Sequence[str]) -> None:
    rng = np.random.default_rng(0)
    for at, name in enumerate(names):
        values = defined(chosen(rows, name)["f1"])
        mean = interval(values)
        jitter = at + rng.uniform(-0.22, 0.22, len(values))
        axes.scatter(values, jitter, s=10, color=_colour(at), alpha=0.3, linewidths=0)
        spread = None if np.isnan(mean.low) else [[mean.mean - mean.low], [mean.high - mean.mean]]
        axes.errorbar(
            mean.mean, at, xerr=spread, fmt="o", color=_colour(at), capsize=4, lw=2, markersize=6
        )
    benches = [bench_in(rows, name) for name in names]
    for at, (above, below) in enumerate(itertools.pairwise(benches)):
        if above != below:
            axes.axhline(at + 0.5, color="0.6", lw=0.8)
    for bench in dict.fromkeys(benches):
        middle = benches.index(bench) + (benches.count(bench) - 1) / 2
        text = {"rotation": -90, "ha": "left", "va": "center", "fontsize": 8, "color": "0.4"}
        axes.text(1.04, middle, BENCHES[bench], **text)
    axes.set_yticks(range(len(names)), [label(rows, name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("F1 (mean, 95 % interval; dots: runs)")
    axes.grid(axis="x", alpha=0.3)


def _plot_curves(axes: Axes, rows: Rows, names: Sequence[str]) -> None:
    """Draw the mean curve of each method, and a mark at the precision and recall of its verdict."""
    for at, name in enumerate(names):
        own = chosen(rows, name)
        curve = mean_curve(own["found_at"])
        if not curve.size:
            continue
        axes.plot(*curve, color=_colour(at), ls=_dashes(at), lw=1.6, label=label(rows, name))
        if len(precision := defined(own["precision"])):
            mark = {"color": _colour(at), "markersize": 7, "markeredgecolor": "white"}
            axes.plot(mean_of(own["recall"]), precision.mean(), "o", **mark)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.04)
    axes.set_xlabel("recall (dot: the method's own verdict)")
    axes.set_ylabel("precision")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(fontsize=8, loc="lower left", framealpha=0.9)
    else:
        note = "no link was faulty in any run:\nrecall has no meaning"
        axes.text(0.5, 0.5, note, ha="center", va="center")


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _dashes(number: int) -> str:
    """Return the line style of a method: with more methods than colours, dashes differ."""
    return ("-", "--", ":")[number // len(_COLOURS) % 3]
