# SPDX-License-Identifier: Apache-2.0
"""Groups of flows between pairs of ToRs over climbs: their contributions to delta, and their update
after a flip."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.flock.flow_values import FlowValues, value
from testbed.arrays import FloatArray, IntArray, LongArray, WordArray
from testbed.compiled import kernel, njit

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


@njit(inline="always")
def ones(x):
    """Return the number of bits of a uint64 that are 1."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(inline="always")
def word_of(bits, pairs, of_list, index):
    """Return the word of a list's bits for the tops from ``64 * index`` on; 0 if the list has no
    such word."""
    at = pairs.climbs.word_ptr[of_list] + index - pairs.climbs.first_word[of_list]
    if at < pairs.climbs.word_ptr[of_list] or at >= pairs.climbs.word_ptr[of_list + 1]:
        return np.uint64(0)
    return bits[at]


@kernel
def shared_tops(pairs, a, b):
    """Return how many pairs of good climbs, one of each list, end at the same top: the good paths
    of a pair of ToRs."""
    shared = 0
    if len(pairs.ways):
        for top in range(pairs.ways.shape[1]):
            shared += pairs.ways[a, top] * pairs.ways[b, top]
        return shared
    for at in range(pairs.climbs.word_ptr[a], pairs.climbs.word_ptr[a + 1]):
        index = pairs.climbs.first_word[a] + at - pairs.climbs.word_ptr[a]
        shared += ones(pairs.good[at] & word_of(pairs.good, pairs, b, index))
    return shared


@kernel
def _count_turning(pairs, climb, failed, turned, touched, n):
    """Count a climb for each component whose flip would make it bad (1) or good (-1).

    ``touched[:n]`` are the components counted so far; return their number after this climb.
    """
    if pairs.failures[climb] <= 1:
        for e in range(pairs.climbs.climb_ptr[climb], pairs.climbs.climb_ptr[climb + 1]):
            c = pairs.climbs.components[e]
            if pairs.failures[climb] == failed[c]:
                if turned[c] == 0:
                    touched[n] = c
                    n += 1
                turned[c] += 1 - 2 * pairs.failures[climb]
    return n


class _Scratch(NamedTuple):
    """Working arrays of `_list_share`, zero (``mark``: -1) between its calls.

    By component: ``usual``, the paths of a pair that turn if it flips (negative: turn good) where
    the other list reaches every top, ``missing``, how many of them do not where it does not, and
    the components where these are not 0. By such a number, from minus to plus the most climbs of a
    list: ``total``, the change in log-likelihood summed over pairs, and ``known``, that of the pair
    ``mark``; ``numbers`` are those in use.
    """

    usual: IntArray
    members: IntArray
    missing: IntArray
    touched: IntArray
    total: FloatArray
    known: FloatArray
    mark: LongArray
    numbers: LongArray


@njit
def _scratch(pairs, n_components):
    most = 0
    for of_list in range(len(pairs.climbs.list_ptr) - 1):
        most = max(most, pairs.climbs.list_ptr[of_list + 1] - pairs.climbs.list_ptr[of_list])
    size = 2 * most + 1
    return _Scratch(
        np.zeros(n_components, np.int32),
        np.zeros(n_components, np.int32),
        np.zeros(n_components, np.int32),
        np.zeros(n_components, np.int32),
        np.zeros(size),
        np.zeros(size),
        np.full(size, -1, np.int64),
        np.zeros(size, np.int64),
    )


