# SPDX-License-Identifier: Apache-2.0
"""deTector's probe matrix: few paths that cover every link and tell failures apart (section 4).

A candidate is a path between two ToRs (`testbed.fabric.probe_matrix.candidates`). `probe_matrix`
selects candidates greedily (PMC, algorithm 1) until each undirected link is on ``alpha`` of them
and no two sets of up to ``beta`` failed links would lose the same probes. Its three speed-ups
(section 4.3) change the time only:

* decomposition: paths that share no link, not even through others, are planned apart;
* lazy update: a path's score never falls, so it is computed again only when it may be the lowest;
* symmetry: parts of the fabric of the same shape get the same plan, which is made once.

Probing each path both ways tells the directions of a link apart, too: if two different sets of up
to ``beta`` directed links lost the same probes, one of their links would be hidden behind the
others, and without it the undirected sets would lose the same probes already.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from testbed.arrays import IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.components import components
from testbed.fabric.paths import Paths
from testbed.fabric.probe_matrix.candidates import MeetingClimbs
from testbed.fabric.probe_matrix.greedy_selection import Choice, select
from testbed.fabric.probe_matrix.identifiability import PlanError, combinations, identifies

MAX_BETA = 3
_MAX_COMBINATIONS = 100_000_000  # of links that fail together, 16 bytes each
_QUICK = 12_000  # combinations that take a fat-tree with K=12 a second or two


@dataclass(frozen=True)
class Speedups:
    """Which of section 4.3's speed-ups to use; they are all on, except for comparisons."""

    decomposition: bool = True
    lazy: bool = True
    symmetry: bool = True


@dataclass(frozen=True)
class ProbeMatrix:
    """Paths selected for probing.

    Attributes:
        fabric: The fabric of the paths.
        paths: The directed links of each path, from the lower-numbered ToR to the other.
        src_tor, dst_tor, turn: The ends of each path and the switch where it turns, int32[P].
        alpha, beta: The requested coverage and identifiability.
        n_candidates: The number of candidate paths.
        n_parts: The number of independent sub-problems.
        n_shapes: How many of them were solved; the others have the same shape as one of these.
    """

    fabric: Fabric
    paths: Paths
    src_tor: IntArray
    dst_tor: IntArray
    turn: IntArray
    alpha: int
    beta: int
    n_candidates: int
    n_parts: int
    n_shapes: int

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def coverage(self) -> LongArray:
        """Return the number of paths over each undirected link, int64[n_edges]."""
        return np.bincount(self.paths.links >> 1, minlength=self.fabric.n_edges)

    @cached_property
    def both_ways(self) -> Paths:
        """Return the 2 P paths that probes are sent on: each path followed by its reverse."""
        there = self.paths.padded()
        back = np.where(there < 0, -1, there ^ 1)[:, ::-1]
        return Paths.from_padded(np.stack((there, back), axis=1).reshape(-1, there.shape[1]))

    def identifiability(self, most: int = MAX_BETA) -> int:
        """Return the largest beta, up to ``most``, for which the matrix is beta-identifiable.

        It is 0 if two links are on the same paths, and -1 if a link is on no path.

        Raises:
            PlanError: There are too many combinations of links to compare them all.
        """
        if not self.coverage.all():
            return -1
        for beta in range(1, most + 1):
            if not identifies(self.paths, self.fabric.n_edges, beta):
                return beta - 1
        return most


def probe_matrix(
    fabric: Fabric, alpha: int = 1, beta: int = 1, speedups: Speedups = Speedups()
) -> ProbeMatrix:
    """Select probe paths (PMC, algorithm 1).

    Where the candidates do not allow what is asked (a link on fewer than ``alpha`` of them; links
    that no candidate separates), the result reaches what all of them together would. Two details
    are not in the paper: a path that neither covers a link that needs it nor splits a set of links
    is never selected, and shorter paths (within a pod) come in only where the longest leave
    something to do.

    Args:
        fabric: Any Clos.
        alpha: Least number of paths over each link.
        beta: How many links may fail at once, 0 (coverage only) to 3. Time and memory grow with the
            number of combinations of so many links in a sub-problem.
        speedups: The speed-ups to use, for comparisons.

    Raises:
        PlanError: ``alpha`` or ``beta`` is out of range, or there are too many combinations or
            paths.
    """
    if alpha < 1:
        raise PlanError(f"alpha={alpha}: use at least 1 path for each link")
    if not 0 <= beta <= MAX_BETA:
        raise PlanError(f"beta={beta}: use 0 to {MAX_BETA} failed links")
    climbs = MeetingClimbs.of(fabric)
    return _plan(
        fabric, climbs, decompose(climbs, apart=speedups.decomposition), alpha, beta, speedups
    )


