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
from typing import Any

import numpy as np

from analysis.methods.mle.likelihood import (
    DEAD,
    FAULT,
    LEAST,
    MEAN,
    PENALTY,
    STATE,
    WIDEST,
    Problem,
    best,
    evidence,
    fallen_on_all,
    gain,
    healthy,
    held,
    mean_rate,
    move,
    settled,
    touch,
    width,
)
from analysis.methods.mle.moves import (
    COARSE,
    LENIENT,
    begin,
    blame,
    expected_gain,
    finish,
    keep,
    restore,
    search,
    settle_all,
    settle_around,
)
from analysis.methods.mle.problem import Components, Rows
from testbed.arrays import BoolArray, FloatArray
from testbed.compiled import kernel

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


def _run(parts: Components | None, function: Callable[..., Any], *arguments: Any) -> None:
    """Call a compiled function, whose last argument is a problem, for each of its parts, or for the
    whole problem if there are no parts."""
    function(*arguments) if parts is None else parts.run(function, *arguments)


def resume(
    s: Problem, arrived: FloatArray, *, penalty: float | None, doubtful: bool = False
) -> bool:
    """Continue the search under the present law, with ``arrived``, float64[U], as the packets that
    arrived over each unit. Return whether the blamed units changed, or the rate of one by more than
    1 %. ``penalty`` is that of `explain`; with ``doubtful``, `acquit_doubtful` is applied."""
    x, blamed = s.x.copy(), s.blamed.copy()
    s.arrived[:] = arrived
    settle_all(COARSE, s)
    search(s)
    if penalty is None:
        second_look(s)
        if doubtful:
            acquit_doubtful(s)
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
    """Continue the search with the penalty that follows from the number of blamed units, until both
    agree."""
    for _ in range(ROUNDS):
        penalty = penalty_of(len(s.x), int(s.blamed.sum()))
        if penalty >= s.law[PENALTY]:
            break
        s.law[PENALTY] = penalty
        s.current[:] = False
        _run(parts, search, s)


DOUBTLESS = 20.0
"""A blamed unit that explains this many nats is certain: no cost of rate and choice is as high."""

HOPEFUL = 0.5
"""The share of the search's price that a unit gains by its peak that may be likely enough."""


@kernel
def _power(low, high, k):
    """Return the integral of L^-k from ``low`` to ``high``, times low^(k - 1) to keep it small."""
    if k == 1:
        return np.log(high / low)
    return (1.0 - (low / high) ** (k - 1)) / (k - 1)


@kernel
def _density(at, highest, k, widest):
    """Return the density, per ln x, of one more rate at ``at``, given the ``highest`` rate so far.
    These and ``widest`` are logarithms of rates over the least of a fault; see the module's
    text."""
    low = max(highest, 0.1)
    end = max(low, at)
    if end >= widest:
        return 1.0 / widest
    whole = _power(low, widest, k)
    return _power(end, widest, k + 1) / whole * (low / end) ** (k - 1) / end


@kernel
def _beyond(i, s):
    """Return the nats that a healthy unit's rate gains if its law is not cut off at the least rate
    of a fault."""
    mean, size = s.law[MEAN], s.size[i]
    x = best(i, size, 1.0 / mean, LEAST * mean * size, DEAD, s)
    if x <= s.law[FAULT] * size:
        return 0.0
    return gain(i, x, s) + healthy(i, s.x[i], s) - healthy(i, x, s)


@kernel
def _around(i, s):
    """Return by how many nats the evidence of unit i and of those that share a row with it, as far
    as they are healthy, is below their likelihood."""
    total = 0.0 if s.blamed[i] else settled(fallen_on_all(i, s), s.size[i])
    s.share[i] = 1.0
    for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
        for f in range(s.ptr[s.rows[e]], s.ptr[s.rows[e] + 1]):
            j = s.units[f]
            if s.share[j] == 0.0 and not s.blamed[j]:
                s.share[j] = 1.0
                total += settled(fallen_on_all(j, s), s.size[j])
    s.share[i] = 0.0
    for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
        for f in range(s.ptr[s.rows[e]], s.ptr[s.rows[e] + 1]):
            s.share[s.units[f]] = 0.0
    return total


def second_look(s: Problem) -> None:
    """Blame units that are likely enough given the faults that are already blamed. Nothing is done
    if none is blamed, or if the mean rate of healthy links is at its limit, because links at the
    least rate of a fault may then be healthy or faulty."""
    if s.blamed.any() and s.law[MEAN] < WIDEST * s.law[FAULT]:
        _second_look(s, np.zeros(len(s.x)), np.ones(len(s.x), np.bool_))


