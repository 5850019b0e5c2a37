# SPDX-License-Identifier: Apache-2.0
"""Groups of flows and probes whose possible paths are listed; flows with equal sets are one group.

This module builds the groups, sums their contributions to delta, and updates both after a flip.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.flock.flow_values import Counts, FlowValues, Loss, flow_values, value
from analysis.solvers.parts import in_parts
from analysis.telemetry.telemetry import Flows, Probes
from testbed.arrays import IntArray, LongArray
from testbed.compiled import kernel, njit
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths, PathSets, pointers


class Listed(NamedTuple):
    """Groups with their paths, and the state of a hypothesis on them.

    Group g's paths are ``group_ptr[g]:group_ptr[g + 1]``; path p consists of the components
    ``components[path_ptr[p]:path_ptr[p + 1]]``, each once; component c occurs in the groups
    ``groups[component_ptr[c]:component_ptr[c + 1]]``. ``failures``, int32[P], is the number of
    failed components on each path, and ``bad``, int32[G], that of bad paths of each group.
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
    """Add group g's contribution to every component's delta, times ``sign``.

    If a component fails, its paths without a failed component become bad; if it is released, those
    on which it is the only failed one become good.
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
    """Return the contribution to delta of one part of the groups: float64[n_components]."""
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
    """Update the listed groups of a component, and their contributions to delta, for its flip.
    ``failed`` is the same after the call as before."""
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
    """Return the change of the log-likelihood of listed groups if a component is flipped, computed
    from its groups and not from delta."""
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
    """Flip a component and update the listed groups, but not delta."""
    by = -1 if failed[component] else 1
    for at in range(m.component_ptr[component], m.component_ptr[component + 1]):
        _step_listed(m, m.groups[at], component, by)
    failed[component] = by == 1


class Components(NamedTuple):
    """The numbering of a fabric's links and switches as components.

    Directed link ``l`` is component ``l >> shift``, switch ``s`` is ``n_links + s``; a link is from
    switch ``link_src[l]`` to ``link_dst[l]``.
    """

    link_src: IntArray
    link_dst: IntArray
    shift: int
    n_links: int

    @classmethod
    def of(cls, fabric: Fabric, *, undirected: bool) -> Components:
        """Return the numbering for a fabric; ``undirected`` makes the two directions of a link one
        component."""
        shift = 1 if undirected else 0
        return cls(fabric.link_src, fabric.link_dst, shift, fabric.n_links >> shift)


class _Sets(NamedTuple):
    """The arrays of a `PathSets` in a form that compiled functions can read."""

    ptr: LongArray
    path_ptr: LongArray
    links: IntArray


def listed_groups(
    flows: Flows | None,
    probes: Probes | None,
    components: Components,
    n_components: int,
    loss: Loss,
    conditional: bool = False,
) -> Listed:
    """Return the groups of probes and of flows whose possible paths are listed.

    With ``conditional``, flows that were reported because they lost packets are scored given that
    they lost some.
    """
    sets, path_set, counts = _listed_flows(flows, probes, conditional)
    group, first = _equal_sets(sets)
    if len(first) < len(sets):
        sets = sets.take(first)
    path_ptr, of_path = _path_components(sets.paths, components)
    values = flow_values(group[path_set], sets.width, counts, loss)
    return make_listed(sets.ptr, Paths(path_ptr, of_path), values, n_components)


def make_listed(
    group_ptr: LongArray, paths: Paths, values: FlowValues, n_components: int
) -> Listed:
    """Return groups over paths of components, with no component failed. A component occurs at most
    once in a path. Group g has the paths numbered ``group_ptr[g]`` to ``group_ptr[g + 1] - 1``."""
    component_ptr, groups = occurrences(group_ptr, paths.ptr, paths.links, n_components)
    return Listed(
        group_ptr=group_ptr,
        path_ptr=paths.ptr,
        components=paths.links,
        component_ptr=component_ptr,
        groups=groups,
        values=values,
        failures=np.zeros(len(paths), np.int32),
        bad=np.zeros(len(group_ptr) - 1, np.int32),
    )


def _listed_flows(
    flows: Flows | None, probes: Probes | None, conditional: bool
) -> tuple[PathSets, LongArray, Counts]:
    """Return the path sets that flows and probes use, and the set and the packets of each flow."""
    sets: list[PathSets] = []
    path_set: list[LongArray] = []
    counts: list[tuple[LongArray, LongArray]] = []
    if flows is not None:
        nth = flows.path_set.astype(np.int64) - (len(flows.sets) - len(flows.listed))
        some = (flows.sent > 0) & (nth >= 0)
        some[some] = flows.listed.n_entries[nth[some]] > 0
        flow = np.flatnonzero(some)
        part, number = _used(flows.listed, nth[flow])
        sets.append(part)
        path_set.append(number)
        counts.append((flows.sent[flow], flows.lost[flow]))
    if probes is not None:
        part, sent, lost = PathSets.known(probes.paths), probes.sent, probes.lost
        number = np.arange(len(part))
        some = (sent > 0) & (part.paths.length > 0)
        if not some.all():  # else there is no need of copies, which are large
            part, number = _used(part, number[some])
            sent, lost = sent[some], lost[some]
        path_set.append(number)
        sets.append(part)
        counts.append((sent, lost))
    sent, lost = (_join([column[i] for column in counts]) for i in (0, 1))
    given_loss = np.zeros(len(sent), np.bool_)
    if conditional and flows is not None and (flows.lost > 0).all():
        given_loss[: len(path_set[0])] = True
    if len(sets) > 1:
        path_set[1] += len(sets[0])
        sets = [PathSets.join(sets)]
    return sets[0], _join(path_set), Counts(sent, lost, given_loss)


def _used(sets: PathSets, path_set: LongArray) -> tuple[PathSets, LongArray]:
    """Return the path sets that a flow uses, and the number of each flow's set among them."""
    used = np.zeros(len(sets), np.bool_)
    used[path_set] = True
    if used.all():
        return sets, path_set
    return sets.take(np.flatnonzero(used)), (np.cumsum(used) - 1)[path_set]


