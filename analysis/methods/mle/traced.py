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

Turns end at explanations that the search does not leave, and take paths to count as traces make
them. Which of several is likelier the reports themselves say, with what it takes for their traces
to have come back.

How much all links lose is the one thing that such turns find slowly, as nearly all flows are
missing. So the mean rate of healthy links is fitted to the likelihood itself in each turn. It
begins as if no link were faulty, and falls as blamed links take their losses with them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.methods.mle.gathering import other_explanations
from analysis.methods.mle.hidden import HiddenFlows
from analysis.methods.mle.likelihood import MEAN, Problem, cost
from analysis.methods.mle.moves import COARSE, settle_all
from analysis.methods.mle.problem import Rows
from analysis.methods.mle.search import NARROWEST, explain, resume
from testbed.fabric.compiled import kernel

__all__ = ["explain_traced", "unreported"]

IntArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

TURNS = 40
AS_GOOD = 1.0  # nats by which another explanation must be likelier: less may be rounding
FAR, HOPELESS = 20_000.0, 1000.0
"""Nats by which another is so much less likely that it is given up, as it is found, and with its
rates settled once."""
NEAR = 0.05
"""A rate that changes by a smaller share has settled."""


def explain_traced(
    rows: Rows,
    size: FloatArray,
    may: BoolArray,
    hidden: HiddenFlows,
    back: IntArray,
    asked: FloatArray,
    *,
    fault_rate: float,
    penalty: float | None,
) -> Problem:
    """As `analysis.methods.mle.search.explain`, where ``hidden`` are the divisors of reports,
    ``back`` int32[U] is the unit of each one's other direction, -1 if there is none, and ``asked``
    float64[U] how many of the reports' traces crossed each unit."""
    reports = _Reports.of(rows, size, hidden, back, asked, fault_rate)
    none = np.zeros(len(size))
    mean = reports.mean(none, reports.least, reports.most)
    known = rows._replace(arrived=reports.arrived(none, mean))
    found = explain(known, size, may, fault_rate=fault_rate, penalty=penalty)
    reports.settle(found, mean, penalty)
    value, better = reports.value(found), True
    while better:
        better = False
        for other in other_explanations(found):
            if reports.given_up(other, value):
                continue
            reports.settle(other, float(other.law[MEAN]), penalty)
            if (now := reports.value(other)) > value + AS_GOOD:
                found, value, better = other, now, True
                break
    return found


class _Reports(NamedTuple):
    """What is known of flows that lost packets; ``of_row`` int64[entries of rows], ``hops``
    float64[R] the links of each row, and the bounds of the mean rate of healthy links."""

    rows: Rows
    of_row: npt.NDArray[np.int64]
    hops: FloatArray
    size: FloatArray
    hidden: HiddenFlows
    back: IntArray
    asked: FloatArray
    least: float
    most: float

    @classmethod
    def of(
        cls,
        rows: Rows,
        size: FloatArray,
        hidden: HiddenFlows,
        back: IntArray,
        asked: FloatArray,
        fault_rate: float,
    ) -> _Reports:
        of_row = np.repeat(np.arange(len(rows.lost)), np.diff(rows.ptr))
        hops = np.bincount(of_row, size[rows.units], len(rows.lost)).astype(np.float64)
        fault = -math.log1p(-fault_rate)
        return cls(rows, of_row, hops, size, hidden, back, asked, fault / NARROWEST, 0.5 * fault)

    def settle(self, found: Problem, mean: float, penalty: float | None) -> None:
        """Take turns until nothing changes."""
        for turn in range(TURNS):
            before, x = mean, _own(found)
            mean = self.mean(x, max(0.2 * mean, self.least), min(1.3 * mean, self.most))
            found.law[MEAN] = mean
            changed = resume(found, self.arrived(x, mean), penalty=penalty)
            near = NEAR * np.maximum(x, mean * self.size)
            changed |= bool((np.abs(_own(found) - x) > near).any())
            if turn and not changed and abs(mean - before) <= NEAR * mean:
                break

    def given_up(self, other: Problem, value: float) -> bool:
        """Whether an explanation is far from one of that value; else settles its rates once."""
        if self.value(other) < value - FAR:
            return True
        other.arrived[:] = self.arrived(_own(other), float(other.law[MEAN]))
        settle_all(COARSE, other)
        return self.value(other) < value - HOPELESS

    def arrived(self, x: FloatArray, mean: float) -> FloatArray:
        """What arrived over each unit, of flows that were not reported, too: float64[U]."""
        return self.rows.arrived + unreported(self.hidden, self.back, x, mean)[0]

    def mean(self, x: FloatArray, least: float, most: float) -> float:
        """The likeliest mean rate of healthy links in a range, to within 2 %."""
        from scipy.optimize import minimize_scalar  # takes long to load, and few runs need it

        blamed, of_links = self._blamed(x), float(self.rows.arrived @ self.size)

        def value(log_mean: float) -> float:
            mean = math.exp(log_mean)
            divisors = unreported(self.hidden, self.back, x, mean)[1]
            return mean * of_links + divisors - self._losses(blamed, mean)

        bounds = math.log(least), math.log(most)
        found: Any = minimize_scalar(
            value, bounds=bounds, method="bounded", options={"xatol": 0.02}
        )
        return math.exp(found.x)

    def value(self, found: Problem) -> float:
        """The log-likelihood of the reports and of their traces, less what laws and blame cost."""
        mean = float(found.law[MEAN])
        x = found.x - mean * self.size
        arrived = float(self.rows.arrived @ (x + mean * self.size)) + float(self.asked @ x)
        divisors = unreported(self.hidden, self.back, x, mean)[1]
        return self._losses(self._blamed(x), mean) - arrived - divisors - cost(found)

    def _blamed(self, x: FloatArray) -> FloatArray:
        total = np.bincount(self.of_row, x[self.rows.units], len(self.rows.lost))
        return total.astype(np.float64)

    def _losses(self, blamed: FloatArray, mean: float) -> float:
        return float(self.rows.lost @ np.log(-np.expm1(-blamed - mean * self.hops)))


def _own(found: Problem) -> FloatArray:
    """By how much each unit loses more than the mean healthy one, if that is as much again."""
    more = found.x - found.law[MEAN] * found.size
    return np.where(found.blamed | (more > found.law[MEAN] * found.size), more, 0.0)


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
