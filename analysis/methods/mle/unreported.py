"""Whether a report's trace comes back, and what carried the flows that were not reported.

A path is only known if its trace is answered by the switch where it turns, and by one of the last
two: by then the rest is determined (007, section 4.2, in a fat-tree). Each is asked by a packet of
its own, and answers the same way back. A switch answers so many a second, so that one that many
traces ask answers a smaller share; how much smaller at each where paths turn is fitted, as the
reports through it over those expected through it (iterative scaling). Shares are relative: what
all of them have in common, reports say nothing of.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.mle.hidden import HiddenFlows
from analysis.methods.mle.problem import Rows
from testbed.arrays import FloatArray, IntArray, LongArray
from testbed.fabric.compiled import kernel


class Traces(NamedTuple):
    """``reports``: what was reported, a flow as one loss; ``back`` int32[U]: the unit of each one's
    other direction, -1 if there is none; ``into`` int32[U]: the switch that each leads to."""

    reports: Rows
    back: IntArray
    into: IntArray

    def answered(self, silence: FloatArray, expected: FloatArray) -> FloatArray:
        """Minus the logarithms of the shares that switches answer, float64[U] by the units that
        lead to them, from what they were taken for and the reports that were ``expected`` to turn
        behind each unit then. Each switch is taken to have had one report more, as expected."""
        reports, n = self.reports, int(self.into.max(initial=-1)) + 1
        turn = reports.ptr[:-1] + (np.diff(reports.ptr) + 1) // 2 - 1
        seen = np.bincount(self.into[reports.units[turn]], reports.lost, n)
        due = np.bincount(self.into, expected, n)
        return silence - np.log((seen + 1.0) / (due + 1.0))[self.into]

    def missing(self, expected: FloatArray) -> FloatArray:
        """By how many nats the reports that crossed each unit are fewer than ``expected``, which
        they would be if it lost more: float64[U]."""
        rows, crossed = self.reports, np.zeros(len(self.into))
        _cross_all(rows.ptr, rows.units, rows.lost, self.back, crossed)
        fewer = np.maximum(expected - crossed, 0.0)
        return fewer * fewer / np.maximum(2.0 * expected, 1.0)


def whole(traces: Traces, silence: FloatArray, x: FloatArray) -> float:
    """The log-likelihood of all reports' traces to be whole; see `unreported`."""
    rows = traces.reports
    return -_missing(rows.ptr, rows.units, rows.lost, traces.back, silence, x)


class PathRates(NamedTuple):
    """Of each set of paths the distinct rates of blamed units on a path and how many paths have
    each, as far as they are traced: ``rate``, ``many`` float64[paths] from ``set_ptr`` on, ``n``
    int64[sets] of them; and of each path which it has, and the chance of its trace."""

    hidden: HiddenFlows
    n: LongArray
    rate: FloatArray
    many: FloatArray
    kind: LongArray
    traced: FloatArray

    @classmethod
    def of(
        cls, hidden: HiddenFlows, back: IntArray, silence: FloatArray, x: FloatArray
    ) -> PathRates:
        """Given the rates ``x`` of blamed units, else 0, and the switches' ``silence``, see
        `Traces.answered`."""
        n, paths = len(hidden.set_ptr) - 1, int(hidden.set_ptr[-1])
        rate, many, traced = np.zeros((3, paths))
        found = cls(hidden, np.zeros(n, np.int64), rate, many, np.zeros(paths, np.int64), traced)
        _path_rates(hidden, back, silence, x, *found[1:])
        return found

    def divisors(self, mean: float) -> float:
        """The sum of the logarithms of the chances that flows are reported, less that of the
        numbers of paths, given the ``mean`` rate of all units that are not blamed."""
        return float(_divisors(self.hidden, self.n, self.rate, self.many, mean))


