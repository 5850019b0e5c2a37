# SPDX-License-Identifier: Apache-2.0
"""Comparisons of methods over many runs: means with confidence intervals, and the plot."""

from __future__ import annotations

import itertools
import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich import box
from rich.table import Table
from rich.text import Text

from analysis.evaluation.columns import BENCHES, Cell, Column, in_blocks, in_seconds, shown_name
from analysis.evaluation.intervals import Interval, interval, paired
from analysis.evaluation.report import add_heading, parameters_line, threshold_line
from analysis.methods.base import UNRANKED
from testbed.arrays import BoolArray, FloatArray, IntArray
from testbed.fabric.names import plain
from testbed.record.measurements import ENOUGH

if TYPE_CHECKING:
    from matplotlib.axes import Axes


COLUMNS = (
    "seed",
    "method",
    "own_name",
    "bench",
    "native",
    "faulty",
    "precision",
    "recall",
    "f1",
    "accuracy",
    "class_f1",
    "best_f1",
    "unranked",
    "unobserved",
    "undirected_f1",
    "average_precision",
    "seconds",
    "telemetry_bytes",
    "probe_packets",
    "fed",
    "parameters",
    "parameters_from",
    "found_at",
    "lost_f1",
    "degraded",
    "tries",
)
"""The columns of a comparison's Parquet file, which has a row for each seed and method. ``bench``
is one of `analysis.methods.registry.Bench`. ``native`` says whether the method is scored on
directed or undirected links. ``precision`` to ``unobserved``, ``faulty`` (the number of faulty
links) and ``found_at`` (see `found_at`) are counted on these; undefined scores are nan, see
`analysis.evaluation.metrics`, and ``unobserved`` is the number of faulty links that were not
observed. ``own_name`` is what the class of a method file calls itself, "" if tables have the method
by that name, and ``unranked`` is 1 if it gave all links the same score. ``fed`` is the share that
the method got of what it asked for, nan if it does not say.
``parameters`` are all its parameters in the grammar of `analysis.methods.parameters`, and
``parameters_from`` says where they come from. ``lost_f1`` is F1 against the links that really lost
packets, nan if the network does not tell. ``degraded`` says what makes the measurements of the
seed's run incomplete, "" of a good run, and ``tries`` how often the seed was run for a good one."""

MEANS = (
    Column("method", "* is scored on undirected links, ! is starved"),
    Column("F1", "harmonic mean of precision and recall"),
    Column(
        "precision",
        "the share of the blamed links that are faulty; n/m: only n of m runs have the figure, "
        "as the others blamed no link (precision) or observed no faulty one (recall, F1)",
    ),
    Column("recall", "the share of the faulty links that are blamed"),
    Column("best", "F1 at the best cut of the method's own ranking"),
    Column("F1u", "all on undirected links"),
    Column("sec", "processor seconds of the diagnosis"),
)
"""The columns of `comparison_cells`."""

Rows = Mapping[str, Any]
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")


def found_at(score: FloatArray, faulty: BoolArray) -> IntArray:
    """Return how many links have to be accused, by descending score, until each faulty link is
    among them: ascending, int32[faulty links]. Links with equal scores are accused together.
    """
    ascending = np.sort(score)
    accused = len(score) - np.searchsorted(ascending, score[faulty], side="left")
    return np.sort(accused).astype(np.int32)


def mean_curve(found: Sequence[npt.NDArray[np.integer]]) -> FloatArray:
    """Return the mean recall and precision along the rankings of several runs, float64[2, points].

    A point accuses, in every run, the same number of links for each faulty one: the first ones of
    its ranking. The curve starts at recall 0 and ends where all faulty links of all runs are
    found. Means at equal recall would lie below a method's own verdicts: where one run ranks a
    faulty link last, they fall to the precision of accusing everything, which no verdict does.

    Args:
        found: `found_at` of each run; runs without faulty links have no curve.

    Returns:
        Recall and precision; no point where no run has a faulty link.
    """
    found = [own for own in found if len(own)]
    if not found:
        return np.zeros((2, 0))
    faulty = np.array([[len(own)] for own in found])
    most = max(int(own[-1]) for own in found)
    deepest = max(own[-1] / len(own) for own in found)
    begin = min(deepest, 2.0)
    depth = np.concatenate([np.linspace(0, begin, 101)[1:], np.geomspace(begin, deepest, 61)[1:]])
    accused = np.clip(np.ceil(depth * faulty - 1e-9), 1, most)
    pairs = zip(found, accused, strict=True)
    hits = np.stack([np.searchsorted(own, n, side="right") for own, n in pairs])
    curve = np.stack([(hits / faulty).mean(axis=0), (hits / accused).mean(axis=0)])
    moved = np.append(True, np.diff(curve).any(axis=0))
    return np.concatenate([[[0.0], curve[1:, 0]], curve[:, moved]], axis=1)


