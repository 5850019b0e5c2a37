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

Where a link of a host was faulty or had meters, everything that hosts measure is told with the
links of the hosts before and behind its path, as 007, Flock and NetBouncer have them in their
graphs. Segments lie between switches, and between hosts with meters and their ToRs.

Where switches did not choose an uplink by the hash of a flow (``ROUTING``), flows have no path of
their own: A2 tells none, and a flow that left a switch may be at any next one, as if its route had
changed. Traceroutes are told as they are: each shows one of the ways that packets of its connection
took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.telemetry.switched_off import SwitchedOff
from analysis.telemetry.telemetry import (
    PARTS,
    Connections,
    Flows,
    MissingTelemetry,
    Probes,
    SegmentCounts,
    Telemetry,
)
from testbed.arrays import BoolArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.host_links import HostFabric
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
from testbed.record.flow_ids import TCP
from testbed.record.run import Record, whole_fabric
from testbed.record.run_tables import INT_PATHS, PLANS, registers


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
    views: dict[str, Any] = {}
    for name in (each for each in named if each in measurement_names()):  # that are installed here
        measurement = find_measurement(name)
        if (view := measurement.view) in VIEWS:
            views[view] = VIEWS[view](source)
        else:
            tables = {each.name: record.table(each.name) for each in measurement.tables}
            views[view] = measurement.read(tables)
    return Telemetry(
        topology=whole_fabric(record),
        monitors=record.config["monitors"],
        canary_bytes=record.network["canary_bytes"],
        off=source.off_links,
        **{part: views.pop(part, None) for part in PARTS},
        views=views,
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

    @property
    def sprayed(self) -> bool:
        """Return True if the packets of a flow took many paths."""
        return was_sprayed(self.record)

    @cached_property
    def off(self) -> SwitchedOff:
        """Return what was switched off at some time of the run."""
        return SwitchedOff(self.record)

    @property
    def off_links(self) -> BoolArray | None:
        """Return which links were switched off at some time, bool[n_links]; None if none was."""
        return self.off.links if self.off.any else None

    @cached_property
    def hosts(self) -> HostFabric | None:
        """Return the fabric with its hosts, if a link of a host was faulty or had meters; else
        None."""
        whole = whole_fabric(self.record)
        return whole if isinstance(whole, HostFabric) else None

    @cached_property
    def flows(self) -> Mapping[str, Any]:
        """Return the table of flows.

        Raises:
            MissingTelemetry: Links of hosts were faulty, but flows have no hosts.
        """
        flows = self.off.flows(self.record.table("flows"))
        if self.hosts is not None and not {"src_host", "dst_host"} <= set(flows):
            raise MissingTelemetry("links of hosts were faulty, but this run recorded no hosts")
        return flows

    def ends(self, flow: npt.NDArray[np.integer]) -> tuple[IntArray, IntArray]:
        """Return where the paths of some flows begin and end, int32[] each: at hosts, if their
        links are looked at, else at ToRs."""
        kind = "tor" if self.hosts is None else "host"
        return self.flows[f"src_{kind}"][flow], self.flows[f"dst_{kind}"][flow]

    def between(
        self,
        paths: Paths,
        flow: npt.NDArray[np.integer],
        whole: BoolArray | None = None,
    ) -> Paths:
        """Return paths of some flows, with the links of their hosts if these are looked at; see
        `testbed.fabric.host_links.HostFabric.around`."""
        return paths if self.hosts is None else self.hosts.around(paths, *self.ends(flow), whole)

    def reported(self, rows: BoolArray, own: BoolArray, sets: PathSets) -> Flows:
        """Return the records of some flows, bool[F]; those in ``own`` have a set of ``sets`` each,
        in order, and the others all equal-cost paths."""
        row = np.flatnonzero(rows)
        src, dst = self.ends(row)
        sent, lost = (self.flows[name][row] for name in ("sent", "lost"))
        return Flows.of(whole_fabric(self.record), src, dst, own[row], sets, sent, lost)

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


def was_sprayed(record: Record) -> bool:
    """Return True if the switches of a run chose no uplink for a whole flow."""
    return record.config.get("routing", "ecmp") != "ecmp"


def segments(source: Source) -> SegmentCounts:
    """Return what Canary's meters counted."""
    counts = read_segment_counts(source.record, read_minus_meters(source.record))
    return numbered_in(whole_fabric(source.record), counts)


def numbered_in(whole: Fabric, counts: SegmentCounts) -> SegmentCounts:
    """Return the counts of segments with the numbers that switches have in a fabric that may have
    its hosts."""
    if not isinstance(whole, HostFabric):
        return counts
    return replace(counts, segments=whole.numbered(counts.segments))


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
        paths = source.between(flows["path"].take(known), known)
    elif "A2" in kinds and traces is not None and not source.sprayed:
        whole = traces["complete"] & (traces["path"].length > 0) & used[traces["flow"]]
        known, paths = traces["flow"][whole], traces["path"].take(np.flatnonzero(whole))
        paths = source.between(paths, known)
    own = np.zeros(len(used), np.bool_)
    own[known] = True
    return source.reported(used if "P" in kinds else own, own, PathSets.known(paths))


def int_flows(source: Source) -> Flows:
    """Return all flows, each with the path that its packets carried, or the paths if routes
    changed; those of which no packet arrived have all equal-cost paths of their ToRs."""
    used, table = source.flows["sent"] > 0, source.record.table(INT_PATHS.name)
    row = np.flatnonzero(used[table["flow"]])
    flow = table["flow"][row]
    paths = source.between(table["path"].take(row), flow)
    known, first = np.unique(flow, return_index=True)
    own = np.zeros(len(used), np.bool_)
    own[known] = True
    return source.reported(used, own, PathSets(np.append(first, len(flow)), paths))


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
    flow, complete = traces["flow"], traces["complete"]
    if source.hosts is not None:  # within a rack there is one way
        complete = complete | (flows["src_tor"][flow] == flows["dst_tor"][flow])
    src, dst = source.ends(flow)
    return Connections(
        src_tor=src,
        dst_tor=dst,
        lost=flows["lost"][flow],
        paths=source.between(traces["path"], flow, complete),
        complete=complete,
        traceroute_packets=source.record.network["traceroute_packets"],
        watched=_watched(source),
    )


VIEWS: Mapping[str, Callable[[Source], Any]] = {
    "segments": segments,
    "probes": probes,
    "detector": detector,
    "connections": connections,
    "flows": flows,
    "int": int_flows,
}
"""The functions that read views of more than a measurement's own tables, by the views' names."""


def _watched(source: Source) -> PairSets:
    """Return the pairs of ToRs, or of hosts, between which hosts had connections; only TCP counts
    if the record has protocols."""
    flows = source.flows
    row = flows["sent"] > 0
    if "protocol" in flows:
        row &= flows["protocol"] == TCP
    return PairSets.between(whole_fabric(source.record), *source.ends(np.flatnonzero(row)))


def read_minus_meters(record: Record) -> list[MinusMeter]:
    """Return the minus meter of each epoch (Canary, section III-E); an empty list if the registers
    were not recorded."""
    if not record.has(registers(0)):
        return []
    parts = record.segments
    assert isinstance(record.fabric, PacketFabric)  # as every network of packets is
    decoder = SegmentDecoder(record.fabric, parts, record.table("switches")["id"])
    rules = record.table("rules")
    rerouted = None if was_sprayed(record) else record.network.get("rerouted")
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
        if was_sprayed(record):  # by how many flows a segment should count is not known
            return SegmentCounts(parts, sent, lost)
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
    """Return the probes of a plan, summed over the hosts that probe the same path (whose links are
    a part of it, if they are looked at), and the number of rows that were summed."""
    probe_paths, counts = source.probe_paths, source.probe_counts
    of_plan = np.array([name == plan for name in probe_paths["plan"]], np.bool_)
    row = np.flatnonzero(of_plan[counts["path"]])
    path = counts["path"][row]
    if source.hosts is not None:
        src, dst = (counts[end][row] for end in ("src_host", "dst_host"))
        if len(row) and min(src.min(), dst.min()) < 0:
            raise MissingTelemetry("links of hosts were faulty, but probes name no hosts")
        paths = source.hosts.around(probe_paths["path"].take(path), src, dst)
        return Probes(paths, counts["sent"][row], counts["lost"][row]), len(row)
    probed = np.flatnonzero(np.bincount(path))
    sums = np.zeros((2, len(of_plan)), np.int64)
    for cells, name in zip(sums, ("sent", "lost"), strict=True):
        np.add.at(cells, path, counts[name][row])
    return Probes(probe_paths["path"].take(probed), *sums[:, probed]), len(row)
