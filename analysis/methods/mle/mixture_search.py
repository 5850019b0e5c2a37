"""The search for the links to blame where flows that lost packets may have taken several paths.

It begins with what known paths alone blame (`analysis.methods.mle.mixture`); of links that they do
not tell apart, hidden flows choose one. Then it is greedy, with a link and its rate as the
hypothesis: that which gains most is blamed, then rates are fitted one by one. At the
end each blamed unit is taken back for a try: if the others, fitted again, or another in its place
make up for it but for the penalty, it stays so. Healthy links lose all alike; this mean rate begins
at half of a fault's and falls to the likeliest as blamed links take their losses with them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from analysis.methods.mle.hidden import HiddenFlows
from analysis.methods.mle.likelihood import DEAD
from analysis.methods.mle.mixture import (
    RATES,
    Mixture,
    Start,
    change,
    gains_at,
    make_mixture,
    nothing,
    set_mean,
)
from analysis.methods.mle.moves import LENIENT
from analysis.methods.mle.problem import Rows
from analysis.methods.mle.search import NARROWEST
from testbed.arrays import BoolArray, FloatArray, FloatMatrix
from testbed.fabric.compiled import kernel

BETTER = 0.1
"""Nats that a set must be better by: less is rounding."""


SWEEPS = 3
"""Times at most that each class of the start is asked for its unit."""

RIVALS = 8
"""Units that are tried in the place of a blamed one."""


class Found(NamedTuple):
    """``mean`` rate of healthy links; of each unit the rate ``x``, if it is ``blamed``, and what
    its release would cost, or its blame gain, in nats (``gains``)."""

    mean: float
    x: FloatArray
    blamed: BoolArray
    gains: FloatArray


class _Search(NamedTuple):
    """What the compiled search works on: ``promise`` and ``at`` are what blaming each unit would
    gain and its rate then, up to date where ``fresh``. The rest is room."""

    may: BoolArray
    fault: float
    penalty: float
    promise: FloatArray
    at: FloatArray
    fresh: BoolArray
    share: FloatArray
    shared: FloatArray
    rates: FloatArray
    gain: FloatArray
    kept: FloatArray
    before: FloatMatrix
    known: BoolArray


def explain_hidden(
    rows: Rows,
    size: FloatArray,
    may: BoolArray,
    hidden: HiddenFlows,
    start: Start | None = None,
    *,
    fault_rate: float,
    penalty: float,
) -> Found:
    """The explanation of known and hidden paths. Arguments as `search.explain`'s; the search
    begins at ``start``."""
    n, fault = len(size), -math.log1p(-fault_rate)
    m = make_mixture(rows, size, hidden)
    s = _Search(
        may=may,
        fault=fault,
        penalty=penalty,
        promise=np.zeros(n),
        at=np.zeros(n),
        fresh=np.zeros(n, np.bool_),
        share=np.zeros(n),
        shared=np.zeros(n),
        rates=np.zeros(RATES),
        gain=np.zeros(RATES),
        kept=np.zeros(n),
        before=np.zeros((2, n)),
        known=np.zeros(n, np.bool_),
    )
    _place(start or nothing(), m, s)
    mean = _fit_mean(m, fault / NARROWEST, 0.5 * fault)
    _fit_all(m, s)
    s.fresh[:] = False
    for _ in range(8):
        _grow(m, s)
        before, mean = mean, _fit_mean(m, fault / NARROWEST, 0.5 * fault)
        if abs(mean - before) >= 0.05 * before:
            s.fresh[:] = False
            continue
        if not _improve(m, s):
            break
        _fit_all(m, s)
    _finish(m, s)
    return Found(mean, m.x, m.x > 0.0, s.promise)


def _place(start: Start, m: Mixture, s: _Search) -> None:
    """Blame the unit of each class that the hidden flows choose."""
    set_mean(s.fault / NARROWEST, m)
    size = np.diff(start.ptr)
    m.x[start.units] = np.maximum(np.repeat(start.rate / np.maximum(size, 1), size), s.fault)
    _add_up(m)
    set_mean(s.fault / NARROWEST, m)
    for _ in range(SWEEPS):
        if not _choose(start, m, s):
            break


@kernel
def _add_up(m):
    """The rate of each hidden path, of those of its units."""
    h = m.hidden
    for p in range(len(m.rate)):
        m.rate[p] = 0.0
        for i in h.units[h.path_ptr[p] : h.path_ptr[p + 1]]:
            m.rate[p] += m.x[i]


def _fit_mean(m: Mixture, low: float, high: float) -> float:
    """Set the mean to the likeliest of a range, to within 1 %."""
    from scipy.optimize import minimize_scalar  # takes long to load, and few runs need it

    found: Any = minimize_scalar(
        lambda at: -set_mean(math.exp(at), m),
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": 0.01},
    )
    mean = math.exp(found.x)
    set_mean(mean, m)
    return mean


@kernel
def _put(i, new, m, s):
    """Set x of unit i; returns the log-likelihood gained."""
    s.rates[0] = new
    gains_at(i, s.rates, 1, m, s.gain)
    gained = s.gain[0]
    change(i, new, m, s.fresh)
    return gained


@kernel
def _choose(start, m, s):
    """Of each class give its rate to the one unit that this makes likeliest, the other classes as
    they are. Says if anything changed."""
    changed = False
    for c in range(len(start.rate)):
        begin, end = start.ptr[c], start.ptr[c + 1]
        if end - begin < 2:
            continue
        rate = max(start.rate[c], s.fault)
        whole, now = 0.0, -1
        for e in range(begin, end):
            if m.x[start.units[e]] == rate:
                now = e
        for e in range(begin, end):
            whole += _put(start.units[e], 0.0, m, s)
        pick, most = begin, -1e300
        for e in range(begin, end):
            gained = _put(start.units[e], rate, m, s)
            if gained > most:
                pick, most = e, gained
            _put(start.units[e], 0.0, m, s)
        change(start.units[pick], rate, m, s.fresh)
        changed = changed or pick != now
    return changed


@kernel
def _peak(i, low, high, rounds, m, s):
    """The best rate of unit i in a range, the rest held, and its gain: a grid, then finer ones."""
    best, most = low, -1e300
    for _ in range(rounds):
        step = (high / low) ** (1.0 / (RATES - 1))
        for j in range(RATES):
            s.rates[j] = low * step**j
        gains_at(i, s.rates, RATES, m, s.gain)
        pick = 0
        for j in range(RATES):
            if s.gain[j] > s.gain[pick]:
                pick = j
        if s.gain[pick] > most:
            best, most = s.rates[pick], s.gain[pick]
        low, high = s.rates[max(pick - 1, 0)], s.rates[min(pick + 1, RATES - 1)]
    return best, most


@kernel
def _promise(i, m, s):
    """Bring the promise of unit i up to date."""
    s.at[i], s.promise[i] = _peak(i, s.fault, 8.0, 1, m, s)
    if s.promise[i] > 0.0 and s.at[i] < 1.5 * s.fault:
        here = s.promise[i]
        lower = _peak(i, s.fault / 16, s.fault, 1, m, s)[1]
        if lower > here + LENIENT:
            s.promise[i] = 0.0
    s.fresh[i] = True


@kernel
def _strongest(m, s):
    """The unit whose blame gains most; -1 if none gains the penalty.

    Gains mostly fall as others are blamed, so one that is out of date is only taken again when it
    would be the strongest; before the answer is none, all are.
    """
    while True:
        pick, most = -1, s.penalty
        for i in range(len(m.x)):
            if s.may[i] and m.x[i] == 0.0 and s.promise[i] > most:
                pick, most = i, s.promise[i]
        if pick >= 0:
            if s.fresh[pick]:
                return pick
            _promise(pick, m, s)
            continue
        none = True
        for i in range(len(m.x)):
            if s.may[i] and m.x[i] == 0.0 and not s.fresh[i]:
                _promise(i, m, s)
                none = none and s.promise[i] <= s.penalty
        if none:
            return -1


@kernel
def _fit(i, m, s):
    """Fit the rate of blamed unit i, by the parabola through three rates near its own on the scale
    of logarithms; returns what that gained."""
    x, step = m.x[i], 1.25
    s.rates[0], s.rates[1] = max(x / step, s.fault), min(x * step, DEAD)
    gains_at(i, s.rates, 2, m, s.gain)
    low, high = s.gain[0], s.gain[1]
    bend = low + high
    shift = 0.0
    if s.rates[0] < x / 1.2 and bend < 0.0:
        shift = min(max(0.5 * (low - high) / bend, -4.0), 4.0)
    elif high > max(low, 0.0):
        shift = 4.0
    elif low > 0.0:
        shift = -4.0
    s.rates[2] = min(max(x * step**shift, s.fault), DEAD)
    s.rates[0], s.rates[1] = s.rates[2], max(x / step, s.fault) if low > high else x * step
    gains_at(i, s.rates, 2, m, s.gain)
    pick = 0 if s.gain[0] >= s.gain[1] else 1
    if s.gain[pick] > 1e-2:
        change(i, s.rates[pick], m, s.fresh)
        return s.gain[pick]
    return 0.0


@kernel
def _fit_all(m, s):
    total = 0.0
    for _ in range(20):
        gained = 0.0
        for i in range(len(m.x)):
            if m.x[i] > 0.0:
                gained += _fit(i, m, s)
        total += gained
        if gained < BETTER:
            break
    return total


@kernel
def _grow(m, s):
    """Blame units until none gains the penalty."""
    added = blamed = 0
    for i in range(len(m.x)):
        blamed += 1 if m.x[i] > 0.0 else 0
    while True:
        pick = _strongest(m, s)
        if pick < 0:
            if added == 0:
                return
            added = 0
            if _fit_all(m, s) < BETTER:
                return
            continue
        change(pick, _peak(pick, s.fault, 8.0, 4, m, s)[0], m, s.fresh)
        added += 1
        blamed += 1
        if 4 * added >= blamed:
            _fit_all(m, s)
            added = 0


@kernel
def _cost(i, m, s):
    """What the release of blamed unit i costs, the rest held."""
    s.rates[0] = 0.0
    gains_at(i, s.rates, 1, m, s.gain)
    return -s.gain[0]


@kernel
def _share(i, m, s):
    """The greatest share of each unit's rows, and of its paths, that are over unit i as well."""
    s.shared[:] = 0.0
    h = m.hidden
    for e in range(m.over_ptr[i], m.over_ptr[i + 1]):
        for u in range(h.path_ptr[m.over[e]], h.path_ptr[m.over[e] + 1]):
            j = h.units[u]
            s.shared[j] += 1.0 / (m.over_ptr[j + 1] - m.over_ptr[j])
    for j in range(len(s.share)):
        s.share[j], s.shared[j] = s.shared[j], 0.0
    for e in range(m.unit_ptr[i], m.unit_ptr[i + 1]):
        for u in range(m.ptr[m.rows[e]], m.ptr[m.rows[e] + 1]):
            j = m.units[u]
            s.shared[j] += 1.0 / (m.unit_ptr[j + 1] - m.unit_ptr[j])
    for j in range(len(s.share)):
        s.share[j] = max(s.share[j], s.shared[j])


