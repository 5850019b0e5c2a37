"""deTector's probe matrix: few paths that cover every link and tell failures apart (section 4).

A probe goes up from a ToR, turns at a switch and goes down to another ToR, so a candidate is a pair
of climbs that meet; nothing else is stored of it. `probe_matrix` selects candidates greedily (PMC,
algorithm 1) until each undirected link is on ``alpha`` of them and no two sets of up to ``beta``
failed links would lose the same probes. Its three speed-ups (section 4.3) change the time only:

* decomposition: paths that share no link, not even through others, are planned apart;
* lazy update: a path's score never falls, so it is worked out again only when its turn comes;
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
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from testbed.fabric.climbs import Climbs
from testbed.fabric.clos import Fabric
from testbed.fabric.compiled import njit
from testbed.fabric.paths import Paths

__all__ = [
    "MAX_BETA",
    "PlanError",
    "ProbeMatrix",
    "Speedups",
    "candidates",
    "probe_matrix",
    "standard_matrix",
]

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]

MAX_BETA = 3
_MAX_COMBINATIONS = 100_000_000  # of links that fail together, 16 bytes each
_MAX_COUNTED = 5_000_000
_MAX_PAIRS = 3_000_000_000  # of climbs to look at: a fat-tree with K=64 has 2.1 thousand million
_DONE = np.iinfo(np.int64).max  # the score of a candidate that is selected, or useless
_QUICK = 12_000  # combinations that take a fat-tree with K=12 a second or two


class PlanError(ValueError):
    """No probe matrix can be made of what was asked."""


@dataclass(frozen=True)
class Speedups:
    """Which of section 4.3's speed-ups to use; all of them but for comparisons."""

    decomposition: bool = True
    lazy: bool = True
    symmetry: bool = True


@dataclass(frozen=True)
class ProbeMatrix:
    """Paths selected for probing.

    Attributes:
        fabric: What they lie in.
        paths: Directed links of each, from the lower-numbered ToR up and down to the other.
        src_tor, dst_tor, turn: The ends of each path and the switch where it turns, int32[P].
        alpha, beta: Coverage and identifiability asked for.
        n_candidates: How many paths there were to select from.
        n_parts: Independent sub-problems.
        n_shapes: How many of them were solved, the others being of the same shape.
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
        """On how many paths each undirected link is: int64[n_edges]."""
        return np.bincount(self.paths.links >> 1, minlength=self.fabric.n_edges)

    @cached_property
    def both_ways(self) -> Paths:
        """Each path and then its reverse, which probes are sent on: 2 P paths of directed links."""
        there = self.paths.padded()
        back = np.where(there < 0, -1, there ^ 1)[:, ::-1]
        return Paths.from_padded(np.stack((there, back), axis=1).reshape(-1, there.shape[1]))

    def identifiability(self, most: int = MAX_BETA) -> int:
        """The largest number up to ``most`` of failed links that are told apart by definition.

        0 already if two covered links are on the same paths, -1 if a link is on none.

        Raises:
            PlanError: There are too many combinations of links to compare them all.
        """
        if not self.coverage.all():
            return -1
        for beta in range(1, most + 1):
            if not _identifies(self.paths, self.fabric.n_edges, beta):
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
        speedups: For comparisons.

    Raises:
        PlanError: ``alpha`` or ``beta`` make no sense, or there are too many combinations or paths.
    """
    if alpha < 1:
        raise PlanError(f"alpha={alpha}: a link must be on at least 1 path")
    if not 0 <= beta <= MAX_BETA:
        raise PlanError(f"beta={beta}: from 0 to {MAX_BETA} links can fail at once")
    climbs = _Climbs.of(fabric)
    return _plan(fabric, climbs, _parts(climbs, speedups.decomposition), alpha, beta, speedups)


def standard_matrix(fabric: Fabric) -> ProbeMatrix:
    """The matrix that runs use: 3-coverage, as in the paper's testbed, and 2-identifiability, which
    it finds to be enough (section 4.4); 1 where two would take long, in fat-trees beyond K=12."""
    climbs = _Climbs.of(fabric)
    parts = _parts(climbs, True)
    largest = max((len(part.edges) for part in parts), default=0)
    beta = 2 if _combinations(largest, 2) <= _QUICK else 1
    return _plan(fabric, climbs, parts, 3, beta, Speedups())


