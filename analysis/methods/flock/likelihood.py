# SPDX-License-Identifier: Apache-2.0
"""The compiled core of Flock: log-likelihoods of a hypothesis, and the change that a flip makes.

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

**Gains** are kept in blocks, and after a flip only the blocks that it changed are updated. Greedy
search needs the flip with the highest gain after each flip; of a hundred thousand components, a
flip changes the gains of some hundred.

**Directions.** Which direction of a link failed, or both, is decided by all groups, one link after
the other, since probes that bounce do not tell. `turn` computes this from the groups over the link
alone, without the update of every component's delta that a flip makes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.flock.flow_values import value
from analysis.methods.flock.listed import Listed, accumulate_listed, flip_listed, gain_of, step
from analysis.methods.flock.pairs import (
    Pairs,
    accumulate_pairs,
    flip_pairs,
    ones,
    place_pairs,
    step_pairs,
    word_of,
)
from analysis.solvers.parts import in_parts
from testbed.arrays import BoolArray, FloatArray, FloatMatrix, IntArray, LongArray, WordArray
from testbed.compiled import kernel, njit


class State(NamedTuple):
    """A hypothesis with the quantities that follow from it; the compiled functions modify it.

    Attributes:
        listed, pairs: The groups, in the state of the hypothesis.
        failed: The hypothesis, bool[n_components].
        delta: Change of the log-likelihood in nats if a component is flipped,
            float64[n_components].
        scratch: Scratch memory, all 0 between two calls, int32[n_components].
        prior: Log-odds of each component's failure, float64[n_components].
        posterior: Log posterior relative to no failure, float64[1].
    """

    listed: Listed
    pairs: Pairs
    failed: BoolArray
    delta: FloatArray
    scratch: IntArray
    prior: FloatArray
    posterior: FloatArray


def accumulate(listed: Listed, pairs: Pairs, failed: BoolArray) -> FloatArray:
    """Return the change of the log-likelihood of all groups if each component is flipped:
    float64[n_components]."""
    n = len(failed)
    shares = in_parts(len(listed.components), accumulate_listed, listed, failed, n)
    if len(pairs.bad):
        for down in (0, 1):  # one after the other, so that a group is in one part
            shares += in_parts(
                len(pairs.climbs.components), accumulate_pairs, pairs, down, failed, n
            )
    return np.sum(shares, axis=0)


@njit
def flip(component, s):
    """Flip a component of the hypothesis and update delta, but not the posterior."""
    flip_listed(component, s.listed, s.failed, s.delta, s.scratch)
    flip_pairs(component, s.pairs, s.failed, s.delta)
    s.failed[component] = not s.failed[component]


@kernel
def place(components, s):
    """Flip many components at once, without updating delta."""
    for component in components:
        step_pairs(component, s.pairs, -1 if s.failed[component] else 1)
        step(component, s.listed, s.failed)
    place_pairs(s.pairs)


@kernel
def likelihood(s):
    """Return the log-likelihood of all groups in nats, relative to that of no failure."""
    total = 0.0
    for g in range(len(s.listed.bad)):
        total += value(s.listed.values, g, s.listed.bad[g])
    for g in range(len(s.pairs.bad)):
        total += value(s.pairs.values, g, s.pairs.bad[g])
    return total


BETTER = 1e-6
"""Nats by which a hypothesis must be better than another; smaller differences are rounding."""

_BLOCK = 256


class Gains(NamedTuple):
    """The change of the log posterior for each allowed flip, and the highest in each block.

    Attributes:
        gain: Change in nats for each component, float64[n_components]; -inf for a flip that is not
            allowed.
        most: The highest gain of each block, float64[blocks].
        stale: Blocks whose gains must be computed again, bool[blocks].
        allowed: Components that may be flipped, bool[n_components].
        remove: Whether failed components may be flipped back.
        but: A component that may not be flipped, int64[1]; -1 = none.
    """

    gain: FloatArray
    most: FloatArray
    stale: BoolArray
    allowed: BoolArray
    remove: bool
    but: LongArray

    @classmethod
    def of(cls, allowed: BoolArray, *, remove: bool) -> Gains:
        """Return gains that are all stale; ``allowed``, bool[n_components], is kept, not copied."""
        blocks = -(-len(allowed) // _BLOCK)
        return cls(
            gain=np.empty(len(allowed)),
            most=np.empty(blocks),
            stale=np.ones(blocks, np.bool_),
            allowed=allowed,
            remove=remove,
            but=np.full(1, -1),
        )


@kernel
def touched(component, gains: Gains, s: State):
    """Mark as stale the blocks of all components that share a group with a component."""
    gains.stale[component // _BLOCK] = True
    pairs, listed = s.pairs, s.listed
    if pairs.climbs.component_ptr[component] < pairs.climbs.component_ptr[component + 1]:
        gains.stale[:] = True  # its flip takes far longer than the update of all gains
        return
    for at in range(listed.component_ptr[component], listed.component_ptr[component + 1]):
        g = listed.groups[at]
        first, last = listed.group_ptr[g], listed.group_ptr[g + 1]
        for e in range(listed.path_ptr[first], listed.path_ptr[last]):
            gains.stale[listed.components[e] // _BLOCK] = True


@kernel
def most_gained(gains: Gains, s: State):
    """Update all stale gains; return the highest gain, or 0 if no flip gains."""
    most, n = 0.0, len(gains.gain)
    failed, delta, prior = s.failed, s.delta, s.prior
    for block in range(len(gains.most)):
        if gains.stale[block]:
            gains.stale[block] = False
            top = -np.inf
            for c in range(block * _BLOCK, min((block + 1) * _BLOCK, n)):
                if not gains.allowed[c] or (failed[c] and not gains.remove) or c == gains.but[0]:
                    gains.gain[c] = -np.inf
                    continue
                gains.gain[c] = delta[c] - prior[c] if failed[c] else delta[c] + prior[c]
                top = max(top, gains.gain[c])
            gains.most[block] = top
        most = max(most, gains.most[block])
    return most


@kernel
def hope(gains: Gains, s: State):
    """Return the log posterior plus all positive gains: an optimistic estimate of what further
    flips can reach."""
    total = s.posterior[0]
    for block in range(len(gains.most)):
        if gains.most[block] > 0:
            for gain in gains.gain[block * _BLOCK : (block + 1) * _BLOCK]:
                if gain > 0:
                    total += gain
    return total


@kernel
def first_best(gains: Gains, most):
    """Return the first component whose gain equals ``most``, the highest gain, up to rounding; -1
    if ``most`` is no more than rounding."""
    if most <= BETTER:
        return -1
    least = max(most - 1e-9 * most, BETTER)
    for block in range(len(gains.most)):
        if gains.most[block] >= least:
            for c in range(block * _BLOCK, min((block + 1) * _BLOCK, len(gains.gain))):
                if gains.gain[c] >= least:
                    return c
    return -1


TURNS = 2
LEAST = 1e-6  # nats; smaller gains are rounding


class Room(NamedTuple):
    """Working memory of `turn`.

    Attributes:
        at: Indices of the words, or of the tops, to which the climbs lead whose state a flip
            changes, int64[].
        tops: The bits of these tops in each word, uint64[].
        near: A cache of the log-likelihood of each group with one bad path less than now, with as
            many, and with one more, float64[n_groups, 4]; nan = unknown. Most flips need only
            these.
    """

    at: LongArray
    tops: WordArray
    near: FloatMatrix

    @classmethod
    def of(cls, pairs: Pairs) -> Room:
        """Return memory for the longest list of climbs of ``pairs``, with nothing cached."""
        most = int(np.diff(pairs.climbs.list_ptr).max(initial=0))
        near = np.full((len(pairs.bad), 4), np.nan)
        return cls(np.zeros(most, np.int64), np.zeros(most, np.uint64), near)


@kernel
def turn(links, room, s):
    """Set each of the directed ``links``, in ascending order, and its other direction to their most
    likely state with all other components fixed; repeat up to `TURNS` times. Delta is not
    updated."""
    for _ in range(TURNS):
        changed, before = False, -1
        for link in links:
            if link ^ 1 != before:  # otherwise both directions have just been set
                changed |= _turn(link, link ^ 1, room, s)
            before = link
        if not changed:
            return


@kernel
def _turn(one, other, room, s):
    """Flip one, both or neither of two directions of a link, whichever is likeliest; return whether
    anything changed. A flow of a pair of ToRs crosses a link in one direction only, so the gains of
    the two directions add up for pairs."""
    first, second = _over_pairs(one, False, room, s), _over_pairs(other, False, room, s)
    alone, instead = first + _listed(one, s), second + _listed(other, s)
    step(one, s.listed, s.failed)
    both = alone + second + _listed(other, s)
    step(one, s.listed, s.failed)
    most = max(alone, instead, both)
    if most <= LEAST:
        return False
    if most != instead:
        _flip(one, room, s)
    if most != alone:
        _flip(other, room, s)
    s.posterior[0] += most
    return True


@kernel
def _listed(component, s):
    """Return the change of the log-likelihood of listed groups and of the prior for a flip."""
    prior = -s.prior[component] if s.failed[component] else s.prior[component]
    return prior + gain_of(component, s.listed, s.failed)


@kernel
def _flip(component, room, s):
    """Flip a component and update the pairs' caches, but not delta."""
    _over_pairs(component, True, room, s)
    step_pairs(component, s.pairs, -1 if s.failed[component] else 1)
    step(component, s.listed, s.failed)


