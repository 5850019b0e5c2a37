"""Reads the telemetry of a finished run, for every method alike.

Canary's segment counts are worked out here from the raw registers, so a run can be analysed again
without the network and with another reading of them.
"""

from __future__ import annotations

import numpy as np

from analysis.telemetry.flow_observations import flow_telemetry
from analysis.telemetry.minus_meters import (
    MeterDump,
    MinusMeter,
    Rules,
    minus_meter,
    segment_counts,
)
from analysis.telemetry.telemetry import Connections, Flows, Probes, SegmentCounts, Telemetry
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.pathbf import SegmentDecoder
from testbed.fabric.paths import Paths, PathSets
from testbed.record.run import RunDirectory

__all__ = ["read_minus_meters", "read_telemetry"]


def read_minus_meters(run: RunDirectory) -> list[MinusMeter]:
    """The minus meter (Canary, section III-E) of each epoch of a run."""
    topology = FatTree(run.config["k"])
    segments = topology.segments(run.config["monitors"])
    decoder = SegmentDecoder(topology, segments, run.table("switches")["id"])
    rules = run.table("rules")
    meters = []
    for epoch in range(run.epochs):
        now = rules["epoch"] == epoch
        in_force = Rules(*(rules[name][now] for name in ("flow_hi", "flow_lo", "segment")))
        dump = MeterDump(**run.registers(epoch))
        meters.append(minus_meter(dump, decoder.decode, segments, in_force))
    return meters


def read_telemetry(run: RunDirectory) -> Telemetry:
    """Everything a method may know of a run.

    Raises:
        testbed.record.run.RunError: The run is incomplete.
    """
    if run.config["backend"] == "flow":
        return flow_telemetry(run)
    topology = FatTree(run.config["k"])
    segments = topology.segments(run.config["monitors"])
    counts = [segment_counts(meter, len(segments)) for meter in read_minus_meters(run)]
    network = run.json("network.json")
    sent, lost = (np.stack(part) for part in zip(*counts, strict=True))
    for epoch, switch in network["unread"]:
        # The meters of a switch that died are missing, not empty: nothing is known there.
        at = (segments.upstream == switch) | (segments.downstream == switch)
        sent[epoch, at] = lost[epoch, at] = 0
    return Telemetry(
        topology=topology,
        monitors=run.config["monitors"],
        segments=SegmentCounts(segments, sent, lost),
        flows=_flows(run, topology),
        probes=_probes(run, topology),
        detector=_detector(run),
        connections=_connections(run, network["traceroute_packets"]),
        canary_bytes=network["canary_bytes"],
    )


def _flows(run: RunDirectory, topology: FatTree) -> Flows:
    """The hosts' flows: all equal-cost paths of their ToRs, or the one that 007's agents traced.

    In Flock's words (its section 6.2) the telemetry A2+P, beside the probes' A1.
    """
    table, traces = run.table("flows"), run.table("connections")
    used = table["sent"] > 0
    src, dst, sent, lost = (table[c][used] for c in ("src_tor", "dst_tor", "sent", "lost"))
    pair, path_set = np.unique(src.astype(np.int64) * topology.n_tors + dst, return_inverse=True)
    nth = np.where(used, np.cumsum(used) - 1, -1)[traces["flow"]]
    traced = np.flatnonzero(traces["complete"] & (traces["path"].length > 0) & (nth >= 0))
    path_set[nth[traced]] = len(pair) + np.arange(len(traced))
    src_tor, dst_tor = np.divmod(pair.astype(np.int32), np.int32(topology.n_tors))
    sets = PairSets(topology, src_tor, dst_tor, PathSets.known(traces["path"].take(traced)))
    return Flows(sets, path_set.astype(np.int32), sent, lost)


def _probes(run: RunDirectory, topology: FatTree) -> Probes:
    """One row a host-core pair, as NetBouncer probes every server's paths (its section 4.3)."""
    table = run.table("probes")
    path = topology.host_tor[table["host"]].astype(np.int64) * topology.n_cores + table["core"]
    return Probes(Ecmp(topology).bounces().take(path), table["sent"], table["lost"])


def _detector(run: RunDirectory) -> Probes:
    """One row a path; pairs of hosts that probe the same one follow each other."""
    table = run.table("detector")
    paths: Paths = table["path"]
    rows = paths.padded()
    first = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)])
    sent, lost = (np.add.reduceat(table[name], first) for name in ("sent", "lost"))
    return Probes(paths.take(first), sent, lost)


def _connections(run: RunDirectory, traceroute_packets: int) -> Connections:
    table = run.table("connections")
    return Connections(
        src_tor=table["src_tor"],
        dst_tor=table["dst_tor"],
        lost=table["lost"],
        paths=table["path"],
        complete=table["complete"],
        traceroute_packets=traceroute_packets,
    )
