# SPDX-License-Identifier: Apache-2.0
"""Which links a method's observations cross, and which links they tell apart.

A link is *observed* if an observation with packets crosses it, or may cross it if its path is
hidden. 007 reports only connections that lost packets, but its hosts watched the others, too, so
their links are observed. Two links are in the same *class* if every observation that a method is
given crosses both equally often: segments and probes by their paths, flows by how many of their
possible paths use the link, connections by their traced paths. No pattern of losses can then tell
which link of the class caused it (for flows with hidden paths: if one link fails). Two links are
told apart by several kinds of observations if any one kind does.

Every observation gets a random 64-bit number, and links are compared by the sums of these numbers,
so that the time is that of reading every path once. The paths of pairs of ToRs are not listed: how
often a pair's paths use a link follows from the climbs of its ToRs (`testbed.fabric.ecmp`), by
matrix products that are exact because their values have less than 53 bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from analysis.telemetry.telemetry import Connections, Flows, Probes, SegmentCounts
from testbed.arrays import BoolArray, FloatArray, IntArray, WordArray
from testbed.fabric.components import components
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)


class PairPaths(NamedTuple):
    """All equal-cost paths of N pairs of ToRs, ``src`` and ``dst``, int32[N]; the two ToRs of a
    pair differ."""

    ecmp: Ecmp
    src: IntArray
    dst: IntArray


Observations = SegmentCounts | Probes | Flows | Connections | PathSets | PairPaths | PairSets
"""The kinds of observations. All paths of `PathSets` and `PairPaths` count as observed. `PairSets`
are pairs of ToRs between which hosts watched flows that lost nothing and were not reported: their
links are observed, but not told apart by them."""

_PAIR_BITS = 22
"""Bits of the random number of a pair of ToRs; few enough that all sums are exact."""


@dataclass(frozen=True)
class Identifiability:
    """Which links some observations cross, and which they tell apart.

    Attributes:
        observed: Whether an observation crosses, or may cross, each link: bool[n_links].
        classes: The lowest link id in the class of each link, int32[n_links]. A link that was not
            observed is alone in its class.
    """

    observed: BoolArray
    classes: IntArray

    @classmethod
    def of(cls, n_links: int, observations: Iterable[Observations]) -> Identifiability:
        """Return which of ``n_links`` directed links all the observations together observe and tell
        apart. The time is that of reading every path once."""
        marks = np.zeros((2, n_links), np.uint64)
        watched = np.zeros(n_links, np.bool_)
        for number, part in enumerate(observations):
            found = _marks(n_links, part, np.random.default_rng((number, 1)))
            if isinstance(part, PairSets):
                watched |= found.any(axis=0)
            else:
                marks += found
        crossed = marks.any(axis=0)
        classes = np.arange(n_links, dtype=np.int32)
        links = np.flatnonzero(crossed)
        links = links[np.lexsort(marks[:, links])]  # by their marks, then by their ids
        first = np.ones(len(links), np.bool_)
        first[1:] = (marks[:, links[1:]] != marks[:, links[:-1]]).any(axis=0)
        classes[links] = links[first][np.cumsum(first) - 1]
        return cls(crossed | watched, classes)

    @classmethod
    def nothing(cls, n_links: int) -> Identifiability:
        """Return the result for no observation: no link is observed."""
        return cls(np.zeros(n_links, np.bool_), np.arange(n_links, dtype=np.int32))

    @classmethod
    def everything(cls, n_links: int) -> Identifiability:
        """Return the result for telemetry that observes every link and tells all apart."""
        return cls(np.ones(n_links, np.bool_), np.arange(n_links, dtype=np.int32))

    @cached_property
    def undirected(self) -> Identifiability:
        """Return the same for undirected links (``link >> 1``): a link is observed if one of its
        directions is, and two are in the same class if any of their directions are."""
        edge = np.arange(len(self.classes)) >> 1
        part = components(edge, self.classes >> 1, len(edge) // 2)
        _, first, number = np.unique(part, return_index=True, return_inverse=True)
        observed = self.observed[::2] | self.observed[1::2]
        return Identifiability(observed, first[number].astype(np.int32))

    @cached_property
    def size(self) -> IntArray:
        """Return the number of links in each link's class: int32[n_links]."""
        return np.bincount(self.classes, minlength=len(self.classes))[self.classes].astype(np.int32)


