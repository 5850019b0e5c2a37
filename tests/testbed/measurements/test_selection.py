# SPDX-License-Identifier: Apache-2.0
"""Flow selection after Canary's section III-D, on switches that are plain Python tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from testbed.dataplane import BUCKETS, HEAVY_HITTER, ROWS, USM
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pathbf import SegmentDecoder, switch_ids
from testbed.measurements.canary.meters import Exchanged
from testbed.measurements.canary.selection import (
    UNLIMITED,
    FlowSelector,
    SelectionParameters,
    flows_that_fit,
)

LATENCY = 5_000_000


class FakeTable:
    def __init__(self, log: list[str], name: str) -> None:
        self.entries: dict[int, tuple[Any, ...]] = {}
        self.packets: dict[int, int] = {}
        self._log, self._name, self._next = log, name, 0

    def add(self, match, action, params=(), priority=None) -> int:
        assert tuple(match) not in self.entries.values(), "an entry with the same match"
        self._next += 1
        self.entries[self._next] = tuple(match)
        self.packets[self._next] = 0
        self._log.append(f"+{self._name}")
        return self._next

    def delete(self, handle: int) -> None:
        del self.entries[handle]
        self._log.append(f"-{self._name}")

    def counters(self, handles) -> np.ndarray:
        return np.array([(self.packets[handle], 0) for handle in handles], np.uint64).reshape(-1, 2)


class FakeSwitch:
    remote = waiting = False
    lost = ""

    def __init__(self, log: list[str]) -> None:
        self.tables: dict[str, FakeTable] = {}
        self.pending: list[tuple[int, ...]] = []
        self._log = log

    def table(self, name: str) -> FakeTable:
        short = name.split(".")[1]
        return self.tables.setdefault(short, FakeTable(self._log, short))

    def digests(self) -> dict[str, np.ndarray]:
        names = ("a", "b", "c", "d", "e", "f", "now_us")
        rows = np.array(self.pending, [(name, "<u8") for name in names])
        self.pending = []
        return {HEAVY_HITTER.digest.name: rows}

    def hold(self) -> None: ...

    def send(self) -> None: ...


class World:
    """A K=4 fat-tree of fake switches and a selector."""

    def __init__(self, **parameters: int) -> None:
        topology = FatTree(4)
        self.segments = topology.segments()
        decoder = SegmentDecoder(topology, self.segments, switch_ids(topology, self.segments, 1))
        self.log: list[str] = []
        self.switches = {int(i): FakeSwitch(self.log) for i in np.unique(self.segments.downstream)}
        chosen = SelectionParameters(**({"alpha": 100, "beta": 2, "delta": 2} | parameters))
        self.selector = FlowSelector(self.segments, decoder, dict(self.switches), chosen)  # type: ignore[arg-type]
        self.path_bf = decoder.path_bf

    def plan(self, low: list[int]) -> None:
        """Tell the selector that only the segments ``low`` counted too little."""
        sent = np.full(len(self.segments), 100)
        sent[low] = 99
        self.selector.plan(sent, np.full(len(self.segments), 2))

    def report(self, segment: int, flow: int, now_us: int = 0) -> None:
        switch = self.switches[int(self.segments.downstream[segment])]
        switch.pending.append((1, 2, flow, 80, 6, int(self.path_bf[segment]), now_us))

    def hh(self, segment: int) -> int:
        switch = self.switches[int(self.segments.downstream[segment])]
        return len(switch.table(HEAVY_HITTER.segments).entries)


def test_a_segment_asks_for_flows_when_it_counts_less_than_alpha_or_beta() -> None:
    world = World()
    sent, flows = np.full(80, 100), np.full(80, 2)
    sent[5], flows[9] = 99, 1
    world.selector.plan(sent, flows)
    assert np.flatnonzero(world.selector.requested).tolist() == [5, 9]
    world.selector.plan(np.full(80, 100), np.full(80, 2))
    assert not world.selector.requested.any()
    assert world.log.count("-heavy_hitter") == 2


def requests(world: World) -> dict[int, int]:
    asked = world.selector.requested
    return {int(s): int(asked[s]) for s in np.flatnonzero(asked)}


def test_a_segment_asks_for_no_more_flows_than_meters_tell_apart() -> None:
    world = World(most=3)
    sent, flows = np.zeros(80, np.int64), np.full(80, 3)
    flows[[5, 9]] = 2, 0
    world.selector.plan(sent, flows)
    assert requests(world) == {5: 1, 9: 2}
    for flow in (1, 2):
        world.report(5, flow)
    world.selector.poll(LATENCY)
    assert world.selector.installed == 1 and set(requests(world)) == {9}
    flows[9] = 3
    world.selector.plan(sent, flows)
    assert set(requests(world)) == {5}, "one of its flows ended, as the caller says"


@pytest.mark.parametrize(("k", "flows"), [(4, 112), (8, 28), (16, 7)])
def test_as_many_flows_fit_as_the_meters_count_best(k: int, flows: int) -> None:
    """More flows on every segment are fewer with a clean bucket at both ends, by theorem 2."""
    fabric = FatTree(k)
    segments = fabric.segments()
    many, few = (np.full(fabric.n_switches, each) for each in (901, 900))
    assert flows_that_fit(segments, many).min() == flows
    assert (flows_that_fit(segments, few) == UNLIMITED).all()
    ends = max(np.bincount(end).max() for end in (segments.upstream, segments.downstream))

    def counted(each: float) -> float:
        return each * (1 - (1 - math.exp(-each * ends / BUCKETS)) ** ROWS) ** 2

    best = max(counted(each) for each in np.arange(1, 200, 0.1))
    assert counted(flows) > 0.97 * best and counted(2.7 * flows) < 0.5 * best


def test_a_flow_is_asked_for_when_its_count_exceeds_eta() -> None:
    """Section III-D: "its packet count in the HashPipe exceeding a threshold"."""
    world = World(eta=16)
    world.plan([7])
    switch = world.switches[int(world.segments.downstream[7])]
    ((path_bf, (least, most)),) = switch.table(HEAVY_HITTER.segments).entries.values()
    assert (path_bf, least, most) == (world.path_bf[7], 17, 2**32 - 1)


def test_digests_act_late_dsm_before_usm_and_the_request_ends_after_delta_flows() -> None:
    world = World()
    world.plan([7])
    for flow in (1, 2, 3):
        world.report(7, flow)
    world.selector.poll(LATENCY - 1)
    assert world.selector.installed == 0
    world.selector.poll(LATENCY)
    assert world.selector.installed == 2  # delta, the third digest came too late
    assert world.log == ["+heavy_hitter", "-heavy_hitter", "+dsm", "+dsm", "+usm", "+usm"]
    assert world.hh(7) == 0


def test_rules_sit_at_the_two_ends_of_the_segment() -> None:
    world = World()
    world.plan([0])
    world.report(0, 4242)
    world.selector.poll(LATENCY)
    up, down = (int(a[0]) for a in (world.segments.upstream, world.segments.downstream))
    flow = 1 << 72 | 2 << 40 | 4242 << 24 | 80 << 8 | 6
    assert list(world.switches[down].tables["dsm"].entries.values()) == [
        (flow, int(world.path_bf[0]))
    ]
    assert list(world.switches[up].tables["usm"].entries.values()) == [(flow,)]


def test_a_flow_reported_twice_is_selected_once() -> None:
    world = World(delta=5)
    world.plan([3])
    for _ in range(3):
        world.report(3, 1)
    world.selector.poll(LATENCY)
    assert world.selector.installed == 1


def test_quiet_flows_leave_upstream_first_and_downstream_after_the_drain() -> None:
    world = World()
    world.plan([3])
    world.report(3, 1)
    world.report(3, 2)
    world.selector.poll(LATENCY)
    usm = world.switches[int(world.segments.upstream[3])].tables["usm"]
    first, second = usm.entries
    world.selector.retire_quiet()  # the first look only takes notes
    usm.packets[first] = 10
    world.selector.retire_quiet()
    assert list(usm.entries) == [first]
    dsm = world.switches[int(world.segments.downstream[3])].tables["dsm"]
    assert len(dsm.entries) == 2
    assert len(world.selector.in_force()[2]) == 1
    world.selector.finish_retiring()
    assert len(dsm.entries) == 1
    assert second not in usm.entries


def two_segments_of_one_upstream(world: World) -> tuple[int, int]:
    first = 0
    alike = world.segments.upstream == world.segments.upstream[first]
    apart = world.segments.downstream != world.segments.downstream[first]
    return first, int(np.flatnonzero(alike & apart)[0])


def usm_and_dsms(world: World, *segments: int) -> tuple[FakeTable, list[FakeTable]]:
    usm = world.switches[int(world.segments.upstream[segments[0]])].tables["usm"]
    ends = world.segments.downstream[list(segments)].tolist()
    return usm, [world.switches[end].tables["dsm"] for end in ends]


def test_a_flow_on_two_segments_of_one_upstream_has_one_usm_entry() -> None:
    """The USM's table knows flows, and rules are of flows and segments."""
    world = World()
    old, new = two_segments_of_one_upstream(world)
    world.plan([old, new])
    for segment in (old, new):
        world.report(segment, 1)
        world.selector.poll(LATENCY)
    usm, dsms = usm_and_dsms(world, old, new)
    assert len(usm.entries) == 1
    assert [len(dsm.entries) for dsm in dsms] == [1, 1]
    assert world.selector.in_force()[2].tolist() == [old, new]

    world.selector.retire_quiet()
    assert sorted(world.selector.retire_quiet()) == sorted([old, new])  # it fell silent
    world.selector.finish_retiring()
    assert not usm.entries and not any(dsm.entries for dsm in dsms)


