"""Writes observations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analysis.telemetry.telemetry import Flows, SegmentCounts, Telemetry
from testbed.fabric.clos import Fabric
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets
from testbed.record.schemas import OBSERVATIONS, PLANS
from testbed.record.tables import write_table

__all__ = ["write_observations"]

LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def write_observations(path: Path, telemetry: Telemetry) -> None:
    """Write all parts of a telemetry; link ids are those of its topology.

    Flows within a rack and segments that were not observed cross or tell nothing: they are left
    out. A path set that is all equal-cost paths of two ToRs is written as the ToRs.

    Raises:
        TableError: The file cannot be written.
    """
    parts = []
    if telemetry.segments is not None:
        parts.append(_segment_rows(telemetry.segments))
    for plan, probes in zip(PLANS, (telemetry.probes, telemetry.detector), strict=True):
        if probes is not None:
            parts.append(
                {
                    "kind": "active",
                    "plan": plan,
                    "paths": PathSets.known(probes.paths),
                    "sent": probes.sent,
                    "lost": probes.lost,
                }
            )
    if telemetry.flows is not None:
        parts.extend(_flow_rows(telemetry.flows, telemetry.topology))
    if telemetry.connections is not None:
        connections = telemetry.connections
        parts.append(
            {
                "kind": "connection",
                "src": connections.src_tor,
                "dst": connections.dst_tor,
                "paths": _known_or_none(connections.paths),
                "retransmissions": connections.lost,
            }
        )
    names = telemetry.topology.switch_names
    tables = [_arrow(part, names) for part in parts]
    table = pa.concat_tables(tables) if tables else _arrow({"kind": "active"}, names)
    ids = pa.array(np.arange(table.num_rows))
    columns = {name: table.column(name) for name in table.column_names}
    write_table(path, OBSERVATIONS, {"id": ids} | columns)


def _segment_rows(counts: SegmentCounts) -> Mapping[str, Any]:
    epoch, segment = np.nonzero(counts.sent)
    return {
        "kind": "segment",
        "epoch": epoch,
        "paths": PathSets.known(counts.segments.paths.take(segment)),
        "sent": counts.sent[epoch, segment],
        "lost": counts.lost[epoch, segment],
    }


def _flow_rows(flows: Flows, fabric: Fabric) -> list[Mapping[str, Any]]:
    """Flows by their ToRs, and flows by their paths."""
    sets = flows.listed
    on_fabric, (src, dst) = sets.n_entries > 0, _ecmp_pairs(sets, fabric)
    pairs = len(flows.sets) - len(sets)
    if isinstance(flows.sets, PairSets):
        src = np.concatenate((flows.sets.src_tor, src))
        dst = np.concatenate((flows.sets.dst_tor, dst))
        on_fabric = np.concatenate((src[:pairs] != dst[:pairs], on_fabric))
    on_fabric, by_pair = on_fabric[flows.path_set], (src >= 0)[flows.path_set]
    rows = []
    for chosen, pair in ((on_fabric & by_pair, True), (on_fabric & ~by_pair, False)):
        flow = np.flatnonzero(chosen)
        path_set = flows.path_set[flow]
        where = {"src": src[path_set], "dst": dst[path_set]} if pair else {}
        paths = {} if pair else {"paths": sets.take(path_set - pairs)}
        counts = {"sent": flows.sent[flow], "retransmissions": flows.lost[flow]}
        times = {} if flows.rtt_ms is None else {"rtt_ms": flows.rtt_ms[flow]}
        rows.append({"kind": "passive"} | where | paths | counts | times)
    return rows


def _ecmp_pairs(sets: PathSets, fabric: Fabric) -> tuple[LongArray, LongArray]:
    """The ToRs of each set that is all their equal-cost paths, -1 for other sets: int64[S]."""
    src, dst = np.full(len(sets), -1, np.int64), np.full(len(sets), -1, np.int64)
    several = np.flatnonzero((sets.width > 1) & (sets.n_entries > 0))
    first = sets.paths.ptr[sets.ptr[several]]
    last = sets.paths.ptr[sets.ptr[several] + 1] - 1
    link = sets.paths.links
    begin, end = fabric.link_src[link[first]], fabric.link_dst[link[last]]
    joined = (begin < fabric.n_tors) & (end < fabric.n_tors)
    several, begin, end = several[joined], begin[joined], end[joined]
    at = 0
    while at < len(several):  # in parts, as the sets to compare with need memory
        part = slice(at, at + 4096)
        at += 4096
        some = several[part]
        same = _equal_sets(sets.take(some), fabric.path_sets(begin[part], end[part]))
        src[some[same]], dst[some[same]] = begin[part][same], end[part][same]
    return src, dst


def _equal_sets(a: PathSets, b: PathSets) -> BoolArray:
    """Which sets hold the same paths in the same order: bool[S]."""
    same = (a.width == b.width) & (a.n_entries == b.n_entries)
    rows = np.flatnonzero(same)
    a, b = a.take(rows), b.take(rows)
    differs = np.zeros(len(rows), np.bool_)
    differs[a.owner[a.paths.length != b.paths.length]] = True
    differs[a.owner[a.paths.owner[a.paths.links != b.paths.links]]] = True
    same[rows[differs]] = False
    return same


def _known_or_none(paths: Paths) -> PathSets:
    """A set of one for each path that has a link, of none for the others."""
    there = paths.length > 0
    ptr = np.concatenate(([0], np.cumsum(there))).astype(np.int64)
    return PathSets(ptr, paths.take(np.flatnonzero(there)))


def _arrow(part: Mapping[str, Any], names: list[str]) -> pa.Table:
    """The columns of some rows, those that are not there null."""
    n = next((len(value) for value in part.values() if not isinstance(value, str)), 0)
    text = pa.dictionary(pa.int32(), pa.string())
    lists = pa.list_(pa.list_(pa.int32()))
    types = {"integer": pa.int64(), "number": pa.float64(), "text": text, "integer lists": lists}
    columns: dict[str, Any] = {}
    for column in OBSERVATIONS.columns:
        name, value = column.name, part.get(column.name)
        if name in ("id", "nodes"):  # ids are given at the end, and paths say what nodes would
            continue
        if value is None:
            columns[name] = pa.nulls(n, types[column.kind])
        elif name in ("kind", "plan"):
            columns[name] = pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), [value])
        elif name in ("src", "dst"):
            columns[name] = pa.DictionaryArray.from_arrays(value.astype(np.int32), names)
        elif name == "paths":
            columns[name] = _lists(value)
        else:
            columns[name] = pa.array(value, types[column.kind])
    return pa.table(columns)


def _lists(sets: PathSets) -> Any:
    """Lists of lists of link ids; a set of no path is null."""
    inner = pa.ListArray.from_arrays(pa.array(sets.paths.ptr.astype(np.int32)), sets.paths.links)
    offsets = pa.array(sets.ptr.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, inner, mask=pa.array(sets.width == 0))
