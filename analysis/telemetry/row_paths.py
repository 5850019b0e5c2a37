# SPDX-License-Identifier: Apache-2.0
"""The paths of rows of an observations file, given by links or by nodes, as path sets of links."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from testbed.arrays import BoolArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths, PathSets, pointers
from testbed.record.exchange import KINDS
from testbed.record.fabric_file import NumberedFabric
from testbed.record.foreign import Receipt
from testbed.record.messages import shown
from testbed.record.tables import Nested, Table


class Hops(NamedTuple):
    """What is known of each row beside its path: the two ToRs, int64[rows], -1 if not given, and
    whether its path is a trace, which may have gaps, bool[rows]."""

    src: LongArray
    dst: LongArray
    traced: BoolArray


def path_sets(table: Table, numbered: NumberedFabric, hops: Hops) -> tuple[LongArray, PathSets]:
    """Return the number of each row's path set, int64[rows], -1 if none is given, and all path
    sets, whether they are given by links or by nodes."""
    by_link, by_node = table.has_value("paths"), table.has_value("nodes")
    table.refuse(by_link & by_node, "both paths and nodes are given: give one of them")
    parts = []
    for name, given in (("paths", by_link), ("nodes", by_node)):
        nested = table.values(name)
        row = np.repeat(np.repeat(np.arange(len(table)), nested.width), nested.length)
        if name == "paths":
            length, links = _from_links(table, numbered, nested, row)
        else:
            length, links = _from_nodes(table, numbered, nested, row, hops)
            given &= ~hops.traced | (_links_of_rows(nested, length) > 0)  # no trace without a link
        sets = PathSets(pointers(nested.width), Paths(pointers(length), links))
        parts.append(sets.take(np.flatnonzero(given)))
    set_of = np.full(len(table), -1, np.int64)
    set_of[by_link] = np.arange(by_link.sum())
    set_of[by_node] = by_link.sum() + np.arange(by_node.sum())
    return set_of, PathSets.join(parts)


def _links_of_rows(nested: Nested, length: LongArray) -> LongArray:
    """Return the number of links on all paths of each row, int64[rows]."""
    row = np.repeat(np.arange(len(nested.width)), nested.width)
    return np.bincount(row, length, len(nested.width)).astype(np.int64)


def _from_links(
    table: Table, numbered: NumberedFabric, nested: Nested, row: LongArray
) -> tuple[LongArray, IntArray]:
    if nested.names:
        return nested.length, _named_links(table, numbered, nested, row)
    order = np.argsort(numbered.link_ids)
    known = numbered.link_ids[order]
    at = np.minimum(np.searchsorted(known, nested.values), len(known) - 1)
    unknown = known[at] != nested.values
    for entry in np.flatnonzero(unknown)[:1]:
        raise table.fail(int(row[entry]), f"link {nested.values[entry]} is not in the fabric")
    return nested.length, order[at].astype(np.int32)


def _named_links(
    table: Table, numbered: NumberedFabric, nested: Nested, row: LongArray
) -> IntArray:
    """Return the link of each entry of paths that name their links: ``leaf2->spine1#2``, or its
    number as text."""
    known = {str(number): i for i, number in enumerate(numbered.link_ids.tolist())}
    known |= {name: i for i, name in enumerate(numbered.fabric.link_names)}
    link = np.array([known.get(name, -1) for name in nested.names], np.int32)[nested.values]
    for entry in np.flatnonzero(link < 0)[:1]:
        name = shown(nested.names[nested.values[entry]])
        raise table.fail(int(row[entry]), f"link {name} is not in the fabric")
    return link


GAP = "*"
"""A hop of a trace that did not answer."""


def _from_nodes(
    table: Table, numbered: NumberedFabric, nested: Nested, row: LongArray, hops: Hops
) -> tuple[LongArray, IntArray]:
    """Return the number of links of each path, and the links between its consecutive nodes.

    ``spine1#2`` is reached by the second of several links from the node before it. A node that is
    named twice in a row, as where links are listed, counts once. A hop that did not answer is the
    only switch that it can be, or the links at it are left out.
    """
    fabric = numbered.fabric
    known = {name: i for i, name in enumerate(fabric.switch_names)}
    named = np.array([_node_and_link(name, known) for name in nested.names], np.int64)
    node, nth = named.reshape(-1, 2)[nested.values].T
    for entry in np.flatnonzero(node == -1)[:1]:
        name = nested.names[nested.values[entry]]
        raise table.fail(int(row[entry]), f"node {shown(name)} is not a switch of the fabric")
    path = np.repeat(np.arange(len(nested.length)), nested.length)
    again = np.zeros(len(node), np.bool_)
    again[1:] = (node[1:] == node[:-1]) & (path[1:] == path[:-1]) & (nth[1:] == 0) & (node[1:] >= 0)
    node, nth, row, path = (each[~again] for each in (node, nth, row, path))
    for entry in np.flatnonzero((node < 0) & ~hops.traced[row])[:1]:
        raise table.fail(
            int(row[entry]), f"nodes has {GAP}: only a connection's trace may have gaps"
        )
    node = _filled(fabric, node, path, hops.src[row], hops.dst[row])
    here = np.flatnonzero(path[1:] == path[:-1])
    here = here[(node[here] >= 0) & (node[here + 1] >= 0)]
    key = fabric.link_src.astype(np.int64) * fabric.n_switches + fabric.link_dst
    order = np.argsort(key, kind="stable")
    wanted = node[here] * fabric.n_switches + node[here + 1]
    low = np.searchsorted(key[order], wanted)
    high = np.searchsorted(key[order], wanted, side="right")
    which = nth[here + 1]
    chosen = np.where(which > 0, low + which - 1, low)
    for entry in np.flatnonzero((chosen >= high) | ((which == 0) & (high - low != 1)))[:1]:
        ends_of = [fabric.switch_names[node[here[entry] + i]] for i in (0, 1)]
        reason = (
            f"no link leads from {ends_of[0]} to {ends_of[1]}"
            if high[entry] == low[entry] or which[entry]
            else f"several links lead from {ends_of[0]} to {ends_of[1]}: give paths by link, or "
            f"{ends_of[1]}#2 for the second"
        )
        raise table.fail(int(row[here[entry]]), reason)
    length = np.bincount(path[here], minlength=len(nested.length))
    return length, order[chosen].astype(np.int32)


def _filled(
    fabric: Fabric, node: LongArray, path: LongArray, src: LongArray, dst: LongArray
) -> LongArray:
    """Return the nodes of traces, int64[nodes], in which a hop that did not answer, a negative one,
    is the only switch that it can be: one between its neighbours, or the ToR at the trace's end."""
    gap = np.flatnonzero(node < 0)
    if not len(gap):
        return node
    node = node.copy()
    first = np.ones(len(node), np.bool_)
    first[1:] = path[1:] != path[:-1]
    last = np.append(first[1:], True)
    node[gap] = np.where(first[gap], src[gap], np.where(last[gap], dst[gap], -2))
    node[node < 0] = -2
    gap = gap[node[gap] < 0]
    inner = gap[(gap > 0) & (gap < len(node) - 1)]
    inner = inner[(node[inner - 1] >= 0) & (node[inner + 1] >= 0)]
    n = fabric.n_switches
    pair, nth = np.unique(node[inner - 1] * n + node[inner + 1], return_inverse=True)
    between = np.full(len(pair), -2, np.int64)
    for i, (before, after) in enumerate(zip(*np.divmod(pair, n), strict=True)):
        there = fabric.link_dst[fabric.link_src == before]
        from_there = fabric.link_src[fabric.link_dst == after]
        both = np.intersect1d(there, from_there)
        if len(both) == 1:
            between[i] = both[0]
    node[inner] = between[nth.reshape(-1)]
    return node