def selected_on_both(world: World) -> tuple[int, int]:
    """Let a flow be selected on two segments of one upstream, and return these."""
    old, new = two_segments_of_one_upstream(world)
    world.plan([old, new])
    world.report(old, 1)
    world.report(new, 1)
    world.selector.poll(LATENCY)
    return old, new


def test_a_flow_that_moved_keeps_the_rule_of_the_segment_it_is_on() -> None:
    world = World()
    old, new = selected_on_both(world)
    usm, dsms = usm_and_dsms(world, old, new)
    world.selector.retire_quiet()  # the first look only takes notes
    (sent,), (arrived,) = usm.packets, dsms[1].packets
    usm.packets[sent] = dsms[1].packets[arrived] = 10
    assert world.selector.retire_quiet().tolist() == [old]
    world.selector.finish_retiring()
    assert len(usm.entries) == 1
    assert [len(dsm.entries) for dsm in dsms] == [0, 1]
    assert world.selector.in_force()[2].tolist() == [new]


def test_rules_stay_while_a_flow_sends_and_nothing_of_it_arrives() -> None:
    """What loses every packet is not what moved."""
    world = World()
    old, new = selected_on_both(world)
    usm, _ = usm_and_dsms(world, old, new)
    world.selector.retire_quiet()
    (sent,) = usm.packets
    usm.packets[sent] = 10
    assert world.selector.retire_quiet().tolist() == []


