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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, IntArray, LongArray, WordArray
from testbed.control.entries import entries_on
from testbed.control.switch import SwitchControl, batch
from testbed.dataplane import BUCKETS, DSM, HEAVY_HITTER, ROWS, USM
from testbed.fabric.pathbf import SegmentDecoder
from testbed.fabric.segments import Segments
from testbed.measurements.canary.meters import Exchanged
from testbed.measurements.canary.rules import ADMITTED, NONE, REFUSED, Flows, Monitored
from testbed.record.flow_ids import FiveTuples, flow_ids

if TYPE_CHECKING:
    from testbed.measurements.measurement import Limits

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

    @classmethod
    def of(cls, limits: Limits) -> SelectionParameters:
        """Return the thresholds of a run's settings."""
        return cls(limits.alpha, limits.beta, limits.delta, limits.eta)

    def fitting(self, most: npt.NDArray[np.int64]) -> SelectionParameters:
        """Return these thresholds for meters that tell apart ``most`` flows of each segment,
        int64[S]: neither ``beta`` nor ``delta`` asks for more."""
        fit = int(most.min(initial=UNLIMITED))
        return replace(self, beta=min(self.beta, fit), delta=min(self.delta, fit), most=most)


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


@dataclass(frozen=True)
class _Reports:
    """Flows that digests reported: when rules of them are due in ns, int64[N], and the segments,
    int32[N]."""

    due: LongArray
    flows: Flows
    segment: IntArray

    def __getitem__(self, rows: npt.NDArray[Any]) -> _Reports:
        """Return some of them."""
        return _Reports(self.due[rows], self.flows[rows], self.segment[rows])

    @classmethod
    def joined(cls, parts: Sequence[_Reports]) -> _Reports:
        """Return the reports of all parts, at least one."""
        hi, lo = (np.concatenate([getattr(p.flows, name) for p in parts]) for name in ("hi", "lo"))
        due, segment = (np.concatenate([getattr(p, n) for p in parts]) for n in ("due", "segment"))
        return cls(due, Flows(hi, lo), segment)


