"""The search for the links to blame: add the best, refit, release, swap, estimate the law again.

The law of healthy links begins at its widest, where only what clearly loses more than a fault is
blamed, and narrows as blamed links take their losses with them. So a background that is there is
never explained by faults first. Each round begins from the rates of the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from analysis.methods.mle.background import evidence, mean_rate
from analysis.methods.mle.components import Components
from analysis.methods.mle.likelihood import MEAN, PENALTY, Problem
from analysis.methods.mle.moves import COARSE, LENIENT, begin, finish, search, settle_all
from analysis.methods.mle.problem import Rows
from analysis.methods.mle.second_look import doubt, look_again
from testbed.arrays import BoolArray, FloatArray

RATE = 1.2
"""Nats that a free rate costs: the logarithm of its range, ln(1 / 0.001), over the width of the
likelihood's peak in ln x, sqrt(2 pi / lost), at one and a half losses: where few packets are seen,
one or two tell a fault (`analysis.methods.mle.devices`)."""

NARROWEST = 100.0
"""The mean rate of healthy links is at least a fault's least divided by this: a link that loses so
much more stands out in any case, and stray losses convict nobody."""

ROUNDS = 5
AS_GOOD = 1.0  # nats by which evidence may be less
HOPELESS = 100.0  # nats by which it is so much less that a yet narrower law is not looked at
FEW = 20_000  # units on rows, that take less time than to tell their components apart


def penalty_of(links: float, blamed: int = 0) -> float:
    """Nats that one more blamed link must gain than those that are ``blamed``: to have been picked
    among so many, any number of faulty links being as likely as any other, and for its `RATE`.
    What gains less may be blamed in a `analysis.methods.mle.second_look`."""
    return max(math.log(max(links - blamed, 1) / (blamed + 1)), 0.0) + RATE


def suspects(lost: FloatArray, arrived: FloatArray, fault_rate: float) -> BoolArray:
    """The units that may be blamed at all: with all that was ``lost`` on paths over a unit, and
    what ``arrived`` over it, its rate must not be clearly below that of a fault. All of [U]."""
    usual = -math.log1p(-fault_rate) * arrived
    logs = np.log(np.maximum(lost, 1e-300)) - np.log(np.maximum(usual, 1e-300))
    return (lost > 0) & ((lost >= usual) | (lost * logs - lost + usual < LENIENT))


def explain(
    rows: Rows,
    size: FloatArray,
    may: BoolArray,
    *,
    fault_rate: float,
    penalty: float | None,
) -> Problem:
    """The explanation: rates, blamed units, and evidence in nats, see `Problem`.

    ``gains`` of a blamed unit is what its release would cost, of another what blaming it would
    still gain. ``law[0]`` is the mean rate of healthy links.

    Args:
        rows: What was observed over known paths.
        size: The links of each unit, float64[U].
        may: The units that may be blamed, see `suspects`.
        fault_rate: What the user calls a fault.
        penalty: Nats a blamed unit must gain; None: `penalty_of` as many as are blamed.
    """
    n = len(size)
    fault = -math.log1p(-fault_rate)
    given, parts = rows, None
    if len(rows.units) >= FEW:
        parts = Components.of(rows)
        rows, size, may = parts.rows, size[parts.unit], may[parts.unit]
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
        may=may,
        fresh=np.zeros(n, np.bool_),
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
            look_again(s)
        _run(parts, finish, s)
    return s if parts is None else parts.restored(s, given)


def _run(parts: Components | None, function: Callable[..., Any], *arguments: Any) -> None:
    """Call a compiled function for each part of a problem, its last argument, or for the whole."""
    function(*arguments) if parts is None else parts.run(function, *arguments)


def resume(
    s: Problem, arrived: FloatArray, *, penalty: float | None, doubtful: bool = False
) -> bool:
    """Search on, under the law as it is, if ``arrived`` float64[U] packets did over each unit. Says
    whether what is blamed has changed, or a rate of it by more than 1 %. ``penalty`` is as
    `explain`'s; what is ``doubtful`` is acquitted, see `analysis.methods.mle.second_look.doubt`."""
    x, blamed = s.x.copy(), s.blamed.copy()
    s.arrived[:] = arrived
    settle_all(COARSE, s)
    search(s)
    if penalty is None:
        look_again(s)
        if doubtful:
            doubt(s)
    finish(s)
    near = np.abs(s.x - x)[blamed] <= 0.01 * x[blamed]
    return bool((s.blamed != blamed).any() or not near.all())


def _narrowing(s: Problem, least: float, parts: Components | None) -> Problem:
    """Search under ever narrower laws of healthy links; that with the most evidence holds, or the
    narrowest of those as good."""
    best_s, most = s, -math.inf
    while True:
        _run(parts, search, s)
        now = evidence(s)
        if now > most - AS_GOOD:
            best_s = s._replace(**{name: getattr(s, name).copy() for name in STATE})
            most = max(most, now)
        if s.law[MEAN] <= least or now < most - HOPELESS:
            break
        s.law[MEAN] = max(least, 0.5 * s.law[MEAN])
        _run(parts, settle_all, COARSE, s)
    for _ in range(3):
        mean = mean_rate(best_s, least)
        if abs(mean - best_s.law[MEAN]) < 0.02 * mean:
            break
        best_s.law[MEAN] = mean
        _run(parts, settle_all, COARSE, best_s)
        _run(parts, search, best_s)
    return best_s


def _learn_penalty(s: Problem, parts: Components | None) -> None:
    """Search on at the penalty that the number of blamed units makes, until both agree."""
    for _ in range(ROUNDS):
        penalty = penalty_of(len(s.x), int(s.blamed.sum()))
        if penalty >= s.law[PENALTY]:
            break
        s.law[PENALTY] = penalty
        s.fresh[:] = False
        _run(parts, search, s)


STATE = ("x", "total", "blamed", "gains", "fresh", "law")
"""Of `Problem`, what a search changes."""
