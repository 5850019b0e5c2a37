"""Flows that are known because they lost packets: what the others carried, given the rates (an EM).

A report that exists only because of a loss has a known path and the likelihood of its losses,
divided by the chance that a flow of its size between its ToRs is reported at all,
P = (1/w) sum_p (1 - exp(-n X_p)). Each report stands for (1 - P) / P flows that were not made one,
n exp(-n X_p) / (w P) packets of which arrived on path p. With these the problem is that of known
paths (Dempster, Laird and Rubin, J. R. Stat. Soc. B 39, 1977, section 4.2, truncated data): as with
`analysis.methods.mle.arrivals`, what gains there gains at least as much in truth.

A path is only known if its trace is answered: asked up to where it turns, answered the same way
back (007, section 4.2). So paths count as much as their traces survive the rates as they are.

A healthy link that loses more than twice the mean has a rate of its own there, not that of all: of
a device of which nearly all links fail, most reports are of flows through it, and the first turns
take the missing ones for many and its links for a little worse than others. With one rate for all
that were not blamed, the turns would stop there.

How much all links lose is the one thing that such turns find slowly, as nearly all flows are
missing. So the mean rate of healthy links is fitted to the likelihood itself in each turn. It
begins as if no link were faulty, and falls as blamed links take their losses with them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.methods.mle.hidden import HiddenFlows
from analysis.methods.mle.likelihood import MEAN, Problem
from analysis.methods.mle.problem import Rows
from analysis.methods.mle.search import NARROWEST, explain, resume
from testbed.fabric.compiled import kernel

__all__ = ["explain_traced", "unreported"]

IntArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

TURNS = 40
NEAR = 0.05
"""A rate that changes by a smaller share has settled."""


def explain_traced(
    rows: Rows,
    size: FloatArray,
    may: BoolArray,
    hidden: HiddenFlows,
    back: IntArray,
    *,
    fault_rate: float,
    penalty: float | None,
) -> Problem:
    """As `analysis.methods.mle.search.explain`, where ``hidden`` are the divisors of reports and
    ``back`` int32[U] is the unit of each one's other direction, -1 if there is none."""
    x = np.zeros(len(size))
    of_row = np.repeat(np.arange(len(rows.lost)), np.diff(rows.ptr))
    hops = np.bincount(of_row, size[rows.units], len(rows.lost)).astype(np.float64)
    fault = -math.log1p(-fault_rate)
    least, most = fault / NARROWEST, 0.5 * fault
    given = rows, of_row, hops, size, hidden, back
    mean = _mean(*given, x, least, most)
    known = rows._replace(arrived=rows.arrived + unreported(hidden, back, x, mean)[0])
    found = explain(known, size, may, fault_rate=fault_rate, penalty=penalty)
    for turn in range(TURNS):
        before, x = mean, _own(found)
        mean = _mean(*given, x, max(0.2 * mean, least), min(1.3 * mean, most))
        found.law[MEAN] = mean
        arrived = rows.arrived + unreported(hidden, back, x, mean)[0]
        changed = resume(found, arrived, penalty=penalty)
        changed |= bool((np.abs(_own(found) - x) > NEAR * np.maximum(x, mean * size)).any())
        if turn and not changed and abs(mean - before) <= NEAR * mean:
            break
    return found


def _own(found: Problem) -> FloatArray:
    """By how much each unit loses more than the mean healthy one, if that is as much again."""
    more = found.x - found.law[MEAN] * found.size
    return np.where(found.blamed | (more > found.law[MEAN] * found.size), more, 0.0)


def _mean(
    rows: Rows,
    of_row: npt.NDArray[np.int64],
    hops: FloatArray,
    size: FloatArray,
    hidden: HiddenFlows,
    back: IntArray,
    x: FloatArray,
    least: float,
    most: float,
) -> float:
    """The likeliest mean rate of healthy links in a range, to within 2 %."""
    from scipy.optimize import minimize_scalar  # takes long to load, and few runs need it

    blamed = np.bincount(of_row, x[rows.units], len(rows.lost))

    def value(log_mean: float) -> float:
        mean = math.exp(log_mean)
        total = float(rows.lost @ np.log(-np.expm1(-blamed - mean * hops)))
        return mean * float(rows.arrived @ size) + unreported(hidden, back, x, mean)[1] - total

    bounds = math.log(least), math.log(most)
    found: Any = minimize_scalar(value, bounds=bounds, method="bounded", options={"xatol": 0.02})
    return math.exp(found.x)


def unreported(
    hidden: HiddenFlows, back: IntArray, x: FloatArray, mean: float
) -> tuple[FloatArray, float]:
    """Packets of flows that were not reported that arrived over each unit, float64[U], given the
    rates ``x`` of blamed units, else 0, and the ``mean`` of all others; and the sum of the
    divisors' logarithms, less that of the numbers of paths."""
    arrived = np.zeros(len(x))
    widest = int(np.diff(hidden.set_ptr).max(initial=0))
    room, kind = np.zeros((4, widest)), np.zeros(widest, np.int64)
    return arrived, _unreported(hidden, back, x, mean, room, kind, arrived)


@kernel
def _unreported(h, back, x, mean, room, kind, arrived):
    """``room`` holds of the distinct kinds of a set's paths the rate, that of their traces, how
    many they are, and what arrived over one of these; ``kind`` says which each path is."""
    rate, dies, many, over = room[0], room[1], room[2], room[3]
    total = 0.0
    for g in range(len(h.set_ptr) - 1):
        first, base = h.set_ptr[g], mean * h.hops[g]
        n_paths, n = h.set_ptr[g + 1] - first, 0
        for p in range(n_paths):
            begin, end = h.path_ptr[first + p], h.path_ptr[first + p + 1]
            sum_x = trace = 0.0
            for e in range(begin, end):
                i = h.units[e]
                sum_x += x[i]
                if 2 * (e - begin) < end - begin:
                    trace += x[i] + (x[back[i]] if back[i] >= 0 else 0.0)
            k = 0
            while k < n and (rate[k] != sum_x or dies[k] != trace):
                k += 1
            if k == n:
                rate[n], dies[n], many[n], over[n] = sum_x, trace, 0.0, 0.0
                n += 1
            many[k] += h.many[first + p] * np.exp(-trace)
            kind[p] = k
        for f in range(h.flow_ptr[g], h.flow_ptr[g + 1]):
            size, whole = h.arrived[f], 0.0
            for k in range(n):
                whole += many[k] * -np.expm1(-size * (base + rate[k]))
            total += h.times[f] * np.log(whole)
            for k in range(n):
                each = h.times[f] * size / whole
                over[k] += each * np.exp(-dies[k] - size * (base + rate[k]))
        for p in range(n_paths):
            each = h.many[first + p] * over[kind[p]]
            for e in range(h.path_ptr[first + p], h.path_ptr[first + p + 1]):
                arrived[h.units[e]] += each
    return total
