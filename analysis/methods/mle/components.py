"""The search in parts: units that no lossy path joins do not see each other.

Given the law of healthy links the likelihood is a product over the connected components of units
and lossy rows; only the law is common to all. So each component is searched alone, in threads, and
what depends on the law is summed over all. Units and rows are put in the order of their components:
a component's problem is then a window on the arrays of the whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from analysis.methods.mle.likelihood import Problem
from analysis.methods.mle.problem import Rows
from testbed.arrays import IntArray, LongArray
from testbed.fabric.paths import Paths

OF_UNITS = ("arrived", "size", "x", "blamed", "gains", "may", "fresh")
OF_UNITS += ("queue", "queued", "kept", "share")
OF_ROWS = ("lost", "total")


class _Window(NamedTuple):
    """Where a component's units and rows are, and its rows in numbers of its own."""

    units: slice
    rows: slice
    ptr: LongArray
    on: IntArray
    unit_ptr: LongArray
    of: IntArray


class Components(NamedTuple):
    """``rows`` in the order of their components; ``unit`` int[U] and ``row`` int[R] say which
    of the given ones each is."""

    rows: Rows
    unit: LongArray
    row: LongArray
    windows: list[_Window]

    @classmethod
    def of(cls, rows: Rows) -> Components:
        """Time grows with the units on all rows."""
        n_rows, n_units = len(rows.lost), len(rows.arrived)
        label = _labels(rows)
        row, unit = (np.argsort(part, kind="stable") for part in np.split(label, [n_rows]))
        row_rank, unit_rank = np.empty(n_rows, np.int32), np.empty(n_units, np.int32)
        row_rank[row], unit_rank[unit] = np.arange(n_rows), np.arange(n_units)
        on = Paths(rows.ptr, rows.units).take(row)
        of = Paths(rows.unit_ptr, rows.rows).take(unit)
        moved = Rows(
            ptr=on.ptr,
            units=unit_rank[on.links],
            unit_ptr=of.ptr,
            rows=row_rank[of.links],
            lost=rows.lost[row],
            arrived=rows.arrived[unit],
        )
        numbers = np.arange(int(label.max(initial=-1)) + 2)
        ends = (
            np.searchsorted(label[n_rows:][unit], numbers).tolist(),
            np.searchsorted(label[:n_rows][row], numbers).tolist(),
        )
        return cls(moved, unit, row, [_window(moved, *at) for at in _spans(*ends)])

    def run(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a compiled function for each component; the last argument is the whole `Problem`."""
        *first, whole = arguments
        parts = [_view(whole, window) for window in self.windows]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(lambda part: function(*first, part), parts))

    def restored(self, s: Problem, rows: Rows) -> Problem:
        """A problem of these components in the order of the given ``rows``."""
        back = {}
        for names, order in ((OF_UNITS, self.unit), (OF_ROWS, self.row)):
            for name in names:
                back[name] = np.empty_like(getattr(s, name))
                back[name][order] = getattr(s, name)
        return s._replace(
            ptr=rows.ptr, units=rows.units, unit_ptr=rows.unit_ptr, rows=rows.rows, **back
        )


def _labels(rows: Rows) -> LongArray:
    """The component of each row, then of each unit; units on no row are all of the last one."""
    n_rows, n_units = len(rows.lost), len(rows.arrived)
    ptr = np.concatenate((rows.ptr, np.full(n_units, rows.ptr[-1])))
    ones = np.ones(len(rows.units), np.int8)
    joined = csr_array((ones, rows.units + n_rows, ptr), shape=(n_rows + n_units,) * 2)
    label = connected_components(joined, directed=False)[1].astype(np.int64)
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
    of = rows.rows[unit_ptr[0] : unit_ptr[-1]] - np.int32(own.start)
    return _Window(units, own, ptr - ptr[0], on, unit_ptr - unit_ptr[0], of)


def _view(s: Problem, window: _Window) -> Problem:
    own = window.units
    parts = {name: getattr(s, name)[own] for name in OF_UNITS}
    parts |= {name: getattr(s, name)[window.rows] for name in OF_ROWS}
    return s._replace(
        ptr=window.ptr,
        units=window.on,
        unit_ptr=window.unit_ptr,
        rows=window.of,
        **parts,
    )
