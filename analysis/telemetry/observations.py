"""From the record of a run to what methods may know of it.

Canary's segment counts are worked out here from the raw registers where they were recorded, so a
run can be analysed again without the network and with another reading of them.

What methods may know of probes and flows is said in the kinds of Flock's section 6.2, joined by
``+`` (the setting TELEMETRY):

    A1    probes between hosts and the highest tier, paths known
    A2    flows that lost packets, with the path that 007's agents traced
    P     all flow records, with their equal-cost paths
    INT   all flow records, with the path each took; and A1

Canary's segments, 007's connections and deTector's probes are there whatever the kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.telemetry.minus_meters import (
    MeterDump,
    MinusMeter,
    Rules,
    minus_meter,
    segment_counts,
)
from analysis.telemetry.telemetry import (
    Connections,
    Flows,
    MissingTelemetry,
    Probes,
    SegmentCounts,
    Telemetry,
)
from testbed.arrays import LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.pathbf import SegmentDecoder
from testbed.fabric.paths import Paths, PathSets
from testbed.record.measurements import TCP
from testbed.record.run import Record
from testbed.record.run_tables import registers


def read_telemetry(record: Record, kinds: str | None = None) -> Telemetry:
    """Everything a method may know of a run.

    Args:
        kinds: Of telemetry, see the module; by default those of the run's settings.

    Raises:
        testbed.record.run.RunError: A table is missing or damaged.
        MissingTelemetry: INT is asked for and no path was recorded.
    """
    chosen = (kinds or record.config["telemetry"]).split("+")
    flows, traces = record.table("flows"), record.table("connections")
    probe_paths, counts = record.table("probe_paths"), record.table("probe_counts")
    return Telemetry(
        topology=record.fabric,
        monitors=record.config["monitors"],
        segments=read_segment_counts(record, read_minus_meters(record)),
        flows=_flows(record.fabric, flows, traces, chosen),
        probes=_bounces(probe_paths, counts) if {"A1", "INT"} & set(chosen) else None,
        detector=_matrix(probe_paths, counts),
        connections=Connections(
            src_tor=flows["src_tor"][traces["flow"]],
            dst_tor=flows["dst_tor"][traces["flow"]],
            lost=flows["lost"][traces["flow"]],
            paths=traces["path"],
            complete=traces["complete"],
            traceroute_packets=record.network["traceroute_packets"],
            watched=_watched(record.fabric, flows),
        ),
        canary_bytes=record.network["canary_bytes"],
    )


def _watched(fabric: Fabric, flows: Mapping[str, Any]) -> PairSets:
    """The pairs of ToRs between which hosts had connections: of TCP, where protocols are known."""
    row = flows["sent"] > 0
    if "protocol" in flows:
        row &= flows["protocol"] == TCP
    return PairSets.between(fabric, flows["src_tor"][row], flows["dst_tor"][row])


def read_minus_meters(record: Record) -> list[MinusMeter]:
    """The minus meter (Canary, section III-E) of each epoch; none of a run without registers."""
    if not record.has(registers(0)):
        return []
    parts = record.segments
    assert isinstance(record.fabric, PacketFabric)  # as every network of packets is
    decoder = SegmentDecoder(record.fabric, parts, record.table("switches")["id"])
    rules = record.table("rules")
    meters = []
    for epoch in range(record.network["epochs"]):
        now = rules["epoch"] == epoch
        in_force = Rules(*(rules[name][now] for name in ("flow_hi", "flow_lo", "segment")))
        dump = MeterDump(**record.table(registers(epoch)))
        meters.append(minus_meter(dump, decoder.decode, parts, in_force))
    return meters


def read_segment_counts(record: Record, meters: list[MinusMeter]) -> SegmentCounts:
    """What Canary counted on each segment: by its minus meters, else as recorded.

    Raises:
        testbed.record.run.RunError: A table is missing or damaged.
    """
    parts, epochs = record.segments, record.network["epochs"]
    if meters:
        counts = [segment_counts(meter, len(parts)) for meter in meters]
        sent, lost = (np.stack(part) for part in zip(*counts, strict=True))
        network = record.network
        for epoch, switch in [*network["unread"], *network.get("restarted", ())]:
            # The meters of a switch that died or restarted are missing, not empty, and what one in
            # between dropped as it restarted no link lost: nothing is known there.
            at = parts.through(switch)
            sent[epoch, at] = lost[epoch, at] = 0
        return SegmentCounts(parts, sent, lost, _monitored(record))
    table = record.table("segments")
    sent, lost = np.zeros((2, epochs, len(parts)), np.int64)
    at = table["epoch"], table["segment"]
    sent[at], lost[at] = table["sent"], table["lost"]
    return SegmentCounts(parts, sent, lost)


def _monitored(record: Record) -> LongArray:
    """How many flows had rules on each segment, in whatever epochs: int64[S]."""
    rules = record.table("rules")
    flow = np.stack([rules[name].astype(np.uint64) for name in ("flow_hi", "flow_lo", "segment")])
    each = np.unique(flow, axis=1)[2].astype(np.int64)
    return np.bincount(each, minlength=len(record.segments)).astype(np.int64)


def _flows(
    fabric: Fabric, flows: Mapping[str, Any], traces: Mapping[str, Any], kinds: list[str]
) -> Flows | None:
    """Flows by the most that is known of their paths; None if no kind tells of flows."""
    if not {"A2", "P", "INT"} & set(kinds):
        return None
    used = flows["sent"] > 0
    known, paths = np.zeros(0, np.int64), Paths(np.zeros(1, np.int64), np.zeros(0, np.int32))
    if "INT" in kinds:
        if "path" not in flows:
            raise MissingTelemetry("INT needs the path of each flow: this run has recorded none")
        known = np.flatnonzero(used)
        paths = flows["path"].take(known)
    elif "A2" in kinds:
        whole = traces["complete"] & (traces["path"].length > 0) & used[traces["flow"]]
        known, paths = traces["flow"][whole], traces["path"].take(np.flatnonzero(whole))
    own = np.zeros(len(used), np.bool_)
    own[known] = True
    row = np.flatnonzero(used if "P" in kinds else own)
    src, dst, sent, lost = (flows[name][row] for name in ("src_tor", "dst_tor", "sent", "lost"))
    return Flows.of(fabric, src, dst, own[row], PathSets.known(paths), sent, lost)


def _bounces(probe_paths: Mapping[str, Any], counts: Mapping[str, Any]) -> Probes:
    """NetBouncer's, whose every host reports its own probes (its sections 2 and 4.3)."""
    probes, reports = _planned("netbouncer", probe_paths, counts)
    return replace(probes, records=reports)


def _matrix(probe_paths: Mapping[str, Any], counts: Mapping[str, Any]) -> Probes:
    """deTector's."""
    return _planned("detector", probe_paths, counts)[0]


def _planned(
    plan: str, probe_paths: Mapping[str, Any], counts: Mapping[str, Any]
) -> tuple[Probes, int]:
    """The probes of a plan, those of all hosts that probe a path together, and their rows."""
    of_plan = np.array([name == plan for name in probe_paths["plan"]], np.bool_)
    row = np.flatnonzero(of_plan[counts["path"]])
    probed, number = np.unique(counts["path"][row], return_inverse=True)
    sums = np.zeros((2, len(probed)), np.int64)
    for cells, name in zip(sums, ("sent", "lost"), strict=True):
        np.add.at(cells, number.reshape(-1), counts[name][row])
    return Probes(probe_paths["path"].take(probed), sums[0], sums[1]), len(row)
