# SPDX-License-Identifier: Apache-2.0
"""deTector's greedy selection of probe paths (PMC, algorithm 1) in one sub-problem.

A *set* is one link or several that fail together ("virtual links", section 4.2); sets are numbered,
single links first. Sets that no selected path distinguishes are in the same *group*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from testbed.arrays import IntArray, LongArray
from testbed.compiled import kernel
from testbed.probes.identifiability import combinations

_DONE = np.iinfo(np.int64).max  # the score of a candidate that is selected, or useless


class Choice(NamedTuple):
    """The candidates of a sub-problem and the targets of the selection.

    Candidate ``c`` is a path up climb ``first[c]`` and down climb ``second[c]`` (int32[C] each),
    candidates of one length together. The links of climb ``a`` are ``edges[a, :length[a]]``,
    numbers below ``n_links``.
    """

    first: IntArray
    second: IntArray
    edges: IntArray
    length: IntArray
    n_links: int
    alpha: int
    beta: int


class _State(NamedTuple):
    """The state of the selection, and working arrays.

    Attributes:
        weight: The number of selected paths over each set, int32[S].
        group: The group of each set, int32[S].
        size: The number of sets in each group, int32[S + 1].
        hits, seen: Working arrays by group; ``hits`` is zero between two calls.
        on, links: Working arrays: the sets and the links of one path.
        rank: A working array, int32[n_links], zero between two calls.
    """

    weight: IntArray
    group: IntArray
    size: IntArray
    hits: IntArray
    seen: IntArray
    on: LongArray
    links: IntArray
    rank: IntArray


def select(choice: Choice, *, lazy: bool) -> LongArray:
    """Return the indices of the selected candidates, int64[], in the order of selection.

    Among equal scores the earlier candidate is selected, with and without lazy update.
    """
    n_sets = combinations(choice.n_links, choice.beta)
    state = _State(
        weight=np.zeros(n_sets, np.int32),
        group=np.zeros(n_sets, np.int32),
        size=np.zeros(n_sets + 1, np.int32),
        hits=np.zeros(n_sets + 1, np.int32),
        seen=np.empty(n_sets, np.int32),
        on=np.empty(n_sets, np.int64),
        links=np.empty(2 * choice.edges.shape[1], np.int32),
        rank=np.zeros(choice.n_links, np.int32),
    )
    state.size[0] = n_sets
    chosen = np.empty(len(choice.first), np.int64)
    # The score of each candidate when it was last computed; no score is below -1.
    bound = np.full(len(choice.first), -1, np.int64)
    return chosen[: _greedy(choice, state, lazy, bound, chosen)]


@kernel
def _extend(links, m, n, beta, rank, out):
    """Write the sets of up to ``beta`` links that a path crosses to ``out``; return their number.

    They are the physical and virtual links on the path. ``rank`` is n zeros, before and after.
    """
    for i in range(m):
        out[i] = links[i]
        rank[links[i]] = i + 1
    count = m
    if beta >= 2:
        for i in range(m):
            a = np.int64(links[i])
            for b in range(n):
                if rank[b] == 0 or rank[b] > i + 1:
                    low, high = min(a, b), max(a, b)
                    out[count] = n + high * (high - 1) // 2 + low
                    count += 1
    if beta >= 3:
        base = n + n * (n - 1) // 2
        for i in range(m):
            a = np.int64(links[i])
            for c in range(n):
                if 0 < rank[c] <= i + 1:
                    continue
                for b in range(c):
                    if 0 < rank[b] <= i + 1:
                        continue
                    low, high = min(a, b), max(a, c)
                    middle = a + b + c - low - high
                    out[count] = (
                        base
                        + high * (high - 1) * (high - 2) // 6
                        + middle * (middle - 1) // 2
                        + low
                    )
                    count += 1
    for i in range(m):
        rank[links[i]] = 0
    return count


@kernel
def _cross(c, choice, s):
    """Write a candidate's sets to ``s.on``; return its number of links and its number of sets."""
    m = 0
    for climb in (choice.first[c], choice.second[c]):
        for h in range(choice.length[climb]):
            s.links[m] = choice.edges[climb, h]
            m += 1
    return m, _extend(s.links, m, choice.n_links, choice.beta, s.rank, s.on)


@kernel
def _score(c, choice, s):
    """Return the score of a path by equation 1; `_DONE` if selecting it would change nothing.

    Only groups that the path would split count as a gain, not those that lie on it as a whole. The
    score never falls: if a group is split into two that this path splits, the selected path and
    this one share a link of the group, whose weight rose.
    """
    m, count = _cross(c, choice, s)
    score = np.int64(0)
    useful = False
    for i in range(m):
        if s.weight[s.on[i]] < choice.alpha:
            useful = True
    sets = 0
    for i in range(count):
        score += s.weight[s.on[i]]
        g = s.group[s.on[i]]
        if s.hits[g] == 0:
            s.seen[sets] = g
            sets += 1
        s.hits[g] += 1
    split = 0
    for i in range(sets):
        g = s.seen[i]
        if choice.beta > 0 and s.hits[g] < s.size[g]:
            split += 1
        s.hits[g] = 0
    return score - split if useful or split > 0 else _DONE


@kernel
def _take(c, choice, s, n_groups):
    """Select a path: add 1 to the weights of its sets and split the groups that it divides.

    Return the new number of groups.
    """
    _, count = _cross(c, choice, s)
    sets = 0
    for i in range(count):
        s.weight[s.on[i]] += 1
        g = s.group[s.on[i]]
        if s.hits[g] == 0:
            s.seen[sets] = g
            sets += 1
        s.hits[g] += 1
    for i in range(sets):
        g = s.seen[i]
        if s.hits[g] < s.size[g]:
            s.size[n_groups] = s.hits[g]
            s.size[g] -= s.hits[g]
            s.hits[g] = -n_groups
            n_groups += 1
    for i in range(count):
        g = s.group[s.on[i]]
        if s.hits[g] < 0:
            s.group[s.on[i]] = -s.hits[g]
    for i in range(sets):
        s.hits[s.seen[i]] = 0
    return n_groups


@kernel
def _greedy(choice, s, lazy, bound, chosen):
    """Write the selected candidates to ``chosen`` and return how many there are."""
    n_chosen, n_groups = 0, 1
    length, n = choice.length, len(bound)
    begin = 0
    while begin < n:  # the candidates of one length after those of another
        total = length[choice.first[begin]] + length[choice.second[begin]]
        stop = begin
        while stop < n and length[choice.first[stop]] + length[choice.second[stop]] == total:
            stop += 1
        while True:
            lowest = _DONE
            for c in range(begin, stop):
                if not lazy and bound[c] < _DONE:  # compute every score again
                    bound[c] = _score(c, choice, s)
                lowest = min(lowest, bound[c])
            if lowest == _DONE:
                break
            for c in range(begin, stop):
                if bound[c] > lowest:
                    continue
                bound[c] = _score(c, choice, s)
                if bound[c] == lowest:
                    n_groups = _take(c, choice, s, n_groups)
                    chosen[n_chosen] = c
                    n_chosen += 1
                    bound[c] = _DONE
                    if not lazy:
                        break
        begin = stop
    return n_chosen