def _plan(
    fabric: Fabric,
    climbs: _Climbs,
    parts: list[_Part],
    alpha: int,
    beta: int,
    speedups: Speedups,
) -> ProbeMatrix:
    shapes, shape_of = _shapes(fabric, climbs, parts, speedups.symmetry)
    combinations = max((_combinations(len(parts[s].edges), beta) for s in shapes), default=0)
    if combinations > _MAX_COMBINATIONS:
        raise PlanError(
            f"beta={beta}: a sub-problem has {combinations:,} combinations of links, too many; "
            "use a smaller beta"
        )
    solve = _Solve(climbs, alpha, beta, speedups.lazy)
    with ThreadPoolExecutor(2) as pool:
        solved = list(pool.map(solve, [parts[s] for s in shapes]))
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
        n_shapes=len(shapes),
    )


def candidates(fabric: Fabric) -> Paths:
    """All paths to select from: the shortest between every two ToRs, each in one direction."""
    climbs = _Climbs.of(fabric)
    first, second = _pairs(
        climbs.ptr, climbs.tor, climbs.length, climbs.distance, np.ones(len(climbs.tor), np.bool_)
    )
    return climbs.join(first, second)


# ---- candidates --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Climbs:
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
    def of(cls, fabric: Fabric) -> _Climbs:
        every = Climbs.of(fabric.n_tors, fabric.n_switches, fabric.link_src, fabric.link_dst)
        tor = np.repeat(np.arange(fabric.n_tors, dtype=np.int32), np.diff(every.ptr))
        order = np.lexsort((tor, every.end))
        end, tor, links = every.end[order], tor[order], every.links.take(order)
        ptr = np.searchsorted(end, np.arange(fabric.n_switches + 1)).astype(np.int64)
        n_pairs = int((np.diff(ptr) ** 2).sum()) // 2
        if n_pairs > _MAX_PAIRS:
            raise PlanError(f"{fabric.title} is too large to plan for: {n_pairs:,} possible paths")
        edges = links.padded()
        edges = np.where(edges < 0, -1, edges >> 1).astype(np.int32)
        length = links.length.astype(np.int32)
        distance = np.full((fabric.n_tors, fabric.n_tors), np.iinfo(np.int16).max, np.int16)
        _nearest(ptr, tor, length, distance)
        return cls(ptr, tor, end, length, edges, distance)

    def join(self, up: IntArray, down: IntArray) -> Paths:
        """The paths up one climb and down another."""
        there = np.where(self.edges[up] < 0, -1, 2 * self.edges[up])
        back = np.where(self.edges[down] < 0, -1, 2 * self.edges[down] + 1)[:, ::-1]
        return Paths.from_padded(np.concatenate((there, back), axis=1))


@njit
def _nearest(ptr, tor, length, distance):  # pragma: no cover - compiled
    for end in range(len(ptr) - 1):
        for i in range(ptr[end], ptr[end + 1]):
            for j in range(i + 1, ptr[end + 1]):
                total = length[i] + length[j]
                if total < distance[tor[i], tor[j]]:
                    distance[tor[i], tor[j]] = distance[tor[j], tor[i]] = total


@njit
def _pairs(ptr, tor, length, distance, mine):  # pragma: no cover - compiled
    """Pairs of climbs that make a shortest path, of those marked ``mine``; longest paths first."""
    longest = 0
    for climb in range(len(length)):
        if mine[climb]:
            longest = max(longest, 2 * length[climb])
    n = 0
    first, second = np.empty(0, np.int32), np.empty(0, np.int32)
    for fill in range(2):
        if fill:
            first, second = np.empty(n, np.int32), np.empty(n, np.int32)
            n = 0
        for total in range(longest, 0, -1):
            for end in range(len(ptr) - 1):
                for i in range(ptr[end], ptr[end + 1]):
                    if not mine[i] or length[i] > total:
                        continue
                    for j in range(i + 1, ptr[end + 1]):
                        if (
                            mine[j]
                            and length[i] + length[j] == total
                            and tor[i] != tor[j]
                            and distance[tor[i], tor[j]] == total
                        ):
                            if fill:
                                first[n], second[n] = i, j
                            n += 1
    return first, second


