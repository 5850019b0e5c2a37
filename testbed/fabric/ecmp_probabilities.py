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
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths, pointers
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)
_ROOM = 1024  # entries at first

FAR = 255
"""The number of hops that marks a ToR without a path."""


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


class _Fabric(NamedTuple):
    """The upward links that begin (``up``) and that end (``under``) at each switch."""

    up: _Links
    under: _Links


class Ways(NamedTuple):
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

    @classmethod
    def unknown(cls, n_tors: int, n_switches: int) -> Ways:
        """Return the arrays without any way."""
        shape = (n_tors, n_switches)
        return cls(
            np.full(shape, FAR, np.uint8),
            np.full(shape, FAR, np.uint8),
            np.zeros(shape, np.float32),
            np.zeros(shape, np.float32),
            np.full(shape, -1, np.int32),
        )

    @property
    def n_tors(self) -> int:
        """Return the number of ToRs."""
        return self.hops.shape[0]

    @property
    def n_switches(self) -> int:
        """Return the number of switches."""
        return self.hops.shape[1]


class _Spread(NamedTuple):
    """What kernels work in that spread something over the paths from a switch on.

    Attributes:
        mass, queues: float64 zeros and int32[2, n_switches].
        on, on_mass: int32 and float64[n_links].
    """

    mass: FloatArray
    queues: IntArray
    on: IntArray
    on_mass: FloatArray

    @classmethod
    def of(cls, ways: Ways, n_links: int) -> _Spread:
        """Return arrays for ``n_links`` links."""
        n = ways.n_switches
        return cls(
            np.zeros((2, n)),
            np.empty((2, n), np.int32),
            np.empty(n_links, np.int32),
            np.empty(n_links),
        )


class _Room(NamedTuple):
    """What the kernel of shared votes works in.

    Attributes:
        by_switch, queues: float64 zeros [4, n_switches] and int32[2, n_switches].
        spread: For what it spreads over paths.
    """

    by_switch: FloatArray
    queues: IntArray
    spread: _Spread

    @classmethod
    def of(cls, ways: Ways, n_links: int) -> _Room:
        """Return arrays for ``n_links`` links."""
        n = ways.n_switches
        return cls(np.zeros((4, n)), np.empty((2, n), np.int32), _Spread.of(ways, n_links))


class EcmpProbabilities:
    """The equal-cost paths of a fabric, from every switch to every ToR.

    Memory is 14 bytes a ToR and switch (46 MB for a K=48 fat-tree); construction takes time in
    proportion to ToRs x links.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.n_tors, self.n_links = fabric.n_tors, fabric.n_links
        self.link_src, self.link_dst = fabric.link_src, fabric.link_dst
        self._fabric = _Fabric(
            _Links.at(self.link_src, self.link_dst, fabric.n_switches),
            _Links.at(self.link_dst, self.link_src, fabric.n_switches),
        )
        self._rising = np.argsort(fabric.tier, kind="stable").astype(np.int32)
        self._ways = Ways.unknown(self.n_tors, fabric.n_switches)
        _KERNELS.fill_ways(rising=self._rising, fabric=self._fabric, ways=self._ways)

    @property
    def ways(self) -> Ways:
        """Return the number and the length of the ways from each switch to each ToR."""
        return self._ways

    def shared_votes(self, links: LongArray) -> list[Shares]:
        """Return, for each of some links, the share of its votes that the other links get as well.

        Connections run between ToRs uniformly at random (remark 1 of the paper's appendix C); a
        connection over h links votes 1/h for each. Of the expected votes for a link the share of
        another is the part cast by connections that cross both: 1 for the link itself. Other
        threads may run meanwhile.

        Args:
            links: Directed links, int64[N].
        """
        links = np.ascontiguousarray(links, np.int64)
        ptr = np.zeros(len(links) + 1, np.int64)
        shared, share = np.empty(_ROOM, np.int32), np.empty(_ROOM)
        room, votes = _Room.of(self._ways, self.n_links), np.zeros(self.n_links)
        done = 0
        while True:
            done = _KERNELS.share_votes(
                begin=done,
                links=links,
                src=self.link_src,
                dst=self.link_dst,
                fabric=self._fabric,
                ways=self._ways,
                working=room,
                votes=votes,
                ptr=ptr,
                shared=shared,
                share=share,
            )
            if done == len(links):
                break
            shared, share = _doubled(shared), _doubled(share)
        between = zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)
        return [Shares(shared[at:end], share[at:end]) for at, end in between]

    def usage(self) -> FloatArray:
        """Return the probability that a connection between two random ToRs crosses each link.

        float64[n_links]. A pair without a path counts as crossing no link.
        """
        used = np.zeros(self.n_links)
        mass = np.empty((2, len(self._rising)))
        _KERNELS.usage(
            rising=self._rising, fabric=self._fabric, ways=self._ways, mass=mass, used=used
        )
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
        ptr, links, chance = self._onward(state.astype(np.int32))
        onward = np.zeros(len(at), np.int64)
        onward[good] = np.diff(ptr)[which.reshape(-1)]
        n_traced = np.where(good, np.diff(traced.ptr), 0)
        begin = np.zeros(len(at), np.int64)
        begin[good] = ptr[:-1][which.reshape(-1)]
        every = pointers(n_traced + onward)
        both = np.empty(every[-1], np.int32), np.empty(every[-1])
        _KERNELS.join(
            ptr=every,
            n_traced=n_traced,
            traced_ptr=traced.ptr,
            traced_links=traced.links,
            begin=begin,
            links=links,
            chance=chance,
            all_links=both[0],
            all_chance=both[1],
        )
        return Continuations(every, *both)

    def _onward(self, states: IntArray) -> tuple[LongArray, IntArray, FloatArray]:
        """Return the possible links from each state (switch, descending, ToR; int32[N, 3]) on, as
        CSR, and the probability of each."""
        ptr = np.zeros(len(states) + 1, np.int64)
        links, chance = np.empty(_ROOM, np.int32), np.empty(_ROOM)
        spread, done = _Spread.of(self._ways, self.n_links), 0
        while True:
            done = _KERNELS.go_on(
                begin=done,
                states=states,
                fabric=self._fabric,
                ways=self._ways,
                spread=spread,
                ptr=ptr,
                links=links,
                chance=chance,
            )
            if done == len(states):
                return ptr, links, chance
            links, chance = _doubled(links), _doubled(chance)

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


def _doubled(array: np.ndarray) -> np.ndarray:
    """Return the array with as much room again behind it."""
    return np.concatenate((array, np.empty_like(array)))
