"""What was observed over known paths, added up as the compiled search reads it.

A *unit* is a class of links that no observation tells apart, as they are on the same paths: they
are explained as one. Of observations without loss only the packets that arrived over each unit
matter; equal paths with loss are one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from testbed.arrays import FloatArray, IntArray, LongArray, WordArray
from testbed.fabric.compiled import kernel, njit
from testbed.fabric.paths import Paths, PathSets


@dataclass(frozen=True)
class Observed:
    """Observations over known paths: ``sent`` and ``lost`` float64[N] packets of ``paths``.

    Weights other than 1 are fractions of packets. Where ``row_ptr`` is given, all are whole, and
    rows ``row_ptr[i]:row_ptr[i + 1]`` are of the same path.
    """

    paths: Paths
    sent: FloatArray
    lost: FloatArray
    row_ptr: LongArray | None = field(default=None, kw_only=True)

    @classmethod
    def join(cls, parts: list[Observed]) -> Observed:
        """All of them, those without a packet or a link left out."""
        kept = []
        for part in parts:
            some = (part.sent > 0) & (part.paths.length > 0)
            if some.all():  # millions of them: not copied in vain
                kept.append(part)
            else:
                paths = part.paths.take(np.flatnonzero(some))
                kept.append(cls(paths, part.sent[some], part.lost[some]))
        return cls._one_after_another(kept)

    def summed(self) -> Observed:
        """The rows of the same path as one, where ``row_ptr`` tells."""
        if self.row_ptr is None or len(self.row_ptr) > len(self.sent):
            return self
        first = self.row_ptr[:-1]
        sent, lost = np.add.reduceat(self.sent, first), np.add.reduceat(self.lost, first)
        return Observed(self.paths.take(first), sent, lost)

    @classmethod
    def _one_after_another(cls, parts: list[Observed]) -> Observed:
        if len(parts) == 1:
            return parts[0]
        length = [np.zeros(1, np.int64), *(part.paths.length for part in parts)]
        links = [np.zeros(0, np.int32), *(part.paths.links for part in parts)]
        counts = [
            np.concatenate([np.zeros(0), *(getattr(part, name) for part in parts)])
            for name in ("sent", "lost")
        ]
        return cls(Paths(np.cumsum(np.concatenate(length)), np.concatenate(links)), *counts)

    @classmethod
    def lossy(cls, parts: Sequence[Observed]) -> Observed:
        """Those of all parts that lost packets."""
        some = [np.flatnonzero(part.lost > 0) for part in parts]
        return cls._one_after_another(
            [
                cls(part.paths.take(few), part.sent[few], part.lost[few])
                for part, few in zip(parts, some, strict=True)
            ]
        )


class Units(NamedTuple):
    """The classes of links: ``of_link`` int32[n_links], -1 where no path leads over the link;
    ``size`` float64[U], the links of each."""

    of_link: IntArray
    size: FloatArray

    @classmethod
    def of(cls, mark: WordArray) -> Units:
        """Links of equal mark (uint64[n_links]) are alike, those of mark 0 not observed."""
        seen = np.flatnonzero(mark)
        _, first, number = np.unique(mark[seen], return_index=True, return_inverse=True)
        order = np.argsort(first)  # numbered by their lowest links
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        of_link = np.full(len(mark), -1, np.int32)
        of_link[seen] = rank[number.reshape(-1)]
        return cls(of_link, np.bincount(of_link[seen], minlength=len(first)).astype(np.float64))

    def other_direction(self) -> IntArray:
        """A unit over the other direction of each unit's links, -1 if there is none: int32[U]."""
        other = np.full(len(self.size), -1, np.int32)
        seen = np.flatnonzero(self.of_link >= 0)
        other[self.of_link[seen]] = self.of_link[seen ^ 1]
        return other


class Rows(NamedTuple):
    """Distinct paths that lost packets, over units, in both directions of look-up.

    Row r lost ``lost[r]`` packets on the units ``units[ptr[r]:ptr[r + 1]]``; unit i is on the rows
    ``rows[unit_ptr[i]:unit_ptr[i + 1]]``. ``arrived`` float64[U] are the packets that arrived over
    each unit on all paths.
    """

    ptr: LongArray
    units: IntArray
    unit_ptr: LongArray
    rows: IntArray
    lost: FloatArray
    arrived: FloatArray

    def lost_over(self) -> FloatArray:
        """What was lost on all rows that each unit is on: float64[U]."""
        each = np.repeat(self.lost, np.diff(self.ptr))
        return np.bincount(self.units, each, len(self.arrived)).astype(np.float64)


