# SPDX-License-Identifier: Apache-2.0
"""The table of a comparison: means with confidence intervals, and what they leave out."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from analysis.evaluation.columns import Cell, Column, in_blocks, in_seconds, shown_name
from analysis.evaluation.comparison import (
    Rows,
    bench_in,
    chosen,
    defined,
    degraded_seeds,
    fed_share,
    good_seeds,
    mean_of,
    method_names,
)
from analysis.evaluation.intervals import Interval, interval, paired
from analysis.evaluation.report import add_heading, threshold_line
from analysis.methods.diagnosis import UNRANKED
from testbed.fabric.names import plain
from testbed.measurements.measurement import ENOUGH

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


def label(rows: Rows, method: str) -> str:
    """Return a method's name, with * if it is scored on undirected links and ! if starved."""
    native = rows["native"][list(rows["method"]).index(method)]
    star = " *" if native == "undirected" else ""
    own_name = rows["own_name"][list(rows["method"]).index(method)]
    return shown_name(method, own_name) + star + " !" * (fed_share(rows, method) < ENOUGH)
