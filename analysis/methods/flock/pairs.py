# SPDX-License-Identifier: Apache-2.0
"""Groups of flows between pairs of ToRs over climbs; what a flip does to them is in pairs.h."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.flock.flow_values import FlowValues
from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray, WordArray
from testbed.kernels import Kernels

KERNELS = Kernels.beside(__file__)

WayArray = np.ndarray[tuple[int, int], np.dtype[np.int32]]


class Climbs(NamedTuple):
    """Lists of climbs; a list holds those of one ToR in one direction to the switches of one tier.

    List l holds the climbs ``list_ptr[l]:list_ptr[l + 1]``, ascending in their top; climb a
    consists of the components ``components[climb_ptr[a]:climb_ptr[a + 1]]``. The bits of list l are
    the words ``word_ptr[l]:word_ptr[l + 1]``, the first of them standing for the tops from
    ``64 * first_word[l]``; ``climb_at`` int32[words, 64] is the climb of each bit, ``top`` int32[A]
    the bit of each climb. Component c is in the lists ``lists[component_ptr[c]:...]``. List l's
    members, each of its components once, are ``members[member_ptr[l]:member_ptr[l + 1]]``, and
    ``nth`` int32[] says which of them each of ``components`` is. The last ``len(list_ptr) // 2``
    lists are the ways down. Where several climbs of a list lead to one top there are neither words
    nor members, see `Pairs`.
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
    member_ptr: LongArray
    members: IntArray
    nth: IntArray

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

    ``counted`` bool[lists] says whether these are of a list's climbs as they are now: ``usual``
    int32[members], how many of its climbs a member's flip turns bad (negative: good), and the
    ``n_numbers[l]`` different numbers among them, ``numbers[member_ptr[l]:...]``, without 0.
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
    counted: BoolArray
    usual: IntArray
    numbers: IntArray
    n_numbers: IntArray

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


ALIKE = 32
"""Of pairs that miss the same tops, how many are added up together; the same in pairs.h."""


class ShareScratch(NamedTuple):
    """Scratch memory of the kernels that add up the contribution of a list; see pairs.h."""

    missing: IntArray
    touched: IntArray
    total: FloatArray
    gain: FloatArray
    mark: LongArray
    more: LongArray
    stamp: LongArray
    lacks: WordArray

    @classmethod
    def of(cls, climbs: Climbs, n_components: int) -> ShareScratch:
        """Return memory for the longest list of climbs."""
        size = 2 * int(np.diff(climbs.list_ptr).max(initial=0)) + 1
        words = int(np.diff(climbs.word_ptr).max(initial=0))
        return cls(
            missing=np.zeros(n_components, np.int32),
            touched=np.zeros(n_components, np.int32),
            total=np.zeros(size),
            gain=np.zeros(size * ALIKE),
            mark=np.zeros(size, np.int64),
            more=np.zeros(size, np.int64),
            stamp=np.zeros(1, np.int64),
            lacks=np.zeros(words, np.uint64),
        )

    @property
    def size(self) -> int:
        """Return the number of different numbers of paths that may turn."""
        return len(self.mark)


class Met(NamedTuple):
    """Scratch memory for the lists that a flip concerns; see pairs.h."""

    mine: BoolArray
    ptr: LongArray
    groups: IntArray
    others: IntArray

    @classmethod
    def of(cls, pairs: Pairs) -> Met:
        """Return memory for the lists and groups of ``pairs``."""
        n_lists, n_groups = pairs.climbs.n_lists, pairs.n_groups
        groups, others = np.zeros((2, n_groups), np.int32)
        return cls(np.zeros(n_lists, np.bool_), np.zeros(n_lists + 2, np.int64), groups, others)


def with_members(lists: Pairs, n_components: int) -> Pairs:
    """Return ``lists`` with the members of each, none of which is counted."""
    climbs, room = lists.climbs, len(lists.climbs.lists)
    member_ptr, members = np.zeros(climbs.n_lists + 1, np.int64), np.zeros(room, np.int32)
    nth = np.zeros(len(climbs.components), np.int32)
    KERNELS.number_members(
        list_ptr=climbs.list_ptr,
        climb_ptr=climbs.climb_ptr,
        components=climbs.components,
        at=np.full(n_components, -1, np.int64),
        member_ptr=member_ptr,
        members=members,
        nth=nth,
    )
    return lists._replace(
        climbs=climbs._replace(member_ptr=member_ptr, members=members, nth=nth),
        counted=np.zeros(climbs.n_lists, np.bool_),
        usual=np.zeros(room, np.int32),
        numbers=np.zeros(room, np.int32),
        n_numbers=np.zeros(climbs.n_lists, np.int32),
    )
