# SPDX-License-Identifier: Apache-2.0
"""The log-likelihood along one unit's rate, moves that keep the rows' sums, and the law of rates.

Unit i loses packets at the rate x_i = -ln(success) >= 0. Row r, which lost k of its packets, adds
k ln(1 - exp(-X_r)) to the log-likelihood, where X_r is the sum of its units' x; the packets that
arrived over unit i add -arrived_i x_i. Along one x_i this is concave: its slope, sum_r k_r / (e^X_r
- 1) - arrived_i, falls. The law of a healthy link's rate is exponential, so that of a unit's rate
is a Gamma distribution. Its density is taken over ln x. The most likely rate of a link that lost
nothing is then the expected one and not 0, and a single loss is no evidence against the many links
that may have caused it. The law acts on a healthy unit as if ``size`` more packets had been lost
and 1 / mean more had arrived.

**The law's mean** is fitted to the losses that no fault explains (empirical Bayes). If s_i of the
losses fell to a healthy link over which A_i packets arrived, its rate is Gamma distributed with
mean (s_i + 1) / (A_i + 1 / mean); the losses of a row fall to its links in proportion to their
rates; the mean of the law is that of the links' means.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.kernels import Bound, Kernels

KERNELS = Kernels.beside(__file__)

MEAN, FAULT, PENALTY = range(3)
"""Indices into ``Problem.law``, also in likelihood.h: the mean rate of a healthy link, the least
rate of a blamed one, and the penalty of blaming one, in nats."""


@dataclass(frozen=True)
class Problem:
    """The arrays of `Rows`, and the explanation, which the search modifies.

    ``size`` float64[U] is the number of links of each unit; ``x`` float64[U] are rates and
    ``total`` float64[R] their sums over the rows; ``blamed`` bool[U]; ``gains`` float64[U], see
    `explain`; ``candidate`` bool[U] are the units with enough losses for a fault; ``current``
    bool[U] those whose gain is up to date. Scratch memory: ``queue`` int32[U] and ``queued``
    bool[U] of `settle`, ``kept`` float64[U] for a copy of x, ``share`` float64[U] for sums.
    """

    ptr: LongArray
    units: IntArray
    unit_ptr: LongArray
    rows: IntArray
    lost: FloatArray
    arrived: FloatArray
    size: FloatArray
    x: FloatArray
    total: FloatArray
    blamed: BoolArray
    gains: FloatArray
    candidate: BoolArray
    current: BoolArray
    queue: IntArray
    queued: BoolArray
    kept: FloatArray
    share: FloatArray
    law: FloatArray

    @property
    def n_units(self) -> int:
        """Return the number of units."""
        return len(self.x)

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.lost)

    @cached_property
    def bound(self) -> Bound:
        """Return this problem in the form that kernels take: most take less time than to make it
        anew."""
        return KERNELS.bound("Problem", self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the arrays alone, as another process has other addresses."""
        return {name: value for name, value in vars(self).items() if name != "bound"}


STATE = ("x", "total", "blamed", "gains", "current", "law")
"""The names of the arrays of a `Problem` that a search modifies."""


WIDEST = 0.5
"""The mean rate of healthy links is at most this share of the least rate of a fault."""


def cost(s: Problem) -> float:
    """Return the sum over all units of the cost of their rates in nats: by the law of healthy
    links, or the penalty of blame."""
    return KERNELS.cost(s=s.bound)


def mean_rate(s: Problem, lowest: float) -> float:
    """Return the mean rate of a healthy link, from ``lowest`` to `WIDEST` times a fault's least.
    ``s.kept`` and ``s.share`` are used as scratch."""
    return KERNELS.mean_rate(s=s.bound, lowest=lowest, widest=WIDEST)


def evidence(s: Problem) -> float:
    """Return the evidence by which laws are compared: the log-likelihood of the rows with the rates
    of healthy units integrated over their law (Laplace), less the penalties, in nats."""
    return KERNELS.evidence(s=s.bound)
