# SPDX-License-Identifier: Apache-2.0
"""The moves of the search: blame the unit that gains most, refit, release, swap.

Each move modifies a `Problem` and refits only the units that share a row with the changed one.

**Other explanations** that are tried: one unit in place of those whose losses are on its rows, and
one unit less. Reports that exist only because of a loss do not count flows without loss. The losses
of one link are then explained as well by all the links that its flows came from, or went to. A
search that adds, releases and swaps one unit at a time cannot leave such an explanation, because
the one link gains nothing while the others are blamed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from analysis.methods.mle.likelihood import STATE, Problem
from testbed.arrays import IntArray
from testbed.kernels import Kernels

KERNELS = Kernels.beside(__file__)

LENIENT = 2.0
"""A unit may be blamed if a rate below the least of a fault is more likely by up to this many nats,
since the fault's true rate may be just above; also in moves.h."""


def begin(s: Problem) -> None:
    """Compute the sums of the rows from the rates, and settle all rates."""
    KERNELS.begin(s=s.bound)


def settle_all(s: Problem) -> None:
    """Set all units to their most likely rates, one by one, until no unit gains more than 0.001
    nats."""
    KERNELS.settle_all(s=s.bound)


def search(s: Problem) -> None:
    """Blame and release units until neither gains."""
    KERNELS.search(s=s.bound)


def finish(s: Problem) -> None:
    """Settle all rates finely, and compute the gain of each unit that is not blamed."""
    KERNELS.finish(s=s.bound)


SHARED = 0.5
"""A unit may replace another if more than this share of the other's losses are on its rows."""


def other_explanations(s: Problem) -> Iterator[Problem]:
    """Yield modified copies of an explanation: first with one candidate blamed in place of others,
    at the mean of their rates, those that replace most first; then with one blamed unit less."""
    count = np.zeros(len(s.x), np.int32)
    KERNELS.count_replaced(shared=SHARED, count=count, s=s.bound)
    for unit in np.argsort(-count, kind="stable")[: np.count_nonzero(count)].tolist():
        other = _copy(s)
        KERNELS.stand_in(i=unit, others=_others(unit, s), s=other.bound)
        yield other
    for unit in np.flatnonzero(s.blamed).tolist():
        other = _copy(s)
        KERNELS.acquit(i=unit, s=other.bound)
        yield other


def one_more(unit: int, s: Problem) -> Problem:
    """Return a copy of an explanation with one more blamed unit, whose rate of 1 is a loss of about
    two thirds."""
    other = _copy(s)
    KERNELS.stand_in(i=unit, others=np.zeros(0, np.int32), s=other.bound)
    return other


def _copy(s: Problem) -> Problem:
    return replace(s, **{name: getattr(s, name).copy() for name in (*STATE, "arrived")})


def _others(i: int, s: Problem) -> IntArray:
    """Return the blamed units that unit i may replace: int32[]."""
    on = np.zeros(len(s.lost), np.bool_)
    on[s.rows[s.unit_ptr[i] : s.unit_ptr[i + 1]]] = True
    share = np.zeros(len(s.x))
    KERNELS.shares_on(on=on, share=share, s=s.bound)
    return np.flatnonzero(share > SHARED).astype(np.int32)