def _marks(n_links: int, part: Observations, rng: np.random.Generator) -> WordArray:
    """Return two numbers for each link, uint64[2, n_links], that are equal for links which all
    observations cross equally often, and 0 for links that none crosses."""
    if isinstance(part, Flows):
        return _of_flows(n_links, part, rng)
    if isinstance(part, PathSets):
        return _of_sets(n_links, part, np.ones(len(part), np.bool_), rng)
    if isinstance(part, PairPaths):
        return _of_pairs(part, rng)
    if isinstance(part, PairSets):
        return _of_pair_sets(part, rng)
    if isinstance(part, SegmentCounts):
        paths, used = part.segments.paths, (part.sent > 0).any(axis=0)
    elif isinstance(part, Probes):
        paths, used = part.paths, part.sent > 0
    else:
        paths, used = part.paths, part.lost > 0
    return _sums(n_links, paths, np.where(used, _keys(rng, len(paths)), np.uint64(0)))


def _of_flows(n_links: int, flows: Flows, rng: np.random.Generator) -> WordArray:
    """Do the same as `_marks` for flows, each of which may have taken any path of its set."""
    used = np.bincount(flows.path_set, flows.sent > 0, len(flows.sets)) > 0
    n_pairs = len(flows.sets) - len(flows.listed)
    marks = _of_sets(n_links, flows.listed, used[n_pairs:], rng)
    if isinstance(flows.sets, PairSets):
        some = np.flatnonzero(used[:n_pairs])
        src, dst = flows.sets.src_tor[some], flows.sets.dst_tor[some]
        marks += _of_pair_sets(PairSets.between(flows.sets.fabric, src, dst), rng)
    return marks


def _of_pair_sets(pairs: PairSets, rng: np.random.Generator) -> WordArray:
    """Do the same as `_marks` for all equal-cost paths of pairs of ToRs."""
    if (ecmp := pairs.climbs()) is not None:
        return _of_pairs(PairPaths(ecmp, pairs.src_tor, pairs.dst_tor), rng)
    sets = pairs.expanded()
    return _of_sets(pairs.fabric.n_links, sets, np.ones(len(sets), np.bool_), rng)


def _of_sets(n_links: int, sets: PathSets, used: BoolArray, rng: np.random.Generator) -> WordArray:
    key = np.where(used, _keys(rng, len(sets)), np.uint64(0))
    return _sums(n_links, sets.paths, key[sets.owner])


def _of_pairs(pairs: PairPaths, rng: np.random.Generator) -> WordArray:
    """Do the same as `_marks` from the climbs that the paths consist of: a climb of the source is
    used as often as the destination has climbs to the same switch."""
    ecmp, src, dst = pairs
    n_tors, n_links = ecmp.fabric.n_tors, ecmp.fabric.n_links
    marks = np.zeros((2, n_links), np.uint64)
    link, owner = ecmp.climbs.links, ecmp.climbs.owner
    for mark in marks:
        key = np.zeros((n_tors, n_tors))
        key[src, dst] = rng.integers(1, 1 << _PAIR_BITS, len(src))
        np.fill_diagonal(key, 0.0)  # paths within a rack cross no link
        for way, of_source in ((0, key), (1, key.T)):
            often = _climbs_used(ecmp, of_source)
            total = np.bincount(link ^ way, often[owner], n_links)
            mark += total.astype(np.uint64)
    return marks


def _climbs_used(ecmp: Ecmp, key: FloatArray) -> FloatArray:
    """Return how often each climb is used, float64[climbs]: the sum over its ToR and all others of
    ``key`` (float64[n_tors, n_tors]) times the paths between both that begin with the climb."""
    used = np.zeros(len(ecmp.end))
    tier = ecmp.fabric.tier
    weight = np.random.default_rng(2).integers(1, 1 << 63, len(key), dtype=np.uint64)
    for level in range(1, ecmp.top + 1):
        own = np.flatnonzero(tier[ecmp.end] == level)
        reach = ecmp.count[:, tier == level]
        # Most switches of a tier are reached alike: one column of the product is for all of them.
        _, first, column = np.unique(
            weight @ reach.astype(np.uint64), return_index=True, return_inverse=True
        )
        often = np.where(ecmp.turn == level, key, 0.0) @ reach[:, first].astype(np.float64)
        nth = np.cumsum(tier == level) - 1
        used[own] = often[ecmp.tor[own], column[nth[ecmp.end[own]]]]
    return used


def _keys(rng: np.random.Generator, n: int) -> WordArray:
    return rng.integers(1, 1 << 63, n, dtype=np.uint64)


def _sums(n_links: int, paths: Paths, key: WordArray) -> WordArray:
    """Return for each link the sum of the keys (uint64[paths]) of the paths over it, and the sum of
    second keys that are derived from them: uint64[2, n_links], modulo 2^64."""
    marks = np.zeros((n_links, 2), np.uint64)
    _KERNELS.add_keys(ptr=paths.ptr, links=paths.links, key=key, marks=marks)
    return marks.T
