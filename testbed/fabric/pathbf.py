# SPDX-License-Identifier: Apache-2.0
"""The pathBF: a packet's path segment as a Bloom filter of switch IDs (Canary, section III-B).

Each switch ORs ``m = 3`` bits of a 32-bit field into a packet; the monitor switch at the end of the
segment reads the field. As the topology is known, the field of every segment is computed beforehand
and a field is decoded by looking it up; switch IDs with which that would be ambiguous are altered.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray
from testbed.errors import UserError
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.segments import Segments, with_meters

BITS = 32
HASHES = 3

Ids = npt.NDArray[np.uint64]
Masks = npt.NDArray[np.uint32]
Indices = npt.NDArray[np.intp]

# h(x) = (a x + c mod 2^64) >> 59 is pairwise independent for 48-bit x (Dietzfelbinger 1996, as
# 64 >= 48 + 5 - 1). The constants are part of the encoding: random, drawn once.
_A = np.array([0x9D39247E33776D41, 0x2AF7398005AAA5C7, 0x44DB015024623547], np.uint64)
_C = np.array([0x9C15F73E62A76AE2, 0x75834465489C0C89, 0x3290AC3A203001BF], np.uint64)

_CANDIDATES = 32
_PATIENCE = 200  # rounds without progress
_MANY_PAIRS = 2_000_000  # of segments with the same ends


class PathBfError(UserError):
    """No assignment of switch IDs was found with which every segment can be decoded."""


def bloom_mask(ids: Ids) -> Masks:
    """Return the bits that each switch sets in a pathBF, uint32[n], from 48-bit IDs, uint64[n]."""
    mask = np.zeros(len(ids), np.uint32)
    for a, c in zip(_A, _C, strict=True):
        position = (ids * a + c) >> np.uint64(59)
        mask |= np.uint32(1) << position.astype(np.uint32)
    return mask


def theorem1(h: int, m: int = HASHES, b: int = BITS) -> float:
    """Return the probability that one other segment passes the Bloom test (Canary, theorem 1).

    ``h`` is the number of switches on the segment. The other segment shares only the two ends, so
    (h - 2) m bits must happen to be set by the (h - 1) m insertions. Two fat-tree paths through the
    same aggregation switches differ in their core switch alone: for those the exponent is m.

    >>> round(theorem1(3), 4)
    0.005
    """
    return (1.0 - math.exp(-(h - 1) * m / b)) ** ((h - 2) * m)


class SegmentDecoder:
    """Finds the segment that belongs to a pair of downstream switch and pathBF.

    Attributes:
        path_bf: The pathBF that a packet carries at the end of each segment, uint32[S].
    """

    def __init__(self, topology: PacketFabric, segments: Segments, ids: Ids) -> None:
        if len(ids) != (n := with_meters(topology, segments)):
            raise PathBfError(f"{len(ids)} IDs for {n} switches")
        self._segments = segments
        self.path_bf = _path_bf(segments.switches, bloom_mask(ids))
        keys = _keys(segments.downstream, self.path_bf)
        self._keys, first, count = np.unique(keys, return_index=True, return_counts=True)
        self._segment = np.where(count == 1, first, -1).astype(np.int32)

    def decode(
        self, downstream: npt.NDArray[np.integer], path_bf: npt.NDArray[np.integer]
    ) -> IntArray:
        """Return the segment of each pair, int32[N]; -1 if there is none or several.

        Args:
            downstream: The switch where the packet was seen, int[N].
            path_bf: The pathBF that it carried, int[N].
        """
        keys = _keys(downstream, path_bf)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._segment[at], -1).astype(np.int32)

    def undecodable(self) -> IntArray:
        """Return the segments whose Bloom test another segment with the same ends passes.

        They are sorted, int32[].
        """
        this, other = _same_ends(self._segments)
        passes = self.path_bf[other] & ~self.path_bf[this] == 0
        return np.unique(this[passes]).astype(np.int32)


def switch_ids(topology: PacketFabric, segments: Segments, seed: int) -> Ids:
    """Draw a 48-bit ID for every switch such that every segment decodes uniquely.

    Two things are required: no segment passes the Bloom test of another between the same ends (the
    event of Theorem 1), and no two segments that end at a switch carry the same pathBF, because
    table rules match pathBF exactly. The switch that causes most failures gets the best of a few
    new IDs until none is left. With monitors at ToR and core switches that takes 0.1 s for K=16 and
    1.4 s for K=24; with ToR monitors alone 1 s for K=10.

    Where very many segments have the same ends, as with ToR monitors alone from K=12 on, IDs are
    drawn such that each tier has bits of its own: then a path cannot pass another's test by bits of
    other tiers. That takes 2 s for K=12 and less than half a minute for K=16.

    Args:
        topology: The fabric.
        segments: Its segments between monitor switches.
        seed: Equal seeds give equal IDs.

    Returns:
        Locally administered unicast MAC addresses, uint64[n_switches]; those of hosts with meters
        follow.

    Raises:
        PathBfError: 32 bits are too few for this many segments.
    """
    rng = np.random.default_rng([seed, 0x1D5])
    this, other = _same_ends(segments)
    of_hosts = np.zeros(with_meters(topology, segments) - topology.n_switches, topology.tier.dtype)
    tier = np.append(topology.tier, of_hosts)
    allowed = _bits_of_tiers(tier, apart=len(this) > _MANY_PAIRS)
    ids = _draw(rng, allowed)
    masks = bloom_mask(ids)
    path_bf = _path_bf(segments.switches, masks)
    passes = path_bf[other] & ~path_bf[this] == 0  # whether each pair fails the first requirement
    fewest, patience = None, _PATIENCE
    while patience:
        culprits = _culprits(segments, path_bf, this[passes], other[passes])
        if not len(culprits):
            return ids
        if fewest is None or len(culprits) < fewest:
            fewest, patience = len(culprits), _PATIENCE
        patience -= 1
        switch = rng.choice(culprits)
        candidates = _draw(rng, np.repeat(allowed[switch], _CANDIDATES))
        candidates[0] = ids[switch]
        through = (segments.switches == switch).any(axis=1)
        near = np.flatnonzero(through.take(this) | through.take(other))
        pairs = this[near], other[near]
        failures = _failures(segments, masks, switch, bloom_mask(candidates), through, pairs)
        # the old ID goes last, so that a tie moves on instead of staying in a dead end
        best = _CANDIDATES - 1 - int(np.argmin(failures[::-1]))
        ids[switch] = candidates[best]
        masks[switch] = bloom_mask(candidates[best : best + 1])[0]
        path_bf[through] = _path_bf(segments.switches[through], masks)
        passes[near] = path_bf[pairs[1]] & ~path_bf[pairs[0]] == 0
    raise PathBfError(
        f"no switch IDs make all {len(segments)} segments of {topology.title} decodable from "
        f"{BITS} bits: use more MONITORS, such as tor+core, or a smaller K"
    )


def _bits_of_tiers(tier: npt.NDArray[np.integer], *, apart: bool) -> Masks:
    """Return the bits that each switch may set, uint32[n]: all, or those of its tier if apart."""
    if not apart:
        return np.full(len(tier), 0xFFFF_FFFF, np.uint32)
    bounds = np.linspace(BITS, 0, int(tier.max()) + 2).astype(np.uint64)  # more bits to the lowest
    bits = (np.uint64(1) << bounds[:-1]) - (np.uint64(1) << bounds[1:])
    return bits.astype(np.uint32)[tier]


def _draw(rng: np.random.Generator, allowed: Masks) -> Ids:
    """Return IDs whose bits are among those allowed: uint32[n] -> uint64[n]."""
    ids = np.zeros(len(allowed), np.uint64)
    missing = np.arange(len(allowed))
    while len(missing):
        drawn = rng.integers(0, 1 << 48, len(missing), dtype=np.uint64)
        drawn = drawn & np.uint64(0xFCFF_FFFF_FFFF) | np.uint64(0x0200_0000_0000)
        fits = bloom_mask(drawn) & ~allowed[missing] == 0
        ids[missing[fits]] = drawn[fits]
        missing = missing[~fits]
    return ids


def _path_bf(switches: IntArray, masks: Masks) -> Masks:
    """Return the OR of the masks of each row's switches, uint32[S].

    ``switches`` is int32[S, H], padded with -1; ``masks`` is uint32[n_switches].
    """
    padded = np.append(masks, np.uint32(0))
    path_bf = padded[switches[:, 0]]
    for column in switches.T[1:]:
        path_bf |= padded[column]
    return path_bf


def _keys(
    downstream: npt.NDArray[np.integer], path_bf: npt.NDArray[np.integer]
) -> npt.NDArray[np.uint64]:
    return downstream.astype(np.uint64) << np.uint64(32) | path_bf.astype(np.uint64)


def _same_ends(segments: Segments) -> tuple[Indices, Indices]:
    """Return all ordered pairs of different segments with the same upstream and downstream."""
    ends = segments.upstream.astype(np.int64) << 32 | segments.downstream
    order = np.argsort(ends, kind="stable")
    _, start, size = np.unique(ends[order], return_index=True, return_counts=True)
    position = np.arange(len(order)) - np.repeat(start, size)
    start, size = np.repeat(start, size), np.repeat(size, size)
    this, other = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
    for shift in range(1, int(size.max(initial=1))):
        some = np.flatnonzero(size > shift)
        this.append(order[some])
        other.append(order[start[some] + (position[some] + shift) % size[some]])
    return np.concatenate(this), np.concatenate(other)


def _failures(
    segments: Segments,
    masks: Masks,
    switch: int,
    candidates: Masks,
    through: npt.NDArray[np.bool_],
    pairs: tuple[Indices, Indices],
) -> list[int]:
    """Return, for each candidate mask of a switch, how many failures it causes, up to a constant.

    Only segments ``through`` the switch change, so only their keys and ``pairs`` are compared.
    """
    others = masks.copy()
    others[switch] = 0
    path_bf = _path_bf(segments.switches, others)  # without the switch's bits
    ends = np.zeros(len(masks), np.bool_)
    ends[segments.downstream[through]] = True
    met = ends[segments.downstream] & ~through  # those that a key may be equal to
    rest = _distinct(_keys(segments.downstream[met], path_bf[met]))
    moving, bits = segments.downstream[through], path_bf[through]
    this, other = pairs
    lacks = path_bf[other] & ~path_bf[this]  # bits that keep the other from passing
    # A mask that this segment gets, too, may make up for as many bits as it has; one that the
    # other gets alone must be in this segment's bits, where none is lacking already.
    gains = lacks[through[this] & (np.bitwise_count(lacks) <= HASHES)]
    free = ~path_bf[this[~through[this] & (lacks == 0)]]
    failures = []
    for mask in candidates:
        keys = _distinct(_keys(moving, bits | mask))
        equal = len(moving) - len(keys) + np.count_nonzero(_among(keys, rest))
        passing = np.count_nonzero(gains & ~mask == 0) + np.count_nonzero(free & mask == 0)
        failures.append(int(equal + passing))
    return failures


def _distinct(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the distinct keys, sorted; ``keys`` is sorted in place (faster than `np.unique`)."""
    keys.sort()
    new = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return keys[new]


def _among(keys: npt.NDArray[np.uint64], rest: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return whether each key is in ``rest``, which is sorted, bool[n]."""
    if not len(rest):
        return np.zeros(len(keys), np.bool_)
    return rest[np.minimum(np.searchsorted(rest, keys), len(rest) - 1)] == keys


def _culprits(segments: Segments, path_bf: Masks, first: Indices, second: Indices) -> IntArray:
    """Return the switches on only one segment of each failing pair, with repeats.

    A pair fails if the second segment passes the first one's Bloom test or both keys are equal.
    """
    keys = _keys(segments.downstream, path_bf)
    order = np.argsort(keys, kind="stable").astype(np.int32)
    equal = keys[order][1:] == keys[order][:-1]
    a = segments.switches[np.concatenate((first, order[:-1][equal]))]
    b = segments.switches[np.concatenate((second, order[1:][equal]))]
    shared = a[:, :, None] == b[:, None, :]
    culprits = np.concatenate((a[~shared.any(axis=2)], b[~shared.any(axis=1)]))
    return culprits[culprits >= 0]