def _node_and_link(name: str, known: dict[str, int]) -> tuple[int, int]:
    """Return the number of a named switch, -1 if it is unknown and -2 for `GAP`, and which of
    several links leads to it, 0 if the name does not say."""
    if name == GAP:
        return -2, 0
    if name in known:
        return known[name], 0
    base, mark, nth = name.rpartition("#")
    if mark and nth.isdecimal() and len(nth) < 6 and int(nth) > 0:
        return known.get(base, -1), int(nth)
    return -1, 0


def ordered(
    sets: PathSets, fabric: Fabric, kind: LongArray, set_of: LongArray, receipt: Receipt, name: str
) -> PathSets:
    """Return path sets in which the links of probes and segments are in the order of the way, also
    where they were given as a set: first up, tier by tier, then down. Links that make no such way
    stay as they are."""
    paths = sets.paths
    counted = np.isin(kind, [KINDS.index("active"), KINDS.index("segment")]) & (set_of >= 0)
    free = np.zeros(len(sets), np.bool_)
    free[set_of[counted]] = True
    before = _broken(paths, fabric)
    wanted = np.flatnonzero(before & free[sets.owner])
    if not len(wanted):
        return sets
    some = paths.take(wanted)
    tier = fabric.tier.astype(np.int64)
    src, dst = (tier[end[some.links]] for end in (fabric.link_src, fabric.link_dst))
    step = np.where(dst > src, src, 1000 - src)
    sorted_ = Paths(some.ptr, some.links[np.lexsort((step, some.owner))])
    fits = ~_broken(sorted_, fabric)
    if not fits.any():
        return sets
    receipt.note(name, f"links of paths put in order ({fits.sum():,})")
    length, links = paths.length, paths.links.copy()
    at = np.repeat(paths.ptr[wanted[fits]], length[wanted[fits]])
    kept = sorted_.take(np.flatnonzero(fits))
    links[at + np.arange(len(kept.links)) - np.repeat(kept.ptr[:-1], kept.length)] = kept.links
    return PathSets(sets.ptr, Paths(paths.ptr, links))


def _broken(paths: Paths, fabric: Fabric) -> BoolArray:
    """Return which paths have links that do not join up, bool[P]."""
    links, owner = paths.links, paths.owner
    apart = (owner[1:] == owner[:-1]) & (fabric.link_dst[links[:-1]] != fabric.link_src[links[1:]])
    broken = np.zeros(len(paths), np.bool_)
    broken[owner[1:][apart]] = True
    return broken
