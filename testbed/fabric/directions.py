# SPDX-License-Identifier: Apache-2.0
"""Where each switch of a Clos sends packets to every other: down, up over one link, or across."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, IntArray
from testbed.fabric.climbs import Climbs
from testbed.fabric.clos import Fabric


class Hops(NamedTuple):
    """Switches to reach and the link towards each, int32[N] both."""

    switches: IntArray
    links: IntArray


class Directions:
    """The next links from every switch of a fabric in which no two ways lead down to a switch.

    Memory grows with the climbs of all switches.

    >>> from testbed.fabric.clos import leaf_spine
    >>> directions = Directions(leaf_spine(2, 2))
    >>> directions.above(0), directions.below(2)[0].tolist()
    (Hops(switches=array([2, 3], dtype=int32), links=array([0, 2], dtype=int32)), [0, 1])
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        every = np.arange(fabric.n_switches, dtype=np.int32)
        through = np.ones(fabric.n_switches, np.bool_)
        self._climbs = Climbs.of(every, through, fabric.link_src, fabric.link_dst)
        links = self._climbs.links
        self._some = links.length > 0
        start = self._climbs.start.astype(np.int32)
        self._start, self._end = start[self._some], self._climbs.end[self._some]
        self._first = links.links[links.ptr[:-1][self._some]]
        self._down = links.links[links.ptr[1:][self._some] - 1] ^ 1

    @cached_property
    def _above(self) -> npt.NDArray[np.intp]:
        """Return the bounds of each start's climbs, int[n_switches + 1]."""
        return np.searchsorted(self._start, np.arange(self._fabric.n_switches + 1))

    @cached_property
    def _by_end(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return the climbs in the order of their ends, and the bounds of each end's."""
        order = np.argsort(self._end, kind="stable")
        bounds = np.searchsorted(self._end[order], np.arange(self._fabric.n_switches + 1))
        return order, bounds

    def above(self, switch: int) -> Hops:
        """Return the switches to which climbs lead from a switch, and the first link of each."""
        these = slice(*self._above[switch : switch + 2])
        return Hops(self._end[these], self._first[these])

    def below(self, switch: int) -> Hops:
        """Return the switches whose climbs lead to a switch, and the link down towards each."""
        order, bounds = self._by_end
        these = order[slice(*bounds[switch : switch + 2])]
        return Hops(self._start[these], self._down[these])

    def beside(self, switch: int) -> Hops:
        """Return the switches below the highest tier that share a ToR with a switch, neither above
        nor below it, and the link down towards the first such ToR."""
        tier, n_tors = self._fabric.tier, self._fabric.n_tors
        down = self.below(switch)
        tors = down.switches < n_tors
        towards = np.full(self._fabric.n_switches, -1, np.int32)
        towards[down.switches[tors]] = down.links[tors]
        here = np.flatnonzero(towards[self._start] >= 0)
        found, first = np.unique(self._end[here], return_index=True)
        links = towards[self._start[here[first]]]
        known = np.zeros(self._fabric.n_switches, np.bool_)
        known[np.concatenate(([switch], down.switches, self.above(switch).switches))] = True
        other: BoolArray = ~known[found] & (tier[found] < tier.max())
        return Hops(found[other], links[other])
