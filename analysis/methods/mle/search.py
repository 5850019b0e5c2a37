# SPDX-License-Identifier: Apache-2.0
"""The search for the links to blame: add the best, refit, release, swap, estimate the law again.

The law of healthy links begins at its widest, where only what clearly loses more than a fault is
blamed, and narrows as blamed links take their losses with them. So a background that is there is
never explained by faults first. Each round begins from the rates of the one before.

**The second look** is at what was not blamed, once there are faults. The search blames by peaks of
the likelihood, at a price that is safe while nothing is known of the faults of a fabric. Once some
are found, two things are known of them, and few losses may do.

How many there are: each of n links is faulty with one probability, of which nothing is known
(Jeffreys' prior, Beta(1/2, 1/2)): if m are expected to be, it is (m + 1/2) / (n + 1). These are
those that are blamed and, by their own probabilities, those of which too little was seen.

What they lose: rates are log-uniform from the least of a fault to an upper end of which nothing is
known, but that it is at most 1. With L the logarithm of the range, any L up to R = ln(1 / least)
is as likely as any other before; k rates of which the highest is M above the least make it L^-k
from M to R. So the density of one more at M' >= M, or at any below M with M' = M, is

    int_M'^R L^(-k-1) dL / int_M^R L^-k dL.

What is compared is the evidence, each rate integrated over its law by Laplace's approximation
(`analysis.methods.mle.likelihood`), the unit's own and those that share its rows. The law of
healthy links is not cut off here: where they lose nearly what a fault does, a link must stand out
of them. That makes the probability p of a fault. The set of the highest expected F1, which is
2 sum_blamed p / (blamed + sum_all p), has what is likelier than half of that F1 (Lipton, Elkan and
Naryanaswamy, ECML PKDD 2014): where some faults are sure to be missed, one that is nearly as likely
as not is worth naming.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from analysis.methods.mle.likelihood import (
    FAULT,
    MEAN,
    PENALTY,
    STATE,
    WIDEST,
    Problem,
    evidence,
    mean_rate,
)
from analysis.methods.mle.moves import LENIENT, begin, finish, search, settle_all
from analysis.methods.mle.problem import Components, Rows
from testbed.arrays import BoolArray, FloatArray
from testbed.kernels import Kernels

KERNELS = Kernels.beside(__file__)

RATE = 1.2
"""Nats that a free rate costs: the logarithm of its range, ln(1 / 0.001), over the width of the
likelihood's peak in ln x, sqrt(2 pi / lost), at one and a half losses: where few packets are seen,
one or two tell a fault (`analysis.methods.mle.devices`)."""

NARROWEST = 100.0
"""The mean rate of healthy links is at least the least rate of a fault divided by this. A link that
loses a hundred times more stands out in any case, and single losses get no link blamed."""

ROUNDS = 5
AS_GOOD = 1.0  # nats by which evidence may be less
HOPELESS = 100.0  # nats by which it is so much less that a yet narrower law is not looked at
FEW = 20_000  # units on rows, that take less time than to tell their components apart


def penalty_of(links: float, blamed: int = 0) -> float:
    """Return the nats that one more blamed link must gain beside the ``blamed`` ones: the cost of
    its choice among ``links``, every number of faulty links being equally likely, and `RATE`. The
    second look may blame links that gain less."""
    return max(math.log(max(links - blamed, 1) / (blamed + 1)), 0.0) + RATE


def suspects(lost: FloatArray, arrived: FloatArray, fault_rate: float) -> BoolArray:
    """Return which units may be blamed, bool[U]: those whose rate would not be clearly below that
    of a fault if they had lost all packets ``lost`` on paths over them. ``lost`` and ``arrived``,
    float64[U], are packets."""
    usual = -math.log1p(-fault_rate) * arrived
    logs = np.log(np.maximum(lost, 1e-300)) - np.log(np.maximum(usual, 1e-300))
    return (lost > 0) & ((lost >= usual) | (lost * logs - lost + usual < LENIENT))


def explain(
    rows: Rows,
    size: FloatArray,
    candidate: BoolArray,
    *,
    fault_rate: float,
    penalty: float | None,
) -> Problem:
    """Return the explanation of observations: rates, blamed units and evidence, see `Problem`.

    ``gains``, in nats, is what the release of a blamed unit would cost, or what blaming another
    unit would gain. ``law[0]`` is the mean rate of healthy links.

    Args:
        rows: What was observed over known paths.
        size: The links of each unit, float64[U].
        candidate: The units that may be blamed, see `suspects`.
        fault_rate: What the user calls a fault.
        penalty: Nats a blamed unit must gain; None: `penalty_of` as many as are blamed.
    """
    n = len(size)
    fault = -math.log1p(-fault_rate)
    original, parts = rows, None
    if len(rows.units) >= FEW:
        parts = Components.of(rows)
        rows, size, candidate = parts.rows, size[parts.unit], candidate[parts.unit]
    s = Problem(
        ptr=rows.ptr,
        units=rows.units,
        unit_ptr=rows.unit_ptr,
        rows=rows.rows,
        lost=rows.lost,
        arrived=rows.arrived,
        size=size,
        x=np.full(n, fault),
        total=np.zeros(len(rows.lost)),
        blamed=np.zeros(n, np.bool_),
        gains=np.zeros(n),
        candidate=candidate,
        current=np.zeros(n, np.bool_),
        queue=np.zeros(n, np.int32),
        queued=np.zeros(n, np.bool_),
        kept=np.zeros(n),
        share=np.zeros(n),
        law=np.array([fault, fault, penalty_of(n) if penalty is None else penalty]),
    )
    if n:
        _run(parts, begin, s)
        least = -math.log1p(-fault_rate / NARROWEST)
        s = _narrowing(s, least, parts)
        if penalty is None:
            _learn_penalty(s, parts)
            second_look(s)
        _run(parts, finish, s)
    return s if parts is None else parts.restored(s, original)


def _run(parts: Components | None, function: Callable[[Problem], None], s: Problem) -> None:
    """Call a function for each of a problem's parts, or for the whole if there are no parts."""
    function(s) if parts is None else parts.run(function, s)


