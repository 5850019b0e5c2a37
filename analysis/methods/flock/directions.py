"""Which direction of a link failed, or both: asked of all groups, one link after the other.

Probes that bounce say nothing of it. Flips would bring the delta of all components up to date each
time; the groups over the link alone give the answer as well.
"""

from __future__ import annotations

import numpy as np

from analysis.methods.flock.flow_values import value
from analysis.methods.flock.listed import gain_of, step
from analysis.methods.flock.pairs import step_pairs
from testbed.fabric.compiled import kernel

__all__ = ["turn"]

TURNS = 2
LEAST = 1e-6  # nats: less is rounding


@kernel
def turn(links, found, s):
    """Give each of the directed ``links`` the likeliest state of its two directions, the others
    held, `TURNS` times. Does not keep delta; ``found`` is room for the climbs of a list."""
    for _ in range(TURNS):
        changed = False
        for link in links:
            changed |= _turn(link, link ^ 1, found, s)
        if not changed:
            return


@kernel
def _turn(one, other, found, s):
    """The likeliest of what flips of two directions lead to; says if that is a change. Flows of a
    pair of ToRs cross a link in one direction only, so both count one by one there."""
    first, second = _over_pairs(one, False, found, s), _over_pairs(other, False, found, s)
    alone, instead = first + _listed(one, s), second + _listed(other, s)
    step(one, s.listed, s.failed)
    both = alone + second + _listed(other, s)
    step(one, s.listed, s.failed)
    most = max(alone, instead, both)
    if most <= LEAST:
        return False
    if most != instead:
        _flip(one, found, s)
    if most != alone:
        _flip(other, found, s)
    s.posterior[0] += most
    return True


@kernel
def _listed(component, s):
    """What a flip adds to the log-likelihood of listed groups, and to the prior."""
    prior = -s.prior[component] if s.failed[component] else s.prior[component]
    return prior + gain_of(component, s.listed, s.failed)


@kernel
def _flip(component, found, s):
    """Flip a component without keeping delta."""
    _over_pairs(component, True, found, s)
    step_pairs(component, s.pairs, -1 if s.failed[component] else 1)
    step(component, s.listed, s.failed)


@kernel
def _over_pairs(component, flips, found, s):
    """What a flip adds to the log-likelihood of the pairs of ToRs, of which a directed link is on
    the way up or down; with ``flips`` their bad paths are counted as after it."""
    p, gain = s.pairs, 0.0
    released = s.failed[component]
    for at in range(p.component_ptr[component], p.component_ptr[component + 1]):
        of_list = p.lists[at]
        n = 0
        for climb in range(p.list_ptr[of_list], p.list_ptr[of_list + 1]):
            if p.failures[climb] == released:
                for e in range(p.climb_ptr[climb], p.climb_ptr[climb + 1]):
                    if p.components[e] == component:
                        found[n] = climb
                        n += 1
        for i in range(p.group_ptr[of_list], p.group_ptr[of_list + 1]):
            turned = 0
            for climb in found[:n]:
                turned += _ways(p, p.others[i], p.top[climb])
            if turned:
                g = p.groups[i]
                then = p.bad[g] - turned if released else p.bad[g] + turned
                gain += value(p.values, g, then) - value(p.values, g, p.bad[g])
                if flips:
                    p.bad[g] = then
    return gain


@kernel
def _ways(p, of_list, top):
    """The good climbs of a list that lead to a top."""
    if len(p.ways):
        return p.ways[of_list, top]
    at = p.word_ptr[of_list] + top // 64 - p.first_word[of_list]
    if at < p.word_ptr[of_list] or at >= p.word_ptr[of_list + 1]:
        return 0
    return 1 if p.good[at] & (np.uint64(1) << np.uint64(top % 64)) else 0