@kernel
def _next(blamed, i, m, s):
    """Of the units that share most with unit i, blamed or not, the first not yet given; -1 if there
    is none. Uses up ``share``."""
    pick = -1
    for j in range(len(m.x)):
        least = s.share[pick] if pick >= 0 else 0.0
        if j != i and s.may[j] and (m.x[j] > 0.0) == blamed and s.share[j] > least:
            pick = j
    if pick >= 0:
        s.share[pick] = 0.0
    return pick


@kernel
def _rival(i, m, s):
    """The unit that gains most in the place of unit i, which is released; -1 if none gains."""
    _share(i, m, s)
    pick, most = -1, 0.0
    for _ in range(RIVALS):
        j = _next(False, i, m, s)
        if j < 0:
            break
        _promise(j, m, s)
        if s.promise[j] > most:
            pick, most = j, s.promise[j]
    return pick


@kernel
def _fit_around(i, m, s):
    """Fit the blamed units that share most with unit i; returns what that gained."""
    gained = 0.0
    for _ in range(2):
        _share(i, m, s)
        for _ in range(RIVALS):
            j = _next(True, i, m, s)
            if j < 0:
                break
            gained += _fit(j, m, s)
    return gained


@kernel
def _try(i, m, s):
    """Release unit i, or blame another in its place, if that is better; else it is left half done.
    Says if it is."""
    cost = _cost(i, m, s)
    change(i, 0.0, m, s.fresh)
    if cost < 4.0 * s.penalty:
        cost -= _fit_around(i, m, s)
    if cost < s.penalty:
        return True
    other = _rival(i, m, s)
    if other < 0:
        return False
    best, gained = _peak(other, s.fault, 8.0, 4, m, s)
    if gained < cost - s.penalty:
        return False
    change(other, best, m, s.fresh)
    gained += _fit_around(other, m, s)
    return gained > cost + BETTER


@kernel
def _improve(m, s):
    """Try each blamed unit's release, and another in its place. Says if any was better."""
    improved = False
    for i in range(len(m.x)):
        if m.x[i] == 0.0:
            continue
        for j in range(len(m.x)):
            s.kept[j], s.known[j] = m.x[j], s.fresh[j]
            s.before[0, j], s.before[1, j] = s.promise[j], s.at[j]
        if _try(i, m, s):
            improved = True
            continue
        for j in range(len(m.x)):
            if m.x[j] != s.kept[j]:
                change(j, s.kept[j], m, s.fresh)
        for j in range(len(m.x)):
            s.fresh[j] = s.known[j]
            s.promise[j], s.at[j] = s.before[0, j], s.before[1, j]
    return improved


@kernel
def _finish(m, s):
    """The evidence of all units: what blaming another gains is from the last search."""
    _fit_all(m, s)
    for i in range(len(m.x)):
        if m.x[i] > 0.0:
            s.promise[i] = _cost(i, m, s)
        else:
            s.promise[i] = max(s.promise[i], 0.0) if s.may[i] else 0.0
