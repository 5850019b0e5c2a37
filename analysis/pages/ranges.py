# SPDX-License-Identifier: Apache-2.0
"""Precision and recall of a method by the loss rate of the faults."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.solvers.stages import GROUPS
from testbed.arrays import BoolArray, FloatArray

RANGES = (*zip(GROUPS[1:], GROUPS[:-1], strict=True), (0.0, GROUPS[-1]))
"""Ranges of loss rates, each (low, high), the most lossy first: those of Canary's stages (section
III-F), and the rates below them."""


@dataclass(frozen=True)
class Share:
    """``right`` of ``all`` links, a precision or a recall; 0 of 0 if no link is in the range."""

    right: int
    all: int


def in_words(low: float, high: float) -> str:
    """Return a range of loss rates (0 to 1) as text in per cent: ``1–5 %``."""
    return f"{100 * low:g}–{100 * high:g} %" if low else f"below {100 * high:g} %"


def by_range(
    flagged: BoolArray, faulty: BoolArray, rate: FloatArray, estimate: FloatArray
) -> list[tuple[Share, Share]]:
    """Return the precision and the recall of a verdict in each of `RANGES`.

    Precision uses the loss rate that the method estimates, since a healthy link has no fault's loss
    rate: of the blamed links with an estimate in the range, how many are faulty. Recall uses the
    true rate: of the faulty links with a rate in the range, how many are blamed.

    Args:
        flagged, faulty: Whether each link is blamed and is faulty, bool[N]. Links are directed or
            undirected ones, as the method tells them apart.
        rate: True loss rate of each link, float64[N].
        estimate: Loss rate that the method estimates, float64[N]; nan where it has none.
    """
    found = []
    for low, high in RANGES:
        blamed = flagged & _within(estimate, low, high)
        true = faulty & _within(rate, low, high)
        precision = Share(int((blamed & faulty).sum()), int(blamed.sum()))
        found.append((precision, Share(int((true & flagged).sum()), int(true.sum()))))
    return found


def _within(rate: FloatArray, low: float, high: float) -> BoolArray:
    return (rate >= low) & (rate < high if high < 1 else rate <= high)