@kernel
def _density_at(x, k, top, s):
    fault = s.law[FAULT]
    return _density(np.log(x / fault), np.log(top / fault), k, -np.log(fault))


@kernel
def _factor(i, k, top, s):
    """Blame unit i beside the k blamed units, whose highest rate is ``top``; return the factor by
    which the evidence rises (the Bayes factor)."""
    before = _around(i, s) - _beyond(i, s)
    gained = blame(i, s) + before - _around(i, s)
    over = width(fallen_on_all(i, s), s.arrived[i] * s.law[FAULT])
    return np.exp(min(gained, 50.0)) * _density_at(s.x[i], k, top, s) * over


@kernel
def _unseen(i, k, top, s):
    """Return the same factor for a unit with few losses, with the rates of its neighbours fixed."""
    if s.candidate[i]:
        x = best(i, 0.0, 0.0, s.law[FAULT], DEAD, s)
        lost = 0.0
        for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
            r = s.rows[e]
            lost += s.lost[r] * min(x / (s.total[r] - s.x[i] + x), 1.0)
        over = width(lost, s.arrived[i] * s.law[FAULT])
        own = settled(fallen_on_all(i, s), s.size[i]) - _beyond(i, s)
        return np.exp(s.gains[i] + own) * _density_at(x, k, top, s) * over
    if s.unit_ptr[i] < s.unit_ptr[i + 1]:
        return 0.0  # it clearly loses less than a fault does
    least = s.arrived[i] * s.law[FAULT]
    return min(np.exp(-least) * width(0.0, least) * _density_at(s.law[FAULT], k, top, s), 1.0)


@kernel
def _second_look(s, factor, open):
    """Blame further units whose Bayes factors show that they are probably faulty, the highest
    factor first. ``factor``, float64[U], is scratch for these factors, and ``open``, bool[U], marks
    the units to try; both are modified."""
    n, k, top = len(s.x), 0, s.law[FAULT]
    for i in range(n):
        if s.blamed[i]:
            k += 1
            top = max(top, s.x[i])
            open[i] = False
    for i in range(n):
        if not open[i]:
            continue
        if s.candidate[i] and not s.current[i]:
            s.gains[i] = expected_gain(i, s)
        open[i] = s.candidate[i] and s.gains[i] > HOPEFUL * s.law[PENALTY]
        if open[i]:
            keep(s)
            factor[i] = _factor(i, k, top, s)
            s.blamed[i] = False
            restore(s)
        else:
            factor[i] = _unseen(i, k, top, s)
    share, missed = (k + 0.5) / (n + 1.0), 0.0
    for _ in range(100):
        missed = 0.0
        for i in range(n):
            missed += share * factor[i] / (1.0 - share + share * factor[i])
        now = (k + missed + 0.5) / (n + 1.0)
        if now - share < 1e-3 * share:
            break
        share = now
    sure = float(k)
    while True:
        pick = -1
        for i in range(n):
            if open[i] and (pick < 0 or factor[i] > factor[pick]):
                pick = i
        if pick < 0:
            return
        open[pick] = False
        expected = share * factor[pick] / (1.0 - share + share * factor[pick])
        keep(s)
        now = _factor(pick, k, top, s)
        p = share * now / (1.0 - share + share * now)
        if p > sure / (k + sure + missed):
            k += 1
            sure += p
            missed -= expected
            top = max(top, s.x[pick])
        else:
            s.blamed[pick] = False
            restore(s)


@kernel
def acquit_doubtful(s):
    """Release blamed units that are more likely healthy than faulty, given that the others are
    faulty. The search assumes the cost of a rate at few losses, which is too low at many."""
    n = len(s.x)
    for i in range(n):
        if not s.blamed[i] or s.gains[i] > DOUBTLESS:
            continue
        k, top = 0, s.law[FAULT]
        for j in range(n):
            if s.blamed[j] and j != i:
                k += 1
                top = max(top, s.x[j])
        s.blamed[i] = False
        move(i, held(i, s), s)
        touch(i, s)
        settle_around(i, COARSE, s)
        keep(s)
        share = (k + 0.5) / (n + 1.0)
        if _factor(i, k, top, s) * share < 1.0 - share:
            s.blamed[i] = False
            restore(s)
