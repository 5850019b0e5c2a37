"""Groups that name their paths: what they say of each component, and what a flip changes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.flock.flow_values import FlowValues, value
from testbed.arrays import IntArray, LongArray
from testbed.fabric.compiled import kernel, njit


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


@kernel
def _listed_share(m, g, sign, failed, delta, scratch):
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
def accumulate_listed(part, parts, m, failed, n_components):
    """A part of the groups' delta: float64[n_components]."""
    n = len(m.group_ptr) - 1
    delta, scratch = np.zeros(n_components), np.zeros(n_components, np.int32)
    for g in range(part * n // parts, (part + 1) * n // parts):
        _listed_share(m, g, 1.0, failed, delta, scratch)
    return delta


@kernel
def _step_listed(m, g, component, by):
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
def flip_listed(component, m, failed, delta, scratch):
    fails = not failed[component]
    for at in range(m.component_ptr[component], m.component_ptr[component + 1]):
        g = m.groups[at]
        _listed_share(m, g, -1.0, failed, delta, scratch)
        _step_listed(m, g, component, 1 if fails else -1)
        failed[component] = fails
        _listed_share(m, g, 1.0, failed, delta, scratch)
        failed[component] = not fails


@kernel
def gain_of(component, m, failed):
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
def step(component, m, failed):
    """Flip a component of listed groups without keeping delta."""
    by = -1 if failed[component] else 1
    for at in range(m.component_ptr[component], m.component_ptr[component + 1]):
        _step_listed(m, m.groups[at], component, by)
    failed[component] = by == 1
