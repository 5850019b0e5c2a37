"""Flows that took one of several paths, as each unit sees them.

A flow with w equal-cost paths, a packets that arrived and k lost has the likelihood
(1/w) sum_p exp(-a X_p) (1 - exp(-X_p))^k. Along the rate x of one unit that is, relative to now,
ln(1 - s + s R): s is the flow's share of the paths over the unit as the rates are now (the
expectation step of an EM), and R how much likelier those paths become.

A flow that was only reported because it lost packets is scored given that some path of its ToRs
made it lose some: it has a known path and is divided by (1/w) sum_p (1 - exp(-n X_p)), whose share
of the paths over a unit changes likewise.

Alike shares of alike flows add up, so a unit has some hundred entries however many flows there are:
`Entries`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.fabric.compiled import kernel, njit
from testbed.fabric.paths import pointers

__all__ = [
    "GIVEN",
    "Entries",
    "HiddenFlows",
    "entries_gain",
    "entries_slope",
    "likelihood",
    "no_entries",
    "share_out",
    "sum_up",
]

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

GIVEN = -1.0
"""The ``lost`` of an entry that is a divisor: that of flows reported for their loss."""


class HiddenFlows(NamedTuple):
    """Sets of possible paths over units, and the flows of each, alike ones together.

    Set g is the paths ``set_ptr[g]:set_ptr[g + 1]``, path p the units
    ``units[path_ptr[p]:path_ptr[p + 1]]``; it stands for ``many[p]`` alike ones. The set's flows
    ``flow_ptr[g]:flow_ptr[g + 1]`` have ``arrived`` and ``lost`` packets (lost `GIVEN`: the divisor
    of flows of ``arrived`` packets), each ``times`` times. Its paths have ``hops[g]`` links.
    """

    set_ptr: LongArray
    path_ptr: LongArray
    units: IntArray
    many: FloatArray
    flow_ptr: LongArray
    arrived: FloatArray
    lost: FloatArray
    times: FloatArray
    hops: FloatArray

    @classmethod
    def join(cls, parts: Sequence[HiddenFlows]) -> HiddenFlows | None:
        """The sets of all parts that have some; None if none has."""
        parts = [part for part in parts if len(part.set_ptr) > 1]
        if len(parts) < 2:
            return parts[0] if parts else None
        return cls(
            pointers(np.concatenate([np.diff(p.set_ptr) for p in parts])),
            pointers(np.concatenate([np.diff(p.path_ptr) for p in parts])),
            np.concatenate([p.units[: p.path_ptr[-1]] for p in parts]),
            np.concatenate([p.many for p in parts]),
            pointers(np.concatenate([np.diff(p.flow_ptr) for p in parts])),
            np.concatenate([p.arrived for p in parts]),
            np.concatenate([p.lost for p in parts]),
            np.concatenate([p.times for p in parts]),
            np.concatenate([p.hops for p in parts]),
        )


class Entries(NamedTuple):
    """What hidden flows say of unit i: the rows ``ptr[i]:ptr[i + 1]`` of ``table`` float64[E, 7].

    Each stands for some flows (`TIMES`) with packets that `ARRIVED` and that were `LOST`. Their
    paths over the unit are of two kinds, by whether the other units on them are lossy too: of each
    kind the flow's share of the paths (`CLEAN`, `DIRTY`), and the rates of these other units
    together (`REST` and the one after it). All that at the unit's rate ``at`` float64[U], where
    ``arrived`` packets are expected to have arrived over it and ``fallen`` to be lost on it.
    """

    ptr: LongArray
    at: FloatArray
    arrived: FloatArray
    fallen: FloatArray
    table: FloatArray


TIMES, ARRIVED, LOST, CLEAN, DIRTY, REST = range(6)


def no_entries(n_units: int) -> Entries:
    ptr, at = np.zeros(n_units + 1, np.int64), np.zeros(n_units)
    return Entries(ptr, at, at, at, np.zeros((0, 7)))


def sum_up(
    n_sets: int, of: LongArray, arrived: FloatArray, lost: FloatArray, times: FloatArray
) -> tuple[LongArray, FloatArray, FloatArray, FloatArray]:
    """Alike flows of a set together: their ``flow_ptr``, ``arrived``, ``lost``, ``times``.

    Flows of one set are alike if they lost equally many packets (beyond 4: up to 1.4 times)
    and what arrived differs by less than a factor of two; they are taken for flows of their mean.
    """
    return _sum_up(n_sets, of, arrived, lost, times)


@kernel
def _kind(arrived, lost):
    """The number of a flow's kind: what it lost, then what arrived of it."""
    size = 0
    if arrived > 0.0:
        size = min(int(np.log2(max(arrived, 1.0))) + 1, 63)
    losses = int(lost) + 1
    if lost > 4.0:
        losses = min(5 + int(2.0 * np.log2(lost / 4.0)), 63)
    return losses * 64 + size