@kernel
def _over_pairs(component, flips, room, s):
    """Return the change of the log-likelihood of pairs of ToRs for the flip of a directed link.
    With ``flips``, update their numbers of bad paths instead, and return 0."""
    p, gain = s.pairs, 0.0
    released = s.failed[component]
    for at in range(p.climbs.component_ptr[component], p.climbs.component_ptr[component + 1]):
        of_list = p.climbs.lists[at]
        n = _turning(p, of_list, component, released, room)
        for i in range(p.group_ptr[of_list], p.group_ptr[of_list + 1]):
            turned = 0
            if len(p.ways):
                for k in range(n):
                    turned += p.ways[p.others[i], room.at[k]]
            else:
                for k in range(n):
                    turned += ones(room.tops[k] & word_of(p.good, p, p.others[i], room.at[k]))
            if turned:
                g, by = p.groups[i], -turned if released else turned
                if flips:
                    _moved(p.bad, g, by, room.near)
                elif turned == 1:
                    gain += _known(p, g, by, room.near) - _known(p, g, 0, room.near)
                else:
                    gain += value(p.values, g, p.bad[g] + by) - _known(p, g, 0, room.near)
    return gain


@kernel
def _known(p, g, by, near):
    """Return the log-likelihood of a group with ``by`` (-1, 0 or 1) more bad paths, cached in
    ``near``."""
    if np.isnan(near[g, 1 + by]):
        near[g, 1 + by] = value(p.values, g, p.bad[g] + by)
    return near[g, 1 + by]