class FlowSelector:
    """Maintains the HH, DSM and USM tables of all monitor switches, in parallel.

    ``room`` is the most entries of a DSM's table and of a USM's.

    Attributes:
        monitored: The rules.
        installed, removed: Rules installed and removed so far, counted as flows.
        exchanged: Counts of digests, entries and counters sent between controller and switches.
    """

    def __init__(
        self,
        segments: Segments,
        decoder: SegmentDecoder,
        controls: dict[int, SwitchControl],
        parameters: SelectionParameters,
        room: tuple[int, int] = (DSM.capacity, USM.capacity),
    ) -> None:
        self.segments, self.decoder = segments, decoder
        self.controls, self.parameters = controls, parameters
        self.monitored = Monitored(segments, room)
        self.installed = self.removed = 0
        self.exchanged = Exchanged()
        self._requests = entries_on(
            controls, HEAVY_HITTER.segments, HEAVY_HITTER.report, priority=1
        )
        self._dsm = entries_on(controls, DSM.rules, DSM.monitor)
        self._usm = entries_on(controls, USM.rules, USM.monitor)
        self._hh = np.full(len(segments), NONE)  # handles of the HH rules, of segments with one
        self._late: list[_Reports] = []
        self._refused: set[bytes] = set()

    @property
    def refused(self) -> int:
        """Return how many flows were refused by a full table and not installed later."""
        return len(self._refused)

    @property
    def requested(self) -> LongArray:
        """Return how many flows are still asked for on each segment, int64[S]."""
        return self.monitored.wanted

    def plan(self, sent: npt.NDArray[np.int64], flows: npt.NDArray[np.int64]) -> None:
        """Open HH rules on segments that need more flows, and close those of the others.

        Args:
            sent: Packets that each segment counted in an epoch, int64[S].
            flows: Flows that were monitored on each segment, int64[S].
        """
        chosen = self.parameters
        more = np.minimum(chosen.delta, chosen.most - flows)
        low = ((sent < chosen.alpha) | (flows < chosen.beta)) & (more > 0)
        self.monitored.wanted[:] = np.where(low, more, 0)
        with batch(self.controls.values()):
            self._close(np.flatnonzero(~low))
            self._open(np.flatnonzero(low & (self._hh == NONE)))

    def close(self) -> None:
        """Ask for no more flows."""
        self.monitored.wanted[:] = 0
        self._close(np.arange(len(self.segments)))

    def _open(self, segments: LongArray) -> None:
        """Add the HH rules of segments, which have none."""
        large = self.parameters.eta + 1, _U32_MAX
        match = [self.decoder.path_bf[segments], large]
        self._hh[segments] = self._requests.add(self.segments.downstream[segments], match)

    def _close(self, segments: LongArray) -> None:
        """Remove the HH rules of those segments that have one."""
        there = segments[self._hh[segments] != NONE]
        if not len(there):
            return
        self._requests.delete(self._hh[there])
        self._hh[there] = NONE

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
        if not self._late:
            return
        late = _Reports.joined(self._late)
        due = late.due <= now_ns
        self._late = [] if due.all() else [late[~due]]
        if due.any():
            flows, segment = late.flows, late.segment
            order = np.lexsort((segment, flows.lo, flows.hi, late.due))
            order = order[due[order]]
            self._select(flows[order], segment[order])

    def _receive(self, found: list[tuple[int, npt.NDArray[Any]]]) -> None:
        """Queue digests until their latency has passed; ``found`` pairs switches with digests."""
        # A digest's fields are positional: those of the flow ID, then the segment's pathBF.
        length = [len(digest) for _, digest in found]
        digests = np.empty(sum(length), found[0][1].dtype)
        for (_, digest), end in zip(found, np.cumsum(length), strict=True):
            digests[end - len(digest) : end] = digest
        self.exchanged.digests += len(digests)
        switch = np.repeat([switch for switch, _ in found], length)
        names = digests.dtype.names or ()
        segment = self.decoder.decode(switch, digests[names[_PATH_BF]])
        due = digests["now_us"].astype(np.int64) * 1000 + self.parameters.latency_ns
        flows = Flows(*flow_ids(FiveTuples(*(digests[name] for name in names[:_PATH_BF]))))
        self._late.append(_Reports(due, flows, segment)[segment >= 0])

    def _select(self, flows: Flows, segment: IntArray) -> None:
        """Install the rules of those reported flows that are still needed.

        All DSM rules are in force before the first USM rule: a packet that an upstream switch
        counts must also be counted by the downstream switch.
        """
        every, ends = self.controls.values(), self.segments
        admission = self.monitored.admit(flows, segment)
        self._note_refused(flows, segment, admission.outcome)
        rules, entries = self.monitored.rules, self.monitored.entries
        new = rules.place[admission.rules]
        if not len(new):
            return
        with batch(every):
            served = new[self.monitored.wanted[new] == 0]
            self._close(np.unique(served).astype(np.int64))
            match = [rules.flows[admission.rules].column, self.decoder.path_bf[new]]
            rules["handle"][admission.rules] = self._dsm.add(ends.downstream[new], match)
        with batch(every):
            at, match = entries.place[admission.entries], entries.flows[admission.entries].column
            entries["handle"][admission.entries] = self._usm.add(at, [match])
        self.installed += len(new)
        self.exchanged.dsm_changes += len(new)
        self.exchanged.usm_changes += len(at)

    def _note_refused(self, flows: Flows, segment: IntArray, outcome: npt.NDArray[np.int8]) -> None:
        """Count the flows that a full table refused, until they are admitted."""
        if self._refused or (outcome == REFUSED).any():
            words = np.stack((flows.hi, flows.lo, segment.astype(np.uint64)), axis=1)
            keys = words.view("V24")[:, 0]
            self._refused.difference_update(keys[outcome == ADMITTED].tolist())
            self._refused.update(keys[outcome == REFUSED].tolist())

    def retire_quiet(self) -> LongArray:
        """Stop counting idle flows and return their segments, one for each rule: int64[N].

        A flow is idle if it sent nothing since the last call, or nothing on this segment while it
        sent on another segment of the same upstream switch.

        The USM entry goes first, with the last rule that shares it; `finish_retiring` removes the
        DSM entry after the drain, so no packet is counted upstream alone.
        """
        entries, quiet = self.monitored.entries, self._quiet()
        with batch(self.controls.values()):
            unused = self.monitored.retire(quiet)
            self._usm.delete(entries["handle"][unused])
        self.monitored.drop_entries(unused)
        self.exchanged.usm_changes += int(unused.sum())
        self.removed += int(quiet.sum())
        return self.monitored.rules.place[quiet].astype(np.int64)

    def _quiet(self) -> BoolArray:
        """Return the rules that `retire_quiet` is to remove, bool[R]."""
        rules, entries = self.monitored.rules, self.monitored.entries
        sent = self._usm.packets(entries["handle"])
        silent = sent <= entries["packets"]
        entries["packets"][:] = sent
        self.exchanged.usm_counters += len(sent)

        entry = rules["entry"]
        present = entry != NONE
        shared = np.flatnonzero(np.append(entries["shares"], 0)[entry] > 1)
        arrived = self._dsm.packets(rules["handle"][shared])
        more = arrived > rules["arrived"][shared]
        rules["arrived"][shared] = arrived
        self.exchanged.dsm_counters += len(arrived)
        moving = np.zeros(len(sent), np.bool_)
        moving[entry[shared[more]]] = True

        quiet = np.zeros(len(rules), np.bool_)
        quiet[present] = silent[entry[present]]
        quiet[shared[~more]] |= moving[entry[shared[~more]]]
        return quiet

    def restarted(self, switch: int) -> None:
        """Forget the counters read from a switch, which restart from 0 after its restart."""
        rules, entries = self.monitored.rules, self.monitored.entries
        entries["packets"][entries.place == switch] = NONE
        rules["arrived"][self.segments.downstream[rules.place] == switch] = NONE

    def finish_retiring(self) -> None:
        """Remove the DSM rules of retired flows, once their packets have left the network."""
        rules = self.monitored.rules
        leaving = rules["leaving"] > 0
        with batch(self.controls.values()):
            self._dsm.delete(rules["handle"][leaving])
        self.exchanged.dsm_changes += int(leaving.sum())
        self.monitored.drop_leaving()

    def in_force(self) -> tuple[WordArray, WordArray, IntArray]:
        """Return all rules: upper 40 and lower 64 bits of the flow ID, uint64[R], and segment.

        The segments are int32[R].
        """
        rules = self.monitored.rules
        now = rules["leaving"] == 0
        flows = rules.flows[now]
        return flows.hi, flows.lo, rules.place[now]