@njit
def _sum_up(n_sets, of, arrived, lost, times):
    ptr = np.zeros(n_sets + 1, np.int64)
    for g in of:
        ptr[g + 1] += 1
    ptr = np.cumsum(ptr)
    free, order = ptr[:-1].copy(), np.empty(len(of), np.int64)
    for f in range(len(of)):
        order[free[of[f]]] = f
        free[of[f]] += 1
    sums = np.zeros((64 * 64, 3))
    kinds = np.empty(len(of), np.int64)
    out, flow_ptr = np.empty((3, len(of))), np.zeros(n_sets + 1, np.int64)
    at = 0
    for g in range(n_sets):
        n = 0
        for f in order[ptr[g] : ptr[g + 1]]:
            kind = _kind(arrived[f], lost[f])
            if sums[kind, 2] == 0.0:
                kinds[n] = kind
                n += 1
            sums[kind, 0] += times[f] * arrived[f]
            sums[kind, 1] += times[f] * lost[f]
            sums[kind, 2] += times[f]
        for kind in np.sort(kinds[:n]):
            out[2, at] = sums[kind, 2]
            out[0, at], out[1, at] = sums[kind, 0] / out[2, at], sums[kind, 1] / out[2, at]
            sums[kind] = 0.0
            at += 1
        flow_ptr[g + 1] = at
    return flow_ptr, out[0, :at].copy(), out[1, :at].copy(), out[2, :at].copy()


def share_out(flows: HiddenFlows, x: FloatArray, split: float) -> Entries:
    """The entries of every unit at the rates ``x``: the expectation step.

    Paths over a unit are dirty if their other units lose more than ``split`` together. Time grows
    with the kinds of flows of each set times the units on its paths; memory with the entries.
    """
    lost = np.unique(flows.lost)
    bounds = np.unique(np.where(lost > 4, np.exp2(np.ceil(np.log2(np.maximum(lost, 1)))), lost))
    class_of = np.searchsorted(bounds, flows.lost).astype(np.int64)
    widest = int(np.diff(flows.set_ptr).max(initial=0))
    n = len(x)
    slots = 1 << 16
    while True:
        key, table = np.full(slots, -1, np.int64), np.zeros((slots, 7))
        scratch = np.zeros((2, widest)), np.zeros((4, n)), np.zeros(n, np.int32)
        if _share_out(flows, class_of, x, split, key, table, *scratch):
            break
        slots *= 4
    used = np.flatnonzero(key >= 0)
    used = used[np.argsort(key[used])]
    table = table[used]
    table[:, 1:] /= table[:, :1]
    for column in (CLEAN, DIRTY):
        table[:, REST + column - CLEAN] /= np.maximum(table[:, column], 1e-300)
    ptr = np.searchsorted(key[used] >> 32, np.arange(n + 1)).astype(np.int64)
    entries = Entries(ptr, x.copy(), np.zeros(n), np.zeros(n), table)
    _expect(entries)
    return entries


@kernel
def _log_losing(x):
    return np.log(-np.expm1(-max(x, 1e-300)))


@kernel
def _weigh(g, f, flows, total, weight):
    """Fill ``weight`` with the likelihoods of flow f on the paths of set g, whose rates are
    ``total``, relative to the highest; returns their sum and the logarithm of the highest."""
    arrived, lost = flows.arrived[f], flows.lost[f]
    most, whole = -1e300, 0.0
    n = flows.set_ptr[g + 1] - flows.set_ptr[g]
    for p in range(n):
        if lost == -1.0:
            weight[p] = _log_losing(arrived * total[p])
        else:
            weight[p] = -arrived * total[p]
            if lost > 0.0:
                weight[p] += lost * _log_losing(total[p])
        most = max(most, weight[p])
    for p in range(n):
        weight[p] = flows.many[flows.set_ptr[g] + p] * np.exp(weight[p] - most)
        whole += weight[p]
    return whole, most


@kernel
def _sum_paths(g, flows, x, total):
    for p in range(flows.set_ptr[g], flows.set_ptr[g + 1]):
        rate = 0.0
        for e in range(flows.path_ptr[p], flows.path_ptr[p + 1]):
            rate += x[flows.units[e]]
        total[p - flows.set_ptr[g]] = rate


@kernel
def likelihood(flows, x, paths):
    """The log-likelihood of all hidden flows; ``paths`` is room for two numbers a path of a set."""
    total = 0.0
    for g in range(len(flows.set_ptr) - 1):
        _sum_paths(g, flows, x, paths[0])
        n = flows.many[flows.set_ptr[g] : flows.set_ptr[g + 1]].sum()
        for f in range(flows.flow_ptr[g], flows.flow_ptr[g + 1]):
            whole, most = _weigh(g, f, flows, paths[0], paths[1])
            value = flows.times[f] * (np.log(whole / n) + most)
            total += -value if flows.lost[f] == -1.0 else value
    return total


@kernel
def _log_class(x, least, classes):
    """The number of the power of 2 at or below x, of so many from that of ``least``."""
    return min(max(int(np.log2(max(x, 1e-30)) - least + 0.5), 0), classes - 1)