@kernel
def _moved(bad, g, by, near):
    """Add ``by`` to the number of bad paths of a group, and shift its cached values."""
    bad[g] += by
    less, now, more = near[g, 0], near[g, 1], near[g, 2]
    near[g, 0] = now if by == 1 else np.nan
    near[g, 1] = more if by == 1 else less if by == -1 else np.nan
    near[g, 2] = now if by == -1 else np.nan


@kernel
def _turning(p, of_list, component, released, room):
    """Write to ``room`` the tops of those climbs of a list that become good or bad by the flip of a
    component: as words and their indices, or as single tops if several climbs lead to one. Return
    how many entries were written."""
    n = 0
    for climb in range(p.climbs.list_ptr[of_list], p.climbs.list_ptr[of_list + 1]):
        if p.failures[climb] != released:
            continue
        for e in range(p.climbs.climb_ptr[climb], p.climbs.climb_ptr[climb + 1]):
            if p.climbs.components[e] == component:
                top = p.climbs.top[climb]
                if len(p.ways):
                    room.at[n] = top
                    n += 1
                    continue
                if n == 0 or room.at[n - 1] != top // 64:
                    room.at[n], room.tops[n] = top // 64, np.uint64(0)
                    n += 1
                room.tops[n - 1] |= np.uint64(1) << np.uint64(top % 64)
    return n
