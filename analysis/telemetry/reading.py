# SPDX-License-Identifier: Apache-2.0
"""Read an observations file, with a check of every row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from analysis.telemetry.checks import refuse_broken_paths, refuse_large_sum, refuse_more_lost
from analysis.telemetry.counters import without_skew
from analysis.telemetry.row_paths import Hops, ordered, path_sets
from analysis.telemetry.telemetry import (
    Connections,
    Flows,
    Probes,
    RoundTrips,
    SegmentCounts,
    Telemetry,
)
from testbed.arrays import FloatArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.components import components
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets, pointers
from testbed.fabric.segments import Segments
from testbed.record.exchange import KINDS, OBSERVATIONS
from testbed.record.fabric_file import NumberedFabric
from testbed.record.foreign import Receipt
from testbed.record.messages import shown
from testbed.record.run_tables import PLANS
from testbed.record.schema import TableError
from testbed.record.tables import Table, read_table_or_parts

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
    traced = kind == KINDS.index("connection")
    set_of, sets = path_sets(table, numbered, Hops(src, dst, traced))
    if receipt is not None:
        sets = ordered(sets, fabric, kind, set_of, receipt, table.path.name)
    _check_paths(table, fabric, kind, src, dst, set_of, sets)
    sent, lost, epoch = _counts(table, kind)
    if (polled := kind == KINDS.index("counter")).any():
        sent, lost, skew = without_skew(table, polled, set_of, sets, sent, lost)
        kind = np.where(polled, KINDS.index("segment"), kind)
        if skew and receipt is not None:
            receipt.note(
                table.path.name,
                f"counters of both ends differ by up to {skew:,} packets where none can be lost, "
                f"so {2 * skew:,} lost packets of a link count as read at another time",
            )
    columns = _Columns(table, fabric, kind, plan, src, dst, set_of, sets, sent, lost, epoch)
    return Telemetry(
        fabric,
        "given",
        segments=_segments(columns),
        flows=_flows(columns),
        probes=_probes(columns, "netbouncer"),
        detector=_probes(columns, "detector"),
        connections=_connections(columns),
        roundtrips=_round_trip_pings(columns),
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
    trip = kind == KINDS.index("roundtrip")
    table.refuse(trip & (set_of >= 0), "a roundtrip has src and dst, and no paths or nodes")
    table.refuse(trip & ((src < 0) | (dst < 0)), "a roundtrip needs src and dst")
    no_path = (set_of < 0) & ~trace & ~trip
    by_pair = passive & (src >= 0) & (dst >= 0)
    table.refuse(
        no_path & ~passive,
        "paths or nodes are missing (a flow whose path is unknown is passive, a ping there and "
        "back is a roundtrip, each with src and dst)",
    )
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
    active, segment, connection, trip, counter = (
        kind == KINDS.index(name)
        for name in ("active", "segment", "connection", "roundtrip", "counter")
    )
    names = ("sent", "lost", "retransmissions", "epoch", "arrived")
    present = {name: table.has_value(name) for name in names}
    value = {name: table.values(name) for name in present}
    table.refuse(~present["sent"] & ~connection, "sent is missing")
    table.refuse(present["epoch"] & ~segment, "only segment rows have an epoch")
    table.refuse(present["arrived"] & ~counter, "only counter rows have arrived: give lost")
    table.refuse(counter & ~present["arrived"], "arrived is missing")
    table.refuse(
        counter & (present["lost"] | present["retransmissions"]),
        "a counter has sent and arrived: leave lost out",
    )
    counted = active | segment | trip
    table.refuse(
        counted & present["retransmissions"], "only hosts observe retransmissions: give lost"
    )
    table.refuse(counted & ~present["lost"], "lost is missing")
    table.refuse(
        present["lost"] & present["retransmissions"], "both lost and retransmissions are given"
    )
    table.refuse(
        ~present["lost"] & ~present["retransmissions"] & ~counter,
        "neither lost nor retransmissions are given",
    )
    lost = np.where(present["lost"], value["lost"], value["retransmissions"])
    for what in ("lost", "retransmissions"):
        refuse_more_lost(table, value["sent"], lost, present["sent"] & present[what], what)
    for name, column in (("sent", value["sent"]), ("lost", lost), ("arrived", value["arrived"])):
        refuse_large_sum(table, name, column)
    lost = np.where(counter, value["sent"] - value["arrived"], lost)
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
    flows = Flows.of(
        fabric, src, dst, own, sets, columns.sent[rows], columns.lost[rows], rtt_ms=times
    )
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


def _round_trip_pings(columns: _Columns) -> RoundTrips | None:
    rows = columns.rows("roundtrip")
    if not len(rows):
        return None
    rows = rows[columns.src[rows] != columns.dst[rows]]  # within a rack they cross no link
    src, dst = (end[rows].astype(np.int32) for end in (columns.src, columns.dst))
    return RoundTrips(src, dst, columns.sent[rows], columns.lost[rows])


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
    part = components(paths.owner, n + paths.links, n + n_links)
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