def standard_matrix(fabric: Fabric) -> ProbeMatrix:
    """Return the matrix that runs use: 3-coverage and 2-identifiability.

    The paper's testbed has 3-coverage, and section 4.4 finds 2-identifiability to be enough. Where
    that would take long, in fat-trees beyond K=12, it is 1-identifiability.
    """
    climbs = MeetingClimbs.of(fabric)
    parts = decompose(climbs)
    largest = max((len(part.edges) for part in parts), default=0)
    beta = 2 if combinations(largest, 2) <= _QUICK else 1
    return _plan(fabric, climbs, parts, 3, beta, Speedups())


def _plan(
    fabric: Fabric,
    climbs: MeetingClimbs,
    parts: list[Part],
    alpha: int,
    beta: int,
    speedups: Speedups,
) -> ProbeMatrix:
    firsts, shape_of = shapes(fabric, climbs, parts, symmetry=speedups.symmetry)
    most = max((combinations(len(parts[s].edges), beta) for s in firsts), default=0)
    if most > _MAX_COMBINATIONS:
        raise PlanError(
            f"beta={beta}: a sub-problem has {most:,} combinations of links, too many; "
            "use a smaller beta"
        )
    solve = _Solve(climbs, alpha, beta, speedups.lazy)
    with ThreadPoolExecutor(2) as pool:
        solved = list(pool.map(solve, [parts[s] for s in firsts]))
    n_candidates = sum(solved[shape].n_candidates for shape in shape_of)
    rows = [
        np.stack((part.climbs[solved[shape].first], part.climbs[solved[shape].second]), axis=1)
        for part, shape in zip(parts, shape_of, strict=True)
    ]
    pairs = np.concatenate(rows) if rows else np.zeros((0, 2), np.int32)
    return ProbeMatrix(
        fabric=fabric,
        paths=climbs.join(pairs[:, 0], pairs[:, 1]),
        src_tor=climbs.tor[pairs[:, 0]],
        dst_tor=climbs.tor[pairs[:, 1]],
        turn=climbs.end[pairs[:, 0]],
        alpha=alpha,
        beta=beta,
        n_candidates=n_candidates,
        n_parts=len(parts),
        n_shapes=len(firsts),
    )


@dataclass(frozen=True)
class _Solution:
    """The selected pairs of climbs, as positions among the part's climbs, int32[] each."""

    first: IntArray
    second: IntArray
    n_candidates: int


@dataclass(frozen=True)
class _Solve:
    climbs: MeetingClimbs
    alpha: int
    beta: int
    lazy: bool

    def __call__(self, part: Part) -> _Solution:
        climbs = self.climbs
        mine = np.zeros(len(climbs.tor), np.bool_)
        mine[part.climbs] = True
        first, second = climbs.pairs(mine)
        place = np.zeros(len(mine), np.int32)
        place[part.climbs] = np.arange(len(part.climbs))
        choice = Choice(
            first=place[first],
            second=place[second],
            edges=np.searchsorted(part.edges, climbs.edges[part.climbs]).astype(np.int32),
            length=climbs.length[part.climbs],
            n_links=len(part.edges),
            alpha=self.alpha,
            beta=self.beta,
        )
        chosen = select(choice, lazy=self.lazy)
        return _Solution(choice.first[chosen], choice.second[chosen], len(first))


@dataclass(frozen=True)
class Part:
    """A sub-problem: its undirected links and its climbs, int32[] each, ascending."""

    edges: IntArray
    climbs: IntArray


def decompose(climbs: MeetingClimbs, *, apart: bool = True) -> list[Part]:
    """Return the components of the bipartite graph of candidate paths and links.

    If ``apart`` is False, all links and climbs are in one part.
    """
    first, second = climbs.spanning_forest()
    used = np.zeros(len(climbs.tor), np.bool_)
    used[first] = used[second] = True
    if not used.any():
        return []
    lowest = climbs.edges[:, 0].copy()
    for this, other in ((first, second), (second, first)):
        empty = climbs.length[this] == 0  # of a ToR where others' paths turn
        lowest[this[empty]] = lowest[other[empty]]
    on, nth = np.nonzero((climbs.edges >= 0) & used[:, None])
    n_edges = int(climbs.edges.max()) + 1
    label = components(
        np.concatenate((lowest[on], lowest[first])),
        np.concatenate((climbs.edges[on, nth], lowest[second])),
        n_edges,
    )
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
    """Return the number of the first part of each shape, and the number of the shape of each part.

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
