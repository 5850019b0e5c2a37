# SPDX-License-Identifier: Apache-2.0
"""Equal-cost paths of a Clos without listing them: their turning tier, number, and random draws.

A path climbs from its source to some switch and descends to its destination, and the descent is a
climb of the destination backwards (`testbed.fabric.climbs`). Pairs of ToRs by the million have
paths by the billion, but only some hundred climbs a ToR; so a path is drawn, uniformly, by drawing
one of the source's climbs and then one of the destination's to the same switch.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray, LongArray, product
from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.paths import Paths, pointers
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)


class Ecmp:
    """The climbs of a fabric, ordered for drawing paths.

    Memory grows with ToRs times switches and with the climbs: 60 MB for the fat-tree of K=48.

    Attributes:
        fabric: The fabric, whose links join neighbouring tiers.
        climbs: All climbs as paths of upward links, those of a ToR together, ascending in tier and
            number of the switch where they end.
        tor, end: First and last switch of each climb, int32[A].
        ptr: int64[n_tors, T + 1]; the climbs of ToR ``t`` to tier ``i`` are
            ``ptr[t, i]:ptr[t, i + 1]``.
        count: Number of climbs from each ToR to each switch, int16[n_tors, n_switches].
        first: Index of the first of these climbs, int32[n_tors, n_switches].

    Raises:
        TopologyError: A link skips a tier, or two ToRs have no path between them.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        rises = fabric.tier[fabric.link_dst[::2]] - fabric.tier[fabric.link_src[::2]]
        if (rises != 1).any():
            link = fabric.link_names[2 * int(np.flatnonzero(rises != 1)[0])]
            raise TopologyError(f"{fabric.title}: {link} skips a tier, which a Clos must not")
        found = fabric.climbs
        tor = np.repeat(np.arange(fabric.n_tors, dtype=np.int32), np.diff(found.ptr))
        tier = fabric.tier[found.end]
        order = np.lexsort((found.end, tier, tor))
        self.climbs = found.links.take(order)
        self.tor, self.end = tor[order], found.end[order]
        tiers = int(fabric.tier.max()) + 1
        key = self.tor.astype(np.int64) * tiers + tier[order]
        bounds = np.arange(fabric.n_tors)[:, None] * tiers + np.arange(tiers + 1)
        self.ptr = np.searchsorted(key, bounds)
        cell = self.tor.astype(np.int64) * fabric.n_switches + self.end
        shape = (fabric.n_tors, fabric.n_switches)
        size = shape[0] * shape[1]
        self.count = np.bincount(cell, minlength=size).astype(np.int16).reshape(shape)
        self.first = np.zeros(size, np.int32)
        self.first[cell[::-1]] = np.arange(len(cell) - 1, -1, -1, dtype=np.int32)
        self.first = self.first.reshape(shape)
        if (self.turn < 0).any():
            src, dst = (fabric.switch_names[i] for i in np.argwhere(self.turn < 0)[0])
            raise TopologyError(f"{fabric.title} has no path from {src} to {dst}")

    @property
    def top(self) -> int:
        """Return the number of the highest tier; ToRs of the lowest are in tier 0."""
        return self.ptr.shape[1] - 2

    def reach(self, tier: int) -> npt.NDArray[np.float32]:
        """Return the number of climbs from each ToR to each switch of a tier.

        float32[n_tors, switches of the tier].
        """
        return self.count[:, self.fabric.tier == tier].astype(np.float32)

    @cached_property
    def turn(self) -> npt.NDArray[np.int8]:
        """Return the tier where the paths of two ToRs turn, int8[n_tors, n_tors].

        -1 if they have no path; 0 on the diagonal, whatever the ToR's tier.
        """
        turn = np.full((self.fabric.n_tors, self.fabric.n_tors), -1, np.int8)
        for tier in range(self.top, 0, -1):
            reach = self.reach(tier)
            turn[product(reach, reach.T) > 0] = tier
        np.fill_diagonal(turn, 0)
        return turn

    @cached_property
    def width(self) -> IntArray:
        """Return the number of equal-cost paths of two ToRs, int32[n_tors, n_tors].

        It is 1 on the diagonal.
        """
        width = np.ones(self.turn.shape, np.int32)
        for tier in range(1, self.top + 1):
            reach = self.reach(tier)
            here = self.turn == tier
            width[here] = product(reach, reach.T)[here].round()
        return width

    @cached_property
    def to_top(self) -> LongArray:
        """Return the indices of the climbs that reach the highest tier over a link, int64[]."""
        ends = self.fabric.tier[self.end] == self.top
        return np.flatnonzero(ends & (self.climbs.length > 0))

    def bounces(self) -> Paths:
        """Return the paths of NetBouncer's probes (its section 4.3).

        A probe goes from a ToR up to a switch of the highest tier and back the same way. The paths
        of a ToR are consecutive and sorted by the switch where they turn.
        """
        up = self.climbs.take(self.to_top)
        rows = up.links.reshape(len(up), self.top)
        rows = np.concatenate((rows, rows[:, ::-1] ^ 1), axis=1)
        return Paths(np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1], rows.reshape(-1))

    def draw(self, src: IntArray, dst: IntArray, rng: np.random.Generator) -> Paths:
        """Return one path for each pair of ToRs (int32[N] each), uniform over its equal-cost paths.

        Args:
            src, dst: The pairs of ToRs.
            rng: The generator that draws them.
        """
        src, dst = (np.ascontiguousarray(tor, np.int32) for tor in (src, dst))
        turn = self.turn[src, dst]
        tier = self.fabric.tier
        length = 2 * turn.astype(np.int64) - tier[src] - tier[dst]
        ptr = pointers(np.where(src == dst, 0, length))
        links = np.empty(int(ptr[-1]), np.int32)
        largest = [self.reach(tier).max(initial=1) for tier in range(self.top + 1)]
        _KERNELS.draw(
            rng=rng,
            ecmp=_Arrays.of(self),
            src=src,
            dst=dst,
            turn=turn,
            largest=np.array(largest, np.float64),
            ptr=ptr,
            links=links,
        )
        return Paths(ptr, links)


class _Arrays(NamedTuple):
    """`Ecmp` in the form that kernels read."""

    n_tiers: int
    n_switches: int
    ptr: LongArray
    end: IntArray
    climb_ptr: LongArray
    climb_links: IntArray
    ways: npt.NDArray[np.int16]
    first: IntArray

    @classmethod
    def of(cls, ecmp: Ecmp) -> _Arrays:
        """Return the arrays of ``ecmp``."""
        climbs = ecmp.climbs
        return cls(
            ecmp.ptr.shape[1] - 1,
            ecmp.count.shape[1],
            ecmp.ptr,
            ecmp.end,
            climbs.ptr,
            climbs.links,
            ecmp.count,
            ecmp.first,
        )
