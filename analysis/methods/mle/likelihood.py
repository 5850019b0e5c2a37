# SPDX-License-Identifier: Apache-2.0
"""The log-likelihood along one unit's rate, moves that keep the rows' sums, and the law of rates.

Unit i loses packets at the rate x_i = -ln(success) >= 0. Row r, which lost k of its packets, adds
k ln(1 - exp(-X_r)) to the log-likelihood, where X_r is the sum of its units' x; the packets that
arrived over unit i add -arrived_i x_i. Along one x_i this is concave: its slope, sum_r k_r / (e^X_r
- 1) - arrived_i, falls. The law of a healthy link's rate is exponential, so that of a unit's rate
is a Gamma distribution. Its density is taken over ln x. The most likely rate of a link that lost
nothing is then the expected one and not 0, and a single loss is no evidence against the many links
that may have caused it. The law acts on a healthy unit as if ``size`` more packets had been lost
and 1 / mean more had arrived.

**The law's mean** is fitted to the losses that no fault explains (empirical Bayes). If s_i of the
losses fell to a healthy link over which A_i packets arrived, its rate is Gamma distributed with
mean (s_i + 1) / (A_i + 1 / mean); the losses of a row fall to its links in proportion to their
rates; the mean of the law is that of the links' means.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.compiled import kernel

DEAD = 60.0
"""The rate that stands for total loss."""

MEAN, FAULT, PENALTY = range(3)
"""Indices into ``Problem.law``: the mean rate of a healthy link, the least rate of a blamed one,
and the penalty of blaming one, in nats."""

LEAST = 1e-3  # of the mean rate: how far down a healthy unit's x is looked for


class Problem(NamedTuple):
    """The arrays of `Rows`, and the explanation, which the search modifies.

    ``size`` float64[U] is the number of links of each unit; ``x`` float64[U] are rates and
    ``total`` float64[R] their sums over the rows; ``blamed`` bool[U]; ``gains`` float64[U], see
    `explain`; ``candidate`` bool[U] are the units with enough losses for a fault; ``current``
    bool[U] those whose gain is up to date. Scratch memory: ``queue`` int32[U] and ``queued``
    bool[U] of `settle`, ``kept`` float64[U] for a copy of x, ``share`` float64[U] for sums.
    """

    ptr: LongArray
    units: IntArray
    unit_ptr: LongArray
    rows: IntArray
    lost: FloatArray
    arrived: FloatArray
    size: FloatArray
    x: FloatArray
    total: FloatArray
    blamed: BoolArray
    gains: FloatArray
    candidate: BoolArray
    current: BoolArray
    queue: IntArray
    queued: BoolArray
    kept: FloatArray
    share: FloatArray
    law: FloatArray


STATE = ("x", "total", "blamed", "gains", "current", "law")
"""The names of the arrays of a `Problem` that a search modifies."""


@kernel
def gain(i, new, s):
    """Return the gain in log-likelihood, without the law, of setting x_i to ``new`` with all other
    rates fixed."""
    change = new - s.x[i]
    total = -s.arrived[i] * change
    for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
        r = s.rows[e]
        now = s.total[r]
        total += s.lost[r] * np.log(np.expm1(-now - change) / np.expm1(-now))
    return total


@kernel
def _losses(i, own, change, s):
    """Return sum_r k_r / (e^X_r - 1) after x_i changes by ``change``, with ``own`` more losses, and
    minus the slope of this sum."""
    x = s.x[i] + change
    value, slope = own / x, own / (x * x)
    for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
        r = s.rows[e]
        odds = 1.0 / np.expm1(s.total[r] + change)
        value += s.lost[r] * odds
        slope += s.lost[r] * odds * (1.0 + odds)
    return value, slope


@kernel
def best(i, own, more, low, high, s):
    """Return the most likely x_i from ``low`` to ``high`` with all other rates fixed, as if ``own``
    more packets had been lost and ``more`` had arrived.

    In w = ln(x) the logarithm of the losses' sum is nearly linear, so Newton's steps, kept inside
    the bracket of a bisection, need a few rounds at every rate.
    """
    arrived = s.arrived[i] + more
    if arrived <= 0.0:
        return high
    now = s.x[i]
    if _losses(i, own, low - now, s)[0] <= arrived:
        return low
    if _losses(i, own, high - now, s)[0] >= arrived:
        return high
    left, right = np.log(low), np.log(high)
    w = np.log(now) if low < now < high else 0.5 * (left + right)
    for _ in range(60):
        x = np.exp(w)
        value, slope = _losses(i, own, x - now, s)
        if value > arrived:
            left = w
        else:
            right = w
        after = 0.5 * (left + right)
        if value > 0.0 and slope > 0.0:
            step = np.log(value / arrived) * value / (x * slope)
            if abs(step) < 1e-9:
                break
            if left <= w + step <= right:
                after = w + step
        if abs(after - w) < 1e-12:
            break
        w = after
    return np.exp(w)


@kernel
def held(i, s):
    """Return the most likely rate of unit i in its present state, healthy or blamed, with all other
    rates fixed."""
    if s.blamed[i]:
        return best(i, 0.0, 0.0, s.law[FAULT], DEAD, s)
    mean, size = s.law[MEAN], s.size[i]
    return best(i, size, 1.0 / mean, LEAST * mean * size, s.law[FAULT] * size, s)


@kernel
def healthy(i, x, s):
    """Return the cost in nats of the rate x for unit i if it is healthy: 0 at the mean, more
    elsewhere."""
    share = x / (s.law[MEAN] * s.size[i])
    return s.size[i] * (share - 1.0 - np.log(share))


@kernel
def law(i, s):
    """Return the cost in nats of unit i's rate: by the law of healthy links, or the penalty."""
    return s.law[PENALTY] if s.blamed[i] else healthy(i, s.x[i], s)


