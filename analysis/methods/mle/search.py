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
import numpy.typing as npt

from analysis.methods.mle.background import evidence, mean_rate
from analysis.methods.mle.components import Components
from analysis.methods.mle.likelihood import (
    DEAD,
    FAULT,
    LEAST,
    MEAN,
    PENALTY,
    Problem,
    best,
    gain,
    healthy,
    held,
    law,
    move,
    settle,
    touch,
)
from analysis.methods.mle.problem import Rows
from testbed.fabric.compiled import kernel

__all__ = [
    "COARSE",
    "LENIENT",
    "RATE",
    "blame",
    "explain",
    "finish",
    "keep",
    "penalty_of",
    "release",
    "restore",
    "resume",
    "settle_around",
    "suspects",
]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

RATE = 1.8
"""Nats that a free rate costs: the logarithm of its range, ln(1 / 0.001), over the width of the
likelihood's peak in ln x, sqrt(2 pi / lost), at five losses (`analysis.methods.mle.devices`)."""
LENIENT = 2.0
"""Nats by which a rate below the least of a fault may be more likely: a fault may be just above."""

NARROWEST = 100.0
"""The mean rate of healthy links is at least a fault's least divided by this: a link that loses so
much more stands out in any case, and stray losses convict nobody."""

ROUNDS = 5
AS_GOOD = 1.0  # nats by which evidence may be less
HOPELESS = 100.0  # nats by which it is so much less that a yet narrower law is not looked at
FEW = 20_000  # units on rows, that take less time than to tell their components apart
FINE, COARSE = 1e-5, 1e-3  # nats that a move must gain


def penalty_of(links: float, blamed: int = 0) -> float:
    """Nats that one more blamed link must gain than those that are ``blamed``: to have been picked
    among so many, any number of faulty links being as likely as any other, and for its `RATE`."""
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
        _run(parts, _begin, s)
        least = -math.log1p(-fault_rate / NARROWEST)
        s = _narrowing(s, least, parts)
        if penalty is None:
            _learn_penalty(s, parts)
        _run(parts, finish, s)
    return s if parts is None else parts.restored(s, given)


def _run(parts: Components | None, function: Callable[..., Any], *arguments: Any) -> None:
    """Call a compiled function for each part of a problem, its last argument, or for the whole."""
    function(*arguments) if parts is None else parts.run(function, *arguments)


def resume(s: Problem, arrived: FloatArray) -> bool:
    """Search on, under the law as it is, if ``arrived`` float64[U] packets did over each unit. Says
    whether what is blamed has changed, or a rate of it by more than 1 %."""
    x, blamed = s.x.copy(), s.blamed.copy()
    s.arrived[:] = arrived
    _settle_all(COARSE, s)
    _search(s)
    finish(s)
    near = np.abs(s.x - x)[blamed] <= 0.01 * x[blamed]
    return bool((s.blamed != blamed).any() or not near.all())


def _narrowing(s: Problem, least: float, parts: Components | None) -> Problem:
    """Search under ever narrower laws of healthy links; that with the most evidence holds, or the
    narrowest of those as good."""
    best_s, most = s, -math.inf
    while True:
        _run(parts, _search, s)
        now = evidence(s)
        if now > most - AS_GOOD:
            best_s = s._replace(**{name: getattr(s, name).copy() for name in STATE})
            most = max(most, now)
        if s.law[MEAN] <= least or now < most - HOPELESS:
            break
        s.law[MEAN] = max(least, 0.5 * s.law[MEAN])
        _run(parts, _settle_all, COARSE, s)
    for _ in range(3):
        mean = mean_rate(best_s, least)
        if abs(mean - best_s.law[MEAN]) < 0.02 * mean:
            break
        best_s.law[MEAN] = mean
        _run(parts, _settle_all, COARSE, best_s)
        _run(parts, _search, best_s)
    return best_s


