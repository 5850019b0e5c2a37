# SPDX-License-Identifier: Apache-2.0
"""Groups of flows and probes whose possible paths are listed; flows with equal sets are one group.

This module builds the groups, sums their contributions to delta, and updates both after a flip.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.flock.flow_values import Counts, FlowValues, Loss, flow_values
from analysis.solvers.parts import in_parts
from analysis.telemetry.telemetry import Flows, Probes
from testbed.arrays import IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths, PathSets, pointers
from testbed.kernels import Kernels

KERNELS = Kernels.beside(__file__)


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

    @property
    def n_groups(self) -> int:
        """Return the number of groups."""
        return len(self.bad)


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
    """The arrays of a `PathSets` in a form that kernels can read."""

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


def _equal_sets(sets: PathSets) -> tuple[IntArray, IntArray]:
    """Return the group of each path set, and the first set of each group; equal sets are one
    group."""
    arrays = _Sets(sets.ptr, sets.paths.ptr, sets.paths.links)
    hashes = np.empty(len(sets), np.uint64)
    in_parts(
        len(sets),
        lambda part, parts: KERNELS.hash_sets(part=part, parts=parts, sets=arrays, hashes=hashes),
    )
    slots = np.full(max(16, 1 << (2 * len(sets) - 1).bit_length()), -1, np.int32)
    group, first = np.empty(len(sets), np.int32), np.empty(len(sets), np.int32)
    n = KERNELS.group_equal(sets=arrays, hashes=hashes, slots=slots, group=group, first=first)
    return group, first[:n]


def _collect_part(
    part: int, parts: int, paths: Paths, components: Components, count: LongArray
) -> IntArray:
    """Return the components of one part of the paths, one path after another, and write how many
    each path has to ``count``."""
    first, last = (len(paths) * at // parts for at in (part, part + 1))
    out = np.empty(3 * (paths.ptr[last] - paths.ptr[first]), np.int32)
    n = KERNELS.path_components(
        part=part,
        parts=parts,
        ptr=paths.ptr,
        links=paths.links,
        components=components,
        count=count,
        out=out,
    )
    return out[:n]


def _path_components(paths: Paths, components: Components) -> tuple[LongArray, IntArray]:
    """Return the components of every path as CSR arrays: ``path_ptr``, int64[P + 1], and
    components, int32[]."""
    count = np.zeros(len(paths), np.int64)
    parts = in_parts(len(paths), _collect_part, paths, components, count)
    return pointers(count), np.concatenate(parts)


def occurrences(
    outer: LongArray, inner: LongArray, components: IntArray, n_components: int
) -> tuple[LongArray, IntArray]:
    """Return the groups (or lists) in which each component occurs, as two CSR arrays. Group g has
    the paths from ``outer[g]`` on, path p the components from ``inner[p]`` on."""
    given = {"outer": outer, "inner": inner, "components": components}
    last, count = np.full(n_components, -1, np.int32), np.zeros(n_components, np.int64)
    KERNELS.count_occurrences(**given, last=last, count=count)
    ptr, last[:] = pointers(count), -1
    groups = np.empty(ptr[-1], np.int32)
    KERNELS.write_occurrences(**given, last=last, free_place=ptr[:-1].copy(), groups=groups)
    return ptr, groups


def _join(parts: list[LongArray]) -> LongArray:
    whole = parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])
    return whole.astype(np.int64, copy=False)
