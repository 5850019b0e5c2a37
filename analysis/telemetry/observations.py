# SPDX-License-Identifier: Apache-2.0
"""Read the telemetry that methods may use from the record of a run.

If the raw registers were recorded, Canary's segment counts are computed from them here, so that a
run can be analysed again without the network.

The setting TELEMETRY says what methods may know of probes and flows, in the kinds of Flock's
section 6.2, joined by ``+``:

    A1    probes between hosts and the highest tier, paths known
    A2    flows that lost packets, with the path that 007's agents traced
    P     all flow records, with their equal-cost paths
    INT   all flow records, with the path each took; and A1

Canary's segments, 007's connections and deTector's probes are available with any kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from analysis.telemetry.switched_off import SwitchedOff
from analysis.telemetry.telemetry import (
    Connections,
    Flows,
    MissingTelemetry,
    Probes,
    SegmentCounts,
    Telemetry,
)
from testbed.arrays import BoolArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.pathbf import SegmentDecoder
from testbed.fabric.paths import Paths, PathSets
from testbed.measurements.canary.minus_meters import (
    MeterDump,
    MinusMeter,
    Rules,
    minus_meter,
    segment_counts,
)
from testbed.measurements.registry import STANDARD, find_measurement, measurement_names
from testbed.measurements.traces.measurement import TCP
from testbed.record.run import Record
from testbed.record.run_tables import PLANS, registers


def read_telemetry(record: Record, kinds: str | None = None) -> Telemetry:
    """Return the telemetry of a run that methods may use; what was not measured is missing.

    Args:
        record: The run's record.
        kinds: Kinds of telemetry, see the module's text; by default those of the run's settings.

    Raises:
        testbed.record.run.RunError: A table is missing or damaged.
        MissingTelemetry: INT is asked for, but the paths of flows were not recorded.
    """
    source = Source(record, (kinds or record.config["telemetry"]).split("+"))
    named = record.config.get("measurements", [each.name for each in STANDARD])
    parts: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name in (each for each in named if each in measurement_names()):  # that are installed here
        measurement = find_measurement(name)
        if (view := measurement.view) in VIEWS:
            parts[view] = VIEWS[view](source)
        else:
            tables = {each.name: record.table(each.name) for each in measurement.tables}
            others[view] = measurement.read(tables)
    return Telemetry(
        topology=record.fabric,
        monitors=record.config["monitors"],
        canary_bytes=record.network["canary_bytes"],
        off=source.off.links if source.off.any else None,
        views=others,
        **parts,
    )


@dataclass(frozen=True)
class Source:
    """The record that views are made of, without what was switched off.

    Attributes:
        record: The run's record.
        kinds: The kinds of telemetry, see the module's text.
    """

    record: Record
    kinds: Sequence[str]

    @cached_property
    def off(self) -> SwitchedOff:
        """Return what was switched off at some time of the run."""
        return SwitchedOff(self.record)

    @cached_property
    def flows(self) -> Mapping[str, Any]:
        """Return the table of flows."""
        return self.off.flows(self.record.table("flows"))

    @cached_property
    def traces(self) -> Mapping[str, Any] | None:
        """Return the table of traced connections; None if none were traced."""
        if not self.record.has("connections"):
            return None
        return self.off.connections(self.record.table("connections"), self.flows)

    @cached_property
    def probe_paths(self) -> Mapping[str, Any]:
        """Return the table of probed paths."""
        return self.record.table("probe_paths")

    @cached_property
    def probe_counts(self) -> Mapping[str, Any]:
        """Return the table of probes."""
        counts = self.record.table("probe_counts")
        return self.off.probe_counts(counts, self.probe_paths["path"])


def segments(source: Source) -> SegmentCounts:
    """Return what Canary's meters counted."""
    return read_segment_counts(source.record, read_minus_meters(source.record))