def observe(parts: Sequence[Observed], units: Units) -> Rows:
    """Add up the observations over units, in O(links of all paths) and a sort of the lossy ones."""
    n_units = len(units.size)
    arrived, keys = np.zeros(n_units), [np.zeros(0, np.uint64)]
    secret = np.random.default_rng(1).integers(1, 1 << 63, n_units).astype(np.uint64)
    for part in parts:
        key, scratch = np.empty(len(part.paths), np.uint64), np.full(n_units, -1, np.int64)
        counts = part.sent, part.lost
        _add_up(
            part.paths.ptr, part.paths.links, units.of_link, *counts, secret, scratch, arrived, key
        )
        keys.append(key[part.lost > 0])
    lossy = Observed.lossy(parts)
    _, first, row = np.unique(np.concatenate(keys), return_index=True, return_inverse=True)
    lost = np.bincount(row.reshape(-1), lossy.lost, len(first)).astype(np.float64)
    kept = lossy.paths.take(first)
    scratch = np.full(n_units, -1, np.int64)
    ptr, over, unit_ptr, rows = _over_units(kept.ptr, kept.links, units.of_link, scratch)
    return Rows(ptr, over, unit_ptr, rows, lost, arrived)


def over_units(paths: Paths, units: Units) -> tuple[LongArray, IntArray]:
    """The units of each path, each once, as a CSR array."""
    last = np.full(len(units.size), -1, np.int64)
    return _over_units(paths.ptr, paths.links, units.of_link, last)[:2]


def marks(sets: Sequence[PathSets], n_links: int) -> tuple[WordArray, WordArray]:
    """Two numbers of each link, 0 for links on no path: one that only links share that are on the
    same paths, and one that only links share that are on equally many paths of each set."""
    same, alike = np.zeros(n_links, np.uint64), np.zeros(n_links, np.uint64)
    first = 1
    for part in sets:
        _mark(part.ptr, part.paths.ptr, part.paths.links, first, same, alike)
        first += len(part.paths)
    return same, alike


@njit(inline="always")
def _scramble(x):
    x = (x + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def _mark(set_ptr, ptr, links, first, same, alike):
    for g in range(len(set_ptr) - 1):
        of_set = _scramble(np.uint64(first + set_ptr[g]))
        for p in range(set_ptr[g], set_ptr[g + 1]):
            of_path = _scramble(np.uint64(first + p))
            for e in range(ptr[p], ptr[p + 1]):
                same[links[e]] += of_path
                alike[links[e]] += of_set


@kernel
def _add_up(ptr, links, unit, sent, lost, secret, last, arrived, key):
    """What arrived over each unit, and a key of each path that paths of the same units share."""
    for p in range(len(ptr) - 1):
        key[p] = np.uint64(0)
        for e in range(ptr[p], ptr[p + 1]):
            i = unit[links[e]]
            if last[i] != p:
                last[i] = p
                arrived[i] += sent[p] - lost[p]
                key[p] += secret[i]


@njit
def _over_units(path_ptr, links, unit, last):
    """The paths over units, each unit once, and which paths each unit is on."""
    n = len(path_ptr) - 1
    ptr = np.zeros(n + 1, np.int64)
    over = np.empty(len(links), np.int32)
    unit_ptr = np.zeros(len(last) + 1, np.int64)
    end = 0
    for p in range(n):
        for e in range(path_ptr[p], path_ptr[p + 1]):
            i = unit[links[e]]
            if last[i] != p:
                last[i] = p
                over[end] = i
                unit_ptr[i + 1] += 1
                end += 1
        ptr[p + 1] = end
    unit_ptr = np.cumsum(unit_ptr)
    rows = np.empty(end, np.int32)
    free = unit_ptr[:-1].copy()
    for p in range(n):
        for e in range(ptr[p], ptr[p + 1]):
            rows[free[over[e]]] = p
            free[over[e]] += 1
    return ptr, over[:end].copy(), unit_ptr, rows
