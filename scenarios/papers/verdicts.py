# SPDX-License-Identifier: Apache-2.0
"""Verdicts: whether our values agree with those that a paper prints, computed value by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from analysis.evaluation.intervals import Interval, bootstrap_interval
from scenarios.papers.experiment import Experiment, Printed, Reason

Verdict = Literal["agrees", "explained", "not explained", "cannot be compared"]

NOT_MEASURED = "not measured here"


@dataclass(frozen=True)
class Figures:
    """Our draws of one quantity, series and x: all values, and their mean with its 95 %
    interval."""

    values: tuple[float, ...]
    mean: Interval

    @property
    def usual(self) -> tuple[float, float]:
        """Return the interval that contains 95 % of the draws, two numbers in the quantity's unit:
        their 2.5 % and 97.5 % quantiles."""
        low, high = np.quantile(self.values, (0.025, 0.975))
        return float(low), float(high)


Ours = Mapping[tuple[str, str, str], Figures]
"""Our draws by quantity, series and x, in the order of the rows."""


@dataclass(frozen=True)
class Line:
    """A value of the paper, our draws that it is compared with, the verdict, and its reason."""

    paper: Printed
    quantity: str
    series: str
    ours: Figures | None
    verdict: Verdict
    reason: str


def figures_of(rows: Mapping[str, Any]) -> Ours:
    """Return the draws of each quantity, series and x, from the columns of `Row`."""
    draws: dict[tuple[str, str, str], list[float]] = {}
    columns = (rows["quantity"], rows["series"], rows["x"], rows["value"])
    for quantity, series, x, value in zip(*columns, strict=True):
        draws.setdefault((quantity, series, x), []).append(float(value))
    return {at: Figures(tuple(values), _interval(values)) for at, values in draws.items()}


def _interval(values: Sequence[float]) -> Interval:
    """Return the mean with its 95 % interval; equal values have an interval of width 0."""
    if len(set(values)) == 1:
        return Interval(values[0], values[0], values[0])
    return bootstrap_interval(values)


def verdicts(experiment: Experiment, ours: Ours) -> list[Line]:
    """Return a line for each value of the paper and each of our series that it is compared with. Of
    several series, only those with rows are compared: a capture's, or those of generated
    traffic."""
    lines = []
    for value in experiment.values:
        every = experiment.ours(value.quantity, value.series)
        for at in [at for at in every if (*at, value.x) in ours] or every:
            figures = ours.get((*at, value.x))
            verdict, reason = _judged(experiment.reasons, value, at, figures)
            if verdict == "not explained":
                reason = experiment.tried.get(at[1], "")
            lines.append(Line(value, *at, figures, verdict, reason))
    return lines


def _judged(
    reasons: Sequence[Reason], value: Printed, at: tuple[str, str], figures: Figures | None
) -> tuple[Verdict, str]:
    """Return the verdict on a value of the paper, and the reason for it."""
    about = [reason for reason in reasons if reason.speaks_of(*at, value.x, value.value)]
    cannot = [reason.why for reason in about if reason.cannot]
    if cannot or figures is None:
        return "cannot be compared", cannot[0] if cannot else NOT_MEASURED
    if _agrees(value, figures):
        return "agrees", ""
    ratio = figures.mean.mean / value.value if value.value else np.inf
    for reason in about:
        if reason.ratio[0] <= ratio <= reason.ratio[1]:
            return "explained", reason.why
    return "not explained", ""


def _agrees(value: Printed, figures: Figures) -> bool:
    """Return True if the paper's value lies in the interval of our mean, or of our draws if it is a
    single draw; for a bound, if our mean may lie beyond it."""
    if value.side == "above":
        return figures.mean.high >= value.value
    if value.side == "below":
        return figures.mean.low <= value.value
    low, high = (figures.mean.low, figures.mean.high) if value.mean else figures.usual
    slack = value.rounding + 1e-9 * abs(value.value)
    return low - slack <= value.value <= high + slack