def test_a_shared_entry_takes_the_room_of_one() -> None:
    world = World(delta=5)
    old, new = two_segments_of_one_upstream(world)
    world.selector.monitored.room[:] = 2, 1
    world.plan([old, new])
    world.report(old, 1)
    world.report(new, 1)
    world.report(new, 2)
    world.selector.poll(LATENCY)
    assert (world.selector.installed, world.selector.refused) == (2, 1)


def test_a_full_table_refuses_and_says_so() -> None:
    world = World(delta=5)
    world.selector.monitored.room[0] = 2
    world.plan([3])
    for flow in range(4):
        world.report(3, flow)
    world.selector.poll(LATENCY)
    assert world.selector.installed == 2
    assert world.selector.refused == 2


def test_each_table_has_room_of_its_own() -> None:
    """A switch that is the upstream of one segment and the downstream of another has entries of
    the first in its USM's table and of the second in its DSM's."""
    world = World(delta=5)
    world.selector.monitored.room[:] = 1
    up, down = 0, int(np.flatnonzero(world.segments.downstream == world.segments.upstream[0])[0])
    world.plan([up, down])
    world.report(up, 1)
    world.report(down, 2)
    world.selector.poll(LATENCY)
    assert (world.selector.installed, world.selector.refused) == (2, 0)
    world.report(down, 3)
    world.selector.poll(LATENCY)
    assert (world.selector.installed, world.selector.refused) == (2, 1)


