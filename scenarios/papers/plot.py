# SPDX-License-Identifier: Apache-2.0
"""Plots of an experiment: our means with 95 % intervals, and the paper's values."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.evaluation.pictures import own_style, save
from scenarios.papers.experiment import Experiment, Panel, Printed
from scenarios.papers.verdicts import Figures, Ours
from testbed.arrays import FloatArray

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
ONLY_IN_THE_PICTURE = "The paper's other points are in its picture only."
MARKS = (
    Line2D([], [], marker="o", color="0.4", label="ours: mean, 95 % interval"),
    Line2D([], [], marker="D", ls="", color="0.4", label="paper: stated"),
    Line2D([], [], marker="D", ls="", color="0.4", mfc="white", label="paper: derived"),
    Patch(color="0.4", alpha=0.15, label="paper: bound"),
)


def draw(experiment: Experiment, ours: Ours, paths: Sequence[Path]) -> None:
    """Draw all panels into each of the files ``paths``, see `analysis.evaluation.pictures`."""
    columns = min(len(experiment.panels), 2)
    rows = -(-len(experiment.panels) // columns)
    wide = 10 if columns == 1 else 13
    with own_style(experiment.name):
        figure = Figure(figsize=(wide, 1.6 + 3.6 * rows), layout="constrained")
        title = f"{experiment.paper}: {experiment.shows}"
        figure.suptitle(title, fontsize=11, x=0.01, ha="left")
        every = figure.subplots(rows, columns, squeeze=False).ravel()
        styles = styles_of(experiment, ours)
        for axes, panel in zip(every, experiment.panels, strict=False):
            draw_panel(axes, panel, experiment, ours, styles)
        for axes in every[len(experiment.panels) :]:
            axes.axis("off")
        picture = f" {ONLY_IN_THE_PICTURE}" if "figure" in experiment.paper else ""
        caption = textwrap.fill(experiment.setting + picture, 125 if columns == 1 else 170)
        figure.supxlabel(caption, fontsize=8)
        handles = legend(experiment, ours, styles)
        figure.legend(handles=handles, loc="outside right upper", fontsize=8)
        save(figure, paths, 130)


def styles_of(experiment: Experiment, ours: Ours) -> dict[str, int]:
    """Return the number of the style of each series that is drawn, by its name."""
    drawn = {panel.quantity for panel in experiment.panels}
    return {name: n for n, name in enumerate(dict.fromkeys(at[1] for at in ours if at[0] in drawn))}


def legend(experiment: Experiment, ours: Ours, styles: Mapping[str, int]) -> list[Artist]:
    """Return the entries of a figure's legend: our series, and the kinds of values."""
    shown = {
        value.kind for panel in experiment.panels for _, value in _marked(panel, experiment, ours)
    }
    kinds = ("stated", "derived", "bound")
    marks = [mark for mark, kind in zip(MARKS[1:], kinds, strict=True) if kind in shown]
    return [*(_key(name, number) for name, number in styles.items()), MARKS[0], *marks]


def draw_panel(
    axes: Axes,
    panel: Panel,
    experiment: Experiment,
    ours: Ours,
    styles: Mapping[str, int],
) -> None:
    """Draw our values and the paper's into one pair of axes."""
    here = {at[1:]: figures for at, figures in ours.items() if at[0] == panel.quantity}
    values = _marked(panel, experiment, ours)
    if not here and not values:  # on a user's capture, nothing is varied
        axes.axis("off")
        return
    names = list(dict.fromkeys(series for series, _ in here))
    xs = [x for _, x in here] + [value.x for _, value in values if value.kind != "bound"]
    ticks = {x: float(x) if panel.numeric else n for n, x in enumerate(dict.fromkeys(xs))}
    step = 0.0 if panel.numeric else 0.6 / max(len(names), 1)
    shift = {name: step * (n - (len(names) - 1) / 2) for n, name in enumerate(names)}
    axes.set_xscale("log" if panel.log_x else "linear")
    means = [figures.mean.mean for figures in here.values()]
    if panel.log_y and min(means, default=1.0) <= 0:
        least = min((mean for mean in means if mean > 0), default=1.0)
        axes.set_yscale("symlog", linthresh=10.0 ** np.floor(np.log10(least)))
    else:
        axes.set_yscale("log" if panel.log_y else "linear")
    for axis in [axes.xaxis] * panel.log_x + [axes.yaxis] * panel.log_y:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    _draw_ours(axes, here, styles, ticks, shift, panel.numeric)
    if panel.limits is not None:
        axes.set_ylim(*panel.limits)
    _draw_paper(axes, values, styles, ticks, shift)
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log" and high < 100 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    elif axes.get_yscale() == "linear" and high > 1e5:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if not panel.numeric or len(ticks) < 8:
        shown = _apart(axes, ticks) if panel.numeric else ticks
        axes.set_xticks(list(shown.values()), list(shown), fontsize=8)
        axes.minorticks_off()
    if not panel.numeric and sum(map(len, ticks)) > 60:
        for text in axes.get_xticklabels():
            text.set(rotation=25, ha="right")
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y_axis)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_ours(
    axes: Axes,
    here: Mapping[tuple[str, str], Figures],
    styles: Mapping[str, int],
    ticks: Mapping[str, float],
    shift: Mapping[str, float],
    joined: bool,
) -> None:
    """Draw our means with their intervals, a series at a time."""
    for name in shift:
        own = {x: figures for (series, x), figures in here.items() if series == name}
        at = np.array([ticks[x] for x in own]) + shift[name]
        mean = np.array([figures.mean.mean for figures in own.values()])
        low = np.array([figures.mean.low for figures in own.values()])
        high = np.array([figures.mean.high for figures in own.values()])
        error = np.nan_to_num(np.abs(np.stack((mean - low, high - mean))))
        order = np.argsort(at)
        axes.errorbar(
            at[order],
            mean[order],
            yerr=error[:, order],
            marker="o",
            color=_colour(styles[name]),
            mfc=_face(styles[name]),
            ls=_dashes(styles[name]) if joined else "",
            capsize=3,
            ms=4.5,
            lw=1.4,
        )


