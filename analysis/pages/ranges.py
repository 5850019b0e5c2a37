"""How well a method does on faults of each size: precision and recall by loss rate."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.solvers.stages import GROUPS
from testbed.arrays import BoolArray, FloatArray

RANGES = (*zip(GROUPS[1:], GROUPS[:-1], strict=True), (0.0, GROUPS[-1]))
"""Loss rates from low to high: those of Canary's stages (section III-F), and what is below."""


@dataclass(frozen=True)
class Share:
    """``right`` of ``all`` links; 0 of 0 where no link counts."""

    right: int
    all: int


def in_words(low: float, high: float) -> str:
    """Return a range as text: ``1–5 %``."""
    return f"{100 * low:g}–{100 * high:g} %" if low else f"below {100 * high:g} %"


def by_range(
    flagged: BoolArray, faulty: BoolArray, rate: FloatArray, estimate: FloatArray
) -> list[tuple[Share, Share]]:
    """Return precision and recall of a verdict in each of `RANGES`.

    A healthy link has no loss rate of a fault, so precision goes by the method's own estimate: of
    the links that it blames and says to lose so much, how many are faulty. Recall goes by the true
    rate.

    Args:
        flagged, faulty: Of each link, on the method's own terms: bool[N].
        rate: True loss rates, float64[N].
        estimate: The method's, float64[N]; nan where it has none.
    """
    found = []
    for low, high in RANGES:
        said = flagged & _within(estimate, low, high)
        true = faulty & _within(rate, low, high)
        precision = Share(int((said & faulty).sum()), int(said.sum()))
        found.append((precision, Share(int((true & flagged).sum()), int(true.sum()))))
    return found


def _within(rate: FloatArray, low: float, high: float) -> BoolArray:
    return (rate >= low) & (rate < high if high < 1 else rate <= high)
