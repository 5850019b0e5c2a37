"""The compiled core of Flock: log-likelihoods under a hypothesis, and what a flip changes.

Joint likelihood exploration (section 3.3) keeps ``delta[c]``, what flipping component c would add
to the log-likelihood, for every c. Flows with the same possible paths are one *group*. There are
two kinds of groups.

*Listed* groups name their paths; one of a known path is the simple case. After a flip only the
groups that meet the flipped component are visited (theorem 3).

*Pairs* are flows between two ToRs over all equal-cost paths, which are not listed: a path is a
climb of the source and a climb of the destination (backwards) to the same top switch. A list holds
the climbs of one ToR in one direction to the switches of one tier, with a bit for each top that a
climb without failed component reaches; a pair's good paths are the bits its two lists share. How
many good paths of a pair cross a component of the source's climbs is then the same for all its
destinations, but for those that miss a top; so a list's contribution is summed once over all its
pairs, with a correction for each missing top. It takes no time that grows with the paths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.solvers.parts import in_parts
from testbed.fabric.compiled import kernel, njit

__all__ = [
    "FlowValues",
    "Listed",
    "Pairs",
    "accumulate",
    "flip",
    "gain_of",
    "likelihood",
    "place",
    "shared_tops",
    "step",
]

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BitArray = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]


class FlowValues(NamedTuple):
    """The flows of each group, for its log-likelihood with b of w paths bad (equation 1).

    Flows ``ptr[g]:ptr[g + 1]`` of group g have the ``score`` ln(P(bad path) / P(good path)), each
    ``times`` times; ``bent`` is expm1(score), or exp(-score) where the score is positive. The last
    values of group g are in ``memo[memo_ptr[g]:memo_ptr[g + 1]]``, that of b where ``memo_of`` is
    b. With a ``seed`` other than 0 values are random numbers of ``bits`` bits instead, alike for
    nothing but the same group and b.
    """

    ptr: LongArray
    score: FloatArray
    bent: FloatArray
    times: FloatArray
    width: LongArray
    memo_ptr: LongArray
    memo_of: IntArray
    memo: FloatArray
    seed: int
    bits: int


class Listed(NamedTuple):
    """Groups with their paths, and the state of a hypothesis over them.

    Group g's paths are ``group_ptr[g]:group_ptr[g + 1]``; path p consists of the components
    ``components[path_ptr[p]:path_ptr[p + 1]]``, each once; component c occurs in the groups
    ``groups[component_ptr[c]:component_ptr[c + 1]]``. ``failures`` int32[P] failed components of
    each path, ``bad`` int32[G] bad paths of each group.
    """

    group_ptr: LongArray
    path_ptr: LongArray
    components: IntArray
    component_ptr: LongArray
    groups: IntArray
    values: FlowValues
    failures: IntArray
    bad: IntArray


class Pairs(NamedTuple):
    """Groups of ToR pairs over lists of climbs, and the state of a hypothesis over them.

    List l holds the climbs ``list_ptr[l]:list_ptr[l + 1]``, ascending in their top; climb a
    consists of the components ``components[climb_ptr[a]:climb_ptr[a + 1]]``. The bits of list l are
    the words ``word_ptr[l]:word_ptr[l + 1]``, the first of them standing for the tops from
    ``64 * first_word[l]``; ``climb_at`` int32[words, 64] is the climb of each bit, ``top`` int32[A]
    the bit of each climb. Component c is in the lists ``lists[component_ptr[c]:...]``. Group g is
    between the climbs of list ``up[g]`` and ``down[g]``; list l's groups are
    ``groups[group_ptr[l]:group_ptr[l + 1]]``, their other lists the same part of ``others``. The
    last ``len(list_ptr) // 2`` lists are the ways down.

    ``failures`` int32[A] failed components of each climb; ``good`` and ``single`` uint64[words] the
    tops that a climb with none and with just one reaches; ``bad`` int32[G].
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
    up: IntArray
    down: IntArray
    group_ptr: LongArray
    groups: IntArray
    others: IntArray
    values: FlowValues
    failures: IntArray
    good: BitArray
    single: BitArray
    bad: IntArray


