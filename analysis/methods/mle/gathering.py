"""Other explanations to try: one unit in place of those whose losses are on its rows, and one less.

Reports that exist only because of a loss say nothing of flows that lost none. What one link loses
is then as well explained by all the links that its flows came from, or went on to, and a search
that adds, releases and swaps one unit at a time cannot leave that: the one gains nothing while the
others are blamed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.methods.mle.likelihood import MEAN, Problem, move, touch
from analysis.methods.mle.search import STATE
from testbed.arrays import IntArray
from testbed.fabric.compiled import kernel

SHARED = 0.5
"""Of a unit's losses, what must be on rows of another for that to stand in its place."""

CHANGED = (*STATE, "arrived")


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
    return s._replace(**{name: getattr(s, name).copy() for name in CHANGED})


def _others(i: int, s: Problem) -> IntArray:
    """The blamed units in whose place unit i may stand."""
    on = np.zeros(len(s.lost), np.bool_)
    on[s.rows[s.unit_ptr[i] : s.unit_ptr[i + 1]]] = True
    share = np.zeros(len(s.x))
    _shares(on, share, s)
    return np.flatnonzero(share > SHARED).astype(np.int32)


@kernel
def _fallen(r, i, s):
    return s.lost[r] * min(s.x[i] / s.total[r], 1.0)


@kernel
def _shares(on, share, s):
    """Of each blamed unit's losses, those on some rows, bool[R]."""
    for i in range(len(s.x)):
        if s.blamed[i]:
            whole = some = 0.0
            for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
                r = s.rows[e]
                whole += _fallen(r, i, s)
                if on[r]:
                    some += _fallen(r, i, s)
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
            whole += _fallen(r, i, s)
            for f in range(s.ptr[r], s.ptr[r + 1]):
                s.share[s.units[f]] += _fallen(r, i, s)
        for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
            for f in range(s.ptr[s.rows[e]], s.ptr[s.rows[e] + 1]):
                j = s.units[f]
                if s.may[j] and not s.blamed[j] and s.share[j] > SHARED * whole:
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
