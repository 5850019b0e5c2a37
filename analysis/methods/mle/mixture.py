# SPDX-License-Identifier: Apache-2.0
"""The likelihood of known and hidden paths together, along one unit's rate, and its updates.

A path's rate is X_p = mean * hops + sum of the x of its blamed units: healthy links are taken to
lose all alike here. A flow of a packets that arrived and k that were lost, on one of w paths, adds

    ln((1/w) sum_p e^(-a X_p) (1 - e^(-X_p))^k),

a lossy known path its one term. If the rate of one unit changes, only the terms of the paths over
it do: with c the paths over it whose other units lose nothing, and d the others, the sum is

    left + c e^(-a (b + x)) (1 - e^(-b - x))^k + sum over d of the same with their rates added,

b the background. So a unit's likelihood at any rate takes one look at the flows of the sets it is
on. A flow reported only because it lost packets is divided by what its pair of ToRs would lose,
(1/w) sum_p (1 - e^(-n X_p)): the same form, subtracted.

**The start** of the search among flows of hidden paths is what known paths alone tell. The mixture
over paths has many peaks: a search from nothing blames what a flow could have met, and ends with
the planes of a fabric exchanged. Probes know their paths, and their likelihood has one peak; so the
links that they alone blame are where the search begins. What they cannot tell apart, as the two
directions of a link that a probe goes up and back, is one class, of which the hidden flows then
choose (`analysis.methods.mle.mixture_search`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from analysis.methods.mle.hidden import HiddenFlows
from analysis.methods.mle.problem import Observed, Rows, Units, marks, observe
from analysis.methods.mle.search import explain, suspects
from testbed.arrays import BoolArray, FloatArray, FloatMatrix, IntArray, LongArray
from testbed.compiled import kernel, njit
from testbed.fabric.paths import pointers

NOTHING = 30.0
"""A term that is smaller by so many nats than the largest does not change the sum."""

MOST = 30.0
"""The limit of packets times rate up to which a unit's rate is one factor of a loss-free flow's
terms."""

CLEAN = 1e-12
"""Rates below this are 0 up to rounding."""


class Mixture(NamedTuple):
    """Rows of known paths, sets of hidden ones, and the rates x float64[U] of blamed units, else 0.

    Rows as in `Rows`, with ``row_hops`` float64[R] links each and their rates ``total``; sets as in
    `HiddenFlows`. Unit i is on the paths ``over[over_ptr[i]:over_ptr[i + 1]]``, ascending; path p
    is of set ``set_of[p]`` and its blamed units' rates sum up to ``rate[p]``; ``log_sum`` is the
    logarithm of each flow's sum over paths. ``mean`` float64[1] is a healthy link's rate.
    ``size_of`` int32[F] numbers loss-free flows by size, those of a number being equally large; it
    is -1 of others. ``on`` bool[P], ``room`` and ``alike`` are scratch.
    """

    ptr: LongArray
    units: IntArray
    unit_ptr: LongArray
    rows: IntArray
    lost: FloatArray
    arrived: FloatArray
    size: FloatArray
    row_hops: FloatArray
    total: FloatArray
    hidden: HiddenFlows
    over_ptr: LongArray
    over: IntArray
    set_of: IntArray
    rate: FloatArray
    log_sum: FloatArray
    x: FloatArray
    mean: FloatArray
    size_of: IntArray
    on: BoolArray
    room: FloatMatrix
    alike: FloatMatrix


def make_mixture(rows: Rows, size: FloatArray, hidden: HiddenFlows) -> Mixture:
    """Return a mixture with no unit blamed; the caller sets the mean, see `set_mean`. ``size``,
    float64[U], is the number of links of each unit."""
    n_paths = len(hidden.many)
    over_ptr, over = _paths_over(len(size), hidden.path_ptr, hidden.units)
    row_hops = np.bincount(
        np.repeat(np.arange(len(rows.lost)), np.diff(rows.ptr)), size[rows.units], len(rows.lost)
    )
    widest = int(np.diff(hidden.set_ptr).max(initial=0))
    hidden, size_of = _by_size(hidden)
    return Mixture(
        ptr=rows.ptr,
        units=rows.units,
        unit_ptr=rows.unit_ptr,
        rows=rows.rows,
        lost=rows.lost,
        arrived=rows.arrived,
        size=size,
        row_hops=row_hops.astype(np.float64),
        total=np.zeros(len(rows.lost)),
        hidden=hidden,
        over_ptr=over_ptr,
        over=over,
        set_of=np.repeat(
            np.arange(len(hidden.set_ptr) - 1, dtype=np.int32), np.diff(hidden.set_ptr)
        ),
        rate=np.zeros(n_paths),
        log_sum=np.zeros(len(hidden.times)),
        x=np.zeros(len(size)),
        mean=np.zeros(1),
        size_of=size_of,
        on=np.zeros(n_paths, np.bool_),
        room=np.zeros((3 + RATES, widest + 1)),
        alike=np.zeros((SIZES * SHARES, 3)),
    )


@njit
def _paths_over(n_units, path_ptr, units):
    """Return where the paths of each unit begin, and the paths of all units, ascending."""
    over_ptr = np.zeros(n_units + 1, np.int64)
    for e in range(path_ptr[-1]):
        over_ptr[units[e] + 1] += 1
    over_ptr = np.cumsum(over_ptr)
    free, over = over_ptr[:-1].copy(), np.empty(path_ptr[-1], np.int32)
    for p in range(len(path_ptr) - 1):
        for i in units[path_ptr[p] : path_ptr[p + 1]]:
            over[free[i]] = p
            free[i] += 1
    return over_ptr, over


def _by_size(hidden: HiddenFlows) -> tuple[HiddenFlows, IntArray]:
    """Replace the sizes of loss-free flows that agree within a factor of two by their mean; return
    also the number of each flow's size, -1 for other flows."""
    free = (hidden.lost == 0.0) & (hidden.arrived >= 1.0)
    size = np.minimum(np.log2(np.maximum(hidden.arrived, 1.0)).astype(np.int32), SIZES - 1)
    packets = np.bincount(size[free], (hidden.times * hidden.arrived)[free], SIZES)
    flows = np.bincount(size[free], hidden.times[free], SIZES)
    mean = packets / np.maximum(flows, 1e-300)
    arrived = np.where(free, mean[size], hidden.arrived)
    return hidden._replace(arrived=arrived), np.where(free, size, -1).astype(np.int32)