@kernel
def _share_out(flows, class_of, x, split, key, table, paths, sums, used):
    """Fill ``table``, a hash table by ``key``, with sums of entries. False if it is too small.

    ``sums`` are of each unit the clean and dirty shares of a flow, and their rates' sums.
    """
    filled = 0
    for g in range(len(flows.set_ptr) - 1):
        _sum_paths(g, flows, x, paths[0])
        first = flows.set_ptr[g]
        for f in range(flows.flow_ptr[g], flows.flow_ptr[g + 1]):
            whole = _weigh(g, f, flows, paths[0], paths[1])[0]
            count = 0
            for p in range(first, flows.set_ptr[g + 1]):
                share = paths[1, p - first] / whole + 1e-12
                for e in range(flows.path_ptr[p], flows.path_ptr[p + 1]):
                    i = flows.units[e]
                    rest = paths[0, p - first] - x[i]
                    if sums[0, i] + sums[1, i] == 0.0:
                        used[count] = i
                        count += 1
                    dirty = 1 if rest > split else 0
                    sums[dirty, i] += share
                    sums[2 + dirty, i] += share * max(rest, 0.0)
            size = _log_class(flows.arrived[f], -1, 32)
            for c in range(count):
                i = used[c]
                clean, dirty = sums[0, i], sums[1, i]
                whole = clean + dirty
                level = _log_class(whole / max(1.0 - whole, 1e-6), -16, 32)
                apart = _log_class(dirty / whole, -3, 4)
                wanted = np.int64(i) << 32 | (((class_of[f] * 32 + size) * 32 + level) * 4 + apart)
                mixed = np.uint64(wanted) * np.uint64(0x9E3779B97F4A7C15)
                at = np.int64(mixed >> np.uint64(20)) & (len(key) - 1)
                while key[at] != -1 and key[at] != wanted:
                    at = (at + 1) & (len(key) - 1)
                if key[at] == -1:
                    key[at] = wanted
                    filled += 1
                times = flows.times[f]
                table[at, 0] += times
                table[at, 1] += times * flows.arrived[f]
                table[at, 2] += times * flows.lost[f]
                table[at, 3] += times * clean
                table[at, 4] += times * dirty
                table[at, 5] += times * sums[2, i]
                table[at, 6] += times * sums[3, i]
                for n in range(4):
                    sums[n, i] = 0.0
            if 2 * filled + 2 * count > len(key):
                return False
    return True


@kernel
def _log_ratio(row, rest, x, change):
    """How much likelier paths of an entry become if the unit's rate x changes."""
    if row[LOST] == GIVEN:
        at = row[ARRIVED] * (rest + x)
        return _log_losing(at + row[ARRIVED] * change) - _log_losing(at)
    ratio = -row[ARRIVED] * change
    if row[LOST] > 0.0:
        ratio += row[LOST] * (_log_losing(rest + x + change) - _log_losing(rest + x))
    return ratio


@kernel
def _after(row, x, change):
    """Logarithm of the likelihood's change, and the clean and dirty shares then."""
    clean = _log_ratio(row, row[REST], x, change)
    dirty = _log_ratio(row, row[REST + 1], x, change) if row[DIRTY] > 0.0 else 0.0
    most = max(max(clean, dirty), 0.0)
    left = max(1.0 - row[CLEAN] - row[DIRTY], 0.0) * np.exp(-most)
    clean = row[CLEAN] * np.exp(clean - most)
    dirty = row[DIRTY] * np.exp(dirty - most)
    whole = max(left + clean + dirty, 1e-300)
    return most + np.log(whole), clean / whole, dirty / whole


@kernel
def entries_gain(i, x, change, h):
    """Log-likelihood that the entries of unit i gain if its rate x changes."""
    total = 0.0
    begin = x - h.at[i]
    for e in range(h.ptr[i], h.ptr[i + 1]):
        row = h.table[e]
        won = _after(row, h.at[i], begin + change)[0]
        if begin != 0.0:
            won -= _after(row, h.at[i], begin)[0]
        total += row[TIMES] * (-won if row[LOST] == GIVEN else won)
    return total


@kernel
def entries_slope(i, x, h):
    """Of the entries of unit i at the rate x: expected packets that arrived over it, the sum of the
    losses' odds, and minus the slope of that sum."""
    arrived = value = slope = 0.0
    for e in range(h.ptr[i], h.ptr[i + 1]):
        row = h.table[e]
        _, clean, dirty = _after(row, h.at[i], x - h.at[i])
        for share, rest in ((clean, row[REST]), (dirty, row[REST + 1])):
            if share == 0.0:
                continue
            times, at = row[TIMES] * share, max(rest + x, 1e-300)
            if row[LOST] == GIVEN:
                value -= times * row[ARRIVED] / np.expm1(row[ARRIVED] * at)
                continue
            arrived += times * row[ARRIVED]
            if row[LOST] > 0.0:
                odds = 1.0 / np.expm1(at)
                value += times * row[LOST] * odds
                slope += times * row[LOST] * odds * (1.0 + odds)
    return arrived, value, slope


@kernel
def _expect(h):
    for i in range(len(h.at)):
        arrived, value, _ = entries_slope(i, h.at[i], h)
        h.arrived[i], h.fallen[i] = arrived, max(value * h.at[i], 0.0)