@kernel
def cost(s):
    """Return the sum of `law` over all units, in nats."""
    total = 0.0
    for i in range(len(s.x)):
        total += law(i, s)
    return total


@kernel
def fallen_on(r, i, s):
    """Return the packets lost on row r that unit i is expected to have lost, in proportion to its
    rate."""
    return s.lost[r] * min(s.x[i] / s.total[r], 1.0)


@kernel
def fallen_on_all(i, s):
    """Return the packets that unit i is expected to have lost, over all its rows."""
    total = 0.0
    for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
        total += fallen_on(s.rows[e], i, s)
    return total


@kernel
def move(i, new, s):
    """Set x_i to ``new`` and update the sums of its rows."""
    change = new - s.x[i]
    s.x[i] = new
    for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
        r = s.rows[e]
        s.total[r] = max(s.total[r] + change, 1e-300)


@kernel
def touch(i, s):
    """Mark the gains of all units that share a row with unit i as out of date."""
    for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
        r = s.rows[e]
        for f in range(s.ptr[r], s.ptr[r + 1]):
            s.current[s.units[f]] = False


@kernel
def settle(begin, count, tolerance, s):
    """Set units to their most likely rates, one by one, until no unit gains more than ``tolerance``
    nats.

    The first units are ``queue[begin:begin + count]`` (a ring buffer); then follow those that share
    a row with a unit whose rate changed. Return the gain of all moves in nats, the law included.
    """
    n = len(s.queue)
    gained = 0.0
    budget = 40 * n + 20 * count
    while count > 0:
        i = s.queue[begin]
        begin = begin + 1 if begin + 1 < n else 0
        count -= 1
        s.queued[i] = False
        if budget == 0:
            continue
        budget -= 1
        before = law(i, s)
        new = held(i, s)
        won = gain(i, new, s)
        won += 0.0 if s.blamed[i] else before - healthy(i, new, s)
        if not won > tolerance:
            continue
        gained += won
        move(i, new, s)
        for e in range(s.unit_ptr[i], s.unit_ptr[i + 1]):
            r = s.rows[e]
            for f in range(s.ptr[r], s.ptr[r + 1]):
                j = s.units[f]
                s.current[j] = False
                if j != i and not s.queued[j]:
                    s.queued[j] = True
                    s.queue[(begin + count) % n] = j
                    count += 1
    return gained