def test_what_is_exchanged_with_the_switches_is_counted_by_entry() -> None:
    """Two rules that share a USM entry have three entries; each look reads their counters."""
    world = World()
    selected_on_both(world)
    exchanged = world.selector.exchanged
    assert exchanged == Exchanged(digests=2, dsm_changes=2, usm_changes=1)
    flow_id, path_bf, count = 104, 32, 32
    assert exchanged.bytes == ((2 + 2) * (flow_id + path_bf) + flow_id) // 8
    world.selector.retire_quiet()
    assert (exchanged.dsm_counters, exchanged.usm_counters) == (2, 1)
    read = 2 * (flow_id + path_bf + count) + flow_id + count
    assert exchanged.bytes == ((2 + 2) * (flow_id + path_bf) + flow_id + read) // 8
    world.selector.retire_quiet()  # the flow fell silent
    world.selector.finish_retiring()
    assert (exchanged.dsm_changes, exchanged.usm_changes) == (4, 2)


@pytest.mark.parametrize("flow", [0, (1 << 104) - 1, 0x0A000002_0A030103_C001_0050_06])
def test_flow_ids_survive_the_split_into_two_words(flow: int) -> None:
    world = World()
    world.plan([0])
    switch = world.switches[int(world.segments.downstream[0])]
    fields = (flow >> 72, flow >> 40 & 2**32 - 1, flow >> 24 & 0xFFFF, flow >> 8 & 0xFFFF)
    switch.pending.append((*fields, flow & 0xFF, int(world.path_bf[0]), 0))
    world.selector.poll(LATENCY)
    hi, lo, _ = world.selector.in_force()
    assert int(hi[0]) << 64 | int(lo[0]) == flow


def test_what_is_selected_does_not_depend_on_how_many_come_at_once() -> None:
    """A model of the rules in plain Python, over many epochs with tables that are often full."""
    rng, world = np.random.default_rng(5), World(delta=6, beta=8)
    world.selector.monitored.room[:] = 9, 11
    ends = list(zip(world.segments.upstream, world.segments.downstream, strict=True))
    there: dict[tuple[int, int], None] = {}
    refused: set[tuple[int, int]] = set()
    for epoch in range(6):
        flows = np.bincount([s for _, s in there], minlength=80)
        world.selector.plan(np.zeros(80, np.int64), flows)
        wanted = np.full(80, 6)  # no segment counted alpha packets
        for tick in range(3):
            drawn = list(zip(rng.integers(0, 30, 200), rng.integers(0, 80, 200), strict=True))
            for flow, segment in drawn:
                world.report(int(segment), int(flow), epoch * 100 + tick)
            for flow, segment in sorted(drawn):  # as reports of one time are
                up, down = ends[segment]
                key = int(flow), int(segment)
                dsm = sum(ends[s][1] == down for _, s in there)
                usm = {(ends[s][0], f) for f, s in there}
                if not wanted[segment] or key in there:
                    continue
                full = sum(at == up for at, _ in usm) >= 11 and (up, flow) not in usm
                if dsm >= 9 or full:
                    refused.add(key)
                    continue
                refused.discard(key)
                there[key] = None
                wanted[segment] -= 1
            world.selector.poll((epoch * 100 + tick) * 1000 + LATENCY)
        _, lo, segment = world.selector.in_force()
        sport = (lo >> np.uint64(24) & np.uint64(0xFFFF)).tolist()
        assert list(zip(sport, segment.tolist(), strict=True)) == list(there)
        assert world.selector.refused == len(refused) > 0
        world.selector.finish_retiring()
        for up in {int(up) for up, _ in ends}:
            table = world.switches[up].table(USM.rules)
            for handle in table.packets:  # some fall silent
                table.packets[handle] += int(rng.integers(0, 3) > 0 or epoch == 0)
        left = world.selector.retire_quiet()
        assert len(left) > 0 or epoch == 0
        world.selector.finish_retiring()
        _, lo, segment = world.selector.in_force()
        sport = (lo >> np.uint64(24) & np.uint64(0xFFFF)).tolist()
        kept = dict.fromkeys(zip(sport, segment.tolist(), strict=True))
        assert list(kept) == [key for key in there if key in kept]
        there = kept
