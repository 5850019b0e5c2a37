# SPDX-License-Identifier: Apache-2.0
"""Which links a path uses and which paths use a link, as two CSR arrays.

`Sweeps` visits links on all cores with the result of visiting them one by one in ascending order.
Updates of two links that share no path do not affect each other. A large problem is therefore swept
layer by layer: each link is in a later layer than all lower-numbered links that share a path with
it. The links of one layer can then be updated in any order. In a Clos network whose links are
numbered tier by tier the layers are the tiers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.solvers.parts import in_parts
from testbed.arrays import BoolArray, IntArray, LongArray
from testbed.compiled import kernel, njit
from testbed.fabric.paths import Paths


class Incidence(NamedTuple):
    """Paths over locally numbered links, indexed by path and by link, in a form that compiled code
    can read.

    Path ``p`` uses local links ``links[path_ptr[p]:path_ptr[p + 1]]``; local link ``i`` is on paths
    ``paths[link_ptr[i]:link_ptr[i + 1]]``. ``link_ids`` gives the original id of each local link.
    Both lists ascend, and a path that uses a link twice holds it once.
    """

    path_ptr: LongArray
    links: IntArray
    link_ptr: LongArray
    paths: IntArray
    link_ids: IntArray

    @classmethod
    def of(cls, paths: Paths, *, undirected: bool = False) -> Incidence:
        """Return the incidence of ``paths``, with the links that occur in them numbered from 0.

        Time grows linearly with the (path, link) incidences; memory is 8 bytes for each link of a
        path and 16 for each path. ``undirected`` takes the two directions of a link (id >> 1) for
        one link.
        """
        shift = int(undirected)
        n = (int(paths.links.max()) >> shift) + 1 if len(paths.links) else 0
        local = np.zeros(n, np.int32)
        path_ptr, links, link_ptr, inverse = _invert(paths.ptr, paths.links, shift, local)
        ids = np.flatnonzero(local >= 0).astype(np.int32)
        return cls(path_ptr, links, link_ptr, inverse, ids)

    @property
    def n_paths(self) -> int:
        """Return the number of paths, each of which is observed once."""
        return len(self.path_ptr) - 1

    @property
    def n_links(self) -> int:
        """Return the number of local links: those that some path uses."""
        return len(self.link_ids)

    def paths_with(self, marked: BoolArray) -> BoolArray:
        """Return which paths, bool[n_paths], use a marked local link (bool[n_links])."""
        return _any_of(self.path_ptr, self.links, marked)

    def links_on(self, marked: BoolArray) -> BoolArray:
        """Return which local links, bool[n_links], a marked path (bool[n_paths]) uses."""
        return _any_of(self.link_ptr, self.paths, marked)

    def marked_on(self, marked: BoolArray) -> LongArray:
        """Return how many marked local links (bool[n_links]) each path uses: int64[n_paths]."""
        return _sum_of(self.path_ptr, self.links, marked.astype(np.int64))

    def sum_on(self, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return, for each local link, the sum of ``value`` ([n_paths]) over the paths that use it:
        [n_links], in the dtype of ``value``."""
        return _sum_of(self.link_ptr, self.paths, value)


@njit
def _invert(ptr, ids, shift, local):
    """Return the CSR arrays ``path_ptr, links, link_ptr, paths``.

    ``local``, int32 zeros for each id, is filled with the local number of each id, -1 = unused.
    """
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


LARGE = 1_000_000
"""The links of all paths from which on threads save time."""

MOST_LAYERS = 64
"""With more layers than this, a layer has too little work for threads."""


class Sweeps:
    """The order in which compiled functions visit the paths and links of a problem, in parallel.

    The functions are compiled with ``nogil``, and their first arguments are ``part, parts``, as for
    `in_parts`.
    """

    def __init__(self, incidence: Incidence) -> None:
        work = len(incidence.links)
        self.work = work if work >= LARGE else 0
        layers = _layers(incidence) if self.work else None
        self.work_of_layers = self.work if layers else 0
        self.layers = layers or [np.arange(incidence.n_links, dtype=np.int32)]

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the result of ``function(part, parts, *arguments)`` for each part, in order."""
        return in_parts(self.work, function, *arguments)

    def sweep(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call ``function(part, parts, links, *arguments)`` for the links of each layer; the result
        is that of visiting all links in ascending order."""
        for links in self.layers:
            in_parts(self.work_of_layers, function, links, *arguments)


def _layers(incidence: Incidence) -> list[IntArray] | None:
    """Return the local links of each layer, int32[]; None if there are `MOST_LAYERS` or more."""
    layer = np.zeros(incidence.n_links, np.int32)
    for _ in range(MOST_LAYERS):
        if not _raise_layers(incidence, layer):
            if layer.max(initial=0) >= MOST_LAYERS:
                return None
            order = np.argsort(layer, kind="stable").astype(np.int32)
            return np.split(order, np.flatnonzero(np.diff(layer[order])) + 1)
    return None


@kernel
def _raise_layers(incidence, layer):
    """Move each link to a later layer than the link before it on each path; return whether any
    link moved."""
    path_ptr, links = incidence.path_ptr, incidence.links
    rose = False
    for j in range(len(path_ptr) - 1):
        for e in range(path_ptr[j] + 1, path_ptr[j + 1]):
            if layer[links[e]] <= layer[links[e - 1]]:
                layer[links[e]] = layer[links[e - 1]] + 1
                rose = True
    return rose