RATES = 12
"""The most rates that `gains_at` accepts in one call."""

SIZES, SHARES = 64, 4
"""How many sizes of loss-free flows, and shares of their paths over a unit, are distinguished."""


@njit(inline="always")
def _log_losing(rate):
    return np.log(-np.expm1(-max(rate, 1e-300)))


@njit(inline="always")
def _term(arrived, lost, rate, log_losing):
    """Return the logarithm of a path's term, given the logarithm of 1 - e^-rate."""
    if lost < 0.0:
        return np.log(-np.expm1(-arrived * rate))
    return lost * log_losing - arrived * rate


@kernel
def _sum_set(g, mix):
    """Update the sums over paths of a set's flows. ``room[:2]`` is used as scratch."""
    hidden = mix.hidden
    first, n = hidden.set_ptr[g], hidden.set_ptr[g + 1] - hidden.set_ptr[g]
    rates, logs = mix.room[0], mix.room[1]
    base = mix.mean[0] * hidden.hops[g]
    for p in range(n):
        rates[p] = base + max(mix.rate[first + p], 0.0)
        logs[p] = _log_losing(rates[p])
    for f in range(hidden.flow_ptr[g], hidden.flow_ptr[g + 1]):
        most = -1e300
        for p in range(n):
            most = max(most, _term(hidden.arrived[f], hidden.lost[f], rates[p], logs[p]))
        whole = 0.0
        for p in range(n):
            at = _term(hidden.arrived[f], hidden.lost[f], rates[p], logs[p]) - most
            if at > -40.0:
                whole += hidden.many[first + p] * np.exp(at)
        mix.log_sum[f] = most + np.log(whole)


@kernel
def set_mean(mean, mix):
    """Set the rate of healthy links to ``mean``; return the log-likelihood of all observations,
    without the constant of the number of paths of each set."""
    mix.mean[0] = mean
    value = 0.0
    for i in range(len(mix.x)):
        value -= mix.arrived[i] * (mix.x[i] + mean * mix.size[i])
    for r in range(len(mix.lost)):
        mix.total[r] = mean * mix.row_hops[r]
        for e in range(mix.ptr[r], mix.ptr[r + 1]):
            mix.total[r] += mix.x[mix.units[e]]
        value += mix.lost[r] * _log_losing(mix.total[r])
    hidden = mix.hidden
    for g in range(len(hidden.set_ptr) - 1):
        _sum_set(g, mix)
        for f in range(hidden.flow_ptr[g], hidden.flow_ptr[g + 1]):
            value += (-1.0 if hidden.lost[f] < 0.0 else 1.0) * hidden.times[f] * mix.log_sum[f]
    return value