WIDEST = 0.5
"""The mean rate of healthy links is at most this share of the least rate of a fault."""


@kernel
def mean_rate(s, floor):
    """Return the mean rate of a healthy link, from ``floor`` to `WIDEST` times a fault's least.

    A healthy rate is below that of a fault, so the law is cut off there; with a mean of half this
    limit or more it would be nearly flat. ``s.kept`` and ``s.share`` are used as scratch.
    """
    fault = s.law[FAULT]
    mean = min(s.law[MEAN], WIDEST * fault)
    rate, fallen = s.kept, s.share
    links = 0.0
    for i in range(len(rate)):
        rate[i] = s.x[i] if s.blamed[i] else max(s.x[i], mean * s.size[i])
        if not s.blamed[i]:
            links += s.size[i]
    if links == 0.0:
        return floor
    for _ in range(300):
        fallen[:] = 0.0
        for r in range(len(s.lost)):
            total = 0.0
            for e in range(s.ptr[r], s.ptr[r + 1]):
                total += rate[s.units[e]]
            each = s.lost[r] / total
            for e in range(s.ptr[r], s.ptr[r + 1]):
                i = s.units[e]
                fallen[i] += each * rate[i]
        before, total = mean, 0.0
        for i in range(len(rate)):
            if not s.blamed[i]:
                after = (fallen[i] + s.size[i]) / (s.arrived[i] + 1.0 / mean)
                rate[i] = min(after, fault * s.size[i])
                total += rate[i]
        mean = max(floor, min(total / links, WIDEST * fault))
        if abs(mean - before) < 1e-3 * before:
            break
    fallen[:] = 0.0
    return mean


@kernel
def settled(lost, size):
    """Return by how many nats the evidence of a healthy unit of ``size`` links, with its rate
    integrated over the law, is below its likelihood and law at the most likely rate (Laplace's
    approximation in ln x)."""
    return size - size * np.log(size) + math.lgamma(size) - 0.5 * np.log(2 * np.pi / (lost + size))


@kernel
def width(lost, least):
    """Return the integral of x^lost e^(-arrived x) over ln x from a fault's least rate on, relative
    to its peak, to second order; ``least`` is the number of losses expected at that rate."""
    if lost > least:
        return np.sqrt(2 * np.pi / lost) * (
            1.0 - 0.5 * math.erfc(np.log(lost / max(least, 1e-9)) * np.sqrt(lost / 2))
        )
    off = (least - lost) / np.sqrt(2 * least) if least > 0.0 else 0.0
    if off > 5.0:
        return 1.0 / (least - lost)
    return np.sqrt(0.5 * np.pi / max(least, 1e-9)) * np.exp(off * off) * math.erfc(off)


@kernel
def evidence(s):
    """Return the evidence by which laws are compared: the log-likelihood of the rows with the rates
    of healthy units integrated over their law (Laplace), less the penalties, in nats."""
    mean, fault = s.law[MEAN], s.law[FAULT]
    fallen = s.share
    fallen[:] = 0.0
    total = 0.0
    for r in range(len(s.lost)):
        total += s.lost[r] * np.log(-np.expm1(-s.total[r]))
        for e in range(s.ptr[r], s.ptr[r + 1]):
            fallen[s.units[e]] += fallen_on(r, s.units[e], s)
    for i in range(len(s.x)):
        total -= s.arrived[i] * s.x[i]
        if s.blamed[i]:
            total -= s.law[PENALTY]
            continue
        total -= healthy(i, s.x[i], s) + settled(fallen[i], s.size[i])
        total -= np.log(-np.expm1(-fault / mean))
    fallen[:] = 0.0
    return total