def flows(source: Source) -> Flows | None:
    """Return the flows that the kinds report, with their own path where the kinds tell it and all
    equal-cost paths otherwise; None if no kind reports flows."""
    kinds, flows, traces = source.kinds, source.flows, source.traces
    if not {"A2", "P", "INT"} & set(kinds):
        return None
    used = flows["sent"] > 0
    known, paths = np.zeros(0, np.int64), Paths(np.zeros(1, np.int64), np.zeros(0, np.int32))
    if "INT" in kinds:
        if "path" not in flows:
            raise MissingTelemetry("INT needs the path of every flow, but this run recorded none")
        known = np.flatnonzero(used)
        paths = flows["path"].take(known)
    elif "A2" in kinds and traces is not None:
        whole = traces["complete"] & (traces["path"].length > 0) & used[traces["flow"]]
        known, paths = traces["flow"][whole], traces["path"].take(np.flatnonzero(whole))
    own = np.zeros(len(used), np.bool_)
    own[known] = True
    row = np.flatnonzero(used if "P" in kinds else own)
    src, dst, sent, lost = (flows[name][row] for name in ("src_tor", "dst_tor", "sent", "lost"))
    return Flows.of(source.record.fabric, src, dst, own[row], PathSets.known(paths), sent, lost)


def probes(source: Source) -> Probes | None:
    """Return NetBouncer's probes, if the kinds report probes; each host reports its own
    (NetBouncer, sections 2 and 4.3), which determines the number of records."""
    if not {"A1", "INT"} & set(source.kinds):
        return None
    found, reports = _planned(PLANS[0], source)
    return replace(found, records=reports)


def detector(source: Source) -> Probes:
    """Return the probes of deTector's matrix, summed over the hosts that probe a path."""
    return _planned(PLANS[1], source)[0]


def connections(source: Source) -> Connections | None:
    """Return the connections that lost packets and were traced."""
    flows, traces = source.flows, source.traces
    if traces is None:
        return None
    return Connections(
        src_tor=flows["src_tor"][traces["flow"]],
        dst_tor=flows["dst_tor"][traces["flow"]],
        lost=flows["lost"][traces["flow"]],
        paths=traces["path"],
        complete=traces["complete"],
        traceroute_packets=source.record.network["traceroute_packets"],
        watched=_watched(source.record.fabric, flows),
    )


VIEWS: Mapping[str, Callable[[Source], Any]] = {
    "segments": segments,
    "probes": probes,
    "detector": detector,
    "connections": connections,
    "flows": flows,
}
"""The functions that read the views of the standard measurements, by the names of the views."""


def _watched(fabric: Fabric, flows: Mapping[str, Any]) -> PairSets:
    """Return the pairs of ToRs between which hosts had connections; only TCP counts if the record
    has protocols."""
    row = flows["sent"] > 0
    if "protocol" in flows:
        row &= flows["protocol"] == TCP
    return PairSets.between(fabric, flows["src_tor"][row], flows["dst_tor"][row])


def read_minus_meters(record: Record) -> list[MinusMeter]:
    """Return the minus meter of each epoch (Canary, section III-E); an empty list if the registers
    were not recorded."""
    if not record.has(registers(0)):
        return []
    parts = record.segments
    assert isinstance(record.fabric, PacketFabric)  # as every network of packets is
    decoder = SegmentDecoder(record.fabric, parts, record.table("switches")["id"])
    rules = record.table("rules")
    rerouted = record.network.get("rerouted")
    meters = []
    for epoch in range(record.network["epochs"]):
        now = rules["epoch"] == epoch
        in_force = Rules(*(rules[name][now] for name in ("flow_hi", "flow_lo", "segment")))
        dump = MeterDump(**record.table(registers(epoch)))
        changed = None if rerouted is None else [s for e, s in rerouted if e == epoch]
        meters.append(minus_meter(dump, decoder.decode, parts, in_force, changed))
    return meters