@kernel
def change(i, new, mix, current):
    """Set the rate of unit i; ``current``, bool[U], becomes False for units that this affects."""
    by = new - mix.x[i]
    mix.x[i] = new
    for e in range(mix.unit_ptr[i], mix.unit_ptr[i + 1]):
        r = mix.rows[e]
        mix.total[r] = max(mix.total[r] + by, 1e-300)
        for u in range(mix.ptr[r], mix.ptr[r + 1]):
            current[mix.units[u]] = False
    hidden, last = mix.hidden, -1
    for e in range(mix.over_ptr[i], mix.over_ptr[i + 1]):
        mix.rate[mix.over[e]] += by
    for e in range(mix.over_ptr[i], mix.over_ptr[i + 1]):
        g = mix.set_of[mix.over[e]]
        if g == last:
            continue
        last = g
        _sum_set(g, mix)
        for u in range(hidden.path_ptr[hidden.set_ptr[g]], hidden.path_ptr[hidden.set_ptr[g + 1]]):
            current[hidden.units[u]] = False
    current[i] = False


@kernel
def _classes(begin, i, mix):
    """Group the paths over unit i of one set, from entry ``begin`` of ``over`` on, by their rate
    without unit i: write these rates to ``room[0]`` and the numbers of paths to ``room[1]``. Return
    where the next set begins, and the number of groups."""
    rest, many = mix.room[0], mix.room[1]
    g, n, e = mix.set_of[mix.over[begin]], 0, begin
    while e < mix.over_ptr[i + 1] and mix.set_of[mix.over[e]] == g:
        p = mix.over[e]
        other = mix.rate[p] - mix.x[i]
        if other < CLEAN:
            other = 0.0
        for c in range(n):
            if abs(rest[c] - other) <= 1e-6 * other:
                many[c] += mix.hidden.many[p]
                break
        else:
            rest[n], many[n] = other, mix.hidden.many[p]
            n += 1
        e += 1
    return e, n


@kernel
def _log_left(g, f, begin, end, mix):
    """Return the logarithm of the share of flow f's sum that is on paths of set g other than
    ``over[begin:end]``."""
    hidden, base = mix.hidden, mix.mean[0] * mix.hidden.hops[g]
    for e in range(begin, end):
        mix.on[mix.over[e]] = True
    most, whole = -1e300, 0.0
    for p in range(hidden.set_ptr[g], hidden.set_ptr[g + 1]):
        if not mix.on[p]:
            rate = base + max(mix.rate[p], 0.0)
            term = (
                _term(hidden.arrived[f], hidden.lost[f], rate, _log_losing(rate)) - mix.log_sum[f]
            )
            if term > most:
                whole, most = whole * np.exp(most - term), term
            whole += hidden.many[p] * np.exp(term - most)
    for e in range(begin, end):
        mix.on[mix.over[e]] = False
    return most + np.log(whole) if whole > 0.0 else most


@kernel
def _flow_gains(f, bottom, n, n_rates, rates, base, mix, gain):
    """Add flow f's gain at each rate to ``gain``; ``bottom`` is the logarithm of its share on other
    paths, and `gains_at` has filled ``room``."""
    hidden = mix.hidden
    arrived, lost, times = hidden.arrived[f], hidden.lost[f], hidden.times[f]
    sign = -times if lost < 0.0 else times
    terms = mix.room[2 + RATES]
    for j in range(n_rates):
        most = bottom
        for c in range(n):
            rate = base + mix.room[0, c] + rates[j]
            terms[c] = _term(arrived, lost, rate, mix.room[2 + j, c]) - mix.log_sum[f]
            most = max(most, terms[c])
        whole = np.exp(bottom - most)
        for c in range(n):
            if terms[c] - most > -40.0:
                whole += mix.room[1, c] * np.exp(terms[c] - most)
        gain[j] += sign * (most + np.log(whole))


@kernel
def _put_off(f, mine, mix):
    """Count loss-free flow f with those of equal size and equal share ``mine`` on paths over a
    unit; return False if no place is free for it."""
    if mix.size_of[f] < 0:
        return False
    for at in range(SHARES * mix.size_of[f], SHARES * mix.size_of[f] + SHARES):
        flows = mix.alike[at, 0]
        if flows == 0.0 or abs(mix.alike[at, 1] - mine) <= 1e-9:
            mix.alike[at, 0] = flows + mix.hidden.times[f]
            mix.alike[at, 1], mix.alike[at, 2] = mine, mix.hidden.arrived[f]
            return True
    return False


@kernel
def _free_gains(flows, mine, arrived, x, rates, n_rates, gain):
    """Add the gain of loss-free flows of which the share ``mine`` is on paths over a unit of rate
    x; all their terms change by one factor, whatever the number of paths."""
    if mine < 1e-14:
        return
    other = np.log1p(-mine)
    for j in range(n_rates):
        change = arrived * (x - rates[j])
        if change < -NOTHING and mine < 0.5:
            gain[j] += flows * other
        else:
            gain[j] += flows * np.log1p(mine * np.expm1(change))


