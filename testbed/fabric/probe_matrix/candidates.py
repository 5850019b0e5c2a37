# SPDX-License-Identifier: Apache-2.0
"""The paths that a probe matrix is selected from: pairs of climbs that meet.

A probe goes up from a ToR, turns at a switch and goes down to another ToR. If that is a shortest
path, it is a candidate, of which only the two climbs are stored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths
from testbed.fabric.probe_matrix.identifiability import PlanError
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)

_MAX_PAIRS = 3_000_000_000  # of climbs to look at: a fat-tree with K=64 has 2.1 thousand million


class MeetingClimbs(NamedTuple):
    """Climbs from the ToRs, those to switch ``s`` being ``ptr[s]`` to ``ptr[s + 1]``.

    ``tor``, ``end``, ``length`` int32[A]; ``edges`` int32[A, H] undirected links upwards, padded
    with -1; ``distance`` int16[n_tors, n_tors] the links of the shortest path of two ToRs.
    """

    ptr: LongArray
    tor: IntArray
    end: IntArray
    length: IntArray
    edges: IntArray
    distance: npt.NDArray[np.int16]

    @classmethod
    def of(cls, fabric: Fabric) -> MeetingClimbs:
        """Return the climbs of a fabric, sorted by the switch where they end.

        Raises:
            PlanError: There are too many pairs of climbs.
        """
        every = fabric.climbs
        tor = np.repeat(np.arange(fabric.n_tors, dtype=np.int32), np.diff(every.ptr))
        order = np.lexsort((tor, every.end))
        end, tor, links = every.end[order], tor[order], every.links.take(order)
        ptr = np.searchsorted(end, np.arange(fabric.n_switches + 1)).astype(np.int64)
        n_pairs = int((np.diff(ptr) ** 2).sum()) // 2
        if n_pairs > _MAX_PAIRS:
            raise PlanError(
                f"{fabric.title} is too large for a probe plan: {n_pairs:,} possible paths"
            )
        edges = links.padded()
        edges = np.where(edges < 0, -1, edges >> 1).astype(np.int32)
        distance = np.full((fabric.n_tors, fabric.n_tors), np.iinfo(np.int16).max, np.int16)
        climbs = cls(ptr, tor, end, links.length.astype(np.int32), edges, distance)
        _KERNELS.find_distances(climbs=climbs)
        return climbs

    @property
    def n_tors(self) -> int:
        """Return the number of ToRs."""
        return len(self.distance)

    @property
    def n_switches(self) -> int:
        """Return the number of switches."""
        return len(self.ptr) - 1

    def spanning_forest(self) -> tuple[IntArray, IntArray]:
        """Return a few candidates, as pairs of climbs, that connect the same climbs as all do."""
        first, second, order = (np.empty(len(self.tor), np.int32) for _ in range(3))
        n = _KERNELS.span(climbs=self, order=order, first=first, second=second)
        return first[:n], second[:n]

    def join(self, up: IntArray, down: IntArray) -> Paths:
        """Return the paths up each climb of ``up`` and down that of ``down`` (int32[N] each)."""
        there = np.where(self.edges[up] < 0, -1, 2 * self.edges[up])
        back = np.where(self.edges[down] < 0, -1, 2 * self.edges[down] + 1)[:, ::-1]
        return Paths.from_padded(np.concatenate((there, back), axis=1))

    def pairs(self, mine: BoolArray) -> tuple[IntArray, IntArray]:
        """Return the pairs of climbs that make a candidate, int32[C] each; longest paths first.

        Args:
            mine: The climbs to consider, bool[A].
        """
        longest = 2 * int(self.length[mine].max(initial=0))
        none = np.empty(0, np.int32)
        n = _KERNELS.list_pairs(climbs=self, mine=mine, longest=longest, first=none, second=none)
        first, second = np.empty(n, np.int32), np.empty(n, np.int32)
        _KERNELS.list_pairs(climbs=self, mine=mine, longest=longest, first=first, second=second)
        return first, second


def candidates(fabric: Fabric) -> Paths:
    """Return all candidates: the shortest paths between every two ToRs, each in one direction."""
    climbs = MeetingClimbs.of(fabric)
    return climbs.join(*climbs.pairs(np.ones(len(climbs.tor), np.bool_)))