def average_precision(found: npt.NDArray[np.integer]) -> float:
    """Return the area under the precision-recall steps, 0 to 1; 1 if nothing is faulty. ``found``
    is the result of `found_at`."""
    if not len(found):
        return 1.0
    hits = np.searchsorted(found, found, side="right")
    return float((hits / found).mean())


def comparison_cells(rows: Rows) -> dict[str, list[list[Cell]]]:
    """Return a row for each method, with its cells in the order of `MEANS`, under the heading of
    its block (`analysis.evaluation.columns.in_blocks`).

    Figures are means over the seeds with a good run, some with their 95 % confidence intervals.
    A seed in which a
    method blames nothing has no precision; the mean is then over the other seeds, whose number is
    shown. The best F1 of each block is highlighted as good unless it is low, and low ones as bad.
    """
    found = in_blocks((bench_in(rows, name), name) for name in method_names(rows))
    return {heading: _cells(rows, names) for heading, names in found.items()}


def _cells(rows: Rows, names: Sequence[str]) -> list[list[Cell]]:
    """Return a row of cells for each of the named methods, which form one block."""
    best = max(np.nan_to_num(mean_of(chosen(rows, name)["f1"]), nan=-1.0) for name in names)
    table = []
    for name in names:
        own = chosen(rows, name)
        f1 = mean_of(own["f1"])
        good = False if f1 < 0.6 else True if f1 >= best - 1e-12 else None
        row = [Cell(label(rows, name), plain(name)), replace(_mean_cell(own["f1"], 3), good=good)]
        row += [_mean_cell(own[share], 2) for share in ("precision", "recall")]
        for figure, shown in (
            ("best_f1", "{:.2f}".format),
            ("undirected_f1", "{:.2f}".format),
            ("seconds", in_seconds),
        ):
            mean = mean_of(own[figure])
            row.append(Cell("–", None) if math.isnan(mean) else Cell(shown(mean), mean))
        table.append(row)
    return table


def defined(values: npt.ArrayLike) -> FloatArray:
    """Return the values that are not nan, float64[], in their order."""
    sample = np.asarray(values, np.float64)
    return sample[~np.isnan(sample)]


def mean_of(values: npt.ArrayLike) -> float:
    """Return the mean of the values that are not nan, a number in their unit; nan if all are."""
    known = defined(values)
    return float(known.mean()) if len(known) else math.nan


def _mean_cell(values: Sequence[float], digits: int) -> Cell:
    """Return the mean over the runs in which the figure is defined, with the number of these runs
    if some have none."""
    known = defined(values)
    if not len(known):
        return Cell(f"– 0/{len(values)}", None)
    mean = interval(known)
    count = f" {len(known)}/{len(values)}" if len(known) < len(values) else ""
    return Cell(_with_bounds(mean, digits) + count, mean.mean)


