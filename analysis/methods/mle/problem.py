# SPDX-License-Identifier: Apache-2.0
"""Observations over known paths, added up for the search.

A *unit* is a class of links that no observation tells apart, because they are on the same paths;
they are explained as one. Of observations without loss only the packets that arrived over each unit
matter. Equal paths with loss are added up to one row.

**Components.** Units that no lossy path connects do not affect each other: given the law of healthy
links, the likelihood is a product over the connected components of units and lossy rows. So each
component is searched alone, in threads, and the terms of the law are summed over all. Units and
rows are sorted by component, so that the problem of a component is a slice of the whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from analysis.methods.mle.likelihood import Problem
from testbed.arrays import FloatArray, IntArray, LongArray, WordArray
from testbed.cores import usable_cores
from testbed.fabric.components import components
from testbed.fabric.paths import Paths, pointers
from testbed.kernels import Kernels

KERNELS = Kernels.beside(__file__)


@dataclass(frozen=True)
class Observed:
    """Observations over known paths: ``sent`` and ``lost`` float64[N] packets of ``paths``.

    Weights other than 1 are fractions of packets.
    """

    paths: Paths
    sent: FloatArray
    lost: FloatArray

    @classmethod
    def join(cls, parts: list[Observed]) -> Observed:
        """Return the observations of all parts; those without a packet or a link are left out."""
        kept = []
        for part in parts:
            some = (part.sent > 0) & (part.paths.length > 0)
            if some.all():  # millions of them: not copied in vain
                kept.append(part)
            else:
                paths = part.paths.take(np.flatnonzero(some))
                kept.append(cls(paths, part.sent[some], part.lost[some]))
        return cls._one_after_another(kept)

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
        """Return the observations of all parts that lost packets."""
        some = [np.flatnonzero(part.lost > 0) for part in parts]
        return cls._one_after_another(
            [
                cls(part.paths.take(few), part.sent[few], part.lost[few])
                for part, few in zip(parts, some, strict=True)
            ]
        )


class Units(NamedTuple):
    """The U classes of links: ``of_link``, int32[n_links], is the unit of each link, -1 if no path
    crosses it; ``size``, float64[U], is the number of links of each unit."""

    of_link: IntArray
    size: FloatArray

    @classmethod
    def of(cls, mark: WordArray) -> Units:
        """Return the units of links with equal marks (uint64[n_links]); links of mark 0 were not
        observed."""
        observed = np.flatnonzero(mark)
        _, first, number = np.unique(mark[observed], return_index=True, return_inverse=True)
        order = np.argsort(first)  # numbered by their lowest links
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        of_link = np.full(len(mark), -1, np.int32)
        of_link[observed] = rank[number.reshape(-1)]
        return cls(of_link, np.bincount(of_link[observed], minlength=len(first)).astype(np.float64))

    def other_direction(self) -> IntArray:
        """Return a unit that has the other direction of one of each unit's links, -1 if there is
        none: int32[U]."""
        other = np.full(len(self.size), -1, np.int32)
        observed = np.flatnonzero(self.of_link >= 0)
        other[self.of_link[observed]] = self.of_link[observed ^ 1]
        return other


class Rows(NamedTuple):
    """Distinct lossy paths over units, indexed by path (row) and by unit.

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
        """Return the packets lost on all rows that each unit is on: float64[U]."""
        each = np.repeat(self.lost, np.diff(self.ptr))
        return np.bincount(self.units, each, len(self.arrived)).astype(np.float64)


def observe(parts: Sequence[Observed], units: Units) -> Rows:
    """Add up the observations over units, and return their lossy rows. The time grows linearly with
    the links of all paths, plus a sort of the lossy paths."""
    n_units = len(units.size)
    arrived, keys = np.zeros(n_units), [np.zeros(0, np.uint64)]
    secret = np.random.default_rng(1).integers(1, 1 << 63, n_units).astype(np.uint64)
    for part in parts:
        key, scratch = np.empty(len(part.paths), np.uint64), np.full(n_units, -1, np.int64)
        KERNELS.add_up(
            ptr=part.paths.ptr,
            links=part.paths.links,
            of_link=units.of_link,
            sent=part.sent,
            lost=part.lost,
            secret=secret,
            last=scratch,
            arrived=arrived,
            key=key,
        )
        keys.append(key[part.lost > 0])
    lossy = Observed.lossy(parts)
    _, first, row = np.unique(np.concatenate(keys), return_index=True, return_inverse=True)
    lost = np.bincount(row.reshape(-1), lossy.lost, len(first)).astype(np.float64)
    kept = lossy.paths.take(first)
    ptr, over, count = _over_units(kept, units)
    unit_ptr, rows = pointers(count), np.empty(len(over), np.int32)
    KERNELS.paths_of_units(ptr=ptr, units=over, free_place=unit_ptr[:-1].copy(), paths=rows)
    return Rows(ptr, over, unit_ptr, rows, lost, arrived)


def over_units(paths: Paths, units: Units) -> tuple[LongArray, IntArray]:
    """Return the units of each path, each once, as CSR arrays: pointers, int64[paths + 1], and
    units, int32[]."""
    return _over_units(paths, units)[:2]


