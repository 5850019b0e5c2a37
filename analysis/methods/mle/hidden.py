"""Flows that took one of several paths.

A flow with w equal-cost paths, a packets that arrived and k lost has the likelihood
(1/w) sum_p exp(-a X_p) (1 - exp(-X_p))^k.

A flow that was only reported because it lost packets is scored given that some path of its ToRs
made it lose some: it has a known path and is divided by (1/w) sum_p (1 - exp(-n X_p)).

Alike flows of a set add up: it has some tens of kinds of them, however many flows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.arrays import FloatArray, IntArray, LongArray
from testbed.fabric.compiled import kernel, njit
from testbed.fabric.paths import pointers

SingleArray = npt.NDArray[np.float32]

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
    path_ptr: IntArray
    units: IntArray
    many: SingleArray
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
            pointers(np.concatenate([np.diff(p.path_ptr) for p in parts])).astype(np.int32),
            np.concatenate([p.units[: p.path_ptr[-1]] for p in parts]),
            np.concatenate([p.many for p in parts]),
            pointers(np.concatenate([np.diff(p.flow_ptr) for p in parts])),
            np.concatenate([p.arrived for p in parts]),
            np.concatenate([p.lost for p in parts]),
            np.concatenate([p.times for p in parts]),
            np.concatenate([p.hops for p in parts]),
        )


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