def comparison_table(rows: Rows) -> Table:
    """Return the table of `comparison_cells` for a terminal of 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, header_style="bold")
    first, *others = MEANS
    table.add_column(first.title, overflow="fold")
    for column in others:
        table.add_column(column.title, justify="right", no_wrap=True)
    styles = {True: "bold green", False: "red", None: ""}
    for heading, block in comparison_cells(rows).items():
        add_heading(table, heading)
        for name, *figures in block:
            table.add_row(Text(name.text), *(Text(c.text, style=styles[c.good]) for c in figures))
    return table


def in_short(rows: Rows, runs: str = "") -> str:
    """Return the legend of the table: the number of runs, and what its columns mean."""
    runs = runs or f"{len(good_seeds(rows))}"
    shown = MEANS[4:]
    if any(np.isnan(np.asarray(rows[name], np.float64)).any() for name in ("precision", "recall")):
        shown = (MEANS[2], *shown)
    legend = textwrap.fill("; ".join(f"{c.title}: {c.meaning}" for c in shown), 98)
    without = degraded_seeds(rows)
    left_out = f", {len(without)} degraded left out" if without else ""
    summary = f"means of {runs} runs{left_out} with 95 % intervals; {MEANS[0].meaning}"
    starved = [
        f"{plain(name)} is starved: it got {share:.0%} of what it asked for"
        for name in method_names(rows)
        if (share := fed_share(rows, name)) < ENOUGH
    ]
    lines = [summary, legend, *degraded_lines(rows), *starved, *_limits(rows), *differences(rows)]
    lines.append(no_test(rows))
    return "\n".join(filter(None, lines))


def differences(rows: Rows) -> Iterator[str]:
    """Yield a line for each block: how much F1 the best method has over each other one, as the mean
    of the differences over the same seeds, with 95 % intervals."""
    benches = dict(zip(rows["method"], rows["bench"], strict=True))
    for heading, names in in_blocks((benches[name], name) for name in method_names(rows)).items():
        f1 = {name: np.asarray(chosen(rows, name)["f1"], np.float64) for name in names}
        known = {name: own for name, own in f1.items() if len(own) and not np.isnan(own).all()}
        if len(known) < 2:
            continue
        best = max(known, key=lambda name: np.nanmean(known[name]))
        parts = []
        for name, own in known.items():
            both = ~np.isnan(own) & ~np.isnan(known[best])
            if name == best or both.sum() < 2:
                continue
            value = paired((known[best] - own)[both])
            bounds = "in each" if np.isnan(value.low) else f"{value.low:+.2f} to {value.high:+.2f}"
            parts.append(f"{plain(name)} {value.mean:+.3f} ({bounds})")
        if parts:
            text = f"{heading}, F1 of {plain(best)} less that of, on the same seeds: "
            yield textwrap.fill(text + ", ".join(parts), 98)


def degraded_seeds(rows: Rows) -> list[int]:
    """Return the seeds with no good run, ascending numbers; no mean has their figures."""
    pairs = zip(np.asarray(rows["seed"]).tolist(), rows["degraded"], strict=True)
    return sorted({seed for seed, degraded in pairs if degraded})


def good_seeds(rows: Rows) -> list[int]:
    """Return the seeds with a good run, ascending numbers."""
    return sorted(set(np.asarray(rows["seed"]).tolist()) - set(degraded_seeds(rows)))


def degraded_lines(rows: Rows) -> list[str]:
    """Return a line for each seed that ran more than once or is degraded, with F1 against the
    faults beside F1 against what was truly lost."""
    degraded, found = set(degraded_seeds(rows)), []
    by_seed: dict[int, list[int]] = {}
    for at, seed in enumerate(np.asarray(rows["seed"]).tolist()):
        by_seed.setdefault(seed, []).append(at)
    for seed, own in sorted(by_seed.items()):
        tries = int(rows["tries"][own[0]])
        if seed in degraded:
            scores = ", ".join(
                f"{plain(rows['method'][at])} {rows['f1'][at]:.3f} / {rows['lost_f1'][at]:.3f}"
                for at in own
            )
            found.append(
                f"seed {seed}: degraded in {tries} of {tries} tries and left out of the means "
                f"({plain(rows['degraded'][own[0]])}); F1 against the faults / against the links "
                f"that really lost packets: {scores}"
            )
        elif tries > 1:
            found.append(f"seed {seed}: {tries} tries, the earlier ones were degraded")
    return found


def _limits(rows: Rows) -> Iterator[str]:
    """Yield a line for each method whose telemetry did not tell all links apart or observe them, or
    whose threshold costs much."""
    for name in method_names(rows):
        own = chosen(rows, name)
        f1, of_classes = (mean_of(own[figure]) for figure in ("f1", "class_f1"))
        if abs(f1 - of_classes) > 5e-4:
            yield (
                f"{plain(name)}: F1 is {of_classes:.3f} if a class of indistinguishable links is "
                "found when it has a faulty link"
            )
        if line := threshold_line(f1, mean_of(own["best_f1"])):
            yield f"{plain(name)}: {line}"
        if np.any(own["unranked"]):
            yield f"{plain(name)}: {UNRANKED}"
        if unseen := int(np.sum(own["unobserved"])):
            faulty = int(np.sum(own["faulty"]))
            yield f"{plain(name)}: nothing observed {unseen} of the {faulty} faulty links"


def fed_share(rows: Rows, method: str) -> float:
    """Return the mean share that a method got of what it asked for; nan if it does not say."""
    own = chosen(rows, method)["fed"]
    return float(np.mean(own)) if own else math.nan


def no_test(rows: Rows) -> str:
    """Return a sentence that says that the runs do not distinguish methods, if the reference method
    is as good as the best; otherwise an empty text."""
    benches = dict(zip(rows["method"], rows["bench"], strict=True))
    f1 = {name: mean_of(chosen(rows, name)["f1"]) for name in benches}
    f1 = {name: mean for name, mean in f1.items() if not math.isnan(mean)}
    own = next((f1[name] for name in f1 if benches[name] == "reference"), None)
    others = [name for name in f1 if benches[name] == "published"]
    others = others or [name for name in f1 if benches[name] != "reference"]
    if own is None or not others or own < (best := max(f1[name] for name in others)) - 1e-9:
        return ""
    name = plain(max(others, key=lambda name: f1[name]))
    return (
        "this setting is no test: blaming every link that may have lost a packet has F1 "
        f"{own:.3f}, and the best method, {name}, "
        f"{best:.3f}; use more NOISE or fainter faults to tell methods apart"
    )


def _with_bounds(value: Interval, digits: int) -> str:
    mean = f"{value.mean:.{digits}f}"
    return mean if np.isnan(value.low) else f"{mean} {value.low:.2f}–{value.high:.2f}"


def plot(rows: Rows, title: str, path: Path) -> None:
    """Draw F1 with intervals, and the mean precision-recall curves, into a PNG or PDF file."""
    names = method_names(rows)
    from matplotlib import style  # makes folders in the home, which a refused run should not
    from matplotlib.figure import Figure

    # Not the style of a matplotlibrc, which is also read from the current folder; a $ is a $.
    own = style.context(["default", {"text.parse_math": False}])
    with own, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # names in scripts that the font lacks
        figure = Figure(figsize=(11, 1.8 + 0.45 * max(len(names), 5)), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
        titles = plain(title), plain(parameters_line(origins(rows)))
        figure.suptitle("\n".join(titles), fontsize=11)
        _plot_f1(left, rows, names)
        _plot_curves(right, rows, names)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
        metadata = {"Software": None} if path.suffix == ".png" else None
        figure.savefig(path, dpi=150, metadata=metadata)


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


def method_names(rows: Rows) -> list[str]:
    """Return the methods in the order of `BENCHES`, those of a bench as they come in ``rows``."""
    benches = dict(zip(rows["method"], rows["bench"], strict=True))
    return sorted(benches, key=lambda name: list(BENCHES).index(benches[name]))


def bench_in(rows: Rows, method: str) -> str:
    """Return the bench of a method in a comparison, one of `analysis.methods.registry.Bench`."""
    return rows["bench"][list(rows["method"]).index(method)]


def chosen(rows: Rows, method: str) -> dict[str, Any]:
    """Return the rows of one method, of the seeds with a good run, as columns; ``found_at`` becomes
    a list of arrays."""
    pairs = zip(rows["method"], rows["degraded"], strict=True)
    own = [i for i, (name, degraded) in enumerate(pairs) if name == method and not degraded]
    columns: dict[str, Any] = {}
    for name, column in rows.items():
        columns[name] = [column[i] for i in own]
    return columns


def origins(rows: Rows) -> dict[str, str]:
    """Return by method where its parameters come from, see `Parameters.origin`."""
    return dict(zip(rows["method"], rows["parameters_from"], strict=True))


def label(rows: Rows, method: str) -> str:
    """Return a method's name, with * if it is scored on undirected links and ! if starved."""
    native = rows["native"][list(rows["method"]).index(method)]
    star = " *" if native == "undirected" else ""
    own_name = rows["own_name"][list(rows["method"]).index(method)]
    return shown_name(method, own_name) + star + " !" * (fed_share(rows, method) < ENOUGH)


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _dashes(number: int) -> str:
    """Return the line style of a method: with more methods than colours, dashes differ."""
    return ("-", "--", ":")[number // len(_COLOURS) % 3]
