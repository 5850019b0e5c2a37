# SPDX-License-Identifier: Apache-2.0
"""Write telemetry to an observations file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.telemetry.telemetry import Flows, SegmentCounts, Telemetry
from testbed.arrays import BoolArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets, pointers
from testbed.record.exchange import KINDS, OBSERVATIONS
from testbed.record.run_tables import PLANS
from testbed.record.tables import Texts, write_table


def write_observations(path: Path, telemetry: Telemetry) -> None:
    """Write all parts of a telemetry to one file; link ids are those of its topology.

    Flows within a rack, which cross no link, and segments without packets are left out. A path set
    that is all equal-cost paths of two ToRs is written as these ToRs.

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
    write_table(path, OBSERVATIONS, _columns(parts, telemetry.topology.switch_names))


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
    """Return two blocks of rows: flows that are written by their ToRs, and flows by their paths."""
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
    """Return the source and destination ToR of each set that is all equal-cost paths between them,
    and -1 for other sets: int64[S] each."""
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
    """Return which sets of ``a`` and ``b`` hold the same paths in the same order: bool[S]."""
    same = (a.width == b.width) & (a.n_entries == b.n_entries)
    rows = np.flatnonzero(same)
    a, b = a.take(rows), b.take(rows)
    differs = np.zeros(len(rows), np.bool_)
    differs[a.owner[a.paths.length != b.paths.length]] = True
    differs[a.owner[a.paths.owner[a.paths.links != b.paths.links]]] = True
    same[rows[differs]] = False
    return same


def _known_or_none(paths: Paths) -> PathSets:
    """Return one set for each path: the path alone, or no path if it has no link."""
    there = paths.length > 0
    ptr = pointers(there)
    return PathSets(ptr, paths.take(np.flatnonzero(there)))


def _columns(parts: Sequence[Mapping[str, Any]], names: list[str]) -> dict[str, Any]:
    """Return the columns of all parts, one after another; a column that a part lacks is null in its
    rows."""
    length = [len(part["lost" if "lost" in part else "retransmissions"]) for part in parts]
    columns: dict[str, Any] = {"id": np.arange(sum(length))}
    for name, known in (("kind", KINDS), ("plan", PLANS)):
        number = [known.index(part[name]) if name in part else -1 for part in parts]
        columns[name] = Texts(np.repeat(number, length), known)
    for name in ("src", "dst"):
        nobody = (part.get(name, np.full(n, -1)) for part, n in zip(parts, length, strict=True))
        columns[name] = Texts(np.concatenate([np.zeros(0, np.int64), *nobody]), names)
    nothing = Paths(np.zeros(1, np.int64), np.zeros(0, np.int32))
    none = (PathSets(np.zeros(n + 1, np.int64), nothing) for n in length)
    columns["paths"] = PathSets.join(
        [part.get("paths", empty) for part, empty in zip(parts, none, strict=True)]
    )
    for name in ("epoch", "sent", "lost", "retransmissions", "rtt_ms"):
        dtype: Any = np.float64 if name == "rtt_ms" else np.int64
        unknown = (np.ma.masked_all(n, dtype) for n in length)
        columns[name] = np.ma.concatenate(
            [part.get(name, null) for part, null in zip(parts, unknown, strict=True)]
            or [np.ma.masked_all(0, dtype)]
        )
    return columns