# ---- speed-up: decomposition ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A sub-problem: its undirected links and its climbs, ascending."""

    edges: IntArray
    climbs: IntArray


def _parts(climbs: _Climbs, decompose: bool) -> list[_Part]:
    """The components of the bipartite graph of candidate paths and links."""
    root = np.arange(int(climbs.edges.max(initial=-1)) + 1, dtype=np.int32)
    used = np.zeros(len(climbs.tor), np.bool_)
    _connect(climbs.ptr, climbs.tor, climbs.length, climbs.edges, climbs.distance, root, used)
    if not used.any():
        return []
    number = np.full(len(root), -1, np.int32)
    covered = np.unique(climbs.edges[used])
    covered = covered[covered >= 0]
    _, number[covered] = np.unique(root[covered], return_inverse=True)
    if not decompose:
        number[covered] = 0
    part = np.where(used, number[climbs.edges[:, 0]], -1)
    return [
        _Part(
            np.flatnonzero(number == n).astype(np.int32),
            np.flatnonzero(part == n).astype(np.int32),
        )
        for n in range(int(number.max()) + 1)
    ]


@njit
def _find(root, x):  # pragma: no cover - compiled
    while root[x] != x:
        root[x] = root[root[x]]
        x = root[x]
    return x


@njit
def _connect(ptr, tor, length, edges, distance, root, used):  # pragma: no cover - compiled
    """Unite the links of each candidate; ``used`` marks the climbs that make one."""
    for end in range(len(ptr) - 1):
        for i in range(ptr[end], ptr[end + 1]):
            for j in range(i + 1, ptr[end + 1]):
                if used[i] and used[j] and root[edges[i, 0]] == root[edges[j, 0]]:
                    continue
                total = length[i] + length[j]
                if tor[i] == tor[j] or distance[tor[i], tor[j]] != total:
                    continue
                if not used[i]:
                    used[i] = True
                    for h in range(1, length[i]):
                        root[_find(root, edges[i, h])] = _find(root, edges[i, 0])
                if not used[j]:
                    used[j] = True
                    for h in range(1, length[j]):
                        root[_find(root, edges[j, h])] = _find(root, edges[j, 0])
                root[_find(root, edges[j, 0])] = _find(root, edges[i, 0])
    for edge in range(len(root)):
        root[edge] = _find(root, edge)


# ---- speed-up: symmetry --------------------------------------------------------------------------


def _shapes(
    fabric: Fabric, climbs: _Climbs, parts: Sequence[_Part], symmetry: bool
) -> tuple[list[int], list[int]]:
    """Parts of the same shape: the first part of each shape, and the shape of each part.

    The symmetry looked for keeps every ToR in its place and the other switches in their order: the
    planes of a fat-tree, the spines of a leaf-spine. A part then has the same candidates in the
    same order, so the plan is exactly the one that it would get on its own.
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


# ---- the greedy selection ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Solution:
    """Selected pairs, as positions among the part's climbs."""

    first: IntArray
    second: IntArray
    n_candidates: int


@dataclass(frozen=True)
class _Solve:
    climbs: _Climbs
    alpha: int
    beta: int
    lazy: bool

    def __call__(self, part: _Part) -> _Solution:
        climbs = self.climbs
        mine = np.zeros(len(climbs.tor), np.bool_)
        mine[part.climbs] = True
        first, second = _pairs(climbs.ptr, climbs.tor, climbs.length, climbs.distance, mine)
        place = np.zeros(len(mine), np.int32)
        place[part.climbs] = np.arange(len(part.climbs))
        local = np.searchsorted(part.edges, climbs.edges[part.climbs]).astype(np.int32)
        length = climbs.length[part.climbs]
        chosen = _greedy(
            place[first],
            place[second],
            local,
            length,
            len(part.edges),
            self.alpha,
            self.beta,
            _combinations(len(part.edges), self.beta),
            self.lazy,
        )
        return _Solution(place[first[chosen]], place[second[chosen]], len(first))


