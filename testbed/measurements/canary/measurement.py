# SPDX-License-Identifier: Apache-2.0
"""The measurement ``canary``: the meters of monitor switches, and the selection of their flows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import LongArray
from testbed.control.epochs import parity_changes
from testbed.measurements.measurement import (
    Budget,
    Counts,
    Measurement,
    Running,
    Simulated,
    Write,
)
from testbed.record.run_tables import REGISTERS, RULES, SEGMENTS, SELECTION
from testbed.record.tables import Columns

if TYPE_CHECKING:
    from testbed.fabric.packet_fabric import PacketFabric
    from testbed.measurements.canary.minus_meters import MinusMeter, Rules
    from testbed.measurements.measurement import PacketRun, SimulatedRun
    from testbed.traffic.flows import Traffic


class Canary(Measurement):
    """Meters at both ends of each segment, of flows that the controller selects (Canary)."""

    name = "canary"
    view = "segments"
    help = "Canary's meters at both ends of each segment"
    unseen = (
        "a smaller ETA, a larger ALPHA or more LOAD lets meters count more flows; probes cross "
        "links that lose every packet"
    )
    budgets = (
        Budget(
            name="meters",
            does="stores",
            what="buckets",
            per="meter and epoch",
            option="",
            fixed="3 rows of 1,024",
            counted="readings of a switch's meters",
            paper="Canary, section IV-A",
            feeds="a longer EPOCH_MS, or a smaller K",
        ),
        Budget(
            name="rules",
            does="installs",
            what="rules",
            counted="flows that were to get rules",
            per="table and switch",
            option="",
            fixed="4,096",
            paper="Canary, section III-D",
            feeds="a smaller BETA or DELTA",
        ),
        Budget(
            name="alpha",
            does="wants",
            what="packets counted",
            per="segment and epoch",
            option="alpha",
            paper="Canary, section III-D and table III",
        ),
        Budget(
            name="beta",
            does="wants",
            what="flows counted",
            per="segment and epoch",
            option="beta",
            paper="Canary, section III-D and table III",
        ),
        Budget(
            name="selection",
            does="installs",
            what="flows",
            per="segment and request",
            option="delta",
            paper="Canary, section III-D and table III",
        ),
    )
    tables = SEGMENTS, REGISTERS, RULES, SELECTION
    on_monitors = True

    def start(self, run: PacketRun) -> Running:
        """Return the controller of the meters; it has installed nothing yet."""
        return MeteredRun(run)

    def simulate(self, run: SimulatedRun, plan: Any) -> Simulated:
        """Draw what the meters count and what is lost on each segment."""
        from testbed.fabric.segments import segment_share
        from testbed.measurements.canary.metering import meter, meter_upload
        from testbed.measurements.canary.meters import Exchanged
        from testbed.measurements.canary.selection import SelectionParameters
        from testbed.network.flow import send
        from testbed.record.run import segment_columns

        del plan
        parts, loss = run.segments, run.loss
        share = segment_share(run.ecmp, run.process.pair_share(), parts)
        links = parts.paths.padded()
        every = np.where(links >= 0, 1 - loss[:, np.maximum(links, 0)], 1.0)
        success = every.prod(axis=2)  # the probability to cross each segment, by epoch
        limits = SelectionParameters.of(run.limits)
        metered = meter(run.process, share, success, run.epochs, run.epoch_s, limits, run.seed)
        rng, lost = run.rng(5), np.empty_like(metered.sent)
        for epoch, sent in enumerate(metered.sent):
            now = loss[min(epoch, len(loss) - 1)][None, :]
            lost[epoch] = send(now, parts.paths, sent, rng).lost
        installed, removed = int(metered.installed.sum()), int(metered.removed.sum())
        watched, changes = int(metered.watched.sum()), installed + removed
        # Each reported flow is selected, and a flow is on one segment of an upstream.
        control = Exchanged(installed, changes, changes, usm_counters=watched).bytes
        figures = {
            "rules_installed": installed,
            "rules_removed": removed,
            "rules_refused": 0,
            "digests": installed,
            "counters_read": watched,
            "control_bytes": control,
            "beta_reached": int(metered.reached.sum()),
            "canary_bytes": meter_upload(metered, parts) * run.epochs + control,
        }
        return Simulated({SEGMENTS.name: segment_columns(metered.sent, lost)}, figures)


@dataclass(frozen=True)
class Selected:
    """For each segment, the counts of an epoch's meters and the changes of its flows' rules,
    int64[S] each; see the table ``selection`` of `testbed.record.run_tables`."""

    packets: LongArray
    flows: LongArray
    rules: LongArray
    installed: LongArray
    removed: LongArray


class MeteredRun(Running):
    """The controller of the meters in a run with packets.

    Attributes:
        selector: Selects the flows that the meters count.
        controls: The controls of the switches with meters, by number.
    """

    def __init__(self, run: PacketRun) -> None:
        from testbed.fabric.pathbf import SegmentDecoder
        from testbed.measurements.canary.selection import (
            FlowSelector,
            SelectionParameters,
            flows_that_fit,
        )

        self._run = run
        self._decoder = SegmentDecoder(run.fabric, run.segments, run.ids)
        self.controls = {index: run.controls[index] for index in run.monitors}
        most = flows_that_fit(
            run.segments,
            _crossing(run.fabric, run.traffic, len(run.controls) > run.fabric.n_switches),
        )
        parameters = SelectionParameters.of(run.limits).fitting(most)
        self.selector = FlowSelector(run.segments, self._decoder, self.controls, parameters)
        self._rules: dict[int, Rules] = {}
        self._selected: dict[int, Selected] = {}
        self._collection_s: list[float] = []
        self._unread: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Ask for the first flows on all segments."""
        none = np.zeros(len(self._run.segments), np.int64)
        self.selector.plan(none, none)

    def changes(self, epoch: int) -> Sequence[tuple[int, Callable[[], None]]]:
        """Return when each switch begins to count in the other instance of its meters."""
        return parity_changes(self._run.clock, epoch, self.controls)

    def poll(self, now_ns: int, retransmitted: npt.NDArray[np.int64] | None) -> None:
        """Install rules for reported flows."""
        del retransmitted
        self.selector.poll(now_ns)

    def forget(self, epoch: int) -> None:
        """Discard what the meters of the parity of ``epoch`` counted before it began."""
        from testbed.measurements.canary.meters import collect

        collect(self.controls, epoch % 2)

    def restarted(self, switch: int) -> None:
        """Forget the counters read from a switch that restarted."""
        self.selector.restarted(switch)

    def end_epoch(self, number: int, rerouted: Sequence[int], write: Write) -> MinusMeter:
        """Read the meters of an epoch, and plan the next ones; return its minus meter.

        The order is part of the protocol (Canary, sections III-D and III-E). The DSM rule of a
        retired flow stays until the meters that it fed are read. The plan for the next epochs needs
        the minus meter of this one.
        """
        from testbed.measurements.canary.meters import clear_hashpipe, collect
        from testbed.measurements.canary.minus_meters import (
            MeterDump,
            Rules,
            minus_meter,
            segment_counts,
        )

        selector, segments = self.selector, self._run.segments
        begin = self._run.seconds()
        dump = MeterDump(**collect(self.controls, number % 2))
        if took := self._run.seconds() - begin:
            self._collection_s.append(round(took, 3))
        gone = [switch for switch, control in self.controls.items() if control.lost]
        self._unread += [(number, switch) for switch in gone]
        rules = Rules(*selector.in_force())
        self._rules[number] = rules
        write(REGISTERS.name, vars(dump))  # from which the epoch can be diagnosed again
        selector.finish_retiring()  # the last packets of these flows have left the network
        meter = minus_meter(dump, self._decoder.decode, segments, rules, rerouted)
        packets, _ = segment_counts(meter, len(segments))
        quiet = selector.retire_quiet()
        in_force, removed = (
            np.bincount(each, minlength=len(segments)) for each in (rules.segment, quiet)
        )
        flows = in_force - removed  # those that are monitored, also where meters lost their counts
        selector.plan(packets, flows)
        before = self._selected.get(number - 1)
        left = 0 if before is None else before.rules - before.removed  # the others are new
        self._selected[number] = Selected(packets, flows, in_force, in_force - left, removed)
        clear_hashpipe(self.controls)
        return meter

    def tables(self, counts: Counts) -> Mapping[str, Columns]:
        """Return the rules in force in each epoch, and what was selected."""
        first = counts.first
        rules = {number - first: each for number, each in self._rules.items() if number >= first}
        some = {number - first: each for number, each in self._selected.items() if number >= first}
        return {RULES.name: _rule_columns(rules), SELECTION.name: _selection_columns(some)}

    def figures(self, counts: Counts) -> Mapping[str, Any]:
        """Return the counts of rules and of what controller and switches exchanged, and the meters
        that were not read."""
        from testbed.measurements.canary.meters import upload_bytes

        selector = self.selector
        exchanged = selector.exchanged
        first = counts.first
        uploaded = upload_bytes(len(self.controls)) * sum(number >= first for number in self._rules)
        unread = [(number - first, switch) for number, switch in self._unread if number >= first]
        return {
            "collection_seconds": self._collection_s,
            "unread": unread,
            "flows_a_segment": int(np.min(selector.parameters.most)),
            "rules_installed": selector.installed,
            "rules_removed": selector.removed,
            "rules_refused": selector.refused,
            "digests": exchanged.digests,
            "counters_read": exchanged.counters,
            "control_bytes": exchanged.bytes,
            "canary_bytes": uploaded + exchanged.bytes,
        }


