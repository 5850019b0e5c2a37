"""What the pages of reproductions draw: series, points and the paper's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.pages.run_data import numbers
from scenarios.papers.experiment import Experiment, Panel
from scenarios.papers.verdicts import Figures, Line
from testbed.fabric.names import plain

Ours = Mapping[tuple[str, str, str], Figures]

SIGNS = {"agrees": "✓", "explained": "≈", "not explained": "✗", "cannot be compared": "–"}
SCRIPTS = ("page.js", "panels.js")
CSS = ("page.css", "comparison.css", "reproduction.css")


@dataclass(frozen=True)
class Of:
    """An experiment that was run: the paper's values beside ours, all of ours, what it took, and
    the content of ``setting.json``."""

    experiment: Experiment
    lines: list[Line]
    ours: Ours
    draws: int
    seconds: float
    setting: Mapping[str, Any]


def names_of(of: Of) -> list[str]:
    """Our series, those of the drawn quantities, in the order of the rows."""
    drawn = {panel.quantity for panel in of.experiment.panels}
    return list(dict.fromkeys(plain(at[1]) for at in of.ours if at[0] in drawn))


def panel_data(of: Of, panel: Panel, names: Sequence[str]) -> dict[str, Any]:
    points = []
    for (quantity, series, x), figures in of.ours.items():
        if quantity == panel.quantity:
            mean, low, high = _numbers(figures)
            own = {"series": names.index(plain(series)), "x": x, "draws": len(figures.values)}
            points.append(own | {"mean": mean, "low": low, "high": high})
    printed = []
    for line in once(of.lines):
        at = of.experiment.ours(line.paper.quantity, line.paper.series)
        series = [name for quantity, name in at if quantity == panel.quantity]
        if series:
            known = plain(series[0]) in names
            value = {"x": line.paper.x, "value": line.paper.value, "kind": line.paper.kind}
            own = {"series": names.index(plain(series[0])) if known else None}
            printed.append(own | value | {"side": line.paper.side, "name": line.paper.series})
    return {
        "x": panel.x,
        "y": panel.y,
        "numeric": panel.numeric,
        "logX": panel.log_x,
        "logY": panel.log_y,
        "limits": None if panel.limits is None else list(panel.limits),
        "points": points,
        "printed": printed,
    }


def _numbers(figures: Figures) -> list[float | int | None]:
    mean = figures.mean
    return numbers(np.array([mean.mean, mean.low, mean.high]), 6)


def once(lines: Sequence[Line]) -> list[Line]:
    """A line for each value of the paper: some are held against several of ours."""
    return list({id(line.paper): line for line in lines}.values())