@kernel
def _list_share(pairs, of_list, sign, only, chosen, failed, delta, s):
    """Add the contribution of a list's pairs to the delta of the list's components, times ``sign``.

    With ``only``, count only pairs whose other list is ``chosen``.
    """
    zero = len(s.total) // 2
    n_members = 0
    for climb in range(pairs.climbs.list_ptr[of_list], pairs.climbs.list_ptr[of_list + 1]):
        n_members = _count_turning(pairs, climb, failed, s.usual, s.members, n_members)
    n_numbers = 0
    for i in range(n_members):
        n = s.usual[s.members[i]]
        if s.mark[zero + n] != -2:
            s.mark[zero + n] = -2
            s.numbers[n_numbers] = n
            n_numbers += 1
    for i in range(n_numbers):
        s.mark[zero + s.numbers[i]] = -1
        s.total[zero + s.numbers[i]] = 0.0
    for at in range(pairs.group_ptr[of_list], pairs.group_ptr[of_list + 1]):
        other = pairs.others[at]
        if only and not chosen[other]:
            continue
        g = pairs.groups[at]
        bad = pairs.bad[g]
        now = value(pairs.values, g, bad)
        for i in range(n_numbers):
            n = s.numbers[i]
            s.known[zero + n] = value(pairs.values, g, bad + n) - now
            s.mark[zero + n] = g
            s.total[zero + n] += s.known[zero + n]
        n_touched = 0
        for word in range(pairs.climbs.word_ptr[of_list], pairs.climbs.word_ptr[of_list + 1]):
            index = pairs.climbs.first_word[of_list] + word - pairs.climbs.word_ptr[of_list]
            lacks = (pairs.good[word] | pairs.single[word]) & ~word_of(
                pairs.good, pairs, other, index
            )
            while lacks:
                low = lacks & (~lacks + np.uint64(1))
                lacks ^= low
                climb = pairs.climbs.climb_at[word, ones(low - np.uint64(1))]
                n_touched = _count_turning(pairs, climb, failed, s.missing, s.touched, n_touched)
        for i in range(n_touched):
            c = s.touched[i]
            n = s.usual[c] - s.missing[c]
            s.missing[c] = 0
            if s.mark[zero + n] != g:
                s.known[zero + n] = value(pairs.values, g, bad + n) - now
                s.mark[zero + n] = g
            delta[c] += sign * (s.known[zero + n] - s.known[zero + s.usual[c]])
    s.mark[:] = -1
    for i in range(n_members):
        c = s.members[i]
        delta[c] += sign * s.total[zero + s.usual[c]]
        s.usual[c] = 0


@kernel
def _list_share_by_ways(pairs, of_list, sign, only, chosen, failed, delta, s):
    """Do what `_list_share` does, pair by pair, for lists in which several climbs lead to a top."""
    for at in range(pairs.group_ptr[of_list], pairs.group_ptr[of_list + 1]):
        other = pairs.others[at]
        if only and not chosen[other]:
            continue
        g = pairs.groups[at]
        n_touched = 0
        for climb in range(pairs.climbs.list_ptr[of_list], pairs.climbs.list_ptr[of_list + 1]):
            ways = pairs.ways[other, pairs.climbs.top[climb]]
            if ways == 0 or pairs.failures[climb] > 1:
                continue
            for e in range(pairs.climbs.climb_ptr[climb], pairs.climbs.climb_ptr[climb + 1]):
                c = pairs.climbs.components[e]
                if pairs.failures[climb] == failed[c]:
                    if s.usual[c] == 0:
                        s.touched[n_touched] = c
                        n_touched += 1
                    s.usual[c] += ways * (1 - 2 * pairs.failures[climb])
        now = value(pairs.values, g, pairs.bad[g])
        for i in range(n_touched):
            c = s.touched[i]
            delta[c] += sign * (value(pairs.values, g, pairs.bad[g] + s.usual[c]) - now)
            s.usual[c] = 0


@njit
def accumulate_pairs(part, parts, pairs, down, failed, n_components):
    """Return the contribution to delta of one part of the lists of one way: float64[n_components].
    ``down`` is 0 for the ways up and 1 for the ways down."""
    delta, scratch = np.zeros(n_components), _scratch(pairs, n_components)
    chosen = np.zeros(0, np.bool_)
    half = (len(pairs.climbs.list_ptr) - 1) // 2
    for of_list in range(down * half + part, (1 + down) * half, parts):
        if len(pairs.ways):
            _list_share_by_ways(pairs, of_list, 1.0, False, chosen, failed, delta, scratch)
        else:
            _list_share(pairs, of_list, 1.0, False, chosen, failed, delta, scratch)
    return delta


