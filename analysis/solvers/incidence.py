"""Which links a path uses and which paths use a link, as two CSR arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, IntArray, LongArray
from testbed.fabric.compiled import njit
from testbed.fabric.paths import Paths


class Incidence(NamedTuple):
    """Paths over locally numbered links, in both directions of look-up; compiled code takes it.

    Path ``p`` uses local links ``links[path_ptr[p]:path_ptr[p + 1]]``; local link ``i`` is on paths
    ``paths[link_ptr[i]:link_ptr[i + 1]]``. ``link_ids`` gives the original id of each local link.
    Both lists ascend, and a path that uses a link twice holds it once.

    A path is observed once, or several times: observations ``row_ptr[p]:row_ptr[p + 1]`` are of
    path p.
    """

    path_ptr: LongArray
    links: IntArray
    link_ptr: LongArray
    paths: IntArray
    link_ids: IntArray
    row_ptr: LongArray

    @classmethod
    def of(
        cls, paths: Paths, *, undirected: bool = False, row_ptr: LongArray | None = None
    ) -> Incidence:
        """Number the links that occur in ``paths`` densely and invert, in O(E).

        Memory: 8 bytes for each link of a path, 16 for each path. ``undirected`` takes the two
        directions of a link (id >> 1) for one. Without ``row_ptr`` each path is observed once.
        """
        shift = int(undirected)
        n = (int(paths.links.max()) >> shift) + 1 if len(paths.links) else 0
        local = np.zeros(n, np.int32)
        path_ptr, links, link_ptr, inverse = _invert(paths.ptr, paths.links, shift, local)
        ids = np.flatnonzero(local >= 0).astype(np.int32)
        row_ptr = np.arange(len(path_ptr)) if row_ptr is None else row_ptr
        return cls(path_ptr, links, link_ptr, inverse, ids, row_ptr)

    @property
    def n_paths(self) -> int:
        return len(self.path_ptr) - 1

    @property
    def n_links(self) -> int:
        return len(self.link_ids)

    @property
    def n_rows(self) -> int:
        return int(self.row_ptr[-1])

    def rows_with(self, marked: BoolArray) -> BoolArray:
        """The observations of paths that use any marked local link (bool[n_links]):
        bool[n_rows]."""
        hit = _any_of(self.path_ptr, self.links, marked)
        return hit if self.n_rows == self.n_paths else hit.repeat(np.diff(self.row_ptr))

    def links_on(self, marked: BoolArray) -> BoolArray:
        """The local links that any path with a marked observation (bool[n_rows]) uses:
        bool[n_links]."""
        return _any_of(self.link_ptr, self.paths, self._by_path(marked) > 0)

    def marked_on(self, marked: BoolArray) -> LongArray:
        """How many marked local links (bool[n_links]) each path uses: int64[n_paths]."""
        return _sum_of(self.path_ptr, self.links, marked.astype(np.int64))

    def rows_on(self, marked: BoolArray) -> LongArray:
        """How many marked observations (bool[n_rows]) are of paths over each local link:
        int64[n_links]."""
        return _sum_of(self.link_ptr, self.paths, self._by_path(marked))

    def sum_on(self, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The sum of a number of each path over the paths that use each local link: [n_links]."""
        return _sum_of(self.link_ptr, self.paths, value)

    def _by_path(self, marked: BoolArray) -> LongArray:
        """How many observations of each path are marked."""
        if self.n_rows == self.n_paths:
            return marked.astype(np.int64)
        return _marked_of(self.row_ptr, marked)


@njit
def _invert(ptr, ids, shift, local):
    """Both CSR arrays; ``local`` (zeros[ids]) becomes the local number of each id, -1 = unused."""
    for e in range(len(ids)):
        local[ids[e] >> shift] = 1
    n_links = 0
    for i in range(len(local)):
        if local[i]:
            local[i] = n_links
            n_links += 1
        else:
            local[i] = -1
    n_paths = len(ptr) - 1
    path_ptr = np.empty(n_paths + 1, np.int64)
    path_ptr[0] = 0
    links = np.empty(len(ids), np.int32)
    link_ptr = np.zeros(n_links + 1, np.int64)
    end = 0
    for j in range(n_paths):
        begin = end
        for e in range(ptr[j], ptr[j + 1]):  # insertion sort without repeats: paths are short
            link = local[ids[e] >> shift]
            at = end
            while at > begin and links[at - 1] > link:
                at -= 1
            if at > begin and links[at - 1] == link:
                continue
            for o in range(end, at, -1):
                links[o] = links[o - 1]
            links[at] = link
            link_ptr[link + 1] += 1
            end += 1
        path_ptr[j + 1] = end
    for i in range(n_links):
        link_ptr[i + 1] += link_ptr[i]
    links = links[:end].copy() if end < len(ids) else links
    place = link_ptr[:-1].copy()
    paths = np.empty(end, np.int32)
    for j in range(n_paths):
        for e in range(path_ptr[j], path_ptr[j + 1]):
            paths[place[links[e]]] = j
            place[links[e]] += 1
    return path_ptr, links, link_ptr, paths


@njit
def _any_of(ptr, members, marked):
    hit = np.zeros(len(ptr) - 1, np.bool_)
    for j in range(len(hit)):
        for e in range(ptr[j], ptr[j + 1]):
            if marked[members[e]]:
                hit[j] = True
                break
    return hit


@njit
def _sum_of(ptr, members, value):
    total = np.zeros(len(ptr) - 1, value.dtype)
    for j in range(len(total)):
        for e in range(ptr[j], ptr[j + 1]):
            total[j] += value[members[e]]
    return total


@njit
def _marked_of(ptr, marked):
    count = np.zeros(len(ptr) - 1, np.int64)
    for p in range(len(count)):
        for row in range(ptr[p], ptr[p + 1]):
            count[p] += marked[row]
    return count