def resume(
    s: Problem, arrived: FloatArray, *, penalty: float | None, doubtful: bool = False
) -> bool:
    """Continue the search under the present law, with ``arrived``, float64[U], as the packets that
    arrived over each unit. Return whether the blamed units changed, or the rate of one by more than
    1 %. ``penalty`` is that of `explain`; with ``doubtful``, blamed units
    that are more likely healthy than faulty are released."""
    x, blamed = s.x.copy(), s.blamed.copy()
    s.arrived[:] = arrived
    settle_all(s)
    search(s)
    if penalty is None:
        second_look(s)
        if doubtful:
            KERNELS.acquit_doubtful(s=s.bound)
    finish(s)
    near = np.abs(s.x - x)[blamed] <= 0.01 * x[blamed]
    return bool((s.blamed != blamed).any() or not near.all())


def _narrowing(s: Problem, least: float, parts: Components | None) -> Problem:
    """Search under ever narrower laws of healthy links; keep the narrowest of those whose evidence
    is within `AS_GOOD` of the highest."""
    best_s, most = s, -math.inf
    while True:
        _run(parts, search, s)
        now = evidence(s)
        if now > most - AS_GOOD:
            best_s = replace(s, **{name: getattr(s, name).copy() for name in STATE})
            most = max(most, now)
        if s.law[MEAN] <= least or now < most - HOPELESS:
            break
        s.law[MEAN] = max(least, 0.5 * s.law[MEAN])
        _run(parts, settle_all, s)
    for _ in range(3):
        mean = mean_rate(best_s, least)
        if abs(mean - best_s.law[MEAN]) < 0.02 * mean:
            break
        best_s.law[MEAN] = mean
        _run(parts, settle_all, best_s)
        _run(parts, search, best_s)
    return best_s


def _learn_penalty(s: Problem, parts: Components | None) -> None:
    """Continue the search with the penalty that follows from the number of blamed units, until both
    agree."""
    for _ in range(ROUNDS):
        penalty = penalty_of(len(s.x), int(s.blamed.sum()))
        if penalty >= s.law[PENALTY]:
            break
        s.law[PENALTY] = penalty
        s.current[:] = False
        _run(parts, search, s)


def second_look(s: Problem) -> None:
    """Blame units that are likely enough given the faults that are already blamed. Nothing is done
    if none is blamed, or if the mean rate of healthy links is at its limit, because links at the
    least rate of a fault may then be healthy or faulty."""
    if s.blamed.any() and s.law[MEAN] < WIDEST * s.law[FAULT]:
        n = len(s.x)
        KERNELS.second_look(factor=np.zeros(n), untried=np.ones(n, np.bool_), s=s.bound)
