"""deTector's greedy selection of probe paths (PMC, algorithm 1), in one sub-problem.

A *set* is one link or some that fail together ("virtual links", section 4.2); sets are numbered,
single links first. Sets that no selected path tells apart are in one *group*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from testbed.arrays import IntArray, LongArray
from testbed.compiled import kernel
from testbed.probes.identifiability import combinations

_DONE = np.iinfo(np.int64).max  # the score of a candidate that is selected, or useless


class Choice(NamedTuple):
    """What to select from, and what for.

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
    """The sets of links as the selected paths leave them, and working arrays.

    ``weight`` int32[S] selected paths over each set; ``group`` int32[S] the group it is in, and
    ``size`` how many sets are. ``hits`` (zeros between two calls) and ``seen`` are by group; ``on``
    has the sets that a path crosses, ``links`` its links, ``rank`` int32[n_links] zeros.
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
    """Positions of the selected candidates, in the order of selection.

    Of equal scores the earlier candidate goes first, with and without lazy update.
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
    # A score as it was when it was last worked out; no score is below -1.
    bound = np.full(len(choice.first), -1, np.int64)
    return chosen[: _greedy(choice, state, lazy, bound, chosen)]


@kernel
def _extend(links, m, n, beta, rank, out):
    """The physical and virtual links on a path: the sets of up to ``beta`` links that it crosses.

    ``rank`` is a scratch array of n zeros and is left so. Returns how many went into ``out``.
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
    """Put a candidate's sets into ``on``; returns how many links it has, and how many sets."""
    m = 0
    for climb in (choice.first[c], choice.second[c]):
        for h in range(choice.length[climb]):
            s.links[m] = choice.edges[climb, h]
            m += 1
    return m, _extend(s.links, m, choice.n_links, choice.beta, s.rank, s.on)


@kernel
def _look(c, choice, s):
    """Score of a path by equation 1; `_DONE` if selecting it would change nothing.

    Of the sets on the path those count that it would split: a set that lies whole on it, above all
    a single link, is no gain. The score never falls: where a split set leaves two pieces that this
    path splits, the selected path and this one share a link of it, whose weight rose.
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
    """Weigh the path's links and split the groups that it crosses in part. Returns how many are."""
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
    """Write the selected candidates; returns how many there are."""
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
                if not lazy and bound[c] < _DONE:  # work out every score again
                    bound[c] = _look(c, choice, s)
                lowest = min(lowest, bound[c])
            if lowest == _DONE:
                break
            for c in range(begin, stop):
                if bound[c] > lowest:
                    continue
                bound[c] = _look(c, choice, s)
                if bound[c] == lowest:
                    n_groups = _take(c, choice, s, n_groups)
                    chosen[n_chosen] = c
                    n_chosen += 1
                    bound[c] = _DONE
                    if not lazy:
                        break
        begin = stop
    return n_chosen
