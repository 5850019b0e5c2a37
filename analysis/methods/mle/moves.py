"""The search's moves, compiled: blame the unit that gains most, refit, release, swap.

Each changes a `Problem` and refits only what shares a row with what moved.

**Other explanations** to try: one unit in place of those whose losses are on its rows, and one
less. Reports that exist only because of a loss say nothing of flows that lost none. What one link
loses is then as well explained by all the links that its flows came from, or went on to, and a
search that adds, releases and swaps one unit at a time cannot leave that: the one gains nothing
while the others are blamed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.methods.mle.likelihood import (
    DEAD,
    FAULT,
    LEAST,
    MEAN,
    PENALTY,
    STATE,
    Problem,
    best,
    fallen_on,
    gain,
    healthy,
    held,
    law,
    move,
    settle,
    touch,
)
from testbed.arrays import IntArray
from testbed.compiled import kernel

LENIENT = 2.0
"""Nats by which a rate below the least of a fault may be more likely: a fault may be just above."""

FINE, COARSE = 1e-5, 1e-3  # nats that a move must gain


@kernel
def begin(s):
    """Sums of the rows, and rates settled to them."""
    for r in range(len(s.total)):
        s.total[r] = 0.0
        for e in range(s.ptr[r], s.ptr[r + 1]):
            s.total[r] += s.x[s.units[e]]
    settle_all(COARSE, s)


@kernel
def settle_all(tolerance, s):
    count = 0
    for i in range(len(s.x)):
        s.current[i] = False
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
            s.current[j] = False
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
def expected_gain(i, s):
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
            if s.candidate[i] and not s.blamed[i] and s.gains[i] > most:
                pick, most = i, s.gains[i]
        if pick >= 0 and s.current[pick]:
            return pick
        if pick >= 0:
            s.gains[pick] = expected_gain(pick, s)
            s.current[pick] = True
            continue
        all_fresh = True
        for i in range(len(s.x)):
            if s.candidate[i] and not s.blamed[i] and not s.current[i]:
                s.gains[i] = expected_gain(i, s)
                s.current[i] = True
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
        if s.candidate[i] and not s.blamed[i] and s.gains[i] > 0.4 * s.law[PENALTY] and tried < 50:
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
        fallen = fallen_on(r, i, s)
        mine += fallen
        for f in range(s.ptr[r], s.ptr[r + 1]):
            j = s.units[f]
            if j != i and s.candidate[j]:
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
            if j == i or s.blamed[j] or not s.candidate[j]:
                continue
            if not s.current[j]:
                s.gains[j] = expected_gain(j, s)
                s.current[j] = True
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
def search(s):
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
    settle_all(FINE, s)
    for i in range(len(s.x)):
        if not s.blamed[i]:
            s.gains[i] = max(expected_gain(i, s), 0.0) if s.candidate[i] else 0.0


SHARED = 0.5
"""Of a unit's losses, what must be on rows of another for that to stand in its place."""


def other_explanations(s: Problem) -> Iterator[Problem]:
    """Copies of an explanation: with a unit that may be blamed in the place of others, at the mean
    of their rates, those first that stand for most; then with one blamed unit less."""
    count = np.zeros(len(s.x), np.int32)
    _count(count, s)
    for unit in np.argsort(-count, kind="stable")[: np.count_nonzero(count)].tolist():
        other = _copy(s)
        _stand_in(unit, _others(unit, s), other)
        yield other
    for unit in np.flatnonzero(s.blamed).tolist():
        other = _copy(s)
        _release(unit, other)
        yield other


def one_more(unit: int, s: Problem) -> Problem:
    """A copy of an explanation with one more blamed unit, at a loss of two thirds."""
    other = _copy(s)
    _stand_in(unit, np.zeros(0, np.int32), other)
    return other


def _copy(s: Problem) -> Problem:
    return s._replace(**{name: getattr(s, name).copy() for name in (*STATE, "arrived")})


def _others(i: int, s: Problem) -> IntArray:
    """The blamed units in whose place unit i may stand."""
    on = np.zeros(len(s.lost), np.bool_)
    on[s.rows[s.unit_ptr[i] : s.unit_ptr[i + 1]]] = True
    share = np.zeros(len(s.x))
    _shares(on, share, s)
    return np.flatnonzero(share > SHARED).astype(np.int32)


@kernel
def _shares(on, share, s):
    """Of each blamed unit's losses, those on some rows, bool[R]."""
    for i in range(len(s.x)):
        if s.blamed[i]:
            whole = some = 0.0
            for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
                r = s.rows[e]
                whole += fallen_on(r, i, s)
                if on[r]:
                    some += fallen_on(r, i, s)
            if whole > 0.0:
                share[i] = some / whole


@kernel
def _count(count, s):
    """In the place of how many blamed units each other one, that may be blamed, may stand."""
    for i in range(len(s.x)):
        if not s.blamed[i]:
            continue
        whole = 0.0
        for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
            r = s.rows[e]
            whole += fallen_on(r, i, s)
            for f in range(s.ptr[r], s.ptr[r + 1]):
                s.share[s.units[f]] += fallen_on(r, i, s)
        for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
            for f in range(s.ptr[s.rows[e]], s.ptr[s.rows[e] + 1]):
                j = s.units[f]
                if s.candidate[j] and not s.blamed[j] and s.share[j] > SHARED * whole:
                    count[j] += 1
                s.share[j] = 0.0


@kernel
def _stand_in(i, others, s):
    rate = 0.0 if len(others) else 1.0
    for j in others:
        rate += s.x[j] / len(others)
        _release(j, s)
    s.blamed[i] = True
    move(i, rate, s)
    touch(i, s)


@kernel
def _release(i, s):
    s.blamed[i] = False
    move(i, s.law[MEAN] * s.size[i], s)
    touch(i, s)