def _learn_penalty(s: Problem, parts: Components | None) -> None:
    """Search on at the penalty that the number of blamed units makes, until both agree."""
    for _ in range(ROUNDS):
        penalty = penalty_of(len(s.x), int(s.blamed.sum()))
        if penalty >= s.law[PENALTY]:
            break
        s.law[PENALTY] = penalty
        s.fresh[:] = False
        _run(parts, _search, s)


STATE = ("x", "total", "blamed", "gains", "fresh", "law")


@kernel
def _begin(s):
    """Sums of the rows, and rates settled to them."""
    for r in range(len(s.total)):
        s.total[r] = 0.0
        for e in range(s.ptr[r], s.ptr[r + 1]):
            s.total[r] += s.x[s.units[e]]
    _settle_all(COARSE, s)


@kernel
def _settle_all(tolerance, s):
    count = 0
    for i in range(len(s.x)):
        s.fresh[i] = False
        if s.unit_ptr[i] < s.unit_ptr[i + 1]:
            s.queue[count] = i
            s.queued[i] = True
            count += 1
        elif not s.blamed[i]:
            s.x[i] = held(i, s)
    return settle(0, count, tolerance, s)


@kernel
def settle_around(i, tolerance, s):
    """Settle unit i and what shares a row with it."""
    s.queue[0] = i
    s.queued[i] = True
    count = 1
    for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
        r = s.rows[e]
        for f in range(s.ptr[r], s.ptr[r + 1]):
            j = s.units[f]
            s.fresh[j] = False
            if not s.queued[j]:
                s.queued[j] = True
                s.queue[count] = j
                count += 1
    return settle(0, count, tolerance, s)


@kernel
def _shortfall(i, s):
    """Nats by which the best rate below that of a fault is more likely than the fault's least."""
    low = best(i, 0.0, 0.0, LEAST * s.law[MEAN], s.law[FAULT], s)
    return gain(i, low, s) - gain(i, s.law[FAULT], s)


@kernel
def _promise(i, s):
    """What blaming unit i would gain with the others held, the penalty not counted."""
    new = best(i, 0.0, 0.0, s.law[FAULT], DEAD, s)
    gained = gain(i, new, s) + law(i, s)
    if new <= s.law[FAULT] and _shortfall(i, s) > LENIENT:
        return min(gained, 0.0)
    return gained


@kernel
def _strongest(s):
    """The unit whose blame gains most with the others held; -1 if none gains the penalty.

    Gains mostly fall as others are blamed, so one that is out of date is only taken again when it
    would be the strongest; before the answer is none, all are.
    """
    while True:
        pick, most = -1, s.law[PENALTY]
        for i in range(len(s.x)):
            if s.may[i] and not s.blamed[i] and s.gains[i] > most:
                pick, most = i, s.gains[i]
        if pick >= 0 and s.fresh[pick]:
            return pick
        if pick >= 0:
            s.gains[pick] = _promise(pick, s)
            s.fresh[pick] = True
            continue
        all_fresh = True
        for i in range(len(s.x)):
            if s.may[i] and not s.blamed[i] and not s.fresh[i]:
                s.gains[i] = _promise(i, s)
                s.fresh[i] = True
                if s.gains[i] > s.law[PENALTY]:
                    all_fresh = False
        if all_fresh:
            return -1


@kernel
def blame(i, s):
    """Blame unit i and refit; returns what that gained, the penalty not counted."""
    paid = law(i, s)
    s.blamed[i] = True
    new = best(i, 0.0, 0.0, s.law[FAULT], DEAD, s)
    gained = gain(i, new, s) + paid
    move(i, new, s)
    touch(i, s)
    return gained + settle_around(i, COARSE, s)


@kernel
def keep(s):
    for i in range(len(s.x)):
        s.kept[i] = s.x[i]


@kernel
def restore(s):
    for i in range(len(s.x)):
        if s.x[i] != s.kept[i]:
            move(i, s.kept[i], s)
            touch(i, s)