def unreported(
    paths: PathRates, back: IntArray, mean: float, units: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of flows that were not reported, the packets that arrived over each of so many units, and how
    many reports are to be expected whose paths turn behind it, and whose paths or traces crossed
    it, all float64[U].
    """
    arrived, turned, crossed = np.zeros((3, units))
    widest = int(paths.n.max(initial=0))
    _unreported(*paths, back, mean, np.zeros((2, widest)), arrived, turned, crossed)
    return arrived, turned, crossed


@kernel
def _dies(path, back, silence, x):
    """Minus the logarithm of the chance that the trace of a path of units is whole."""
    n, asked, turned, near = len(path), 0.0, 0.0, 0.0
    for e in range(n):
        i = path[e]
        asked += x[i] + (x[back[i]] if back[i] >= 0 else 0.0)
        if 2 * e < n:
            turned = asked + silence[i]
        if e < n - 1:
            near = asked
    if n <= 2:
        return turned
    return turned + near - np.log1p(np.exp(near - asked) - np.exp(-asked))


@kernel
def _cross(path, back, weight, crossed):
    for e in range(len(path)):
        crossed[path[e]] += weight
        if 2 * e < len(path) and back[path[e]] >= 0:
            crossed[back[path[e]]] += weight


@kernel
def _cross_all(ptr, units, times, back, crossed):
    for r in range(len(times)):
        _cross(units[ptr[r] : ptr[r + 1]], back, times[r], crossed)


@kernel
def _missing(ptr, units, times, back, silence, x):
    total = 0.0
    for r in range(len(times)):
        total += times[r] * _dies(units[ptr[r] : ptr[r + 1]], back, silence, x)
    return total


@kernel
def _path_rates(h, back, silence, x, n, rate, many, kind, traced):
    for g in range(len(h.set_ptr) - 1):
        first, end = h.set_ptr[g], h.set_ptr[g + 1]
        last = first
        for p in range(first, end):
            path = h.units[h.path_ptr[p] : h.path_ptr[p + 1]]
            sum_x = 0.0
            for i in path:
                sum_x += x[i]
            traced[p] = h.many[p] * np.exp(-_dies(path, back, silence, x))
            k = first
            while k < last and rate[k] != sum_x:
                k += 1
            if k == last:
                rate[k], many[k] = sum_x, 0.0
                last += 1
            many[k] += traced[p]
            kind[p] = k - first
        n[g] = last - first


@kernel
def _divisors(h, n, rate, many, mean):
    total = 0.0
    for g in range(len(n)):
        first, base = h.set_ptr[g], mean * h.hops[g]
        for f in range(h.flow_ptr[g], h.flow_ptr[g + 1]):
            whole = 0.0
            for k in range(first, first + n[g]):
                whole += many[k] * -np.expm1(-h.arrived[f] * (base + rate[k]))
            total += h.times[f] * np.log(whole)
    return total


@kernel
def _unreported(h, n, rate, many, kind, traced, back, mean, room, arrived, turned, crossed):
    """``room`` holds of each rate of a set what arrived over one of its paths, and how many reports
    it has."""
    over, seen = room[0], room[1]
    for g in range(len(n)):
        first, base = h.set_ptr[g], mean * h.hops[g]
        over[: n[g]] = 0.0
        seen[: n[g]] = 0.0
        for f in range(h.flow_ptr[g], h.flow_ptr[g + 1]):
            size, whole = h.arrived[f], 0.0
            for k in range(n[g]):
                whole += many[first + k] * -np.expm1(-size * (base + rate[first + k]))
            each = h.times[f] / whole
            for k in range(n[g]):
                free = np.exp(-size * (base + rate[first + k]))
                over[k] += each * size * free
                seen[k] += each * (1.0 - free)
        for p in range(first, h.set_ptr[g + 1]):
            begin, end = h.path_ptr[p], h.path_ptr[p + 1]
            for e in range(begin, end):
                arrived[h.units[e]] += traced[p] * over[kind[p]]
            turned[h.units[begin + (end - begin + 1) // 2 - 1]] += traced[p] * seen[kind[p]]
            _cross(h.units[begin:end], back, traced[p] * seen[kind[p]], crossed)
