# SPDX-License-Identifier: Apache-2.0
"""ECMP probabilities of any Clos, as 007's vote adjustment needs them (section 5.1).

ECMP spreads the connections of two ToRs uniformly over their equal-cost paths, those of
`testbed.fabric.clos.Fabric.path_sets`. No path is enumerated here: the paths to one ToR form a
graph whose nodes are the switches, each once on the way up and once on the way down, and a link
on a path brings the ToR one hop nearer; so sums over paths are sums over links, hop by hop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.compiled import njit
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp_walks import FAR, forward, shares
from testbed.fabric.paths import Paths, pointers


@dataclass(frozen=True)
class Continuations:
    """The links that connections with broken traces may have crossed.

    Those of connection i are ``links[ptr[i]:ptr[i + 1]]`` (ptr int64[N + 1], links int32[]), those
    it did cross first; ``chance`` float64[] is the probability that it crossed each, 1 where the
    trace or the topology leaves no choice. A connection whose trace begins no path has none.
    """

    ptr: LongArray
    links: IntArray
    chance: FloatArray


class Shares(NamedTuple):
    """The links that a link's connections cross as well, int32[], and for what share, float64[]."""

    links: IntArray
    share: FloatArray


class _Links(NamedTuple):
    """The upward links at each switch: ``link[ptr[s]:ptr[s + 1]]`` at switch s.

    The other end of link l is ``other[l]``.
    """

    ptr: LongArray
    link: IntArray
    other: IntArray

    @classmethod
    def at(cls, end: IntArray, other: IntArray, n_switches: int) -> _Links:
        """Return the upward links grouped by the switch ``end`` of each link, int32[n_links].

        ``other`` has the other end of each link and is kept as it is.
        """
        up = np.arange(0, len(end), 2, dtype=np.int32)
        count = np.bincount(end[up], minlength=n_switches)
        return cls(pointers(count), up[np.argsort(end[up], kind="stable")], other)


class _Ways(NamedTuple):
    """The shortest ways from each switch to each ToR; all arrays are [n_tors, n_switches].

    Attributes:
        hops, down_hops: Links of the shortest up-down path and of the shortest descent, uint8;
            `FAR` if there is none.
        routes, descents: The number of these paths and of these descents, float32.
        only: The upward link whose reverse begins all the descents, int32; -1 if they begin with
            different links or there is none.
    """

    hops: npt.NDArray[np.uint8]
    down_hops: npt.NDArray[np.uint8]
    routes: npt.NDArray[np.float32]
    descents: npt.NDArray[np.float32]
    only: IntArray


