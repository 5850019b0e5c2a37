# SPDX-License-Identifier: Apache-2.0
"""Groups of flows between pairs of ToRs over climbs; what a flip does to them is in pairs.h."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.flock.flow_values import FlowValues
from testbed.arrays import FloatArray, IntArray, LongArray, WordArray

WayArray = np.ndarray[tuple[int, int], np.dtype[np.int32]]


class Climbs(NamedTuple):
    """Lists of climbs; a list holds those of one ToR in one direction to the switches of one tier.

    List l holds the climbs ``list_ptr[l]:list_ptr[l + 1]``, ascending in their top; climb a
    consists of the components ``components[climb_ptr[a]:climb_ptr[a + 1]]``. The bits of list l are
    the words ``word_ptr[l]:word_ptr[l + 1]``, the first of them standing for the tops from
    ``64 * first_word[l]``; ``climb_at`` int32[words, 64] is the climb of each bit, ``top`` int32[A]
    the bit of each climb. Component c is in the lists ``lists[component_ptr[c]:...]``. The last
    ``len(list_ptr) // 2`` lists are the ways down. Where several climbs of a list lead to one top
    there are no words, see `Pairs`.
    """

    list_ptr: LongArray
    climb_ptr: LongArray
    components: IntArray
    word_ptr: LongArray
    first_word: IntArray
    climb_at: IntArray
    top: IntArray
    component_ptr: LongArray
    lists: IntArray

    @property
    def n_lists(self) -> int:
        """Return the number of lists."""
        return len(self.list_ptr) - 1


class Pairs(NamedTuple):
    """Groups of ToR pairs over lists of climbs, and the state of a hypothesis on them.

    Group g is between the climbs of list ``up[g]`` and ``down[g]``; list l's groups are
    ``groups[group_ptr[l]:group_ptr[l + 1]]``, their other lists the same part of ``others``.

    ``failures`` int32[A] failed components of each climb; ``good`` and ``single`` uint64[words] the
    tops that a climb with none and with just one reaches; ``bad`` int32[G]. Where several climbs of
    a list lead to one top ``ways`` int32[lists, tops] is how many climbs without failed component
    do; it has no row otherwise.
    """

    climbs: Climbs
    up: IntArray
    down: IntArray
    group_ptr: LongArray
    groups: IntArray
    others: IntArray
    values: FlowValues
    failures: IntArray
    good: WordArray
    single: WordArray
    ways: WayArray
    bad: IntArray

    @property
    def n_groups(self) -> int:
        """Return the number of pairs of ToRs."""
        return len(self.bad)

    @property
    def by_ways(self) -> bool:
        """Return whether several climbs of a list lead to one top."""
        return len(self.ways) > 0

    @property
    def n_tops(self) -> int:
        """Return the number of columns of ``ways``."""
        return self.ways.shape[1]


class ShareScratch(NamedTuple):
    """Scratch memory of the kernels that add up the contribution of a list, zero (``mark``: -1)
    between their calls; see pairs.h."""

    usual: IntArray
    members: IntArray
    missing: IntArray
    touched: IntArray
    total: FloatArray
    known: FloatArray
    mark: LongArray
    numbers: LongArray

    @classmethod
    def of(cls, climbs: Climbs, n_components: int) -> ShareScratch:
        """Return memory for the longest list of climbs."""
        size = 2 * int(np.diff(climbs.list_ptr).max(initial=0)) + 1
        usual, members, missing, touched = np.zeros((4, n_components), np.int32)
        total, known = np.zeros((2, size))
        mark, numbers = np.full(size, -1, np.int64), np.zeros(size, np.int64)
        return cls(usual, members, missing, touched, total, known, mark, numbers)

    @property
    def n_numbers(self) -> int:
        """Return the number of different numbers of paths that may turn."""
        return len(self.mark)
