# SPDX-License-Identifier: Apache-2.0
"""All upward paths (climbs) from some switches of a Clos, and the equal-cost paths of their pairs.

An up-down path climbs from its source to some switch and descends to its destination; the descent
is a climb of the destination, backwards. So the paths of a pair are the pairs of climbs that end at
the same switch, those of the least total length; sorted by their end, they are found by a merge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray, LongArray
from testbed.fabric.paths import Paths, PathSets, pointers
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)


@dataclass(frozen=True)
class Climbs:
    """Climbs ``ptr[i]`` to ``ptr[i + 1]`` begin at the i-th switch, ascending in their last switch.

    ``end`` int32[A] is the last switch, ``links`` the upward links of each; the climb of no link
    ends where it began.
    """

    ptr: LongArray
    end: IntArray
    links: Paths

    @classmethod
    def of(
        cls,
        starts: IntArray,
        through: npt.NDArray[np.bool_],
        link_src: IntArray,
        link_dst: IntArray,
    ) -> Climbs:
        """Return every climb over even (upward) links, so memory grows with them.

        Args:
            starts: The switches where climbs begin, int32[N].
            through: The switches that a climb may pass, bool[n_switches]; at others it ends.
            link_src, link_dst: The switches of each directed link.
        """
        n_switches = len(through)
        up = np.arange(0, len(link_src), 2, dtype=np.int32)
        up = up[np.argsort(link_src[up], kind="stable")]
        first = np.searchsorted(link_src[up], np.arange(n_switches + 1))
        begin, end = np.arange(len(starts), dtype=np.int32), starts
        links = np.zeros((len(starts), 0), np.int32)
        begins, ends, rows = [begin], [end], [links]
        onward = np.arange(len(starts))
        while len(onward):
            begin, end, links = begin[onward], end[onward], links[onward]
            fan = (first[1:] - first[:-1])[end]
            before = np.repeat(np.arange(len(begin)), fan)
            nth = np.arange(len(before)) - np.repeat(np.cumsum(fan) - fan, fan)
            taken = up[first[end[before]] + nth]
            begin, end = begin[before], link_dst[taken]
            links = np.concatenate((links[before], taken[:, None]), axis=1)
            onward = np.flatnonzero(through[end])
            begins.append(begin)
            ends.append(end)
            rows.append(links)
        height = links.shape[1]
        padded = np.concatenate(
            [np.pad(r, ((0, 0), (0, height - r.shape[1])), constant_values=-1) for r in rows]
        )
        begin, end = np.concatenate(begins), np.concatenate(ends)
        order = np.lexsort((end, begin))
        ptr = np.searchsorted(begin[order], np.arange(len(starts) + 1)).astype(np.int64)
        return cls(ptr, end[order], Paths.from_padded(padded[order]))

    @property
    def start(self) -> LongArray:
        """Return the index of each climb's first switch among the starts, int64[A]."""
        return np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))

    def only(self, keep: npt.NDArray[np.bool_]) -> Climbs:
        """Return the climbs for which ``keep`` (bool[A]) is True."""
        rows = np.flatnonzero(keep)
        return Climbs(pointers(keep)[self.ptr], self.end[rows], self.links.take(rows))

    def path_counts(self, src_tor: IntArray, dst_tor: IntArray) -> LongArray:
        """Return the number of equal-cost paths of each pair of starts, int64[N].

        The arguments are positions among the starts, int32[N] each.
        """
        src_tor, dst_tor = (np.ascontiguousarray(tor, np.int32) for tor in (src_tor, dst_tor))
        return self._count(src_tor, dst_tor)[0]

    def path_sets(self, src_tor: IntArray, dst_tor: IntArray) -> PathSets:
        """Return the set of equal-cost paths of each pair of starts, N sets.

        The arguments are positions among the starts, int32[N] each; see
        `testbed.fabric.clos.Fabric.path_sets`.
        """
        src_tor, dst_tor = (np.ascontiguousarray(tor, np.int32) for tor in (src_tor, dst_tor))
        width, hops = self._count(src_tor, dst_tor)
        ptr, path_ptr = pointers(width), pointers(np.repeat(hops, width))
        links = np.empty(int(path_ptr[-1]), np.int32)
        _KERNELS.fill(
            climbs=self._arrays,
            src=src_tor,
            dst=dst_tor,
            hops=hops,
            start=path_ptr[ptr[:-1]],
            out=links,
        )
        return PathSets(ptr, Paths(path_ptr, links))

    def _count(self, src_tor: IntArray, dst_tor: IntArray) -> tuple[LongArray, LongArray]:
        """Return the number of equal-cost paths of each pair and their length, int64[N] each."""
        width, hops = np.zeros((2, len(src_tor)), np.int64)
        _KERNELS.count(climbs=self._arrays, src=src_tor, dst=dst_tor, width=width, hops=hops)
        return width, hops

    @property
    def _arrays(self) -> _Arrays:
        return _Arrays(self.ptr, self.end, self.links.ptr, self.links.links)


class _Arrays(NamedTuple):
    """Climbs in the form that kernels read."""

    ptr: LongArray
    end: IntArray
    link_ptr: LongArray
    link: IntArray