def read_segment_counts(record: Record, meters: list[MinusMeter]) -> SegmentCounts:
    """Return the packets that Canary counted on each segment in each epoch: from the minus meters,
    or, if there are none, from the recorded table of segments.

    Raises:
        testbed.record.run.RunError: A table is missing or damaged.
    """
    parts, epochs = record.segments, record.network["epochs"]
    if meters:
        counts = [segment_counts(meter, len(parts)) for meter in meters]
        sent, lost = (np.stack(part) for part in zip(*counts, strict=True))
        network = record.network
        for epoch, switch in [*network["unread"], *network.get("restarted", ())]:
            # The meters of a switch that died or restarted are missing, not empty; and packets that
            # a switch dropped while it restarted were not lost by a link. So the segments at and
            # through it count as not observed in this epoch.
            at = parts.through(switch)
            sent[epoch, at] = lost[epoch, at] = 0
        off = SwitchedOff(record).crossed_by(parts.paths)
        sent[:, off] = lost[:, off] = 0
        return SegmentCounts(parts, sent, lost, _monitored(record), *_selected(record, sent))
    table = record.table("segments")
    sent, lost = np.zeros((2, epochs, len(parts)), np.int64)
    at = table["epoch"], table["segment"]
    sent[at], lost[at] = table["sent"], table["lost"]
    return SegmentCounts(parts, sent, lost)


def _monitored(record: Record) -> LongArray:
    """Return how many flows had a rule on each segment in any epoch: int64[S]."""
    rules = record.table("rules")
    flow = np.stack([rules[name].astype(np.uint64) for name in ("flow_hi", "flow_lo", "segment")])
    each = np.unique(flow, axis=1)[2].astype(np.int64)
    return np.bincount(each, minlength=len(record.segments)).astype(np.int64)


def _selected(record: Record, sent: LongArray) -> tuple[LongArray, BoolArray] | tuple[None, None]:
    """Return the flows with rules on each segment at the end of each epoch, int64[E, S], and where
    fewer flows came than the controller asked for, bool[E, S]; None if they are unknown.

    In the first epoch the controller asks for DELTA flows on each segment, then where ALPHA or BETA
    was not reached (Canary, section III-D), but for no more than meters tell apart. An epoch in
    which a segment counted nothing says nothing of it, and neither do numbers that the size of a
    table limited.
    """
    config = record.config
    limited = record.network.get("rules_refused", 0) > 0
    if limited or not record.has("selection") or not {"alpha", "beta", "delta"} <= set(config):
        return None, None
    table = record.table("selection")
    shape = record.network["epochs"], len(record.segments)
    cells = np.zeros((4, *shape), np.int64)
    names = ("packets", "flows", "rules", "installed")
    for each, name in zip(cells, names, strict=True):
        each[table["epoch"], table["segment"]] = table[name]
    packets, flows, rules, installed = cells
    most = record.network.get("flows_a_segment", 1 << 31)
    missed = (packets < config["alpha"]) | (flows < min(config["beta"], most))
    more = np.where(missed, np.minimum(config["delta"], most - flows), 0)[:-1]
    asked = np.concatenate((np.full((1, shape[1]), min(config["delta"], most)), more))
    return rules, (installed < asked) & (sent > 0)


def _planned(plan: str, source: Source) -> tuple[Probes, int]:
    """Return the probes of a plan, summed over the hosts that probe the same path, and the number
    of rows that were summed."""
    probe_paths, counts = source.probe_paths, source.probe_counts
    of_plan = np.array([name == plan for name in probe_paths["plan"]], np.bool_)
    row = np.flatnonzero(of_plan[counts["path"]])
    path = counts["path"][row]
    probed = np.flatnonzero(np.bincount(path))
    sums = np.zeros((2, len(of_plan)), np.int64)
    for cells, name in zip(sums, ("sent", "lost"), strict=True):
        np.add.at(cells, path, counts[name][row])
    return Probes(probe_paths["path"].take(probed), *sums[:, probed]), len(row)