def _combinations(n: int, beta: int) -> int:
    """Sets of 1 to ``beta`` of ``n`` links: the physical and the virtual links (section 4.2)."""
    sizes = [n, n * (n - 1) // 2, n * (n - 1) * (n - 2) // 6]
    return sum(sizes[: max(beta, 1)])


@njit
def _extend(links, m, n, beta, rank, out):  # pragma: no cover - compiled
    """The physical and virtual links on a path: the sets of up to ``beta`` links that it crosses.

    ``rank`` is a scratch array of n zeros and is left so. Returns how many went into ``out``.
    """
    for i in range(m):
        out[i] = links[i]
        rank[links[i]] = i + 1
    count = m
    if beta >= 2:
        for i in range(m):
            a = np.int64(links[i])
            for b in range(n):
                if rank[b] == 0 or rank[b] > i + 1:
                    low, high = min(a, b), max(a, b)
                    out[count] = n + high * (high - 1) // 2 + low
                    count += 1
    if beta >= 3:
        base = n + n * (n - 1) // 2
        for i in range(m):
            a = np.int64(links[i])
            for c in range(n):
                if 0 < rank[c] <= i + 1:
                    continue
                for b in range(c):
                    if 0 < rank[b] <= i + 1:
                        continue
                    low, high = min(a, b), max(a, c)
                    middle = a + b + c - low - high
                    out[count] = (
                        base
                        + high * (high - 1) * (high - 2) // 6
                        + middle * (middle - 1) // 2
                        + low
                    )
                    count += 1
    for i in range(m):
        rank[links[i]] = 0
    return count


@njit
def _look(on, count, m, alpha, beta, weight, group, size, seen, hits):  # pragma: no cover
    """Score of a path by equation 1, and whether selecting it would change anything.

    Of the sets on the path those count that it would split: a set that lies whole on it, above all
    a single link, is no gain. The score never falls: where a split set leaves two pieces that this
    path splits, the selected path and this one share a link of it, whose weight rose.
    """
    score = np.int64(0)
    useful = False
    for i in range(m):
        if weight[on[i]] < alpha:
            useful = True
    sets = 0
    for i in range(count):
        score += weight[on[i]]
        g = group[on[i]]
        if hits[g] == 0:
            seen[sets] = g
            sets += 1
        hits[g] += 1
    split = 0
    for i in range(sets):
        g = seen[i]
        if beta > 0 and hits[g] < size[g]:
            split += 1
        hits[g] = 0
    return score - split, useful or split > 0


@njit
def _select(on, count, weight, group, size, seen, hits, n_groups):  # pragma: no cover - compiled
    """Weigh the path's links and split the sets that it crosses in part. Returns how many sets."""
    sets = 0
    for i in range(count):
        weight[on[i]] += 1
        g = group[on[i]]
        if hits[g] == 0:
            seen[sets] = g
            sets += 1
        hits[g] += 1
    for i in range(sets):
        g = seen[i]
        if hits[g] < size[g]:
            size[n_groups] = hits[g]
            size[g] -= hits[g]
            hits[g] = -n_groups
            n_groups += 1
    for i in range(count):
        g = group[on[i]]
        if hits[g] < 0:
            group[on[i]] = -hits[g]
    for i in range(sets):
        hits[seen[i]] = 0
    return n_groups


@njit
def _edges_of(c, first, second, edges, length, out):  # pragma: no cover - compiled
    m = 0
    for climb in (first[c], second[c]):
        for h in range(length[climb]):
            out[m] = edges[climb, h]
            m += 1
    return m


@njit
def _greedy(
    first, second, edges, length, n, alpha, beta, n_extended, lazy
):  # pragma: no cover - compiled
    """Positions of the selected candidates, in the order of selection.

    Of equal scores the earlier candidate goes first, with and without lazy update.
    """
    weight = np.zeros(n_extended, np.int32)  # selected paths over each (virtual) link
    group = np.zeros(n_extended, np.int32)  # the set that it is in, and how many are
    size = np.zeros(n_extended + 1, np.int32)
    size[0], n_groups = n_extended, 1
    hits, seen = np.zeros(n_extended + 1, np.int32), np.empty(n_extended, np.int32)
    rank, on = np.zeros(n, np.int32), np.empty(n_extended, np.int64)
    links = np.empty(2 * edges.shape[1], np.int32)
    chosen, n_chosen = np.empty(len(first), np.int64), 0
    # A score as it was when it was last worked out; no score is below -1.
    bound = np.full(len(first), -1, np.int64)
    begin = 0
    while begin < len(first):  # the candidates of one length after those of another
        total = length[first[begin]] + length[second[begin]]
        stop = begin
        while stop < len(first) and length[first[stop]] + length[second[stop]] == total:
            stop += 1
        while True:
            if not lazy:  # work out every score again
                for c in range(begin, stop):
                    if bound[c] < _DONE:
                        m = _edges_of(c, first, second, edges, length, links)
                        count = _extend(links, m, n, beta, rank, on)
                        score, useful = _look(
                            on, count, m, alpha, beta, weight, group, size, seen, hits
                        )
                        bound[c] = score if useful else _DONE
            lowest = bound[begin:stop].min()
            if lowest == _DONE:
                break
            for c in range(begin, stop):
                if bound[c] > lowest:
                    continue
                m = _edges_of(c, first, second, edges, length, links)
                count = _extend(links, m, n, beta, rank, on)
                score, useful = _look(on, count, m, alpha, beta, weight, group, size, seen, hits)
                bound[c] = score if useful else _DONE
                if bound[c] == lowest:
                    n_groups = _select(on, count, weight, group, size, seen, hits, n_groups)
                    chosen[n_chosen] = c
                    n_chosen += 1
                    bound[c] = _DONE
                    if not lazy:
                        break
        begin = stop
    return chosen[:n_chosen]


# ---- identifiability by definition ---------------------------------------------------------------


def _identifies(paths: Paths, n_edges: int, beta: int) -> bool:
    """Whether no two sets of 1 to ``beta`` links are on the same paths.

    Links of parts that share no path cannot be confused, so each part is looked at by itself, and
    parts with the same pattern of links and paths once.
    """
    edge = paths.links >> 1
    n = len(paths) + n_edges
    graph = coo_array((np.ones(len(edge)), (paths.owner, len(paths) + edge)), (n, n))
    _, label = connected_components(graph, directed=False)
    by_part = np.argsort(label[paths.owner], kind="stable")
    begin = np.concatenate(([0], np.flatnonzero(np.diff(label[paths.owner][by_part])) + 1))
    known: set[bytes] = set()
    for rows in np.split(by_part, begin[1:]):
        _, path = np.unique(paths.owner[rows], return_inverse=True)
        _, link = np.unique(edge[rows], return_inverse=True)
        on = np.zeros((int(link.max()) + 1, int(path.max()) + 1), np.bool_)
        on[link, path] = True
        bits = np.packbits(on, axis=1)
        key = bits.tobytes() + bytes(str(on.shape), "ascii")
        if key in known:
            continue
        known.add(key)
        if not _all_differ(bits, beta):
            return False
    return True


def _all_differ(bits: npt.NDArray[np.uint8], beta: int) -> bool:
    """Whether the unions of 1 to ``beta`` rows of packed bits are all different."""
    n = len(bits)
    if _combinations(n, beta) > _MAX_COUNTED:
        raise PlanError(
            f"identifiability {beta} of {n} links cannot be counted: "
            f"{_combinations(n, beta):,} combinations"
        )
    unions = [bits]
    if beta >= 2:
        low, high = np.triu_indices(n, 1)
        unions.append(bits[low] | bits[high])
    if beta >= 3:
        for link in range(n - 2):
            low, high = np.triu_indices(n - link - 1, 1)
            unions.append(bits[link] | bits[link + 1 + low] | bits[link + 1 + high])
    every = np.ascontiguousarray(np.concatenate(unions))
    words = every.view(np.dtype((np.void, every.shape[1])))
    return len(np.unique(words)) == len(every)