class EcmpProbabilities:
    """The equal-cost paths of a fabric, from every switch to every ToR.

    Memory is 14 bytes a ToR and switch (46 MB for a K=48 fat-tree); construction takes time in
    proportion to ToRs x links.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.n_tors, self.n_links = fabric.n_tors, fabric.n_links
        self.link_src, self.link_dst = fabric.link_src, fabric.link_dst
        self._up = _Links.at(self.link_src, self.link_dst, fabric.n_switches)
        self._under = _Links.at(self.link_dst, self.link_src, fabric.n_switches)
        self._rising = np.argsort(fabric.tier, kind="stable").astype(np.int32)
        self._ways = _Ways(*_ways(self.n_tors, self._rising, self._up, self._under))

    def shared_votes(self, links: LongArray) -> list[Shares]:
        """Return, for each of some links, the share of its votes that the other links get as well.

        Connections run between ToRs uniformly at random (remark 1 of the paper's appendix C); a
        connection over h links votes 1/h for each. Of the expected votes for a link the share of
        another is the part cast by connections that cross both: 1 for the link itself. Other
        threads may run meanwhile.

        Args:
            links: Directed links, int64[N].
        """
        ends = self.link_src, self.link_dst
        ptr, shared, share = shares(links, *ends, self._up, self._under, self._ways)
        between = zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)
        return [Shares(shared[at:end], share[at:end]) for at, end in between]

    def usage(self) -> FloatArray:
        """Return the probability that a connection between two random ToRs crosses each link.

        float64[n_links]. A pair without a path counts as crossing no link.
        """
        used = np.zeros(self.n_links)
        _usage(self._rising, self._up, self._under, self._ways, used)
        return used / max(self.n_tors * (self.n_tors - 1), 1)

    def continuations(self, src_tor: IntArray, dst_tor: IntArray, traced: Paths) -> Continuations:
        """Return the links that connections with broken traces may have crossed.

        Args:
            src_tor, dst_tor: The ToRs of each connection, int32[N].
            traced: The directed links that each trace found, in order.
        """
        at, down = self._ends(src_tor, traced)
        good = self._begins_path(src_tor, dst_tor, traced)
        state = np.stack((at, down, dst_tor), axis=1)[good]
        state, which = np.unique(state, axis=0, return_inverse=True)
        ptr, links, chance = _continue(
            state.astype(np.int32), self.n_links, self._up, self._under, self._ways
        )
        onward = np.zeros(len(at), np.int64)
        onward[good] = np.diff(ptr)[which.reshape(-1)]
        n_traced = np.where(good, np.diff(traced.ptr), 0)
        begin = np.zeros(len(at), np.int64)
        begin[good] = ptr[:-1][which.reshape(-1)]
        every = pointers(n_traced + onward)
        both = _joined(every, n_traced, traced.ptr, traced.links, begin, links, chance)
        return Continuations(every, *both)

    def _ends(self, src_tor: IntArray, traced: Paths) -> tuple[LongArray, BoolArray]:
        """Return the switch where each trace broke off, and whether it had begun to descend."""
        at, down = src_tor.astype(np.int64), np.zeros(len(src_tor), np.bool_)
        nonempty = np.diff(traced.ptr) > 0
        last = traced.links[traced.ptr[1:][nonempty] - 1]
        at[nonempty], down[nonempty] = self.link_dst[last], last % 2 == 1
        return at, down

    def _begins_path(self, src_tor: IntArray, dst_tor: IntArray, traced: Paths) -> BoolArray:
        """Return True if each trace is the beginning of a path between its ToRs."""
        hops, down_hops, *_ = self._ways
        total = hops[dst_tor, src_tor].astype(np.int64)
        owner, link = traced.owner, traced.links
        nth = np.arange(len(link)) - traced.ptr[owner]
        first = nth == 0
        before = np.concatenate(([0], link))[:-1]
        start = np.where(first, src_tor[owner], self.link_dst[before])
        descends = link % 2 == 1
        to = self.link_dst[link]
        near = np.where(descends, down_hops[dst_tor[owner], to], hops[dst_tor[owner], to])
        fits = (self.link_src[link] == start) & (near == total[owner] - 1 - nth)
        fits &= first | descends | (before % 2 == 0)
        good = total != FAR
        good[owner[~fits]] = False
        return good


def _ranges(begin: LongArray, length: LongArray) -> LongArray:
    """Return the concatenated ranges begin[i], ..., begin[i] + length[i] - 1, int64[]."""
    start = np.cumsum(length) - length
    return np.arange(length.sum()) + np.repeat(begin - start, length)


# In the compiled code ``up`` and ``under`` are the upward links that begin and end at each switch.


@njit
def _ways(n_tors, rising, up, under):
    ptr, link, above = up
    under_ptr, under_link, below = under
    n = len(rising)
    hops = np.full((n_tors, n), FAR, np.uint8)
    down_hops = np.full((n_tors, n), FAR, np.uint8)
    routes = np.zeros((n_tors, n), np.float32)
    descents = np.zeros((n_tors, n), np.float32)
    only = np.full((n_tors, n), -1, np.int32)
    for t in range(n_tors):
        h, d, r, c = hops[t], down_hops[t], routes[t], descents[t]
        d[t], c[t] = 0, 1.0
        for x in rising:
            if d[x] != FAR:
                for e in range(ptr[x], ptr[x + 1]):
                    y = above[link[e]]
                    if d[x] + 1 < d[y]:
                        d[y], c[y] = d[x] + 1, c[x]
                    elif d[x] + 1 == d[y]:
                        c[y] += c[x]
        for x in rising[::-1]:
            h[x], r[x] = d[x], c[x]
            for e in range(ptr[x], ptr[x + 1]):
                y = above[link[e]]
                if h[y] != FAR and h[y] + 1 < h[x]:
                    h[x], r[x] = h[y] + 1, r[y]
                elif h[y] != FAR and h[y] + 1 == h[x]:
                    r[x] += r[y]
            several = 0
            for e in range(under_ptr[x], under_ptr[x + 1]):
                if d[below[under_link[e]]] + 1 == d[x]:
                    several += 1
                    only[t, x] = under_link[e] if several == 1 else -1
    return hops, down_hops, routes, descents, only


@njit
def _continue(states, n_links, up, under, ways_to):
    """Return the possible links from each (switch, descending, ToR) on, as CSR, with chances."""
    n = ways_to[0].shape[1]
    mass = (np.zeros(n), np.zeros(n))
    queues = (np.empty(n, np.int32), np.empty(n, np.int32))
    on, on_mass = np.empty(n_links, np.int32), np.empty(n_links)
    ptr = np.zeros(len(states) + 1, np.int64)
    links, chance = np.empty(1024, np.int32), np.empty(1024)
    for i in range(len(states)):
        at, descending, t = states[i]
        count = forward(
            at, descending == 1, 1.0, t, up, under, ways_to, mass, queues, on, on_mass
        )  # fmt: skip
        end = ptr[i] + count
        if end > len(links):
            room = max(end, 2 * len(links)) - len(links)
            links = np.concatenate((links, np.empty(room, np.int32)))
            chance = np.concatenate((chance, np.empty(room)))
        links[ptr[i] : end], chance[ptr[i] : end] = on[:count], on_mass[:count]
        ptr[i + 1] = end
    return ptr, links, chance


@njit
def _joined(ptr, n_traced, traced_ptr, traced_links, begin, links, chance):
    """Return the links and chances of each connection: those traced (chance 1), then the others."""
    all_links, all_chance = np.empty(ptr[-1], np.int32), np.ones(ptr[-1])
    for n in range(len(n_traced)):
        at, ahead = ptr[n], ptr[n] + n_traced[n]
        all_links[at:ahead] = traced_links[traced_ptr[n] : traced_ptr[n] + n_traced[n]]
        end = begin[n] + ptr[n + 1] - ahead
        all_links[ahead : ptr[n + 1]] = links[begin[n] : end]
        all_chance[ahead : ptr[n + 1]] = chance[begin[n] : end]
    return all_links, all_chance


@njit
def _usage(rising, up, under, ways_to, used):
    """Add to ``used`` the expected connections over each link, for one between any two ToRs."""
    up_ptr, up_link, above = up
    under_ptr, under_link, below = under
    hops, down_hops, routes, descents, _ = ways_to
    n_tors, n = hops.shape
    for t in range(n_tors):
        h, d, r, c = hops[t], down_hops[t], routes[t], descents[t]
        mass_up, mass_down = np.zeros(n), np.zeros(n)
        mass_up[:n_tors] = 1.0
        mass_up[t] = 0.0
        for x in rising:
            if mass_up[x] == 0 or h[x] == FAR:
                continue
            share = mass_up[x] / r[x]
            if h[x] == d[x]:
                mass_down[x] += share * c[x]
            for e in range(up_ptr[x], up_ptr[x + 1]):
                y = above[up_link[e]]
                if h[y] + 1 == h[x]:
                    mass_up[y] += share * r[y]
                    used[up_link[e]] += share * r[y]
        for x in rising[::-1]:
            if mass_down[x] == 0:
                continue
            share = mass_down[x] / c[x]
            for e in range(under_ptr[x], under_ptr[x + 1]):
                y = below[under_link[e]]
                if d[y] + 1 == d[x]:
                    mass_down[y] += share * c[y]
                    used[under_link[e] ^ 1] += share * c[y]