@kernel
def gains_at(i, rates, n_rates, mix, gain):
    """Write to ``gain`` the gain in log-likelihood if unit i had each of the first ``n_rates``
    rates instead of its own, with all other rates fixed."""
    gain[:n_rates] = 0.0
    for j in range(n_rates):
        by = rates[j] - mix.x[i]
        gain[j] -= mix.arrived[i] * by
        for e in range(mix.unit_ptr[i], mix.unit_ptr[i + 1]):
            now = mix.total[mix.rows[e]]
            ratio = np.expm1(-max(now + by, 1e-300)) / np.expm1(-now)
            gain[j] += mix.lost[mix.rows[e]] * np.log(ratio)
    hidden, e, x = mix.hidden, mix.over_ptr[i], mix.x[i]
    mix.alike[:, 0] = 0.0
    while e < mix.over_ptr[i + 1]:
        g, begin = mix.set_of[mix.over[e]], e
        base = mix.mean[0] * hidden.hops[g]
        e, n = _classes(begin, i, mix)
        ready = False
        for f in range(hidden.flow_ptr[g], hidden.flow_ptr[g + 1]):
            mine = 0.0
            for c in range(n):
                rate = base + mix.room[0, c] + x
                losing = _log_losing(rate) if hidden.lost[f] > 0.0 else 0.0
                term = _term(hidden.arrived[f], hidden.lost[f], rate, losing) - mix.log_sum[f]
                mine += mix.room[1, c] * np.exp(min(term, 0.0))
            if hidden.lost[f] == 0.0 and mine < 1.0 - 1e-6 and hidden.arrived[f] * x < MOST:
                if not _put_off(f, mine, mix):
                    _free_gains(hidden.times[f], mine, hidden.arrived[f], x, rates, n_rates, gain)
                continue
            if not ready and hidden.lost[f] > 0.0:
                ready = True
                for c in range(n):
                    for j in range(n_rates):
                        mix.room[2 + j, c] = _log_losing(base + mix.room[0, c] + rates[j])
            bottom = np.log1p(-mine) if mine < 1.0 - 1e-6 else _log_left(g, f, begin, e, mix)
            _flow_gains(f, bottom, n, n_rates, rates, base, mix, gain)
    for at in range(len(mix.alike)):
        if mix.alike[at, 0] > 0.0:
            flows, mine, arrived = mix.alike[at, 0], mix.alike[at, 1], mix.alike[at, 2]
            _free_gains(flows, mine, arrived, x, rates, n_rates, gain)


class Start(NamedTuple):
    """The classes that known paths blame, highest rate first: class c has the units
    ``units[ptr[c]:ptr[c + 1]]``, whose rates add up to ``rate[c]``."""

    ptr: LongArray
    units: IntArray
    rate: FloatArray


def nothing() -> Start:
    """Return a start of the search without any blamed class."""
    return Start(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0))


def start_from(
    known: Sequence[Observed], units: Units, *, fault_rate: float, penalty: float | None
) -> Start:
    """Return what observations over known paths blame, as classes of ``units`` with their rates.

    The other arguments are those of `analysis.methods.mle.search.explain`.
    """
    parts = [Observed.join([part]) for part in known]
    if not any(len(part.sent) for part in parts):
        return nothing()
    same = marks([part.paths for part in parts], len(units.of_link))
    classes = Units.of(same)
    rows = observe(parts, classes)
    candidate = suspects(rows.lost_over(), rows.arrived, fault_rate)
    found = explain(rows, classes.size, candidate, fault_rate=fault_rate, penalty=penalty)
    blamed = np.flatnonzero(found.blamed)
    blamed = blamed[np.argsort(-found.x[blamed], kind="stable")]
    links = np.flatnonzero(same)
    pair = np.unique(
        classes.of_link[links].astype(np.int64) * len(units.size) + units.of_link[links]
    )
    merged, member = np.divmod(pair, max(len(units.size), 1))
    parts = [member[merged == which] for which in blamed]
    return Start(
        pointers(np.array([len(part) for part in parts], np.int64)),
        np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int32),
        found.x[blamed],
    )


@kernel
def add_up(mix):
    """Set the rate of each hidden path to the sum of its units' rates."""
    hidden = mix.hidden
    for p in range(len(mix.rate)):
        mix.rate[p] = 0.0
        for i in hidden.units[hidden.path_ptr[p] : hidden.path_ptr[p + 1]]:
            mix.rate[p] += mix.x[i]


def fit_mean(mix: Mixture, low: float, high: float) -> float:
    """Set the mean rate of healthy links to the most likely value from ``low`` to ``high``, to
    within 1 %, and return it."""
    from scipy.optimize import minimize_scalar  # takes long to load, and few runs need it

    found: Any = minimize_scalar(
        lambda at: -set_mean(math.exp(at), mix),
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": 0.01},
    )
    mean = math.exp(found.x)
    set_mean(mean, mix)
    return mean
