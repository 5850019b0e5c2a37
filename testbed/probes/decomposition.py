"""Two speed-ups of deTector's planning (section 4.3): decomposition and symmetry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from testbed.arrays import IntArray
from testbed.compiled import kernel
from testbed.fabric.clos import Fabric
from testbed.probes.candidates import MeetingClimbs, is_candidate


@dataclass(frozen=True)
class Part:
    """A sub-problem: its undirected links and its climbs, int32[] each, ascending."""

    edges: IntArray
    climbs: IntArray


def decompose(climbs: MeetingClimbs, *, apart: bool = True) -> list[Part]:
    """Return the components of the bipartite graph of candidate paths and links.

    If ``apart`` is False, all links and climbs are in one part.
    """
    first, second = _connections(climbs)
    used = np.zeros(len(climbs.tor), np.bool_)
    used[first] = used[second] = True
    if not used.any():
        return []
    lowest = climbs.edges[:, 0].copy()
    for this, other in ((first, second), (second, first)):
        empty = climbs.length[this] == 0  # of a ToR where others' paths turn
        lowest[this[empty]] = lowest[other[empty]]
    on, nth = np.nonzero((climbs.edges >= 0) & used[:, None])
    ends = (
        np.concatenate((lowest[on], lowest[first])),
        np.concatenate((climbs.edges[on, nth], lowest[second])),
    )
    n_edges = int(climbs.edges.max()) + 1
    joined = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(n_edges, n_edges))
    _, label = connected_components(joined, directed=False)
    number = np.full(n_edges, -1, np.int32)
    covered = np.unique(climbs.edges[on, nth])
    _, number[covered] = np.unique(label[covered], return_inverse=True)
    if not apart:
        number[covered] = 0
    part = np.where(used, number[lowest], -1)
    return [
        Part(
            np.flatnonzero(number == n).astype(np.int32),
            np.flatnonzero(part == n).astype(np.int32),
        )
        for n in range(int(number.max()) + 1)
    ]


def shapes(
    fabric: Fabric, climbs: MeetingClimbs, parts: Sequence[Part], *, symmetry: bool = True
) -> tuple[list[int], list[int]]:
    """Return the first part of each shape, and the shape of each part.

    Two parts have the same shape if a mapping of their switches that keeps every ToR and the order
    of the others turns one into the other, as the planes of a fat-tree or the spines of a
    leaf-spine. They then have the same candidates in the same order, and hence the same plan.
    """
    seen: dict[bytes, int] = {}
    firsts: list[int] = []
    shape_of: list[int] = []
    for number, part in enumerate(parts):
        ends = np.concatenate(
            (
                fabric.link_src[2 * part.edges],
                fabric.link_dst[2 * part.edges],
                climbs.end[part.climbs],
            )
        )
        _, rank = np.unique(ends, return_inverse=True)
        place = np.where(ends < fabric.n_tors, ends, fabric.n_tors + rank)
        local = np.searchsorted(part.edges, climbs.edges[part.climbs])
        local[climbs.edges[part.climbs] < 0] = -1
        key = b"".join(a.tobytes() for a in (place, local, climbs.tor[part.climbs]))
        if not symmetry:
            key = number.to_bytes(4)
        if key not in seen:
            seen[key] = len(firsts)
            firsts.append(number)
        shape_of.append(seen[key])
    return firsts, shape_of


def _connections(climbs: MeetingClimbs) -> tuple[IntArray, IntArray]:
    """Return a few candidates, as pairs of climbs, that connect the same climbs as all do."""
    first, second, order = (np.empty(len(climbs.tor), np.int32) for _ in range(3))
    n = _connect(climbs, order, first, second)
    return first[:n], second[:n]


@kernel
def _connect(climbs, order, first, second):
    """Write a spanning forest of the climbs to each switch, breadth first; return its size.

    ``order`` has the climbs to a switch, first those that were reached from others.
    """
    n = 0
    for end in range(len(climbs.ptr) - 1):
        begin, stop = climbs.ptr[end], climbs.ptr[end + 1]
        for i in range(begin, stop):
            order[i] = i
        reached = begin
        for at in range(begin, stop):
            if reached == at:  # no candidate leads on from those before
                reached += 1
            for k in range(reached, stop):
                if is_candidate(climbs, order[at], order[k]):
                    first[n], second[n] = order[at], order[k]
                    n += 1
                    order[k], order[reached] = order[reached], order[k]
                    reached += 1
    return n