def _apart(axes: Axes, ticks: Mapping[str, float]) -> dict[str, float]:
    """Return those ticks whose labels do not overlap."""
    place = axes.transData.transform([(at, 1.0) for at in ticks.values()])[:, 0]
    width = axes.get_window_extent().width
    shown: dict[str, float] = {}
    last = -np.inf
    for n in np.argsort(place):
        if place[n] - last > 0.03 * width:
            name = list(ticks)[n]
            shown[name], last = ticks[name], place[n]
    return shown


def _marked(panel: Panel, experiment: Experiment, ours: Ours) -> list[tuple[str, Printed]]:
    """Return the paper's values in a panel, each with the first of our series that it is compared
    with, among those that have rows."""
    found = []
    for value in experiment.values:
        every = experiment.ours(value.quantity, value.series)
        series = [name for quantity, name in every if quantity == panel.quantity]
        there = [name for name in series if (panel.quantity, name, value.x) in ours]
        found += [(name, value) for name in (there or series)[:1]]
    return found


def _draw_paper(
    axes: Axes,
    values: Sequence[tuple[str, Printed]],
    styles: Mapping[str, int],
    ticks: Mapping[str, float],
    shift: Mapping[str, float],
) -> None:
    """Draw the paper's values as diamonds, and its bounds as shaded areas."""
    names = any(shift.values()) or len(shift) == 1
    bounds: list[tuple[str, FloatArray, Printed]] = []
    for series, value in values:
        colour = _colour(styles[series]) if series in styles else "0.3"
        at = ticks.get(value.x)
        if value.kind != "bound":
            face = colour if value.kind == "stated" else "white"
            place = ticks[value.x] + shift.get(series, 0.0)
            axes.plot(place, value.value, "D", color=colour, mfc=face, ms=8, mew=1.5, alpha=0.75)
        elif at is not None:
            own = {name for name, other in values if (other.kind, other.x) == ("bound", value.x)}
            across = at + np.array((-0.45, 0.45))
            if len(own) > 1:  # each bound is drawn at its own series
                across = at + shift.get(series, 0.0) + np.array((-0.3, 0.3)) / len(shift)
            across = np.clip(across, *axes.get_xlim())
            bounds.append((colour, across, value))
            if names:
                axes.plot(across, [value.value] * 2, color=colour, lw=0.8, ls=":")
            else:
                axes.axhline(value.value, color=colour, lw=0.8, ls=":")
    low, high = axes.get_ylim()
    shaded: set[tuple[str, tuple[float, float]]] = set()
    for colour, across, value in bounds:
        edges = (value.value, high) if value.side == "above" else (low, value.value)
        if names:
            axes.fill_between(across, *edges, color=colour, alpha=0.08, lw=0)
        elif (colour, edges) not in shaded:
            shaded.add((colour, edges))
            axes.axhspan(*edges, color=colour, alpha=0.08, lw=0)
    axes.set_ylim(low, high)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _dashes(number: int) -> str:
    """Return a line style; series beyond the number of colours are dashed, and their dots are
    hollow."""
    return "-" if number < len(COLOURS) else "--"


def _face(number: int) -> str:
    return _colour(number) if number < len(COLOURS) else "white"


def _key(name: str, number: int) -> Line2D:
    """Return the entry of a series in the legend."""
    colour, face, dashes = _colour(number), _face(number), _dashes(number)
    return Line2D([], [], marker="o", color=colour, mfc=face, ls=dashes, lw=1.4, label=name)
