# SPDX-License-Identifier: Apache-2.0
"""Selection of large flows on demand (Canary, section III-D).

After an epoch the diagnoser asks for `delta` more flows on every segment that counted fewer than
`alpha` packets or monitored fewer than `beta` flows, up to `most`. The paper has no such limit: the
buckets of its meters are enough for the segments of its fabrics. The controller then opens an HH
rule at the segment's downstream switch, turns the digests that come back into DSM and USM rules,
and closes the HH rule when `delta` flows have been selected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.control.switch import SwitchControl, batch, for_each
from testbed.dataplane import BUCKETS, DSM, FLOW_ID, HEAVY_HITTER, ROWS, USM
from testbed.fabric.pathbf import SegmentDecoder
from testbed.fabric.segments import Segments
from testbed.measurements.canary.meters import Exchanged

FlowKey = int  # the 104-bit flow ID

_U32_MAX = 0xFFFFFFFF
_PATH_BF = HEAVY_HITTER.digest.position("path_bf")


UNLIMITED = 1 << 31
"""More flows than a segment ever has."""


@dataclass(frozen=True)
class SelectionParameters:
    """Thresholds of Canary's table III.

    ``alpha`` packets and ``beta`` flows a segment and epoch, ``delta`` flows a request, ``eta``
    packets in HashPipe that a large flow exceeds; ``latency_ns`` is the time from a digest to the
    rules it causes. ``most`` is the most flows that are monitored on a segment, whatever it counts;
    as int64[S] it is that of each segment, see `flows_that_fit`.
    """

    alpha: int = 1000
    beta: int = 20
    delta: int = 20
    eta: int = 16
    latency_ns: int = 5_000_000
    most: int | npt.NDArray[np.int64] = UNLIMITED


_CLEAN = 0.8
"""Share of a meter's flows that have a clean bucket when it is full, as in Canary's table II."""


def flows_that_fit(segments: Segments, crossing: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many flows of each segment the meters at its ends tell apart, at least 1:
    int64[S]. It is `UNLIMITED` where neither meter has so many flows that they may be too many.

    A meter with more flows counts fewer of them: n flows in rows of w buckets have a clean one with
    probability 1 - (1 - exp(-n / w)) ** d (Canary, theorem 2), and at both ends of a segment n
    times the square of that is largest near the n taken here, 900. At K=16 a core switch is an end
    of 128 segments, so it is 7; at K=8 it is 28. With ToRs alone as monitors a ToR at K=8 is an end
    of 460, most of which no flow takes.

    Args:
        segments: The segments.
        crossing: The flows that cross each switch in the run, about, int64[n_switches].
    """
    fill = -math.log(1 - (1 - _CLEAN) ** (1 / ROWS))
    room, n = int(fill * BUCKETS), len(crossing)
    most = np.full(len(segments), UNLIMITED, np.int64)
    for end in (segments.upstream, segments.downstream):
        share = np.maximum(room // np.maximum(np.bincount(end, minlength=n), 1), 1)
        most = np.minimum(most, np.where(crossing > room, share, UNLIMITED)[end])
    return most


@dataclass
class UsmEntry:
    """A flow's entry in an upstream switch's USM table, which all rules of the flow there share.

    They share it because the key of the USM's table is the flow alone, without the segment.

    Attributes:
        handle: The entry's handle; -1 until it is installed.
        rules: How many rules share it.
        packets: Its packet counter when it was last read; -1 before the first read.
    """

    handle: int = -1
    rules: int = 0
    packets: int = -1


@dataclass
class Rule:
    """A flow monitored on a segment: a DSM entry and, once that is in force, a USM entry.

    ``dsm_handle`` is -1 until the DSM entry is installed.
    ``arrived`` is the DSM entry's packet counter when it was last read, -1 before the first read.
    It is only read where several rules share the USM entry.
    """

    flow: FlowKey
    segment: int
    dsm_handle: int
    usm: UsmEntry
    arrived: int = -1


@dataclass
class _Request:
    handle: int
    remaining: int


@dataclass
class FlowSelector:
    """Maintains the HH, DSM and USM tables of all monitor switches, in parallel.

    Attributes:
        rules: The rules in force, by (flow, segment).
        installed, removed: Rules installed and removed so far, counted as flows.
        exchanged: Counts of digests, entries and counters sent between controller and switches.
        room: The capacity of each meter's table, in entries.
    """

    segments: Segments
    decoder: SegmentDecoder
    controls: dict[int, SwitchControl]
    parameters: SelectionParameters
    rules: dict[tuple[FlowKey, int], Rule] = field(default_factory=dict)
    installed: int = 0
    removed: int = 0
    exchanged: Exchanged = field(default_factory=Exchanged)
    room: Mapping[str, int] = field(
        default_factory=lambda: {meter.rules: meter.capacity for meter in (DSM, USM)}
    )
    _requests: dict[int, _Request] = field(default_factory=dict)
    _usm: dict[tuple[int, FlowKey], UsmEntry] = field(default_factory=dict)
    _late: list[tuple[int, FlowKey, int]] = field(default_factory=list)
    _leaving: dict[tuple[FlowKey, int], Rule] = field(default_factory=dict)
    _load: Counter[tuple[str, int]] = field(default_factory=Counter)  # entries by table, switch
    _refused: set[tuple[FlowKey, int]] = field(default_factory=set)
    _ends: list[tuple[int, int, int]] = field(init=False)  # upstream, downstream, pathBF

    def __post_init__(self) -> None:
        columns = self.segments.upstream, self.segments.downstream, self.decoder.path_bf
        self._ends = list(zip(*(column.tolist() for column in columns), strict=True))

    @property
    def refused(self) -> int:
        """Return how many flows were refused by a full table and not installed later."""
        return len(self._refused)

    def plan(self, sent: npt.NDArray[np.int64], flows: npt.NDArray[np.int64]) -> None:
        """Open HH rules on segments that need more flows, and close those of the others.

        Args:
            sent: Packets that each segment counted in an epoch, int64[S].
            flows: Flows that were monitored on each segment, int64[S].
        """
        chosen = self.parameters
        more = np.minimum(chosen.delta, chosen.most - flows)
        low = ((sent < chosen.alpha) | (flows < chosen.beta)) & (more > 0)
        with batch(self.controls.values()):
            for segment in np.flatnonzero(~low):
                self._close(int(segment))
            for segment in np.flatnonzero(low):
                self._open(int(segment), int(more[segment]))

    def _hh(self, segment: int):
        return self.controls[self._ends[segment][1]].table(HEAVY_HITTER.segments)

    def _open(self, segment: int, flows: int) -> None:
        request = self._requests.get(segment)
        if request is not None:
            request.remaining = flows
            return
        match = [self._ends[segment][2], (self.parameters.eta + 1, _U32_MAX)]
        handle = self._hh(segment).add(match, HEAVY_HITTER.report, priority=1)
        self._requests[segment] = _Request(handle, flows)

    def _close(self, segment: int) -> None:
        request = self._requests.pop(segment, None)
        if request is not None:
            self._hh(segment).delete(request.handle)

    def poll(self, now_ns: int) -> None:
        """Read new digests and install rules for those that are at least ``latency_ns`` old.

        ``now_ns`` is the time since the run's start in ns.
        """
        found = [
            (switch, digest)
            for switch, control in self.controls.items()
            for digest in control.digests().values()
            if len(digest)
        ]
        if found:
            self._receive(found)
        due = [late for late in self._late if late[0] <= now_ns]
        if due:
            self._late = [late for late in self._late if late[0] > now_ns]
            self._select([(flow, segment) for _, flow, segment in sorted(due)])

    def _receive(self, found: list[tuple[int, npt.NDArray[Any]]]) -> None:
        """Queue digests until their latency has passed; ``found`` pairs switches with digests."""
        # A digest's fields are positional: those of the flow ID, then the segment's pathBF.
        rows = [row for _, digest in found for row in digest.tolist()]
        self.exchanged.digests += len(rows)
        now_us = [at for _, digest in found for at in digest["now_us"].tolist()]
        switch = np.repeat([switch for switch, _ in found], [len(digest) for _, digest in found])
        path_bf = np.array([row[_PATH_BF] for row in rows], np.uint32)
        segment = self.decoder.decode(switch, path_bf)
        for row, s, at in zip(rows, segment.tolist(), now_us, strict=True):
            if s >= 0:
                due = at * 1000 + self.parameters.latency_ns
                self._late.append((due, FLOW_ID.of(*row[:_PATH_BF]), s))

    def _select(self, reported: list[tuple[FlowKey, int]]) -> None:
        """Install the rules of those reported flows that are still needed.

        All DSM rules are in force before the first USM rule: a packet that an upstream switch
        counts must also be counted by the downstream switch.
        """
        every = self.controls.values()
        with batch(every):
            chosen = [rule for flow, segment in reported if (rule := self._admit(flow, segment))]
            ends = [self._ends[rule.segment] for rule in chosen]
            places = [
                (downstream, (rule.flow, path_bf))
                for rule, (_, downstream, path_bf) in zip(chosen, ends, strict=True)
            ]
            handles = self._add(DSM.rules, DSM.monitor, places)
            for rule, handle in zip(chosen, handles, strict=True):
                rule.dsm_handle = handle
        with batch(every):
            lacking = {id(rule.usm): rule for rule in chosen if rule.usm.handle < 0}.values()
            places = [(self._ends[rule.segment][0], (rule.flow,)) for rule in lacking]
            handles = self._add(USM.rules, USM.monitor, places)
            for rule, handle in zip(lacking, handles, strict=True):
                rule.usm.handle = handle
        self.exchanged.dsm_changes += len(chosen)
        self.exchanged.usm_changes += len(lacking)

    def _add(
        self, table: str, action: str, places: Sequence[tuple[int, tuple[int, ...]]]
    ) -> list[int]:
        """Add an entry to a table for each (switch, match), and return their handles, in order."""
        by_switch: dict[int, list[int]] = {}
        for number, (switch, _) in enumerate(places):
            by_switch.setdefault(switch, []).append(number)
        handles = [-1] * len(places)
        for switch, numbers in by_switch.items():
            matches = [places[number][1] for number in numbers]
            added = self.controls[switch].table(table).add_all(matches, action)
            for number, handle in zip(numbers, added, strict=True):
                handles[number] = handle
        return handles

    def _admit(self, flow: FlowKey, segment: int) -> Rule | None:
        """Return a flow's rule if it is needed and fits; its entries are to be added."""
        request = self._requests.get(segment)
        key = (flow, segment)
        if request is None or key in self.rules or key in self._leaving:
            return None
        upstream, downstream, _ = self._ends[segment]
        usm = self._usm.get((upstream, flow))
        needed = [(DSM.rules, downstream)] + ([] if usm else [(USM.rules, upstream)])
        if any(self._load[place] >= self.room[place[0]] for place in needed):
            self._refused.add(key)
            return None
        self._refused.discard(key)
        for place in needed:
            self._load[place] += 1
        if usm is None:
            self._usm[upstream, flow] = usm = UsmEntry()
        usm.rules += 1
        self.rules[key] = rule = Rule(flow, segment, -1, usm)
        self.installed += 1
        request.remaining -= 1
        if request.remaining == 0:
            self._close(segment)
        return rule

    def retire_quiet(self) -> list[int]:
        """Stop counting idle flows and return their segments, one for each rule.

        A flow is idle if it sent nothing since the last call, or nothing on this segment while it
        sent on another segment of the same upstream switch.

        The USM entry goes first, with the last rule that shares it; `finish_retiring` removes the
        DSM entry after the drain, so no packet is counted upstream alone.
        """
        quiet = self._quiet()
        with batch(self.controls.values()):
            for key in quiet:
                rule = self.rules.pop(key)
                rule.usm.rules -= 1
                if not rule.usm.rules:
                    upstream = self._ends[rule.segment][0]
                    self.controls[upstream].table(USM.rules).delete(rule.usm.handle)
                    self.exchanged.usm_changes += 1
                    self._load[USM.rules, upstream] -= 1
                    del self._usm[upstream, rule.flow]
                self._leaving[key] = rule
                self.removed += 1
        return [segment for _, segment in quiet]

    def _quiet(self) -> list[tuple[FlowKey, int]]:
        """Return the (flow, segment) of each rule that `retire_quiet` is to remove."""
        entries = [(switch, usm) for (switch, _), usm in self._usm.items()]
        silent: set[int] = set()
        counted = self._counted(USM.rules, [(switch, usm.handle) for switch, usm in entries])
        self.exchanged.usm_counters += len(entries)
        for (_, usm), packets in zip(entries, counted, strict=True):
            if packets <= usm.packets:
                silent.add(id(usm))
            usm.packets = packets

        shared = [rule for rule in self.rules.values() if rule.usm.rules > 1]
        places = [(self._ends[rule.segment][1], rule.dsm_handle) for rule in shared]
        self.exchanged.dsm_counters += len(places)
        still, moving = [], set()
        for rule, packets in zip(shared, self._counted(DSM.rules, places), strict=True):
            if packets > rule.arrived:
                moving.add(id(rule.usm))
            else:
                still.append(rule)
            rule.arrived = packets
        left = {(rule.flow, rule.segment) for rule in still if id(rule.usm) in moving}
        return [key for key, rule in self.rules.items() if id(rule.usm) in silent or key in left]

    def _counted(self, table: str, entries: list[tuple[int, int]]) -> list[int]:
        """Return the packets that each entry (switch, handle) of a table counted, in order."""
        by_switch: dict[int, list[int]] = {}
        for number, (switch, _) in enumerate(entries):
            by_switch.setdefault(switch, []).append(number)
        numbers = {id(self.controls[switch]): some for switch, some in by_switch.items()}

        def ask(control: SwitchControl) -> list[int]:
            """Return the packet counts of one switch's entries, in their order."""
            handles = [entries[number][1] for number in numbers[id(control)]]
            return control.table(table).counters(handles)[:, 0].tolist()

        answers = for_each([self.controls[switch] for switch in by_switch], ask)
        counts = [0] * len(entries)
        for some, packets in zip(by_switch.values(), answers, strict=True):
            for number, each in zip(some, packets, strict=True):
                counts[number] = each
        return counts

    def restarted(self, switch: int) -> None:
        """Forget the counters read from a switch, which restart from 0 after its restart."""
        for (upstream, _), usm in self._usm.items():
            if upstream == switch:
                usm.packets = -1
        for rule in self.rules.values():
            if self._ends[rule.segment][1] == switch:
                rule.arrived = -1

    def finish_retiring(self) -> None:
        """Remove the DSM rules of retired flows, once their packets have left the network."""
        with batch(self.controls.values()):
            for rule in self._leaving.values():
                downstream = self._ends[rule.segment][1]
                self.controls[downstream].table(DSM.rules).delete(rule.dsm_handle)
                self.exchanged.dsm_changes += 1
                self._load[DSM.rules, downstream] -= 1
        self._leaving.clear()

    def in_force(
        self,
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        """Return all rules: upper 40 and lower 64 bits of the flow ID, uint64[R], and segment.

        The segments are int32[R].
        """
        keys = list(self.rules)
        hi = np.array([flow >> 64 for flow, _ in keys], np.uint64)
        lo = np.array([flow & (1 << 64) - 1 for flow, _ in keys], np.uint64)
        return hi, lo, np.array([segment for _, segment in keys], np.int32)
