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
from testbed.fabric.paths import Paths
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)


class Incidence(NamedTuple):
    """Paths over locally numbered links, indexed by path and by link, in a form that kernels read.

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
        n_links = _KERNELS.number_links(ids=paths.links, shift=shift, local=local)
        path_ptr, links = np.empty_like(paths.ptr), np.empty_like(paths.links)
        link_ptr = np.zeros(n_links + 1, np.int64)
        end = _KERNELS.sort_links(
            ptr=paths.ptr,
            ids=paths.links,
            shift=shift,
            local=local,
            path_ptr=path_ptr,
            links=links,
            link_ptr=link_ptr,
        )
        links = links[:end].copy() if end < len(links) else links
        np.cumsum(link_ptr, out=link_ptr)
        inverse = np.empty(end, np.int32)
        _KERNELS.list_paths(path_ptr=path_ptr, links=links, place=link_ptr.copy(), paths=inverse)
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
        int64[n_links] or float64[n_links]."""
        return _sum_of(self.link_ptr, self.paths, value)


LARGE = 1_000_000
"""The links of all paths from which on threads save time."""

MOST_LAYERS = 64
"""With more layers than this, a layer has too little work for threads."""


class Sweeps:
    """The order in which kernels visit the paths and links of a problem, in parallel.

    The first arguments of the functions are ``part, parts``, as for `in_parts`.

    Attributes:
        incidence: The paths and links, in the form that kernels take.
    """

    def __init__(self, incidence: Incidence) -> None:
        self.incidence = _KERNELS.bound("Incidence", incidence)
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


def _any_of(ptr: LongArray, members: IntArray, marked: BoolArray) -> BoolArray:
    """Return which rows of a CSR array have a marked member."""
    hit = np.empty(len(ptr) - 1, np.bool_)
    _KERNELS.mark_any(ptr=ptr, members=members, marked=np.ascontiguousarray(marked), hit=hit)
    return hit


def _sum_of(ptr: LongArray, members: IntArray, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the sum of ``value`` over the members of each row of a CSR array."""
    dtype, add = np.float64, _KERNELS.sum_numbers
    if value.dtype.kind in "iu":
        dtype, add = np.int64, _KERNELS.sum_integers
    total = np.empty(len(ptr) - 1, dtype)
    add(ptr=ptr, members=members, value=np.ascontiguousarray(value, dtype), total=total)
    return total


def _layers(incidence: Incidence) -> list[IntArray] | None:
    """Return the local links of each layer, int32[]; None if there are `MOST_LAYERS` or more."""
    layer = np.zeros(incidence.n_links, np.int32)
    for _ in range(MOST_LAYERS):
        if not _KERNELS.raise_layers(incidence=incidence, layer=layer):
            if layer.max(initial=0) >= MOST_LAYERS:
                return None
            order = np.argsort(layer, kind="stable").astype(np.int32)
            return np.split(order, np.flatnonzero(np.diff(layer[order])) + 1)
    return None
