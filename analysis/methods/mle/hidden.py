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
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.paths import pointers
from testbed.kernels import Kernels

KERNELS = Kernels.beside(__file__)

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

    @property
    def n_sets(self) -> int:
        """Return the number of sets."""
        return len(self.hops)

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
    n = len(set_of)
    set_of = set_of.astype(np.int64, copy=False)
    ptr = pointers(np.bincount(set_of, minlength=n_sets))
    flows = np.empty((n, 2))
    KERNELS.sort_by_set(
        set_of=set_of, arrived=arrived, lost=lost, free_place=ptr[:-1].copy(), flows=flows
    )
    merged = np.empty((3, n))
    flow_ptr = np.empty(n_sets + 1, np.int64)
    n = KERNELS.merge_similar(
        ptr=ptr,
        flows=flows,
        weight=weight,
        kinds=np.empty(n, np.int64),
        sums=np.zeros((KERNELS.n_kinds(), 3)),
        flow_ptr=flow_ptr,
        merged_arrived=merged[0],
        merged_lost=merged[1],
        times=merged[2],
    )
    return flow_ptr, merged[0, :n].copy(), merged[1, :n].copy(), merged[2, :n].copy()


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
            KERNELS.mark_climbs(way=way, on=on, marks=same, **self._climbs())

    def arrivals(self) -> FloatArray:
        """Return the packets that arrived over each link if all climbs were taken equally:
        float64[n_links]."""
        up, down, _ = self._lists()
        packets = self.weight * np.bincount(self.pair, self.arrived, len(self.src))
        arrived = np.zeros(self.ecmp.fabric.n_links)
        n_climbs = np.diff(self.ecmp.ptr).reshape(-1)
        for way, lists in ((0, up), (1, down)):
            total = np.bincount(lists, packets, len(n_climbs)) / np.maximum(n_climbs, 1)
            KERNELS.add_arrivals(way=way, total=total, arrived=arrived, **self._climbs())
        return arrived

    def over(self, units: Units, candidate: BoolArray) -> HiddenFlows:
        """Return the flows of pairs with a path over a unit that may be blamed (bool[U]).

        Raises:
            MissingTelemetry: The paths would take more than `MOST_BYTES`.
        """
        up, down, width = self._lists()
        a, b = (self._side(way, units, candidate) for way in (0, 1))
        count, entries, covered = np.zeros((3, len(up)), np.int64)
        KERNELS.count_paths(
            lists=_PairLists(up, down, self.ecmp.count, self.ecmp.top + 1),
            a=a,
            b=b,
            count=count,
            entries=entries,
            covered=covered,
        )
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
        lists = _PairLists(up[pair], down[pair], self.ecmp.count, self.ecmp.top + 1)
        KERNELS.write_paths(
            lists=lists, a=a, b=b, rest=rest, path_ptr=path_ptr, many=many, over=over
        )
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

    def _climbs(self) -> dict[str, npt.NDArray[np.integer]]:
        """Return the arguments of kernels that are the fabric's climbs."""
        climbs = self.ecmp.climbs
        return {"tier_ptr": self.ecmp.ptr, "ptr": climbs.ptr, "links": climbs.links}

    def _side(self, way: int, units: Units, candidate: BoolArray) -> _Side:
        """Return the climbs of one way, 0 up or 1 down, over units that may be blamed."""
        n_lists = self.ecmp.fabric.n_tors * (self.ecmp.top + 1)
        n_climbs, n_entries = len(self.ecmp.climbs), len(self.ecmp.climbs.links)
        list_ptr, unit_ptr = (np.empty(n + 1, np.int64) for n in (n_lists, n_climbs))
        tops, over = (np.empty(n, np.int32) for n in (n_climbs, n_entries))
        n = KERNELS.lossy_climbs(
            way=way,
            end=self.ecmp.end,
            of_link=units.of_link,
            candidate=candidate,
            list_ptr=list_ptr,
            tops=tops,
            unit_ptr=unit_ptr,
            units=over,
            **self._climbs(),
        )
        return _Side(
            list_ptr, tops[:n].copy(), unit_ptr[: n + 1].copy(), over[: unit_ptr[n]].copy()
        )


class _Side(NamedTuple):
    """The climbs of one way over units that may be blamed: list l has the climbs from
    ``list_ptr[l]`` on, ascending in their top switches ``tops``; climb c is over the units from
    ``unit_ptr[c]`` on."""

    list_ptr: LongArray
    tops: IntArray
    unit_ptr: LongArray
    units: IntArray


class _PairLists(NamedTuple):
    """The lists ``up`` and ``down`` of each pair of ToRs, int64[N]; ``reach`` is how many climbs
    each ToR has to each switch, int16[n_tors, n_switches], and ``tiers`` how many lists."""

    up: LongArray
    down: LongArray
    reach: npt.NDArray[np.int16]
    tiers: int

    @property
    def n_switches(self) -> int:
        """Return the number of switches."""
        return self.reach.shape[1]


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
    rate, over, through = np.empty((3, widest))
    KERNELS.share_out(hidden=hidden, x=x, rate=rate, over=over, through=through, arrived=arrived)
    return arrived
