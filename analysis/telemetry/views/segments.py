# SPDX-License-Identifier: Apache-2.0
"""What Canary's meters counted on path segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from analysis.telemetry.switched_off import SwitchedOff
from analysis.telemetry.telemetry import SegmentCounts
from analysis.telemetry.views.source import Source, was_sprayed
from analysis.telemetry.views.view import share, unobserved
from testbed.arrays import BoolArray, IntArray, LongArray, WordArray
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.pathbf import SegmentDecoder
from testbed.measurements.canary.minus_meters import MeterDump, MinusMeter, Rules, minus_meter
from testbed.record.documents import Measured, Use
from testbed.record.run import Record
from testbed.record.run_tables import registers


def segments(source: Source) -> SegmentCounts:
    """Return what Canary's meters counted."""
    counts = read_segments(source.record)
    if source.hosts is None:
        return counts
    return replace(counts, segments=source.hosts.numbered(counts.segments))


def read_segments(record: Record) -> SegmentCounts:
    """Return the packets that Canary counted on each segment in each epoch.

    Raises:
        testbed.record.run.RunError: A table is missing or damaged.
    """
    return segment_counts(record, read_flow_counts(record))


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


@dataclass(frozen=True)
class FlowCounts:
    """The packets of flows that the meters at both ends of segments counted: a row for each flow,
    segment and epoch.

    Attributes:
        epoch, segment: When and where, int[N].
        flow_hi, flow_lo: The flow ID, uint64[N].
        sent, lost: The packets, int64[N].
    """

    epoch: LongArray
    segment: IntArray
    flow_hi: WordArray
    flow_lo: WordArray
    sent: LongArray
    lost: LongArray

    def __len__(self) -> int:
        return len(self.epoch)


def read_flow_counts(record: Record) -> FlowCounts | None:
    """Return what the meters counted of flows; None if the registers were not recorded."""
    meters = read_minus_meters(record)
    if not meters:
        return None
    epoch = np.repeat(np.arange(len(meters)), [len(each) for each in meters])
    names = ("segment", "flow_hi", "flow_lo", "sent", "lost")
    columns = (np.concatenate([getattr(each, name) for each in meters]) for name in names)
    return FlowCounts(epoch, *columns)


def segment_counts(record: Record, flows: FlowCounts | None) -> SegmentCounts:
    """Return the packets that Canary counted on each segment in each epoch: the sums of ``flows``
    (equation 2), or, if there are none, the recorded table of segments.

    Raises:
        testbed.record.run.RunError: A table is missing or damaged.
    """
    parts, network = record.segments, record.network
    sent, lost = np.zeros((2, network["epochs"], len(parts)), np.int64)
    if flows is not None:
        np.add.at(sent, (flows.epoch, flows.segment), flows.sent)
        np.add.at(lost, (flows.epoch, flows.segment), flows.lost)
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


HALF = 0.5
"""If a smaller share of segments and epochs reaches a target, the run reports it as missed."""


def used(record: Record, counts: SegmentCounts) -> Measured:
    """Return what the meters were asked for and counted, and the rules that they took."""
    network, config = record.network, record.config
    segments, sent = counts.segments, counts.sent
    monitors = set(np.concatenate((segments.upstream, segments.downstream)).tolist())
    readings = len(monitors) * len(sent)
    void = {*map(tuple, network.get("unread", ())), *map(tuple, network.get("restarted", ()))}
    got = readings - sum(switch in monitors for _, switch in void)
    budgets: dict[str, Use] = {"meters": {"asked": readings, "got": got}}
    installed = network.get("rules_installed")
    if installed is not None:
        asked = installed + network.get("rules_refused", 0)
        budgets["rules"] = {"asked": asked, "got": installed}
    if "alpha" in config:
        reached = int((sent >= config["alpha"]).sum())
        budgets["alpha"] = {"asked": sent.size, "got": reached}
    reached = network.get("beta_reached")
    if reached is None and "beta" in config and record.has("selection"):
        reached = int((record.table("selection")["flows"] >= _beta(record)).sum())
    if reached is not None:
        budgets["beta"] = {"asked": sent.size, "got": reached}
    observed = sent.sum(axis=0) > 0
    result: Measured = {
        "budgets": budgets,
        "packets": int(sent.sum()),
        "links_unobserved": unobserved(record, counts),
        "segments_unobserved": int((~observed).sum()),
    }
    for name, figure in (
        ("installed", "rules_installed"),
        ("removed", "rules_removed"),
        ("digests", "digests"),
        ("counters_read", "counters_read"),
        ("control_bytes", "control_bytes"),
    ):
        if figure in network:
            result[name] = network[figure]
    if record.has("selection") and (later := sent.size - sent.shape[1]):
        selection = record.table("selection")
        new = selection["installed"][selection["epoch"] > selection["epoch"].min(initial=0)]
        result["unchanged"] = {"asked": later, "got": later - int((new > 0).sum())}
        result["installed_later"] = int(new.sum())
    if missed := _missed(budgets, config.get("alpha", 0), _beta(record)):
        result["remarks"] = [missed]
    return result


def _beta(record: Record) -> int:
    """Return the controller's target of flows on a segment: BETA, or what meters tell apart."""
    return min(record.config.get("beta", 0), record.network.get("flows_a_segment", 1 << 31))


def _missed(budgets: Mapping[str, Use], alpha: int, beta: int) -> str:
    """Return a sentence that names the targets that most segments and epochs miss, if any."""
    missed = [
        f"{name.upper()}={target} in {share(budgets[name]):.0%}"
        for name, target in (("alpha", alpha), ("beta", beta))
        if name in budgets and share(budgets[name]) < HALF
    ]
    if not missed:
        return ""
    return (
        f"targets missed: reached are {' and '.join(missed)} of segments and epochs, and the "
        "controller asks for more flows than exist: use smaller targets, a smaller "
        "ETA, a longer EPOCH_MS or more LOAD"
    )


def unseen(counts: SegmentCounts, advice: str) -> str:
    """Return why links were not observed; see `View.unseen`."""
    if counts.sent.any():
        return advice
    return (
        "no meter counted a flow, because none had more than ETA packets at a switch within an "
        "epoch: a smaller ETA, a longer EPOCH_MS, or longer flows (of a capture whose packets come "
        "all at once: :fit)"
    )
