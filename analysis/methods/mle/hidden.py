# SPDX-License-Identifier: Apache-2.0
"""Flows that took one of several paths.

A flow with w equal-cost paths, a packets that arrived and k lost has the likelihood
(1/w) sum_p exp(-a X_p) (1 - exp(-X_p))^k.

A flow that was reported only because it lost packets is scored given that it lost some on one of
the paths between its ToRs: its likelihood is that of its known path, divided by
(1/w) sum_p (1 - exp(-n X_p)).

Similar flows of a set are merged, so that a set has a few dozen kinds, however many flows it has.

**Pairs of ToRs.** Their paths are not listed. A path of a pair is a climb of its source and,
backwards, one of its destination to the same top switch (`testbed.fabric.ecmp`). Only links that
may be blamed have to be told apart. Climbs to the same top without such a link are equal, and the
packets that arrived over other links are, to first order, equal shares of each pair's packets. So
for each top that such links lead to, a pair has one path for every two climbs over them, and one
for each such climb with all equal others; one more path stands for the rest.

**Loss-free flows.** The paths of their packets are estimated from the rates, and the rates from
these, in turns (expectation-maximisation). Such a flow has the likelihood (1/w) sum_p exp(-a X_p).
If q_p = exp(-a X_p) / sum_p' exp(-a X_p') is its share of path p at the present rates, then sum_p
q_p (-a X_p) is, up to a constant, a lower bound of the logarithm that touches it there (Jensen). So
with a q_p packets that arrived on each path the problem is that of known paths, and a gain in it is
at least as large a gain in the true likelihood: the turns climb to a peak.

The turns begin with equal shares. These let too many packets arrive over a lossy link, which
loss-free flows mostly avoided: its rate begins too low by up to a half, and no link is blamed for
this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.methods.mle.likelihood import Problem
from analysis.methods.mle.problem import Rows, Units
from analysis.methods.mle.search import explain, resume
from analysis.telemetry.identifiability import PairPaths
from analysis.telemetry.telemetry import MissingTelemetry
from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray, WordArray
from testbed.compiled import kernel, njit, scramble
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.paths import pointers

SingleArray = npt.NDArray[np.float32]

GIVEN = -1.0
"""The value of ``lost`` that marks an entry as the divisor of flows reported for their loss."""


class HiddenFlows(NamedTuple):
    """Sets of possible paths over units, and the flows of each set, similar ones merged.

    Set g is the paths ``set_ptr[g]:set_ptr[g + 1]``, path p the units
    ``units[path_ptr[p]:path_ptr[p + 1]]``; it stands for ``many[p]`` alike ones. The set's flows
    ``flow_ptr[g]:flow_ptr[g + 1]`` have ``arrived`` and ``lost`` packets (lost `GIVEN`: the divisor
    of flows of ``arrived`` packets), each ``times`` times. Its paths have ``hops[g]`` links.
    """

    set_ptr: LongArray
    path_ptr: IntArray
    units: IntArray
    many: SingleArray
    flow_ptr: LongArray
    arrived: FloatArray
    lost: FloatArray
    times: FloatArray
    hops: FloatArray

    @classmethod
    def join(cls, parts: Sequence[HiddenFlows]) -> HiddenFlows | None:
        """Return the sets of all parts as one object; None if no part has a set."""
        parts = [part for part in parts if len(part.set_ptr) > 1]
        if len(parts) < 2:
            return parts[0] if parts else None
        return cls(
            pointers(np.concatenate([np.diff(p.set_ptr) for p in parts])),
            pointers(np.concatenate([np.diff(p.path_ptr) for p in parts])).astype(np.int32),
            np.concatenate([p.units[: p.path_ptr[-1]] for p in parts]),
            np.concatenate([p.many for p in parts]),
            pointers(np.concatenate([np.diff(p.flow_ptr) for p in parts])),
            np.concatenate([p.arrived for p in parts]),
            np.concatenate([p.lost for p in parts]),
            np.concatenate([p.times for p in parts]),
            np.concatenate([p.hops for p in parts]),
        )


def sum_up(
    n_sets: int, set_of: LongArray, arrived: FloatArray, lost: FloatArray, weight: float
) -> tuple[LongArray, FloatArray, FloatArray, FloatArray]:
    """Merge similar flows of each set; return their ``flow_ptr``, ``arrived``, ``lost``, ``times``.

    Flows of one set are similar if they lost equally many packets (above 4: up to 1.4 times as
    many) and the packets that arrived differ by less than a factor of two; their means are stored.
    Each flow counts ``weight`` times.
    """
    return _sum_up(n_sets, set_of, arrived, lost, weight)


@kernel
def _kind(arrived, lost):
    """Return the number of a flow's kind, which encodes the packets it lost and those that
    arrived."""
    size = 0
    if arrived > 0.0:
        size = min(math.frexp(max(arrived, 1.0))[1], 63)  # 1 and the integer part of log2
    losses = int(lost) + 1
    if lost > 4.0:
        losses = min(5 + int(2.0 * np.log2(lost / 4.0)), 63)
    return losses * 64 + size


@njit
def _sum_up(n_sets, set_of, arrived, lost, weight):
    ptr = np.zeros(n_sets + 1, np.int64)
    for g in set_of:
        ptr[g + 1] += 1
    ptr = np.cumsum(ptr)
    free, flows = ptr[:-1].copy(), np.empty((len(set_of), 2))  # of each set one after another
    for f in range(len(set_of)):
        at = free[set_of[f]]
        flows[at, 0], flows[at, 1] = arrived[f], lost[f]
        free[set_of[f]] += 1
    sums = np.zeros((64 * 64, 3))
    kinds = np.empty(len(set_of), np.int64)
    out, flow_ptr = np.empty((3, len(set_of))), np.zeros(n_sets + 1, np.int64)
    at = 0
    for g in range(n_sets):
        n = 0
        for f in range(ptr[g], ptr[g + 1]):
            kind = _kind(flows[f, 0], flows[f, 1])
            if sums[kind, 2] == 0.0:
                kinds[n] = kind
                n += 1
            sums[kind, 0] += weight * flows[f, 0]
            sums[kind, 1] += weight * flows[f, 1]
            sums[kind, 2] += weight
        for kind in np.sort(kinds[:n]):
            out[2, at] = sums[kind, 2]
            out[0, at], out[1, at] = sums[kind, 0] / out[2, at], sums[kind, 1] / out[2, at]
            sums[kind] = 0.0
            at += 1
        flow_ptr[g + 1] = at
    return flow_ptr, out[0, :at].copy(), out[1, :at].copy(), out[2, :at].copy()


MOST_BYTES = 8_000_000_000
"""Of the paths of all pairs; where many climbs share a core and many links may be faulty."""


@dataclass(frozen=True)
class PairFlows:
    """F flows between N pairs of ToRs.

    Attributes:
        ecmp: The climbs of the fabric.
        src, dst: The two ToRs of each pair, int32[N], never the same.
        pair: The pair of each flow, int64[F].
        arrived, lost: Packets of each flow, float64[F].
        weight: The weight of every flow in the likelihood.
    """

    ecmp: Ecmp
    src: IntArray
    dst: IntArray
    pair: LongArray
    arrived: FloatArray
    lost: FloatArray
    weight: float

    def _lists(self) -> tuple[LongArray, LongArray, LongArray]:
        """Return, for each pair, the lists of climbs of its source and of its destination, numbered
        ``tor * (top + 1) + tier``, and its number of paths: int64[N] each."""
        tier = self.ecmp.turn[self.src, self.dst].astype(np.int64)
        each = self.ecmp.top + 1
        width = self.ecmp.width[self.src, self.dst].astype(np.int64)
        return self.src * np.int64(each) + tier, self.dst * np.int64(each) + tier, width

    def used(self) -> PairPaths:
        """Return the equal-cost paths of the pairs that have flows."""
        pair = np.flatnonzero(np.bincount(self.pair))
        return PairPaths(self.ecmp, self.src[pair], self.dst[pair])

    def mark(self, same: WordArray) -> None:
        """Add to ``same``, uint64[n_links], the marks that tell links apart, see
        `analysis.methods.mle.problem.marks`."""
        used = np.bincount(self.pair, minlength=len(self.src)) > 0
        for way, lists in enumerate(self._lists()[:2]):
            on = np.zeros(self.ecmp.fabric.n_tors * (self.ecmp.top + 1), np.bool_)
            on[lists[used]] = True
            _mark(way, self.ecmp.ptr, self.ecmp.climbs.ptr, self.ecmp.climbs.links, on, same)

    def arrivals(self) -> FloatArray:
        """Return the packets that arrived over each link if all climbs were taken equally:
        float64[n_links]."""
        up, down, _ = self._lists()
        packets = self.weight * np.bincount(self.pair, self.arrived, len(self.src))
        arrived = np.zeros(self.ecmp.fabric.n_links)
        climbs, n_climbs = self.ecmp.climbs, np.diff(self.ecmp.ptr).reshape(-1)
        for way, lists in ((0, up), (1, down)):
            total = np.bincount(lists, packets, len(n_climbs)) / np.maximum(n_climbs, 1)
            _arrive(way, self.ecmp.ptr, climbs.ptr, climbs.links, total, arrived)
        return arrived

    def over(self, units: Units, candidate: BoolArray) -> HiddenFlows:
        """Return the flows of pairs with a path over a unit that may be blamed (bool[U]).

        Raises:
            MissingTelemetry: The paths would take more than `MOST_BYTES`.
        """
        e = self.ecmp
        up, down, width = self._lists()
        sides = [
            _lossy_climbs(way, e.ptr, e.end, e.climbs.ptr, e.climbs.links, units.of_link, candidate)
            for way in (0, 1)
        ]
        count, entries, covered = np.zeros((3, len(up)), np.int64)
        _count(up, down, e.count, *sides, count, entries, covered)
        pair = np.flatnonzero((count > 0) & (np.bincount(self.pair, minlength=len(up)) > 0))
        rest = width[pair] - covered[pair]
        takes = 4 * int(entries[pair].sum()) + 8 * int(count[pair].sum())
        if takes > MOST_BYTES:
            raise MissingTelemetry(
                f"mle would take {takes / 1e9:.0f} GB for the {count[pair].sum():,} paths that "
                "flows may have taken: name kinds of known path (A1, A2, INT, segments)"
            )
        set_ptr = pointers(count[pair] + (rest > 0))
        path_ptr = np.zeros(set_ptr[-1] + 1, np.int32)
        over = np.empty(int(entries[pair].sum()) + 1, np.int32)
        many = np.ones(set_ptr[-1], np.float32)
        _fill(up[pair], down[pair], e.count, rest, *sides, set_ptr, path_ptr, over, many)
        number = np.full(len(up), -1, np.int64)
        number[pair] = np.arange(len(pair))
        set_of = number[self.pair]
        mine = np.flatnonzero(set_of >= 0)
        flow_ptr, arrived, lost, times = sum_up(
            len(pair), set_of[mine], self.arrived[mine], self.lost[mine], self.weight
        )
        tiers = self.ecmp.turn[self.src[pair], self.dst[pair]]
        hops = 2.0 * tiers.astype(np.float64)
        return HiddenFlows(set_ptr, path_ptr, over, many, flow_ptr, arrived, lost, times, hops)


@kernel
def _mark(way, tier_ptr, ptr, links, on, same):
    tiers = tier_ptr.shape[1] - 1
    for tor in range(len(tier_ptr)):
        for tier in range(1, tiers):
            if not on[tor * tiers + tier]:
                continue
            of_list = scramble(scramble(np.uint64(2 * (tor * tiers + tier) + way)))
            for climb in range(tier_ptr[tor, tier], tier_ptr[tor, tier + 1]):
                of_climb = scramble(of_list + np.uint64(climb))
                for e in range(ptr[climb], ptr[climb + 1]):
                    same[links[e] ^ way] += of_climb


@kernel
def _arrive(way, tier_ptr, ptr, links, total, arrived):
    tiers = tier_ptr.shape[1] - 1
    for tor in range(len(tier_ptr)):
        for tier in range(1, tiers):
            for climb in range(tier_ptr[tor, tier], tier_ptr[tor, tier + 1]):
                for e in range(ptr[climb], ptr[climb + 1]):
                    arrived[links[e] ^ way] += total[tor * tiers + tier]


@njit
def _lossy_climbs(way, tier_ptr, end, ptr, links, unit, candidate):
    """Return the climbs over units that may be blamed: where those of each list begin, the last
    switch of each, where its units begin, and these units."""
    tiers = tier_ptr.shape[1] - 1
    lists = np.zeros(len(tier_ptr) * tiers + 1, np.int64)
    tops = np.empty(len(end), np.int32)
    unit_ptr = np.zeros(len(end) + 1, np.int64)
    units = np.empty(len(links), np.int32)
    n = at = 0
    for tor in range(len(tier_ptr)):
        for tier in range(tiers):
            for climb in range(tier_ptr[tor, tier], tier_ptr[tor, tier + 1]):
                begin = at
                for e in range(ptr[climb], ptr[climb + 1]):
                    i = unit[links[e] ^ way]
                    if i >= 0 and candidate[i]:
                        units[at] = i
                        at += 1
                if at > begin:
                    tops[n] = end[climb]
                    n += 1
                    unit_ptr[n] = at
            lists[tor * tiers + tier + 1] = n
    return lists, tops[:n].copy(), unit_ptr[: n + 1].copy(), units[:at].copy()


@njit(inline="always")
def _run(tops, i, last, top):
    """Return the end of the run of consecutive climbs from ``i`` on that lead to ``top``."""
    while i < last and tops[i] == top:
        i += 1
    return i


@kernel
def _count(up, down, reach, a, b, count, entries, covered):
    """Count for each pair its distinct paths over units, the units on them, and the paths that they
    stand for."""
    tiers = (len(a[0]) - 1) // len(reach)
    for p in range(len(up)):
        src, dst = up[p] // tiers, down[p] // tiers
        i, last_i = a[0][up[p]], a[0][up[p] + 1]
        j, last_j = b[0][down[p]], b[0][down[p] + 1]
        while i < last_i or j < last_j:
            top = 1 << 30
            if i < last_i:
                top = a[1][i]
            if j < last_j:
                top = min(top, b[1][j])
            end_i, end_j = _run(a[1], i, last_i, top), _run(b[1], j, last_j, top)
            n, m = end_i - i, end_j - j
            ups, downs = np.int64(reach[src, top]), np.int64(reach[dst, top])
            if ups > 0 and downs > 0:
                more_n, more_m = np.int64(ups > n), np.int64(downs > m)
                count[p] += n * m + n * more_m + m * more_n
                entries[p] += (a[2][end_i] - a[2][i]) * (m + more_m)
                entries[p] += (b[2][end_j] - b[2][j]) * (n + more_n)
                covered[p] += ups * downs - (ups - n) * (downs - m)
            i, j = end_i, end_j


@njit(inline="always")
def _write(side, climb, over, at):
    """Write the units of a climb to ``over`` from ``at`` on; return the end."""
    for e in range(side[2][climb], side[2][climb + 1]):
        over[at] = side[3][e]
        at += 1
    return at


@kernel
def _fill(up, down, reach, rest, a, b, set_ptr, path_ptr, over, many):
    """Write the paths of each pair over units; its last path stands for all others."""
    at = path = 0
    tiers = (len(a[0]) - 1) // len(reach)
    for p in range(len(up)):
        src, dst = up[p] // tiers, down[p] // tiers
        i, last_i = a[0][up[p]], a[0][up[p] + 1]
        j, last_j = b[0][down[p]], b[0][down[p] + 1]
        while i < last_i or j < last_j:
            top = 1 << 30
            if i < last_i:
                top = a[1][i]
            if j < last_j:
                top = min(top, b[1][j])
            end_i, end_j = _run(a[1], i, last_i, top), _run(b[1], j, last_j, top)
            ups = np.int64(reach[src, top]) - (end_i - i)
            downs = np.int64(reach[dst, top]) - (end_j - j)
            if ups + end_i > i and downs + end_j > j:
                for climb in range(i, end_i):
                    for other in range(j, end_j):
                        at = _write(b, other, over, _write(a, climb, over, at))
                        path += 1
                        path_ptr[path] = at
                    if downs > 0:
                        at = _write(a, climb, over, at)
                        many[path] = downs
                        path += 1
                        path_ptr[path] = at
                if ups > 0:
                    for other in range(j, end_j):
                        at = _write(b, other, over, at)
                        many[path] = ups
                        path += 1
                        path_ptr[path] = at
            i, j = end_i, end_j
        if rest[p] > 0:
            many[path] = rest[p]
            path += 1
            path_ptr[path] = at


TURNS = 30


def explain_loss_free(
    rows: Rows,
    size: FloatArray,
    candidate: BoolArray,
    hidden: HiddenFlows,
    *,
    fault_rate: float,
    penalty: float | None,
) -> Problem:
    """Return the explanation as `analysis.methods.mle.search.explain` does, with loss-free flows
    of hidden paths."""
    first = rows.arrived + expected_arrivals(hidden, np.zeros(len(size)))
    known = rows._replace(arrived=first)
    found = explain(known, size, candidate, fault_rate=fault_rate, penalty=penalty)
    for _ in range(TURNS):
        if not resume(found, rows.arrived + expected_arrivals(hidden, found.x), penalty=penalty):
            break
    return found


def expected_arrivals(hidden: HiddenFlows, x: FloatArray) -> FloatArray:
    """Return the packets of loss-free flows that are expected to have arrived over each unit, given
    the rates x: float64[U]."""
    arrived = np.zeros(len(x))
    widest = int(np.diff(hidden.set_ptr).max(initial=0))
    _share_out(hidden, x, *np.zeros((3, widest)), arrived)
    return arrived


@kernel
def _share_out(h, x, rate, over, through, arrived):
    """Add to ``arrived`` what `expected_arrivals` returns. ``rate``, ``over`` and ``through`` are
    scratch, of the paths of a set."""
    for g in range(len(h.set_ptr) - 1):
        first = h.set_ptr[g]
        n = h.set_ptr[g + 1] - first
        least = 1e300
        for p in range(n):
            rate[p] = over[p] = 0.0
            for e in range(h.path_ptr[first + p], h.path_ptr[first + p + 1]):
                rate[p] += x[h.units[e]]
            least = min(least, rate[p])
        for f in range(h.flow_ptr[g], h.flow_ptr[g + 1]):
            whole = 0.0
            for p in range(n):
                through[p] = np.exp(-h.arrived[f] * (rate[p] - least))
                whole += h.many[first + p] * through[p]
            each = h.times[f] * h.arrived[f] / whole
            for p in range(n):
                over[p] += each * through[p]
        for p in range(n):
            total = h.many[first + p] * over[p]
            for e in range(h.path_ptr[first + p], h.path_ptr[first + p + 1]):
                arrived[h.units[e]] += total
