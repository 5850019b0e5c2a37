# SPDX-License-Identifier: Apache-2.0
"""Flows that are known because they lost packets: what the others carried, given the rates (an EM).

A report that exists only because of a loss has a known path and the likelihood of its losses,
divided by the chance that a flow of its size between its ToRs is reported at all,
P = (1/w) sum_p (1 - exp(-n X_p)). Each report stands for (1 - P) / P flows that were not made one,
n exp(-n X_p) / (w P) packets of which arrived on path p. With these the problem is that of known
paths (Dempster, Laird and Rubin, J. R. Stat. Soc. B 39, 1977, section 4.2, truncated data): as with
`analysis.methods.mle.hidden`, what gains there gains at least as much in truth.

A healthy link that loses more than twice the mean has a rate of its own there, not that of all: of
a device of which nearly all links fail, most reports are of flows through it, and the first turns
take the missing ones for many and its links for a little worse than others. With one rate for all
that were not blamed, the turns would stop there.

Turns end at explanations that the search does not leave, and take paths to count as traces make
them. Which of several is likelier the reports themselves say, with what it takes for their traces
to have come back. A link that loses nearly all leaves next to no report, and what is left looks
like chance to the search: where significantly fewer reports came than were to be expected, one more
blamed unit is tried.

How much all links lose is the one thing that such turns find slowly, as nearly all flows are
missing. So the mean rate of healthy links is fitted to the likelihood itself in each turn. It
begins as if no link were faulty, and falls as blamed links take their losses with them.

**Traces.** A path is only known if its trace is answered, so paths count as much as their traces
survive the rates as they are. It takes an answer of the switch where it turns, and of one of the
last two: by then the rest is determined (007, section 4.2, in a fat-tree). Each is asked by a
packet of its own, and answers the same way back. A switch answers so many a second, so that one
that many traces ask answers a smaller share; how much smaller at each where paths turn is fitted,
as the reports through it over those expected through it (iterative scaling). Shares are relative:
what all of them have in common, reports say nothing of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from analysis.methods.mle.devices import choice, rates
from analysis.methods.mle.hidden import HiddenFlows
from analysis.methods.mle.likelihood import MEAN, PENALTY, Problem, cost
from analysis.methods.mle.moves import one_more, other_explanations, settle_all
from analysis.methods.mle.problem import Rows
from analysis.methods.mle.search import NARROWEST, explain, penalty_of, resume
from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.kernels import Bound, Kernels

KERNELS = Kernels.beside(__file__)

TURNS = 40
AS_GOOD = 1.0  # nats by which another explanation must be likelier: less may be rounding
FAR, HOPELESS = 20_000.0, 1000.0
"""Another explanation is given up if it is less likely by so many nats: before its rates are
settled, and after they are settled once."""
WORK = 20_000_000
"""The most paths of unreported flows that all tries together evaluate. K=8 has 16,000 paths."""
NEAR = 0.05
"""A rate has settled if it changes by no more than this share."""


def explain_traced(
    rows: Rows,
    size: FloatArray,
    candidate: BoolArray,
    hidden: HiddenFlows,
    traces: Traces,
    *,
    fault_rate: float,
    penalty: float | None,
) -> Problem:
    """Return the explanation of flows that are reported because they lost packets; ``hidden`` are
    the divisors of the reports, the other arguments are those of
    `analysis.methods.mle.search.explain`."""
    reports = _Reports.of(rows, size, hidden, traces, fault_rate)
    none, silence = np.zeros((2, len(size)))
    paths = reports.paths(none, silence)
    mean = reports.mean(none, paths, reports.least, reports.most)
    known = rows._replace(arrived=reports.arrived(paths, mean))
    found = explain(known, size, candidate, fault_rate=fault_rate, penalty=penalty)
    silence = reports.settle(found, silence, mean, penalty)
    value, better = reports.value(found, silence), True
    tries = iter(range(WORK // max(len(hidden.many), 1)))
    while better:
        better = False
        for other in reports.others(found, silence, value, tries):
            now = reports.settle(other, silence, float(other.law[MEAN]), penalty)
            if reports.value(other, now) > value + AS_GOOD:
                found, silence, value, better = other, now, reports.value(other, now), True
                break
    return found


class _Reports(NamedTuple):
    """The reports of flows that lost packets: their rows, ``of_row``, int64[], the row of each
    entry, ``hops``, float64[R], the number of links of each row, and the bounds ``least`` and
    ``most`` of the mean rate of healthy links."""

    rows: Rows
    of_row: LongArray
    hops: FloatArray
    size: FloatArray
    hidden: HiddenFlows
    traces: Traces
    least: float
    most: float

    @classmethod
    def of(
        cls,
        rows: Rows,
        size: FloatArray,
        hidden: HiddenFlows,
        traces: Traces,
        fault_rate: float,
    ) -> _Reports:
        """Return the reports with their rows' numbers of links. ``size``, float64[U], is the number
        of links of each unit, and ``fault_rate`` the loss rate of a fault, which bounds the
        mean."""
        of_row = np.repeat(np.arange(len(rows.lost)), np.diff(rows.ptr))
        hops = np.bincount(of_row, size[rows.units], len(rows.lost)).astype(np.float64)
        fault = -math.log1p(-fault_rate)
        return cls(rows, of_row, hops, size, hidden, traces, fault / NARROWEST, 0.5 * fault)

    def settle(
        self, found: Problem, silence: FloatArray, mean: float, penalty: float | None
    ) -> FloatArray:
        """Alternate between the estimate of unreported flows and the search until nothing changes;
        return the silence of the switches, see `Traces.answered`."""
        for turn in range(TURNS):
            before, x, blamed = mean, _own(found), found.blamed.copy()
            paths = self.paths(x, silence)
            mean = self.mean(x, paths, max(0.2 * mean, self.least), min(1.3 * mean, self.most))
            found.law[MEAN] = mean
            more, turned, _ = unreported(paths, self.traces.back, mean, len(x))
            if penalty is None:
                found.law[PENALTY] = penalty_of(len(x), int(found.blamed.sum()))
            resume(found, self.rows.arrived + more, penalty=penalty, doubtful=True)
            silence = self.traces.answered(silence, turned)
            near = np.abs(_own(found) - x) <= NEAR * np.maximum(x, mean * self.size)
            same = near.all() and (found.blamed == blamed).all()
            if turn and same and abs(mean - before) <= NEAR * mean:
                break
        return silence

    def others(
        self, found: Problem, silence: FloatArray, value: float, tries: Iterator[int]
    ) -> Iterator[Problem]:
        """Yield explanations that may be more likely than ``found`` with its ``value``, with rates
        settled once; at most as many are tried as ``tries`` has elements."""
        for _, other in zip(tries, other_explanations(found), strict=False):
            if not self._below(other, silence, value - FAR):
                self._settle_once(other, silence)
                if not self._below(other, silence, value - HOPELESS):
                    yield other
        paths, mean = self.paths(_own(found), silence), float(found.law[MEAN])
        missing = self.traces.missing(unreported(paths, self.traces.back, mean, len(found.x))[2])
        for unit in np.argsort(-missing, kind="stable").tolist():
            if missing[unit] <= found.law[PENALTY] or next(tries, None) is None:
                break
            if found.candidate[unit] and not found.blamed[unit]:
                other = one_more(unit, found)
                self._settle_once(other, silence)
                if not self._below(other, silence, value):
                    yield other

    def _below(self, other: Problem, silence: FloatArray, value: float) -> bool:
        return self.value(other, silence) < value

    def _settle_once(self, other: Problem, silence: FloatArray) -> None:
        other.arrived[:] = self.arrived(self.paths(_own(other), silence), float(other.law[MEAN]))
        settle_all(other)

    def paths(self, x: FloatArray, silence: FloatArray) -> PathRates:
        """Return the rates of the paths of unreported flows, given the rates of blamed units and
        the silence of the switches."""
        return PathRates.of(self.hidden, self.traces.back, silence, x)

    def arrived(self, paths: PathRates, mean: float) -> FloatArray:
        """Return the packets that arrived over each unit, including those of unreported flows:
        float64[U]."""
        return self.rows.arrived + unreported(paths, self.traces.back, mean, len(self.size))[0]

    def mean(self, x: FloatArray, paths: PathRates, least: float, most: float) -> float:
        """Return the most likely mean rate of healthy links in a range, to within 2 %."""
        from scipy.optimize import minimize_scalar  # takes long to load, and few runs need it

        blamed, of_links = self._blamed(x), float(self.rows.arrived @ self.size)

        def value(log_mean: float) -> float:
            """Return minus the log-likelihood in nats, up to a constant, of a mean rate whose
            logarithm is ``log_mean``."""
            mean = math.exp(log_mean)
            return mean * of_links + paths.divisors(mean) - self._losses(blamed, mean)

        bounds = math.log(least), math.log(most)
        found: Any = minimize_scalar(
            value, bounds=bounds, method="bounded", options={"xatol": 0.02}
        )
        return math.exp(found.x)

    def value(self, found: Problem, silence: FloatArray) -> float:
        """Return the log-likelihood of the reports and their traces, less the costs of rates and of
        blame, in nats."""
        mean = float(found.law[MEAN])
        x = found.x - mean * self.size
        arrived = float(self.rows.arrived @ (x + mean * self.size))
        divisors = self.paths(x, silence).divisors(mean)
        losses = self._losses(self._blamed(x), mean)
        return losses + whole(self.traces, silence, x) - arrived - divisors - self._paid(found)

    @staticmethod
    def _paid(found: Problem) -> float:
        """Return the cost in nats of the choice of blamed units, every number being equally likely,
        and of all rates, by their evidence; so explanations with different penalties compare."""
        blamed, n = int(found.blamed.sum()), len(found.x)
        laws = cost(found) - blamed * found.law[PENALTY]
        return float(laws + choice(n, blamed) + rates(np.arange(n, dtype=np.int32), found))

    def _blamed(self, x: FloatArray) -> FloatArray:
        total = np.bincount(self.of_row, x[self.rows.units], len(self.rows.lost))
        return total.astype(np.float64)

    def _losses(self, blamed: FloatArray, mean: float) -> float:
        return float(self.rows.lost @ np.log(-np.expm1(-blamed - mean * self.hops)))


def _own(found: Problem) -> FloatArray:
    """Return by how much each unit's rate exceeds the healthy mean if it is blamed or its rate is
    more than twice the mean, otherwise 0: float64[U]."""
    more = found.x - found.law[MEAN] * found.size
    return np.where(found.blamed | (more > found.law[MEAN] * found.size), more, 0.0)


class Traces(NamedTuple):
    """``reports``: what was reported, a flow as one loss; ``back`` int32[U]: the unit of each one's
    other direction, -1 if there is none; ``into`` int32[U]: the switch that each leads to."""

    reports: Rows
    back: IntArray
    into: IntArray

    def answered(self, silence: FloatArray, expected: FloatArray) -> FloatArray:
        """Return minus the logarithms of the shares that switches answer, float64[U] by the units
        that lead to them, from what they were taken for and the reports that were ``expected`` to
        turn behind each unit then. Each switch is taken to have had one report more, as
        expected."""
        reports, n = self.reports, int(self.into.max(initial=-1)) + 1
        turn = reports.ptr[:-1] + (np.diff(reports.ptr) + 1) // 2 - 1
        reported = np.bincount(self.into[reports.units[turn]], reports.lost, n)
        due = np.bincount(self.into, expected, n)
        return silence - np.log((reported + 1.0) / (due + 1.0))[self.into]

    def missing(self, expected: FloatArray) -> FloatArray:
        """Return by how many nats the reports that crossed each unit are fewer than ``expected``,
        which they would be if it lost more: float64[U]."""
        rows, crossed = self.reports, np.zeros(len(self.into))
        KERNELS.cross_all(
            ptr=rows.ptr, units=rows.units, times=rows.lost, back=self.back, crossed=crossed
        )
        fewer = np.maximum(expected - crossed, 0.0)
        return fewer * fewer / np.maximum(2.0 * expected, 1.0)


def whole(traces: Traces, silence: FloatArray, x: FloatArray) -> float:
    """Return the log-likelihood in nats that the traces of all reports are complete; see
    `unreported`."""
    rows = traces.reports
    return -KERNELS.missing(
        ptr=rows.ptr,
        units=rows.units,
        times=rows.lost,
        back=traces.back,
        silence=silence,
        x=x,
    )


@dataclass(frozen=True)
class PathRates:
    """Of each set of paths the distinct rates of blamed units on a path and how many paths have
    each, as far as they are traced: ``rate``, ``many`` float64[paths] from ``set_ptr`` on, ``n``
    int64[sets] of them; and of each path which it has, and the chance of its trace."""

    hidden: HiddenFlows
    n: LongArray
    rate: FloatArray
    many: FloatArray
    kind: LongArray
    traced: FloatArray

    @cached_property
    def bound(self) -> Bound:
        """Return these rates in the form that kernels take."""
        return KERNELS.bound("PathRates", self)

    @classmethod
    def of(
        cls, hidden: HiddenFlows, back: IntArray, silence: FloatArray, x: FloatArray
    ) -> PathRates:
        """Return the rates of paths, given the rates ``x`` of blamed units, else 0, float64[U], and
        the switches' ``silence``, see `Traces.answered`."""
        n, paths = len(hidden.set_ptr) - 1, int(hidden.set_ptr[-1])
        rate, many, traced = np.zeros((3, paths))
        found = cls(hidden, np.zeros(n, np.int64), rate, many, np.zeros(paths, np.int64), traced)
        KERNELS.path_rates(paths=found.bound, back=back, silence=silence, x=x)
        return found

    def divisors(self, mean: float) -> float:
        """Return the sum of the logarithms of the chances that flows are reported, less that of the
        numbers of paths, given the ``mean`` rate of all units that are not blamed."""
        return KERNELS.divisors(paths=self.bound, mean=mean)


def unreported(
    paths: PathRates, back: IntArray, mean: float, units: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return three arrays float64[U] for ``units`` units: the packets of unreported flows that
    arrived over each, the expected number of reports whose paths turn behind it, and that of
    reports whose paths or traces crossed it.
    """
    arrived, turned, crossed = np.zeros((3, units))
    over, reported = np.empty((2, int(paths.n.max(initial=0))))
    KERNELS.unreported(
        paths=paths.bound,
        back=back,
        mean=mean,
        over=over,
        reported=reported,
        arrived=arrived,
        turned=turned,
        crossed=crossed,
    )
    return arrived, turned, crossed
