# SPDX-License-Identifier: Apache-2.0
"""The search for the links to blame if flows that lost packets may have taken several paths.

It starts with the links that known paths alone blame (`analysis.methods.mle.mixture`); of links
that these do not tell apart, the hidden flows choose one. The search is then greedy: it blames the
link, with the rate, that gains most, and fits the rates one by one. At the end it tries to release
each blamed unit. The unit stays released if the others, fitted again, or another unit in its place
explain the losses as well, up to the penalty. All healthy links have the same mean rate, which
begins at half the rate of a fault and falls to the most likely value as links are blamed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from analysis.methods.mle.hidden import HiddenFlows
from analysis.methods.mle.likelihood import DEAD
from analysis.methods.mle.mixture import (
    RATES,
    Mixture,
    Start,
    add_up,
    change,
    fit_mean,
    gains_at,
    make_mixture,
    nothing,
    set_mean,
)
from analysis.methods.mle.moves import LENIENT
from analysis.methods.mle.problem import Rows
from analysis.methods.mle.search import NARROWEST
from testbed.arrays import BoolArray, FloatArray, FloatMatrix
from testbed.compiled import kernel

BETTER = 0.1
"""Nats by which a set of blamed units must be better than another; less is rounding."""


SWEEPS = 3
"""The most rounds in which each class of the start chooses its unit."""

RIVALS = 8
"""The number of units that are tried in place of a blamed one."""


class Found(NamedTuple):
    """The explanation: the ``mean`` rate of healthy links; the rate ``x`` of each unit, float64[U];
    whether it is ``blamed``, bool[U]; and ``gains``, float64[U], the nats that its release would
    cost or its blame would gain."""

    mean: float
    x: FloatArray
    blamed: BoolArray
    gains: FloatArray


class _Search(NamedTuple):
    """The state of the compiled search: ``expected_gain`` is what blaming each unit would gain in
    nats and ``at`` its rate then, up to date where ``current``. The other arrays are scratch."""

    candidate: BoolArray
    fault: float
    penalty: float
    expected_gain: FloatArray
    at: FloatArray
    current: BoolArray
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
    candidate: BoolArray,
    hidden: HiddenFlows,
    start: Start | None = None,
    *,
    fault_rate: float,
    penalty: float,
) -> Found:
    """Return the explanation of observations over known and hidden paths. The search begins at
    ``start``; ``size``, float64[U], is the number of links of each unit, and the other arguments
    are those of `analysis.methods.mle.search.explain`."""
    n, fault = len(size), -math.log1p(-fault_rate)
    mix = make_mixture(rows, size, hidden)
    state = _Search(
        candidate=candidate,
        fault=fault,
        penalty=penalty,
        expected_gain=np.zeros(n),
        at=np.zeros(n),
        current=np.zeros(n, np.bool_),
        share=np.zeros(n),
        shared=np.zeros(n),
        rates=np.zeros(RATES),
        gain=np.zeros(RATES),
        kept=np.zeros(n),
        before=np.zeros((2, n)),
        known=np.zeros(n, np.bool_),
    )
    _place(start or nothing(), mix, state)
    mean = fit_mean(mix, fault / NARROWEST, 0.5 * fault)
    _fit_all(mix, state)
    state.current[:] = False
    for _ in range(8):
        _grow(mix, state)
        before, mean = mean, fit_mean(mix, fault / NARROWEST, 0.5 * fault)
        if abs(mean - before) >= 0.05 * before:
            state.current[:] = False
            continue
        if not _improve(mix, state):
            break
        _fit_all(mix, state)
    _finish(mix, state)
    return Found(mean, mix.x, mix.x > 0.0, state.expected_gain)


def _place(start: Start, mix: Mixture, state: _Search) -> None:
    """Blame, of each class of the start, the unit that makes the hidden flows most likely."""
    set_mean(state.fault / NARROWEST, mix)
    size = np.diff(start.ptr)
    mix.x[start.units] = np.maximum(np.repeat(start.rate / np.maximum(size, 1), size), state.fault)
    add_up(mix)
    set_mean(state.fault / NARROWEST, mix)
    for _ in range(SWEEPS):
        if not _choose(start, mix, state):
            break


@kernel
def _put(i, new, mix, state):
    """Set the rate of unit i; return the gain in log-likelihood."""
    state.rates[0] = new
    gains_at(i, state.rates, 1, mix, state.gain)
    gained = state.gain[0]
    change(i, new, mix, state.current)
    return gained


@kernel
def _choose(start, mix, state):
    """Give the rate of each class to the one unit that makes the observations most likely, with the
    other classes fixed. Return whether anything changed."""
    changed = False
    for c in range(len(start.rate)):
        begin, end = start.ptr[c], start.ptr[c + 1]
        if end - begin < 2:
            continue
        rate = max(start.rate[c], state.fault)
        whole, now = 0.0, -1
        for e in range(begin, end):
            if mix.x[start.units[e]] == rate:
                now = e
        for e in range(begin, end):
            whole += _put(start.units[e], 0.0, mix, state)
        pick, most = begin, -1e300
        for e in range(begin, end):
            gained = _put(start.units[e], rate, mix, state)
            if gained > most:
                pick, most = e, gained
            _put(start.units[e], 0.0, mix, state)
        change(start.units[pick], rate, mix, state.current)
        changed = changed or pick != now
    return changed


@kernel
def _peak(i, low, high, rounds, mix, state):
    """Return the best rate of unit i in a range, with all other rates fixed, and its gain in nats,
    by a search on a grid that is refined ``rounds`` times."""
    best, most = low, -1e300
    for _ in range(rounds):
        step = (high / low) ** (1.0 / (RATES - 1))
        for j in range(RATES):
            state.rates[j] = low * step**j
        gains_at(i, state.rates, RATES, mix, state.gain)
        pick = 0
        for j in range(RATES):
            if state.gain[j] > state.gain[pick]:
                pick = j
        if state.gain[pick] > most:
            best, most = state.rates[pick], state.gain[pick]
        low, high = state.rates[max(pick - 1, 0)], state.rates[min(pick + 1, RATES - 1)]
    return best, most


@kernel
def _expect_gain(i, mix, state):
    """Update the expected gain of unit i and the rate at which it is reached."""
    state.at[i], state.expected_gain[i] = _peak(i, state.fault, 8.0, 1, mix, state)
    if state.expected_gain[i] > 0.0 and state.at[i] < 1.5 * state.fault:
        here = state.expected_gain[i]
        lower = _peak(i, state.fault / 16, state.fault, 1, mix, state)[1]
        if lower > here + LENIENT:
            state.expected_gain[i] = 0.0
    state.current[i] = True


@kernel
def _strongest(mix, state):
    """Return the unit whose blame gains most; -1 if none gains the penalty.

    Gains mostly fall as other units are blamed, so a gain that is out of date is computed again
    only when it is the highest; before -1 is returned, all are.
    """
    while True:
        pick, most = -1, state.penalty
        for i in range(len(mix.x)):
            if state.candidate[i] and mix.x[i] == 0.0 and state.expected_gain[i] > most:
                pick, most = i, state.expected_gain[i]
        if pick >= 0:
            if state.current[pick]:
                return pick
            _expect_gain(pick, mix, state)
            continue
        none = True
        for i in range(len(mix.x)):
            if state.candidate[i] and mix.x[i] == 0.0 and not state.current[i]:
                _expect_gain(i, mix, state)
                none = none and state.expected_gain[i] <= state.penalty
        if none:
            return -1


@kernel
def _fit(i, mix, state):
    """Fit the rate of blamed unit i by the parabola through its log-likelihood at three rates on a
    logarithmic scale; return the gain in nats."""
    x, step = mix.x[i], 1.25
    state.rates[0], state.rates[1] = max(x / step, state.fault), min(x * step, DEAD)
    gains_at(i, state.rates, 2, mix, state.gain)
    low, high = state.gain[0], state.gain[1]
    bend = low + high
    shift = 0.0
    if state.rates[0] < x / 1.2 and bend < 0.0:
        shift = min(max(0.5 * (low - high) / bend, -4.0), 4.0)
    elif high > max(low, 0.0):
        shift = 4.0
    elif low > 0.0:
        shift = -4.0
    state.rates[2] = min(max(x * step**shift, state.fault), DEAD)
    state.rates[0] = state.rates[2]
    state.rates[1] = max(x / step, state.fault) if low > high else x * step
    gains_at(i, state.rates, 2, mix, state.gain)
    pick = 0 if state.gain[0] >= state.gain[1] else 1
    if state.gain[pick] > 1e-2:
        change(i, state.rates[pick], mix, state.current)
        return state.gain[pick]
    return 0.0


@kernel
def _fit_all(mix, state):
    total = 0.0
    for _ in range(20):
        gained = 0.0
        for i in range(len(mix.x)):
            if mix.x[i] > 0.0:
                gained += _fit(i, mix, state)
        total += gained
        if gained < BETTER:
            break
    return total


@kernel
def _grow(mix, state):
    """Blame units until none gains the penalty."""
    added = blamed = 0
    for i in range(len(mix.x)):
        blamed += 1 if mix.x[i] > 0.0 else 0
    while True:
        pick = _strongest(mix, state)
        if pick < 0:
            if added == 0:
                return
            added = 0
            if _fit_all(mix, state) < BETTER:
                return
            continue
        change(pick, _peak(pick, state.fault, 8.0, 4, mix, state)[0], mix, state.current)
        added += 1
        blamed += 1
        if 4 * added >= blamed:
            _fit_all(mix, state)
            added = 0


@kernel
def _cost(i, mix, state):
    """Return the cost in nats of releasing blamed unit i, with all other rates fixed."""
    state.rates[0] = 0.0
    gains_at(i, state.rates, 1, mix, state.gain)
    return -state.gain[0]


@kernel
def _share(i, mix, state):
    """Write to ``share`` the larger of two shares for each unit: that of its rows and that of its
    hidden paths that cross unit i, too."""
    state.shared[:] = 0.0
    hidden = mix.hidden
    for e in range(mix.over_ptr[i], mix.over_ptr[i + 1]):
        for u in range(hidden.path_ptr[mix.over[e]], hidden.path_ptr[mix.over[e] + 1]):
            j = hidden.units[u]
            state.shared[j] += 1.0 / (mix.over_ptr[j + 1] - mix.over_ptr[j])
    for j in range(len(state.share)):
        state.share[j], state.shared[j] = state.shared[j], 0.0
    for e in range(mix.unit_ptr[i], mix.unit_ptr[i + 1]):
        for u in range(mix.ptr[mix.rows[e]], mix.ptr[mix.rows[e] + 1]):
            j = mix.units[u]
            state.shared[j] += 1.0 / (mix.unit_ptr[j + 1] - mix.unit_ptr[j])
    for j in range(len(state.share)):
        state.share[j] = max(state.share[j], state.shared[j])


@kernel
def _next(blamed, i, mix, state):
    """Return the unit, blamed or not as asked, that shares most with unit i and was not returned
    before; -1 if there is none. Its ``share`` is set to 0."""
    pick = -1
    for j in range(len(mix.x)):
        least = state.share[pick] if pick >= 0 else 0.0
        if j != i and state.candidate[j] and (mix.x[j] > 0.0) == blamed and state.share[j] > least:
            pick = j
    if pick >= 0:
        state.share[pick] = 0.0
    return pick


@kernel
def _rival(i, mix, state):
    """Return the unit whose blame gains most in place of the released unit i; -1 if none gains."""
    _share(i, mix, state)
    pick, most = -1, 0.0
    for _ in range(RIVALS):
        j = _next(False, i, mix, state)
        if j < 0:
            break
        _expect_gain(j, mix, state)
        if state.expected_gain[j] > most:
            pick, most = j, state.expected_gain[j]
    return pick


@kernel
def _fit_around(i, mix, state):
    """Fit the rates of the blamed units that share most with unit i; return the gain in nats."""
    gained = 0.0
    for _ in range(2):
        _share(i, mix, state)
        for _ in range(RIVALS):
            j = _next(True, i, mix, state)
            if j < 0:
                break
            gained += _fit(j, mix, state)
    return gained


@kernel
def _try(i, mix, state):
    """Release unit i, or blame another in its place; return whether this is better. If it is not,
    the caller has to restore the rates."""
    cost = _cost(i, mix, state)
    change(i, 0.0, mix, state.current)
    if cost < 4.0 * state.penalty:
        cost -= _fit_around(i, mix, state)
    if cost < state.penalty:
        return True
    other = _rival(i, mix, state)
    if other < 0:
        return False
    best, gained = _peak(other, state.fault, 8.0, 4, mix, state)
    if gained < cost - state.penalty:
        return False
    change(other, best, mix, state.current)
    gained += _fit_around(other, mix, state)
    return gained > cost + BETTER


@kernel
def _improve(mix, state):
    """Try to release each blamed unit, or to blame another in its place. Return whether any attempt
    was better."""
    improved = False
    for i in range(len(mix.x)):
        if mix.x[i] == 0.0:
            continue
        for j in range(len(mix.x)):
            state.kept[j], state.known[j] = mix.x[j], state.current[j]
            state.before[0, j], state.before[1, j] = state.expected_gain[j], state.at[j]
        if _try(i, mix, state):
            improved = True
            continue
        for j in range(len(mix.x)):
            if mix.x[j] != state.kept[j]:
                change(j, state.kept[j], mix, state.current)
        for j in range(len(mix.x)):
            state.current[j] = state.known[j]
            state.expected_gain[j], state.at[j] = state.before[0, j], state.before[1, j]
    return improved


@kernel
def _finish(mix, state):
    """Compute the evidence of all units; the gains of units that are not blamed are those of the
    last search."""
    _fit_all(mix, state)
    for i in range(len(mix.x)):
        if mix.x[i] > 0.0:
            state.expected_gain[i] = _cost(i, mix, state)
        else:
            state.expected_gain[i] = max(state.expected_gain[i], 0.0) if state.candidate[i] else 0.0