@njit
def flip_pairs(component, pairs, failed, delta):
    """Update the pairs of a component, and their contributions to delta, for its flip. ``failed``
    is the same after the call as before."""
    if pairs.climbs.component_ptr[component] == pairs.climbs.component_ptr[component + 1]:
        return
    n = len(pairs.climbs.list_ptr) - 1
    mine, others = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    scratch = _scratch(pairs, len(delta))
    _meet(component, pairs, mine, others)
    fails = not failed[component]
    _shares(pairs, -1.0, mine, others, failed, delta, scratch)
    failed[component] = fails
    step_pairs(component, pairs, 1 if fails else -1)
    _recount(component, pairs)
    _shares(pairs, 1.0, mine, others, failed, delta, scratch)
    failed[component] = not fails


@kernel
def _meet(component, pairs, mine, others):
    """Mark the lists that a component is in, and those that share a group with one of them."""
    for at in range(
        pairs.climbs.component_ptr[component], pairs.climbs.component_ptr[component + 1]
    ):
        of_list = pairs.climbs.lists[at]
        mine[of_list] = True
        for i in range(pairs.group_ptr[of_list], pairs.group_ptr[of_list + 1]):
            others[pairs.others[i]] = True


@kernel
def _shares(pairs, sign, mine, others, failed, delta, scratch):
    """Add the contribution of all pairs with a list in ``mine`` to delta, times ``sign``."""
    for of_list in range(len(mine)):
        if not mine[of_list] and not others[of_list]:
            continue
        only = not mine[of_list]
        if len(pairs.ways):
            _list_share_by_ways(pairs, of_list, sign, only, mine, failed, delta, scratch)
        else:
            _list_share(pairs, of_list, sign, only, mine, failed, delta, scratch)


@kernel
def _recount(component, pairs):
    """Recompute the number of bad paths of all pairs with a list that contains a component."""
    for at in range(
        pairs.climbs.component_ptr[component], pairs.climbs.component_ptr[component + 1]
    ):
        of_list = pairs.climbs.lists[at]
        for i in range(pairs.group_ptr[of_list], pairs.group_ptr[of_list + 1]):
            g = pairs.groups[i]
            pairs.bad[g] = pairs.values.width[g] - shared_tops(pairs, pairs.up[g], pairs.down[g])


@kernel
def _step_list(pairs, of_list, component, by):
    """Count a component's failure (``by`` 1) or release (-1) on the climbs of a list."""
    for climb in range(pairs.climbs.list_ptr[of_list], pairs.climbs.list_ptr[of_list + 1]):
        for e in range(pairs.climbs.climb_ptr[climb], pairs.climbs.climb_ptr[climb + 1]):
            if pairs.climbs.components[e] == component:
                pairs.failures[climb] += by
                if len(pairs.ways):
                    if pairs.failures[climb] == 0 or (pairs.failures[climb] == 1 and by == 1):
                        pairs.ways[of_list, pairs.climbs.top[climb]] -= by
                    continue
                at = (
                    pairs.climbs.word_ptr[of_list]
                    + pairs.climbs.top[climb] // 64
                    - pairs.climbs.first_word[of_list]
                )
                bit = np.uint64(1) << np.uint64(pairs.climbs.top[climb] % 64)
                pairs.good[at] &= ~bit
                pairs.single[at] &= ~bit
                if pairs.failures[climb] == 0:
                    pairs.good[at] |= bit
                elif pairs.failures[climb] == 1:
                    pairs.single[at] |= bit


@kernel
def step_pairs(component, pairs, by):
    """Count a component's failure (``by`` 1) or release (-1) on all climbs; the pairs' numbers of
    bad paths are not updated."""
    for at in range(
        pairs.climbs.component_ptr[component], pairs.climbs.component_ptr[component + 1]
    ):
        _step_list(pairs, pairs.climbs.lists[at], component, by)


@kernel
def place_pairs(pairs):
    """Recompute the number of bad paths of every pair."""
    for g in range(len(pairs.bad)):
        pairs.bad[g] = pairs.values.width[g] - shared_tops(pairs, pairs.up[g], pairs.down[g])