def _crossing(fabric: PacketFabric, traffic: Traffic, host_meters: bool) -> LongArray:
    """Return how many flows cross each switch, int64[n_switches]: the more of those that begin and
    those that end at a ToR; of other switches, an equal share of all, which at most they have. If
    hosts have meters, a ToR counts those that begin and those that end there, and hosts follow."""
    hosts = traffic.src_host, traffic.dst_host
    ends = (fabric.host_tor[host] for host in hosts)
    both = [np.bincount(end, minlength=fabric.n_switches) for end in ends]
    of_tor = np.sum(both, axis=0) if host_meters else np.max(both, axis=0)
    others = traffic.n_flows // np.bincount(fabric.tier)[fabric.tier]
    of_switch = np.where(fabric.tier == 0, of_tor, others).astype(np.int64)
    if not host_meters:
        return of_switch
    of_host = np.max([np.bincount(each, minlength=fabric.n_hosts) for each in hosts], axis=0)
    return np.append(of_switch, of_host)


def _rule_columns(rules: Mapping[int, Rules]) -> Columns:
    """Return the columns of the table ``rules``: the DSM rules in force in each epoch."""
    epoch = [np.full(len(each), number, np.int32) for number, each in rules.items()]
    columns = {
        name: np.concatenate([getattr(each, name) for each in rules.values()])
        for name in ("flow_hi", "flow_lo", "segment")
    }
    return {"epoch": np.concatenate(epoch), **columns}


def _selection_columns(selected: Mapping[int, Selected]) -> Columns:
    """Return the columns of the table ``selection``; rows with only zeros are left out."""
    names = [each.name for each in fields(Selected)]
    counts = np.array([[getattr(each, name) for name in names] for each in selected.values()])
    epoch, segment = np.nonzero(counts.any(axis=1))
    columns = {name: counts[epoch, n, segment] for n, name in enumerate(names)}
    return {"epoch": np.array(list(selected))[epoch], "segment": segment, **columns}
