"""Which direction of a link failed, or both: asked of all groups, one link after the other.

Probes that bounce say nothing of it. Flips would bring the delta of all components up to date each
time; the groups over the link alone give the answer as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.flock.flow_values import value
from analysis.methods.flock.listed import gain_of, step
from analysis.methods.flock.pairs import Pairs, ones, step_pairs, word_of
from testbed.arrays import FloatMatrix, LongArray, WordArray
from testbed.fabric.compiled import kernel

TURNS = 2
LEAST = 1e-6  # nats: less is rounding


class Room(NamedTuple):
    """What `turn` works in.

    Where the climbs of a list lead that a flip turns: ``at`` int64 and words of ``tops`` uint64.
    ``near`` float64[n_groups, 4]: the log-likelihood of each group with one bad path less than now,
    with as many, and with one more; nan if not known. It is what most flips ask for, and all of a
    group's other numbers are far apart in memory.
    """

    at: LongArray
    tops: WordArray
    near: FloatMatrix

    @classmethod
    def of(cls, pairs: Pairs) -> Room:
        most = int(np.diff(pairs.list_ptr).max(initial=0))
        near = np.full((len(pairs.bad), 4), np.nan)
        return cls(np.zeros(most, np.int64), np.zeros(most, np.uint64), near)


@kernel
def turn(links, room, s):
    """Give each of the directed ``links``, in ascending order, the likeliest state of its two
    directions, the others held, `TURNS` times. Does not keep delta."""
    for _ in range(TURNS):
        changed, before = False, -1
        for link in links:
            if link ^ 1 != before:  # else both directions have just been chosen
                changed |= _turn(link, link ^ 1, room, s)
            before = link
        if not changed:
            return


@kernel
def _turn(one, other, room, s):
    """The likeliest of what flips of two directions lead to; says if that is a change. Flows of a
    pair of ToRs cross a link in one direction only, so both count one by one there."""
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
    """What a flip adds to the log-likelihood of listed groups, and to the prior."""
    prior = -s.prior[component] if s.failed[component] else s.prior[component]
    return prior + gain_of(component, s.listed, s.failed)


@kernel
def _flip(component, room, s):
    """Flip a component without keeping delta."""
    _over_pairs(component, True, room, s)
    step_pairs(component, s.pairs, -1 if s.failed[component] else 1)
    step(component, s.listed, s.failed)


@kernel
def _over_pairs(component, flips, room, s):
    """What a flip adds to the log-likelihood of the pairs of ToRs, of which a directed link is on
    the way up or down; with ``flips`` their bad paths are counted as after it instead."""
    p, gain = s.pairs, 0.0
    released = s.failed[component]
    for at in range(p.component_ptr[component], p.component_ptr[component + 1]):
        of_list = p.lists[at]
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
    """The log-likelihood of a group with ``by`` more bad paths: one less, none or one."""
    if np.isnan(near[g, 1 + by]):
        near[g, 1 + by] = value(p.values, g, p.bad[g] + by)
    return near[g, 1 + by]


@kernel
def _moved(bad, g, by, near):
    """A group has ``by`` more bad paths."""
    bad[g] += by
    less, now, more = near[g, 0], near[g, 1], near[g, 2]
    near[g, 0] = now if by == 1 else np.nan
    near[g, 1] = more if by == 1 else less if by == -1 else np.nan
    near[g, 2] = now if by == -1 else np.nan


@kernel
def _turning(p, of_list, component, released, room):
    """Where the climbs of a list lead that a flip of one of their components turns: words of tops
    and their index, or the tops alone where several climbs lead to one. How many there are."""
    n = 0
    for climb in range(p.list_ptr[of_list], p.list_ptr[of_list + 1]):
        if p.failures[climb] != released:
            continue
        for e in range(p.climb_ptr[climb], p.climb_ptr[climb + 1]):
            if p.components[e] == component:
                top = p.top[climb]
                if len(p.ways):
                    room.at[n] = top
                    n += 1
                    continue
                if n == 0 or room.at[n - 1] != top // 64:
                    room.at[n], room.tops[n] = top // 64, np.uint64(0)
                    n += 1
                room.tops[n - 1] |= np.uint64(1) << np.uint64(top % 64)
    return n