@njit(inline="always")
def _scramble(x):  # pragma: no cover - compiled
    x = (x + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def value(values, g, b):  # pragma: no cover - compiled
    """Log-likelihood of group g with b bad paths, relative to none; b is held to 0..width."""
    width = values.width[g]
    b = min(max(b, 0), width)
    if values.seed:
        x = _scramble(np.uint64(values.seed) ^ _scramble(np.uint64(g)))
        return float(_scramble(x ^ np.uint64(b)) >> np.uint64(64 - values.bits))
    if b == 0:
        return 0.0
    slots = values.memo_ptr[g + 1] - values.memo_ptr[g]
    at = values.memo_ptr[g] + (b & (slots - 1))
    if slots and values.memo_of[at] == b:
        return values.memo[at]
    total = 0.0
    if b == width:
        for f in range(values.ptr[g], values.ptr[g + 1]):
            total += values.times[f] * values.score[f]
    else:
        share = b / width
        for f in range(values.ptr[g], values.ptr[g + 1]):
            score, bent = values.score[f], values.bent[f]
            if score > 0:
                total += values.times[f] * (score + np.log(share + (1 - share) * bent))
            else:
                total += values.times[f] * np.log1p(share * bent)
    if slots:
        values.memo_of[at] = b
        values.memo[at] = total
    return total


# ---- listed groups ---------------------------------------------------------------------------


@kernel
def _listed_share(m, g, sign, failed, delta, scratch):  # pragma: no cover - compiled
    """Add group g's share of every component's delta, ``sign`` times.

    Failing a component turns its paths that have no failed one bad; releasing it turns those good
    where it is the only one.
    """
    path = m.group_ptr[g]
    if m.group_ptr[g + 1] == path + 1:
        if m.failures[path] <= 1:
            change = sign * (value(m.values, g, 1) - value(m.values, g, 0))
            for e in range(m.path_ptr[path], m.path_ptr[path + 1]):
                c = m.components[e]
                if m.failures[path] == 0:
                    delta[c] += change
                elif failed[c]:
                    delta[c] -= change
        return
    for p in range(path, m.group_ptr[g + 1]):
        if m.failures[p] <= 1:
            for e in range(m.path_ptr[p], m.path_ptr[p + 1]):
                c = m.components[e]
                if m.failures[p] == failed[c]:
                    scratch[c] += 1
    now = value(m.values, g, m.bad[g])
    for e in range(m.path_ptr[path], m.path_ptr[m.group_ptr[g + 1]]):
        c = m.components[e]
        if scratch[c]:
            then = m.bad[g] - scratch[c] if failed[c] else m.bad[g] + scratch[c]
            delta[c] += sign * (value(m.values, g, then) - now)
            scratch[c] = 0


@njit
def _accumulate_listed(part, parts, m, failed, n_components):  # pragma: no cover - compiled
    """A part of the groups' delta: float64[n_components]."""
    n = len(m.group_ptr) - 1
    delta, scratch = np.zeros(n_components), np.zeros(n_components, np.int32)
    for g in range(part * n // parts, (part + 1) * n // parts):
        _listed_share(m, g, 1.0, failed, delta, scratch)
    return delta


@kernel
def _step_listed(m, g, component, by):  # pragma: no cover - compiled
    """Count a component's failure (``by`` 1) or release (-1) on the paths of group g."""
    for p in range(m.group_ptr[g], m.group_ptr[g + 1]):
        for e in range(m.path_ptr[p], m.path_ptr[p + 1]):
            if m.components[e] == component:
                if by == 1 and m.failures[p] == 0:
                    m.bad[g] += 1
                elif by == -1 and m.failures[p] == 1:
                    m.bad[g] -= 1
                m.failures[p] += by


@kernel
def _flip_listed(component, m, failed, delta, scratch):  # pragma: no cover - compiled
    fails = not failed[component]
    for at in range(m.component_ptr[component], m.component_ptr[component + 1]):
        g = m.groups[at]
        _listed_share(m, g, -1.0, failed, delta, scratch)
        _step_listed(m, g, component, 1 if fails else -1)
        failed[component] = fails
        _listed_share(m, g, 1.0, failed, delta, scratch)
        failed[component] = not fails


@kernel
def gain_of(component, m, failed):  # pragma: no cover - compiled
    """What flipping one component adds to the log-likelihood of listed groups, without delta."""
    gain = 0.0
    turn = 1 if failed[component] else 0
    for at in range(m.component_ptr[component], m.component_ptr[component + 1]):
        g = m.groups[at]
        turned = 0
        for p in range(m.group_ptr[g], m.group_ptr[g + 1]):
            if m.failures[p] == turn:
                for e in range(m.path_ptr[p], m.path_ptr[p + 1]):
                    if m.components[e] == component:
                        turned += 1
        if turned:
            then = m.bad[g] - turned if turn else m.bad[g] + turned
            gain += value(m.values, g, then) - value(m.values, g, m.bad[g])
    return gain


@kernel
def step(component, m, failed):  # pragma: no cover - compiled
    """Flip a component of listed groups without keeping delta."""
    by = -1 if failed[component] else 1
    for at in range(m.component_ptr[component], m.component_ptr[component + 1]):
        _step_listed(m, m.groups[at], component, by)
    failed[component] = by == 1


# ---- pairs of ToRs ---------------------------------------------------------------------------


@njit(inline="always")
def _bits(x):  # pragma: no cover - compiled
    """The number of ones."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(inline="always")
def _word(bits, p, of_list, index):  # pragma: no cover - compiled
    """The word of a list's bits that stands for the tops from 64 * index, 0 where it has none."""
    at = p.word_ptr[of_list] + index - p.first_word[of_list]
    if at < p.word_ptr[of_list] or at >= p.word_ptr[of_list + 1]:
        return np.uint64(0)
    return bits[at]


@kernel
def shared_tops(p, a, b):  # pragma: no cover - compiled
    """How many tops good climbs of two lists share."""
    shared = 0
    for at in range(p.word_ptr[a], p.word_ptr[a + 1]):
        index = p.first_word[a] + at - p.word_ptr[a]
        shared += _bits(p.good[at] & _word(p.good, p, b, index))
    return shared


@kernel
def _count_turning(p, climb, failed, turned, touched, n):  # pragma: no cover - compiled
    """Count a climb for the components whose flip turns it: 1 if to bad, -1 if to good.

    ``touched[:n]`` are the components counted so far; returns how many are now.
    """
    if p.failures[climb] <= 1:
        for e in range(p.climb_ptr[climb], p.climb_ptr[climb + 1]):
            c = p.components[e]
            if p.failures[climb] == failed[c]:
                if turned[c] == 0:
                    touched[n] = c
                    n += 1
                turned[c] += 1 - 2 * p.failures[climb]
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
def _scratch(p, n_components):  # pragma: no cover - compiled
    most = 0
    for of_list in range(len(p.list_ptr) - 1):
        most = max(most, p.list_ptr[of_list + 1] - p.list_ptr[of_list])
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
def _list_share(p, of_list, sign, only, chosen, failed, delta, s):  # pragma: no cover - compiled
    """Add to delta, ``sign`` times, what the pairs of a list say about the list's components.

    With ``only``, just its pairs whose other list is ``chosen``.
    """
    zero = len(s.total) // 2
    n_members = 0
    for climb in range(p.list_ptr[of_list], p.list_ptr[of_list + 1]):
        n_members = _count_turning(p, climb, failed, s.usual, s.members, n_members)
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
    for at in range(p.group_ptr[of_list], p.group_ptr[of_list + 1]):
        other = p.others[at]
        if only and not chosen[other]:
            continue
        g = p.groups[at]
        bad = p.bad[g]
        now = value(p.values, g, bad)
        for i in range(n_numbers):
            n = s.numbers[i]
            s.known[zero + n] = value(p.values, g, bad + n) - now
            s.mark[zero + n] = g
            s.total[zero + n] += s.known[zero + n]
        n_touched = 0
        for word in range(p.word_ptr[of_list], p.word_ptr[of_list + 1]):
            index = p.first_word[of_list] + word - p.word_ptr[of_list]
            lacks = (p.good[word] | p.single[word]) & ~_word(p.good, p, other, index)
            while lacks:
                low = lacks & (~lacks + np.uint64(1))
                lacks ^= low
                climb = p.climb_at[word, _bits(low - np.uint64(1))]
                n_touched = _count_turning(p, climb, failed, s.missing, s.touched, n_touched)
        for i in range(n_touched):
            c = s.touched[i]
            n = s.usual[c] - s.missing[c]
            s.missing[c] = 0
            if s.mark[zero + n] != g:
                s.known[zero + n] = value(p.values, g, bad + n) - now
                s.mark[zero + n] = g
            delta[c] += sign * (s.known[zero + n] - s.known[zero + s.usual[c]])
    s.mark[:] = -1
    for i in range(n_members):
        c = s.members[i]
        delta[c] += sign * s.total[zero + s.usual[c]]
        s.usual[c] = 0


@njit
def _accumulate_pairs(part, parts, p, down, failed, n_components):  # pragma: no cover - compiled
    """A part of the delta of the ways up or down: float64[n_components]."""
    delta, scratch = np.zeros(n_components), _scratch(p, n_components)
    chosen = np.zeros(0, np.bool_)
    half = (len(p.list_ptr) - 1) // 2
    for of_list in range(down * half + part, (1 + down) * half, parts):
        _list_share(p, of_list, 1.0, False, chosen, failed, delta, scratch)
    return delta


@njit
def _flip_pairs(component, p, failed, delta):  # pragma: no cover - compiled
    first, last = p.component_ptr[component], p.component_ptr[component + 1]
    if first == last:
        return
    n = len(p.list_ptr) - 1
    mine, others = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    for at in range(first, last):
        mine[p.lists[at]] = True
    for at in range(first, last):
        of_list = p.lists[at]
        for i in range(p.group_ptr[of_list], p.group_ptr[of_list + 1]):
            others[p.others[i]] = True
    scratch = _scratch(p, len(delta))
    fails = not failed[component]
    for sign in (-1.0, 1.0):
        for of_list in range(n):
            if mine[of_list] or others[of_list]:
                _list_share(p, of_list, sign, not mine[of_list], mine, failed, delta, scratch)
        if sign < 0:
            failed[component] = fails
            for at in range(first, last):
                _step_list(p, p.lists[at], component, 1 if fails else -1)
            for at in range(first, last):
                of_list = p.lists[at]
                for i in range(p.group_ptr[of_list], p.group_ptr[of_list + 1]):
                    g = p.groups[i]
                    p.bad[g] = p.values.width[g] - shared_tops(p, p.up[g], p.down[g])
    failed[component] = not fails


@kernel
def _step_list(p, of_list, component, by):  # pragma: no cover - compiled
    """Count a component's failure or release on the climbs of a list."""
    for climb in range(p.list_ptr[of_list], p.list_ptr[of_list + 1]):
        for e in range(p.climb_ptr[climb], p.climb_ptr[climb + 1]):
            if p.components[e] == component:
                p.failures[climb] += by
                at = p.word_ptr[of_list] + p.top[climb] // 64 - p.first_word[of_list]
                bit = np.uint64(1) << np.uint64(p.top[climb] % 64)
                p.good[at] &= ~bit
                p.single[at] &= ~bit
                if p.failures[climb] == 0:
                    p.good[at] |= bit
                elif p.failures[climb] == 1:
                    p.single[at] |= bit


# ---- both ------------------------------------------------------------------------------------


def accumulate(listed: Listed, pairs: Pairs, failed: BoolArray) -> FloatArray:
    """What flipping each component adds to the log-likelihood of all groups."""
    n = len(failed)
    shares = in_parts(len(listed.components), _accumulate_listed, listed, failed, n)
    if len(pairs.bad):
        for down in (0, 1):  # one after the other, so that a group is in one part
            shares += in_parts(len(pairs.components), _accumulate_pairs, pairs, down, failed, n)
    return np.sum(shares, axis=0)


@njit
def flip(component, listed, pairs, failed, delta, scratch):  # pragma: no cover - compiled
    """Flip a component and bring delta up to date."""
    _flip_listed(component, listed, failed, delta, scratch)
    _flip_pairs(component, pairs, failed, delta)
    failed[component] = not failed[component]


@kernel
def place(components, listed, pairs, failed):  # pragma: no cover - compiled
    """Flip many components at once, without keeping delta."""
    for component in components:
        by = -1 if failed[component] else 1
        for at in range(pairs.component_ptr[component], pairs.component_ptr[component + 1]):
            _step_list(pairs, pairs.lists[at], component, by)
        step(component, listed, failed)
    for g in range(len(pairs.bad)):
        pairs.bad[g] = pairs.values.width[g] - shared_tops(pairs, pairs.up[g], pairs.down[g])


@kernel
def likelihood(listed, pairs):  # pragma: no cover - compiled
    """Log-likelihood of all groups, relative to that of no failure."""
    total = 0.0
    for g in range(len(listed.bad)):
        total += value(listed.values, g, listed.bad[g])
    for g in range(len(pairs.bad)):
        total += value(pairs.values, g, pairs.bad[g])
    return total