def _over_units(paths: Paths, units: Units) -> tuple[LongArray, IntArray, LongArray]:
    """Return the units of each path, each once, as CSR arrays, and the number of paths that each
    unit is on, int64[U]."""
    n = len(units.size)
    ptr, over = np.empty(len(paths) + 1, np.int64), np.empty(len(paths.links), np.int32)
    last, count = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    end = KERNELS.units_of_paths(
        ptr=paths.ptr,
        links=paths.links,
        of_link=units.of_link,
        last=last,
        unit_ptr=ptr,
        units=over,
        count=count,
    )
    return ptr, over[:end].copy(), count


def marks(parts: Sequence[Paths], n_links: int) -> WordArray:
    """Return a number for each link, uint64[n_links], that is equal for links on the same paths and
    0 for links on no path."""
    same = np.zeros(n_links, np.uint64)
    first = 1
    for paths in parts:
        KERNELS.mark_paths(ptr=paths.ptr, links=paths.links, first=first, marks=same)
        first += len(paths)
    return same


OF_UNITS = ("arrived", "size", "x", "blamed", "gains", "candidate", "current")
OF_UNITS += ("queue", "queued", "kept", "share")
OF_ROWS = ("lost", "total")


class _Window(NamedTuple):
    """The slices of a component's units and rows, and its rows with units numbered from 0."""

    units: slice
    rows: slice
    ptr: LongArray
    on: IntArray
    unit_ptr: LongArray
    unit_rows: IntArray


class Components(NamedTuple):
    """``rows`` sorted by component; ``unit``, int[U], and ``row``, int[R], are the original indices
    of the sorted units and rows."""

    rows: Rows
    unit: LongArray
    row: LongArray
    windows: list[_Window]

    @classmethod
    def of(cls, rows: Rows) -> Components:
        """Return the rows sorted by component. The time grows with the units on all rows."""
        n_rows, n_units = len(rows.lost), len(rows.arrived)
        label = _labels(rows)
        row, unit = (np.argsort(part, kind="stable") for part in np.split(label, [n_rows]))
        row_rank, unit_rank = np.empty(n_rows, np.int32), np.empty(n_units, np.int32)
        row_rank[row], unit_rank[unit] = np.arange(n_rows), np.arange(n_units)
        on = Paths(rows.ptr, rows.units).take(row)
        rows_of_unit = Paths(rows.unit_ptr, rows.rows).take(unit)
        moved = Rows(
            ptr=on.ptr,
            units=unit_rank[on.links],
            unit_ptr=rows_of_unit.ptr,
            rows=row_rank[rows_of_unit.links],
            lost=rows.lost[row],
            arrived=rows.arrived[unit],
        )
        numbers = np.arange(int(label.max(initial=-1)) + 2)
        ends = (
            np.searchsorted(label[n_rows:][unit], numbers).tolist(),
            np.searchsorted(label[:n_rows][row], numbers).tolist(),
        )
        return cls(moved, unit, row, [_window(moved, *at) for at in _spans(*ends)])

    def run(self, function: Callable[[Problem], None], whole: Problem) -> None:
        """Call a function, which calls a kernel, for each component's slice of a problem, in
        threads."""
        parts = [_view(whole, window) for window in self.windows]
        with ThreadPoolExecutor(usable_cores()) as pool:
            list(pool.map(function, parts))

    def restored(self, s: Problem, rows: Rows) -> Problem:
        """Return a problem of these components in the original order of ``rows``."""
        back = {}
        for names, order in ((OF_UNITS, self.unit), (OF_ROWS, self.row)):
            for name in names:
                back[name] = np.empty_like(getattr(s, name))
                back[name][order] = getattr(s, name)
        return replace(
            s, ptr=rows.ptr, units=rows.units, unit_ptr=rows.unit_ptr, rows=rows.rows, **back
        )


def _labels(rows: Rows) -> LongArray:
    """Return the component of each row, followed by that of each unit: int64[R + U]. All units on
    no row are in the last component."""
    n_rows, n_units = len(rows.lost), len(rows.arrived)
    owner = np.repeat(np.arange(n_rows), np.diff(rows.ptr))
    label = components(owner, rows.units + n_rows, n_rows + n_units).astype(np.int64)
    lone = np.flatnonzero(np.diff(rows.unit_ptr) == 0) + n_rows
    label[lone] = label.max(initial=0) + 1
    return np.unique(label, return_inverse=True)[1].reshape(-1)


def _spans(units: list[int], rows: list[int]) -> list[tuple[slice, slice]]:
    spans = zip(units[:-1], units[1:], rows[:-1], rows[1:], strict=True)
    return [(slice(a, b), slice(c, d)) for a, b, c, d in spans]


def _window(rows: Rows, units: slice, own: slice) -> _Window:
    ptr = rows.ptr[own.start : own.stop + 1]
    unit_ptr = rows.unit_ptr[units.start : units.stop + 1]
    on = rows.units[ptr[0] : ptr[-1]] - np.int32(units.start)
    unit_rows = rows.rows[unit_ptr[0] : unit_ptr[-1]] - np.int32(own.start)
    return _Window(units, own, ptr - ptr[0], on, unit_ptr - unit_ptr[0], unit_rows)


def _view(s: Problem, window: _Window) -> Problem:
    own = window.units
    parts = {name: getattr(s, name)[own] for name in OF_UNITS}
    parts |= {name: getattr(s, name)[window.rows] for name in OF_ROWS}
    return replace(
        s,
        ptr=window.ptr,
        units=window.on,
        unit_ptr=window.unit_ptr,
        rows=window.unit_rows,
        **parts,
    )
