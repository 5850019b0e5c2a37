# SPDX-License-Identifier: Apache-2.0
"""Read an observations file, with a check of every row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from analysis.telemetry.checks import refuse_broken_paths, refuse_large_sum, refuse_more_lost
from analysis.telemetry.telemetry import Connections, Flows, Probes, SegmentCounts, Telemetry
from testbed.arrays import FloatArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets, pointers
from testbed.fabric.segments import Segments
from testbed.record.exchange import KINDS, OBSERVATIONS
from testbed.record.fabric_file import NumberedFabric
from testbed.record.foreign import Receipt
from testbed.record.messages import shown
from testbed.record.run_tables import PLANS
from testbed.record.schema import TableError
from testbed.record.tables import Nested, Table, read_table_or_parts

_CELLS = 10**9  # of the table of epochs and segments


@dataclass(frozen=True)
class _Columns:
    """The columns of a checked file, with a value for each row.

    ``kind`` and ``plan`` are indices into `KINDS` and `PLANS`; ``src`` and ``dst`` are ToRs;
    ``set_of`` is the number of the row's path set in ``sets``; all are -1 if they are not given.
    ``lost`` counts retransmissions in the rows that hosts report.
    """

    table: Table
    fabric: Fabric
    kind: LongArray
    plan: LongArray
    src: LongArray
    dst: LongArray
    set_of: LongArray
    sets: PathSets
    sent: LongArray
    lost: LongArray
    epoch: LongArray

    def rows(self, kind: str) -> LongArray:
        """Return the numbers of the rows of a kind, ascending."""
        return np.flatnonzero(self.kind == KINDS.index(kind))

    def one_path(self, rows: LongArray) -> Paths:
        """Return the path of each of the rows with these numbers, which have exactly one."""
        return self.sets.take(self.set_of[rows]).paths


def read_observations(
    path: Path | pa.Table, numbered: NumberedFabric, receipt: Receipt | None = None
) -> Telemetry:
    """Return the observations of a fabric, read from a file or a folder of files (`table_files`).

    With a ``receipt``, the table is read as other programs write it (`testbed.record.foreign`).
    Kinds without rows count as not measured.

    Raises:
        TableError: The file cannot be read, or a row is invalid (one line).
    """
    fabric = numbered.fabric
    table = read_table_or_parts(path, OBSERVATIONS, receipt)
    table.need_rows()
    kind, plan = table.values("kind").codes, table.values("plan").codes
    table.refuse((plan >= 0) & (kind != KINDS.index("active")), "only active rows have a plan")
    src, dst = (_switches(table, end, fabric) for end in ("src", "dst"))
    set_of, sets = _path_sets(table, numbered)
    _check_paths(table, fabric, kind, src, dst, set_of, sets)
    sent, lost, epoch = _counts(table, kind)
    columns = _Columns(table, fabric, kind, plan, src, dst, set_of, sets, sent, lost, epoch)
    return Telemetry(
        fabric,
        "given",
        segments=_segments(columns),
        flows=_flows(columns),
        probes=_probes(columns, "netbouncer"),
        detector=_probes(columns, "detector"),
        connections=_connections(columns),
    )


def _switches(table: Table, column: str, fabric: Fabric) -> LongArray:
    """Return a column of ToR names as indices, int[rows]; -1 in rows without a name."""
    code, names = table.values(column)
    known = {name: i for i, name in enumerate(fabric.switch_names)}
    switch = np.array([known.get(name, -2) for name in names] + [-1])[code]
    for row in np.flatnonzero((switch == -2) | (switch >= fabric.n_tors))[:1]:
        name = names[code[row]]
        what = (
            "not a switch of the fabric" if switch[row] == -2 else "not a ToR (a switch of tier 0)"
        )
        raise table.fail(int(row), f"{column} {shown(name)} is {what}")
    return switch


def _path_sets(table: Table, numbered: NumberedFabric) -> tuple[LongArray, PathSets]:
    """Return the number of each row's path set, int64[rows], -1 if none is given, and all path
    sets, whether they are given by links or by nodes."""
    by_link, by_node = table.has_value("paths"), table.has_value("nodes")
    table.refuse(by_link & by_node, "both paths and nodes are given: give one of them")
    parts = []
    for name, to_links in (("paths", _from_links), ("nodes", _from_nodes)):
        nested = table.values(name)
        row = np.repeat(np.repeat(np.arange(len(table)), nested.width), nested.length)
        length, links = to_links(table, numbered, nested, row)
        sets = PathSets(pointers(nested.width), Paths(pointers(length), links))
        parts.append(sets.take(np.flatnonzero(table.has_value(name))))
    set_of = np.full(len(table), -1, np.int64)
    set_of[by_link] = np.arange(by_link.sum())
    set_of[by_node] = by_link.sum() + np.arange(by_node.sum())
    return set_of, PathSets.join(parts)


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


def _from_nodes(
    table: Table, numbered: NumberedFabric, nested: Nested, row: LongArray
) -> tuple[LongArray, IntArray]:
    """Return the links between consecutive nodes of each path, one fewer than nodes.

    ``spine1#2`` is reached by the second of several links from the node before it. A node that is
    named twice in a row, as where links are listed, counts once.
    """
    fabric = numbered.fabric
    known = {name: i for i, name in enumerate(fabric.switch_names)}
    named = np.array([_node_and_link(name, known) for name in nested.names], np.int64)
    node, nth = named.reshape(-1, 2)[nested.values].T
    for entry in np.flatnonzero(node < 0)[:1]:
        name = nested.names[nested.values[entry]]
        raise table.fail(int(row[entry]), f"node {shown(name)} is not a switch of the fabric")
    path = np.repeat(np.arange(len(nested.length)), nested.length)
    again = np.zeros(len(node), np.bool_)
    again[1:] = (node[1:] == node[:-1]) & (path[1:] == path[:-1]) & (nth[1:] == 0)
    node, nth, row, path, values = (each[~again] for each in (node, nth, row, path, nested.values))
    nested = Nested(
        nested.width, np.bincount(path, minlength=len(nested.length)), values, nested.names
    )
    # An entry that ends its path has no next node.
    last = np.zeros(len(node), np.bool_)
    ends = np.cumsum(nested.length) - 1
    last[ends[nested.length > 0]] = True
    here = np.flatnonzero(~last)
    key = fabric.link_src.astype(np.int64) * fabric.n_switches + fabric.link_dst
    order = np.argsort(key, kind="stable")
    wanted = node[here] * fabric.n_switches + node[here + 1]
    low = np.searchsorted(key[order], wanted)
    high = np.searchsorted(key[order], wanted, side="right")
    which = nth[here + 1]
    chosen = np.where(which > 0, low + which - 1, low)
    for entry in np.flatnonzero((chosen >= high) | ((which == 0) & (high - low != 1)))[:1]:
        ends_of = [nested.names[nested.values[here[entry] + i]] for i in (0, 1)]
        reason = (
            f"no link leads from {ends_of[0]} to {ends_of[1]}"
            if high[entry] == low[entry] or which[entry]
            else f"several links lead from {ends_of[0]} to {ends_of[1]}: give paths by link, or "
            f"{ends_of[1]}#2 for the second"
        )
        raise table.fail(int(row[here[entry]]), reason)
    return np.maximum(nested.length - 1, 0), order[chosen].astype(np.int32)


def _node_and_link(name: str, known: dict[str, int]) -> tuple[int, int]:
    """Return the number of a named switch, -1 if it is unknown, and which of several links leads to
    it, 0 if the name does not say."""
    if name in known:
        return known[name], 0
    base, mark, nth = name.rpartition("#")
    if mark and nth.isdecimal() and len(nth) < 6 and int(nth) > 0:
        return known.get(base, -1), int(nth)
    return -1, 0


def _check_paths(
    table: Table,
    fabric: Fabric,
    kind: LongArray,
    src: LongArray,
    dst: LongArray,
    set_of: LongArray,
    sets: PathSets,
) -> None:
    """Check that every path has links that join up, and begins and ends at the row's ToRs.

    Raises:
        TableError: A row is invalid (one line).
    """
    row_of = np.empty(len(sets), np.int64)
    row_of[set_of[set_of >= 0]] = np.flatnonzero(set_of >= 0)
    trace = kind == KINDS.index("connection")
    passive = kind == KINDS.index("passive")

    def refuse(rows: LongArray, reason: str) -> None:
        """Raise TableError for the first of these numbers of rows, int64[], if there is one."""
        if len(rows):
            raise table.fail(int(rows.min()), reason)

    path_row = row_of[sets.owner]
    refuse(row_of[sets.width == 0], "the list of paths is empty")
    refuse_broken_paths(table, fabric, sets.paths, path_row, ~trace)
    refuse(row_of[(sets.width > 1) & ~passive[row_of]], "only passive rows may have several paths")
    no_path = (set_of < 0) & ~trace
    by_pair = passive & (src >= 0) & (dst >= 0)
    table.refuse(no_path & ~passive, "paths or nodes are missing")
    table.refuse(no_path & ~by_pair, "neither paths, nodes nor both src and dst are given")
    table.refuse(trace & ((src < 0) | (dst < 0)), "a connection needs src and dst")

    links = sets.paths.links
    first, last = links[sets.paths.ptr[:-1]], links[sets.paths.ptr[1:] - 1]
    for expected, found, what, checked in (
        (src[path_row], fabric.link_src[first], "begin at src", ~trace[path_row]),
        (dst[path_row], fabric.link_dst[last], "end at dst", ~trace[path_row]),
    ):
        wrong = (expected >= 0) & (found != expected) & checked
        refuse(path_row[wrong], f"a path does not {what}")
    refuse(row_of[_repeats(sets, fabric.n_links)], "a path is listed twice")


def _repeats(sets: PathSets, n_links: int) -> LongArray:
    """Return the numbers of the sets that hold a path twice."""
    several = np.flatnonzero(sets.width > 1)
    some = sets.take(several)
    key = _path_keys(some.paths, n_links)
    order = np.lexsort((key, some.owner))
    same = (np.diff(key[order]) == 0) & (np.diff(some.owner[order]) == 0)
    return several[some.owner[order[1:][same]]]


def _counts(table: Table, kind: LongArray) -> tuple[LongArray, LongArray, LongArray]:
    """Return ``sent`` (0 for a connection without it), ``lost`` or retransmissions, and the epoch
    of each row: int64[rows] each."""
    active, segment, connection = (
        kind == KINDS.index(name) for name in ("active", "segment", "connection")
    )
    present = {name: table.has_value(name) for name in ("sent", "lost", "retransmissions", "epoch")}
    value = {name: table.values(name) for name in present}
    table.refuse(~present["sent"] & ~connection, "sent is missing")
    table.refuse(present["epoch"] & ~segment, "only segment rows have an epoch")
    counted = active | segment
    table.refuse(
        counted & present["retransmissions"], "only hosts observe retransmissions: give lost"
    )
    table.refuse(counted & ~present["lost"], "lost is missing")
    table.refuse(
        present["lost"] & present["retransmissions"], "both lost and retransmissions are given"
    )
    table.refuse(
        ~present["lost"] & ~present["retransmissions"], "neither lost nor retransmissions are given"
    )
    lost = np.where(present["lost"], value["lost"], value["retransmissions"])
    for what in ("lost", "retransmissions"):
        refuse_more_lost(table, value["sent"], lost, present["sent"] & present[what], what)
    for name, column in (("sent", value["sent"]), ("lost", lost)):
        refuse_large_sum(table, name, column)
    return value["sent"], lost, value["epoch"]


def _probes(columns: _Columns, plan: str) -> Probes | None:
    """Return the probes of a plan together with those of no plan; None if there are none."""
    rows = columns.rows("active")
    rows = rows[(columns.plan[rows] < 0) | (columns.plan[rows] == PLANS.index(plan))]
    if not len(rows):
        return None
    return Probes(columns.one_path(rows), columns.sent[rows], columns.lost[rows])


def _flows(columns: _Columns) -> Flows | None:
    rows, fabric = columns.rows("passive"), columns.fabric
    times = _round_trips(columns.table, rows)
    if not len(rows):
        return None
    src, dst = columns.src[rows], columns.dst[rows]
    own = columns.set_of[rows] >= 0
    sets = columns.sets.take(columns.set_of[rows[own]])
    flows = Flows.of(fabric, src, dst, own, sets, columns.sent[rows], columns.lost[rows], times)
    assert isinstance(flows.sets, PairSets)
    counts = fabric.path_counts(flows.sets.src_tor, flows.sets.dst_tor)
    nowhere = np.append(counts == 0, np.zeros(len(sets), np.bool_))[flows.path_set]
    if nowhere.any():
        row = int(rows[np.argmax(nowhere)])
        ends = (fabric.switch_names[end[row]] for end in (columns.src, columns.dst))
        raise columns.table.fail(row, f"no path goes up and then down from {' to '.join(ends)}")
    return flows


def _round_trips(table: Table, passive: LongArray) -> FloatArray | None:
    """Return the round-trip times of passive rows in milliseconds, float64[], or None if no row has
    one.

    Raises:
        TableError: Only some of the passive rows, or rows of other kinds, have one.
    """
    times, present = table.values("rtt_ms"), table.has_value("rtt_ms")
    other = present.copy()
    other[passive] = False
    table.refuse(other, "only passive rows have an rtt_ms")
    if not present.any():
        return None
    missing = np.zeros(len(table), np.bool_)
    missing[passive] = ~present[passive]
    table.refuse(missing, "rtt_ms is missing, though other passive rows have it")
    return times[passive]


def _connections(columns: _Columns) -> Connections | None:
    rows, fabric = columns.rows("connection"), columns.fabric
    if not len(rows):
        return None
    src, dst, traced = columns.src[rows], columns.dst[rows], columns.set_of[rows] >= 0
    length = np.zeros(len(rows), np.int64)
    known = columns.one_path(rows[traced])
    length[traced] = known.length
    paths = Paths(pointers(length), known.links)
    # Complete: without a gap from src to dst.
    links, owner = paths.links, paths.owner
    gap = (owner[1:] == owner[:-1]) & (fabric.link_dst[links[:-1]] != fabric.link_src[links[1:]])
    complete = src == dst
    there = np.flatnonzero(length)
    begin, end = links[paths.ptr[there]], links[paths.ptr[there + 1] - 1]
    complete[there] = (fabric.link_src[begin] == src[there]) & (fabric.link_dst[end] == dst[there])
    complete[owner[1:][gap]] = False
    tors = src.astype(np.int32), dst.astype(np.int32)
    flows = columns.rows("passive")
    flows = flows[np.minimum(columns.src[flows], columns.dst[flows]) >= 0]
    ends = (np.concatenate((end[rows], end[flows])) for end in (columns.src, columns.dst))
    return Connections(
        tors[0],
        tors[1],
        columns.lost[rows],
        paths,
        complete,
        traceroute_packets=0,
        watched=PairSets.between(fabric, *ends),
    )


def _segments(columns: _Columns) -> SegmentCounts | None:
    """Return the segment counts; None if there are none. Rows of the same path are one segment, and
    rows of the same path and epoch are added up."""
    rows, fabric = columns.rows("segment"), columns.fabric
    if not len(rows):
        return None
    paths = columns.one_path(rows)
    _, first, number = np.unique(
        _path_keys(paths, fabric.n_links), return_index=True, return_inverse=True
    )
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))  # segments in order of appearance
    segment = rank[number]
    distinct = paths.take(np.sort(first))
    epochs, when = np.unique(columns.epoch[rows], return_inverse=True)
    if len(epochs) * len(distinct) > _CELLS:
        raise TableError(
            f"{columns.table.path}: {len(epochs)} epochs of {len(distinct)} segments are too many: "
            f"their product must be at most {_CELLS}"
        )
    shape = len(epochs), len(distinct)
    sums = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for cells, column in zip(sums, (columns.sent, columns.lost), strict=True):
        np.add.at(cells, (when, segment), column[rows])
    padded = distinct.padded()
    return SegmentCounts(
        Segments(
            upstream=fabric.link_src[padded[:, 0]],
            downstream=fabric.link_dst[distinct.links[distinct.ptr[1:] - 1]],
            switches=np.where(padded >= 0, fabric.link_src[padded], -1).astype(np.int32),
            paths=distinct,
            subproblem=_subproblems(distinct, fabric.n_links),
        ),
        *sums,
    )


def _subproblems(paths: Paths, n_links: int) -> IntArray:
    """Return the number of each path's sub-problem, int32[P]: paths that share a link, directly or
    through other paths, are in the same one."""
    n = len(paths)
    size = n + n_links
    graph = coo_array(
        (np.ones(len(paths.links), np.int8), (paths.owner, n + paths.links)), shape=(size, size)
    )
    _, part = connected_components(graph, directed=False)
    return np.unique(part[:n], return_inverse=True)[1].astype(np.int32)


def _path_keys(paths: Paths, n_links: int) -> LongArray:
    """Return a number for each path that is equal for equal paths: int64[P]."""
    key = np.zeros(len(paths), np.int64)
    bound = 1
    for column in paths.padded().T:
        if bound > 2**62 // (n_links + 1):
            distinct, key = np.unique(key, return_inverse=True)
            bound = len(distinct)
        key = key * (n_links + 1) + column + 1
        bound *= n_links + 1
    return key