@kernel
def _hashes(part, parts, sets, out):
    for s in range(part * len(out) // parts, (part + 1) * len(out) // parts):
        x = np.uint64(0xCBF29CE484222325)
        for p in range(sets.ptr[s], sets.ptr[s + 1]):
            for e in range(sets.path_ptr[p], sets.path_ptr[p + 1]):
                x = (x ^ np.uint64(sets.links[e])) * np.uint64(0x9E3779B97F4A7C15)
                x ^= x >> np.uint64(29)
            x = (x ^ np.uint64(0xFFFFFFFF)) * np.uint64(0xBF58476D1CE4E5B9)
        out[s] = x ^ (x >> np.uint64(32))


@kernel
def _same(a, b, sets):
    n = sets.ptr[a + 1] - sets.ptr[a]
    if n != sets.ptr[b + 1] - sets.ptr[b]:
        return False
    for i in range(n):
        p, q = sets.path_ptr[sets.ptr[a] + i], sets.path_ptr[sets.ptr[b] + i]
        length = sets.path_ptr[sets.ptr[a] + i + 1] - p
        if length != sets.path_ptr[sets.ptr[b] + i + 1] - q:
            return False
        for j in range(length):
            if sets.links[p + j] != sets.links[q + j]:
                return False
    return True


def _equal_sets(sets: PathSets) -> tuple[IntArray, IntArray]:
    """Return the group of each path set, and the first set of each group; equal sets are one
    group."""
    arrays = _Sets(sets.ptr, sets.paths.ptr, sets.paths.links)
    hashes = np.empty(len(sets), np.uint64)
    in_parts(len(sets), _hashes, arrays, hashes)
    return _distinct(hashes, arrays)


@njit
def _distinct(hashes, sets):
    n = len(hashes)
    size = 16
    while size < 2 * n:
        size *= 2
    slots = np.full(size, -1, np.int32)
    group, first = np.empty(n, np.int32), np.empty(n, np.int32)
    return group, first[: _assign(hashes, sets, slots, group, first)]


@kernel
def _assign(hashes, sets, slots, group, first):
    """Insert the sets into a hash table of groups, ``slots``; return the number of groups."""
    n_groups = 0
    for s in range(len(hashes)):
        at = np.int64(hashes[s] & np.uint64(len(slots) - 1))
        while slots[at] >= 0:
            other = first[slots[at]]
            if hashes[other] == hashes[s] and _same(other, s, sets):
                break
            at = (at + 1) & (len(slots) - 1)
        if slots[at] < 0:
            slots[at] = n_groups
            first[n_groups] = s
            n_groups += 1
        group[s] = slots[at]
    return n_groups


@kernel
def _collect(path, components, out):
    """Write the components of a path, given as links, each once; return how many there are."""
    n = 0
    for link in path:
        src, dst = components.link_src[link], components.link_dst[link]
        for c in (
            link >> components.shift,
            components.n_links + src,
            components.n_links + dst,
        ):
            for i in range(n):
                if out[i] == c:
                    break
            else:
                out[n] = c
                n += 1
    return n


@njit
def _collect_part(part, parts, ptr, links, components, count):
    """Return the components of one part of the paths, one path after another, and write how many
    each path has to ``count``."""
    n = len(ptr) - 1
    first, last = part * n // parts, (part + 1) * n // parts
    out = np.empty(3 * (ptr[last] - ptr[first]), np.int32)
    return out[: _collect_paths(first, last, ptr, links, components, count, out)]


@kernel
def _collect_paths(first, last, ptr, links, components, count, out):
    at = 0
    for p in range(first, last):
        count[p] = _collect(links[ptr[p] : ptr[p + 1]], components, out[at:])
        at += count[p]
    return at


def _path_components(paths: Paths, components: Components) -> tuple[LongArray, IntArray]:
    """Return the components of every path as CSR arrays: ``path_ptr``, int64[P + 1], and
    components, int32[]."""
    count = np.zeros(len(paths), np.int64)
    parts = in_parts(len(paths), _collect_part, paths.ptr, paths.links, components, count)
    return pointers(count), np.concatenate(parts)


@njit
def occurrences(outer_ptr, inner_ptr, components, n_components):
    """Return the groups (or lists) in which each component occurs, as two CSR arrays."""
    ptr = np.zeros(n_components + 1, np.int64)
    last = np.full(n_components, -1, np.int32)
    for g in range(len(outer_ptr) - 1):
        for e in range(inner_ptr[outer_ptr[g]], inner_ptr[outer_ptr[g + 1]]):
            if last[components[e]] != g:
                last[components[e]] = g
                ptr[components[e] + 1] += 1
    ptr = np.cumsum(ptr)
    groups = np.empty(ptr[n_components], np.int32)
    free = ptr[:-1].copy()
    last[:] = -1
    for g in range(len(outer_ptr) - 1):
        for e in range(inner_ptr[outer_ptr[g]], inner_ptr[outer_ptr[g + 1]]):
            c = components[e]
            if last[c] != g:
                last[c] = g
                groups[free[c]] = g
                free[c] += 1
    return ptr, groups


def _join(parts: list[LongArray]) -> LongArray:
    whole = parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])
    return whole.astype(np.int64, copy=False)