@kernel
def _try(s):
    """Blame the unit that gains the penalty once its neighbours are refitted; says if there is one.

    Healthy neighbours take a part of a fault's losses, so with these held it may gain too little.
    """
    tried = 0
    for i in range(len(s.x)):
        if s.may[i] and not s.blamed[i] and s.gains[i] > 0.4 * s.law[PENALTY] and tried < 50:
            tried += 1
            keep(s)
            if blame(i, s) > s.law[PENALTY]:
                return True
            s.blamed[i] = False
            restore(s)
    return False


@kernel
def _shared(i, s):
    """The most of unit i's losses, as a share, that are on rows of one other that may be blamed."""
    mine = most = 0.0
    for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
        r = s.rows[e]
        fallen = s.lost[r] * min(s.x[i] / s.total[r], 1.0)
        mine += fallen
        for f in range(s.ptr[r], s.ptr[r + 1]):
            j = s.units[f]
            if j != i and s.may[j]:
                s.share[j] += fallen
                most = max(most, s.share[j])
    for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
        for f in range(s.ptr[s.rows[e]], s.ptr[s.rows[e] + 1]):
            s.share[s.units[f]] = 0.0
    return most / mine if mine > 0.0 else 1.0


@kernel
def _rival(i, s):
    """The unit on a row of unit i, itself not, that now gains most by being blamed; -1 if none."""
    pick, most = -1, 0.0
    for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
        r = s.rows[e]
        for f in range(s.ptr[r], s.ptr[r + 1]):
            j = s.units[f]
            if j == i or s.blamed[j] or not s.may[j]:
                continue
            if not s.fresh[j]:
                s.gains[j] = _promise(j, s)
                s.fresh[j] = True
            if s.gains[j] > most:
                pick, most = j, s.gains[j]
    return pick


@kernel
def release(i, may_change, s):
    """Acquit blamed unit i if it no longer earns its penalty, or if another explains its losses
    better, which is then blamed in its place. Says if so; otherwise all is as it was."""
    penalty = s.law[PENALTY]
    below = s.x[i] <= s.law[FAULT] and _shortfall(i, s) > LENIENT
    keep(s)
    s.blamed[i] = False
    new = held(i, s)
    cost = -gain(i, new, s) + healthy(i, new, s)
    if cost > 10.0 * penalty and not below and _shared(i, s) < 0.5:
        s.blamed[i] = True
        s.gains[i] = cost
        return False
    move(i, new, s)
    touch(i, s)
    cost -= settle_around(i, COARSE, s)
    if (cost < penalty or below) and may_change:
        return True
    other = _rival(i, s)
    if other >= 0 and s.gains[other] > cost - 1.0:
        # Of equal explanations rounding prefers now one, now the other: of 10^10 packets by tenths
        # of a nat. So a swap must gain more than that.
        if blame(other, s) > cost + 2 * COARSE + 1e-9 * abs(cost) and may_change:
            return True
        s.blamed[other] = False
    s.blamed[i] = True
    restore(s)
    s.gains[i] = cost
    return False


@kernel
def _search(s):
    """Blame and release units until neither gains."""
    changes, limit = 0, 100 + 10 * len(s.x)  # rounding must not make it go round in circles
    while True:
        pick = _strongest(s)
        if pick >= 0:
            blame(pick, s)
            continue
        if changes < limit and _try(s):
            changes += 1
            continue
        released = False
        for i in range(len(s.x)):
            if s.blamed[i] and release(i, changes < limit, s):
                changes += 1
                released = True
        if not released:
            return


@kernel
def finish(s):
    """Exact rates, and the evidence of all that are not blamed."""
    _settle_all(FINE, s)
    for i in range(len(s.x)):
        if not s.blamed[i]:
            s.gains[i] = max(_promise(i, s), 0.0) if s.may[i] else 0.0
