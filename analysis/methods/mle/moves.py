# SPDX-License-Identifier: Apache-2.0
"""The compiled moves of the search: blame the unit that gains most, refit, release, swap.

Each move modifies a `Problem` and refits only the units that share a row with the changed one.

**Other explanations** that are tried: one unit in place of those whose losses are on its rows, and
one unit less. Reports that exist only because of a loss do not count flows without loss. The losses
of one link are then explained as well by all the links that its flows came from, or went to. A
search that adds, releases and swaps one unit at a time cannot leave such an explanation, because
the one link gains nothing while the others are blamed.
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
"""A unit may be blamed if a rate below the least of a fault is more likely by up to this many nats,
since the fault's true rate may be just above."""

FINE, COARSE = 1e-5, 1e-3  # nats that a move must gain


@kernel
def begin(s):
    """Compute the sums of the rows from the rates, and settle all rates."""
    for r in range(len(s.total)):
        s.total[r] = 0.0
        for e in range(s.ptr[r], s.ptr[r + 1]):
            s.total[r] += s.x[s.units[e]]
    settle_all(COARSE, s)


@kernel
def settle_all(tolerance, s):
    """Set all units to their most likely rates, see `settle`; return the gain in nats."""
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
    """Settle unit i and the units that share a row with it; return the gain in nats."""
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
    """Return by how many nats the best rate below that of a fault is more likely than the least
    rate of a fault."""
    low = best(i, 0.0, 0.0, LEAST * s.law[MEAN], s.law[FAULT], s)
    return gain(i, low, s) - gain(i, s.law[FAULT], s)


@kernel
def expected_gain(i, s):
    """Return the gain in nats, without the penalty, of blaming unit i, all other rates fixed."""
    new = best(i, 0.0, 0.0, s.law[FAULT], DEAD, s)
    gained = gain(i, new, s) + law(i, s)
    if new <= s.law[FAULT] and _shortfall(i, s) > LENIENT:
        return min(gained, 0.0)
    return gained


@kernel
def _strongest(s):
    """Return the unit whose blame gains most with all other rates fixed; -1 if none gains the
    penalty.

    Gains mostly fall as other units are blamed, so a gain that is out of date is computed again
    only when it is the highest; before -1 is returned, all are.
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
    """Blame unit i and refit its neighbours; return the gain in nats without the penalty."""
    paid = law(i, s)
    s.blamed[i] = True
    new = best(i, 0.0, 0.0, s.law[FAULT], DEAD, s)
    gained = gain(i, new, s) + paid
    move(i, new, s)
    touch(i, s)
    return gained + settle_around(i, COARSE, s)


@kernel
def keep(s):
    """Copy the rates of all units to ``s.kept``, from where `restore` reads them."""
    for i in range(len(s.x)):
        s.kept[i] = s.x[i]


@kernel
def restore(s):
    """Set the rates to those that `keep` copied."""
    for i in range(len(s.x)):
        if s.x[i] != s.kept[i]:
            move(i, s.kept[i], s)
            touch(i, s)


@kernel
def _try(s):
    """Blame a unit that gains the penalty once its neighbours are refitted; return whether there is
    one.

    Healthy neighbours explain a part of a fault's losses, so with their rates fixed a unit may gain
    too little.
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
    """Return the largest share of unit i's losses that are on rows of one other candidate."""
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
    """Return the other unit on a row of unit i whose blame now gains most; -1 if none gains."""
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
    """Release blamed unit i if it does not gain its penalty any more, or blame another unit in its
    place that explains its losses better. Return whether either was done; otherwise the
    explanation is unchanged, and ``s.gains[i]`` is the cost of the release in nats."""
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
    """Settle all rates finely, and compute the gain of each unit that is not blamed."""
    settle_all(FINE, s)
    for i in range(len(s.x)):
        if not s.blamed[i]:
            s.gains[i] = max(expected_gain(i, s), 0.0) if s.candidate[i] else 0.0


SHARED = 0.5
"""A unit may replace another if more than this share of the other's losses are on its rows."""


def other_explanations(s: Problem) -> Iterator[Problem]:
    """Yield modified copies of an explanation: first with one candidate blamed in place of others,
    at the mean of their rates, those that replace most first; then with one blamed unit less."""
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
    """Return a copy of an explanation with one more blamed unit, whose rate of 1 is a loss of about
    two thirds."""
    other = _copy(s)
    _stand_in(unit, np.zeros(0, np.int32), other)
    return other


def _copy(s: Problem) -> Problem:
    return s._replace(**{name: getattr(s, name).copy() for name in (*STATE, "arrived")})


def _others(i: int, s: Problem) -> IntArray:
    """Return the blamed units that unit i may replace: int32[]."""
    on = np.zeros(len(s.lost), np.bool_)
    on[s.rows[s.unit_ptr[i] : s.unit_ptr[i + 1]]] = True
    share = np.zeros(len(s.x))
    _shares(on, share, s)
    return np.flatnonzero(share > SHARED).astype(np.int32)


@kernel
def _shares(on, share, s):
    """Write the share of each blamed unit's losses that are on the rows ``on``, bool[R], to
    ``share``, float64[U]."""
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
    """Count for each candidate that is not blamed how many blamed units it may replace."""
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
