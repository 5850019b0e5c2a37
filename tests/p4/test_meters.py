# SPDX-License-Identifier: Apache-2.0
"""What the upstream and the downstream meter count, and when a bucket is dirty."""

from __future__ import annotations

import pytest

from canary_softswitch import Switch
from testbed.dataplane import DSM, HEAVY_HITTER, USM, Meter

from .fabric import (
    PATH,
    Bucket,
    Fabric,
    bucket,
    flow_between,
    flow_over,
    monitor_dsm,
    monitor_usm,
    names,
    total,
)
from .frames import IPIP, WINDOW_US, Flow, ethernet, frame, ipv4, packet, shim_of, shimmed


def counts(switch: Switch, meter: Meter, flow: Flow, parity: int) -> list[Bucket]:
    return [bucket(switch, meter, row, flow.bucket(row, parity)) for row in range(3)]


@pytest.mark.parametrize("upstream_parity", [0, 1])
@pytest.mark.parametrize("downstream_parity", [0, 1])
def test_both_meters_count_a_flow_by_the_parity_of_the_packet(
    fabric: Fabric, upstream_parity: int, downstream_parity: int
) -> None:
    tor, agg, core, _, _ = path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, tor, agg, core)
    fabric.set_parity(tor, upstream_parity)
    fabric.set_parity(core, downstream_parity)
    for _ in range(5):
        fabric.send(0, frame(flow))
    up, down = fabric.switches[tor], fabric.switches[core]
    path_bf = int(fabric.decoder.path_bf[fabric.segment(tor, agg, core)])
    assert counts(up, USM, flow, upstream_parity) == [Bucket(flow.id, 5, False)] * 3
    assert counts(down, DSM, flow, upstream_parity) == [Bucket(flow.id, 5, False, path_bf)] * 3
    assert total(up, USM) == total(down, DSM) == [5, 5, 5]  # nothing in the other instance
    assert total(up, DSM) == total(down, USM) == [0, 0, 0]


def test_packets_under_way_when_the_epochs_change_are_counted_in_the_same_epoch_at_both_ends(
    fabric: Fabric,
) -> None:
    tor, agg, core, _, _ = path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, tor, agg, core)
    up, down = fabric.switches[tor], fabric.switches[core]
    for parity_up, parity_down, n in ((0, 0, 4), (0, 1, 3), (1, 1, 2), (1, 0, 6)):
        fabric.set_parity(tor, parity_up)
        fabric.set_parity(core, parity_down)
        for _ in range(n):
            fabric.send(0, frame(flow))
    for parity, n in ((0, 7), (1, 8)):
        assert [b.count for b in counts(up, USM, flow, parity)] == [n] * 3
        assert [b.count for b in counts(down, DSM, flow, parity)] == [n] * 3


@pytest.mark.parametrize("parity", [0, 1])
def test_the_mark_is_set_and_cleared_segment_by_segment(fabric: Fabric, parity: int) -> None:
    path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.set_parity(path[0], parity)
    fabric.set_parity(path[2], 1 - parity)

    def marks() -> list[tuple[int, int]]:
        shims = [shim_of(data) for _, _, data in fabric.send(0, frame(flow)).hops[:-1]]
        return [(shim.counted, shim.parity) for shim in shims if shim]

    assert marks() == [(0, 0)] * 4
    fabric.monitor(flow.id, *path[:3])
    assert marks() == [(1, parity)] * 2 + [(0, 0)] * 2
    fabric.monitor(flow.id, *path[2:])
    assert marks() == [(1, parity)] * 2 + [(1, 1 - parity)] * 2


def test_a_flow_over_two_segments_is_in_both_meters_of_the_core(fabric: Fabric) -> None:
    tor, _, core, _, last = path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, *path[:3])
    fabric.monitor(flow.id, *path[2:])
    for parity in (0, 1):
        fabric.set_parity(core, parity)
        fabric.send(0, frame(flow))
    first, second = (
        int(fabric.decoder.path_bf[fabric.segment(*part)]) for part in (path[:3], path[2:])
    )
    middle = fabric.switches[core]
    assert counts(fabric.switches[tor], USM, flow, 0) == [Bucket(flow.id, 2, False)] * 3
    assert counts(middle, DSM, flow, 0) == [Bucket(flow.id, 2, False, first)] * 3
    for parity in (0, 1):
        assert counts(middle, USM, flow, parity) == [Bucket(flow.id, 1, False)] * 3
        at_last = counts(fabric.switches[last], DSM, flow, parity)
        assert at_last == [Bucket(flow.id, 1, False, second)] * 3


def test_a_flow_within_a_pod_is_one_segment_from_tor_to_tor(fabric: Fabric) -> None:
    path = names(fabric, "tor0_0", "agg0_1", "tor0_1")
    flow = flow_over(fabric, 0, 2, *path)
    fabric.monitor(flow.id, *path)
    fabric.send(0, frame(flow))
    assert total(fabric.switches[path[0]], USM) == total(fabric.switches[path[2]], DSM) == [1] * 3
    assert total(fabric.switches[path[1]], USM) == total(fabric.switches[path[1]], DSM) == [0] * 3


def test_traffic_within_a_rack_is_never_counted(fabric: Fabric) -> None:
    flow = flow_between(fabric, 0, 1)
    monitor_usm(fabric.switches[0], flow.id)
    monitor_dsm(fabric.switches[0], flow.id, int(fabric.masks[0]))
    fabric.send(0, frame(flow))
    assert total(fabric.switches[0], USM) == total(fabric.switches[0], DSM) == [0] * 3


def test_packets_that_may_expire_on_their_way_are_never_counted(fabric: Fabric) -> None:
    path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, *path[:3])
    fabric.monitor(flow.id, *path[2:])
    tor, core, last = (fabric.switches[path[i]] for i in (0, 2, 4))
    for ttl in range(16):
        fabric.send(0, frame(flow, ttl), ttl * WINDOW_US)
    assert [total(s, m) for s in (tor, core, last) for m in (USM, DSM)] == [[0] * 3] * 6
    # 16 at the first switch is counted there and at the end of that segment, not on the next.
    fabric.send(0, frame(flow, 16))
    assert total(tor, USM) == total(core, DSM) == [1] * 3
    assert total(core, USM) == total(last, DSM) == [0] * 3
    fabric.send(0, frame(flow, 18))
    assert total(core, USM) == total(last, DSM) == [1] * 3


def test_time_exceeded_messages_and_probes_in_tunnels_are_not_counted_as_the_flow(
    fabric: Fabric,
) -> None:
    flow = flow_between(fabric, 0, 15)
    for switch in fabric.switches:
        monitor_usm(switch, flow.id)
    fabric.send(0, frame(flow, ttl=3))
    outer = ipv4(fabric.host_ip(0), fabric.host_ip(15), IPIP, packet(flow))
    assert fabric.send(0, ethernet(outer)).host == 15
    assert all(total(switch, USM) == [0] * 3 for switch in fabric.switches)


def test_dsm_counts_marked_packets_only(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    flow = flow_between(fabric, 0, 15)
    handle = monitor_dsm(core, flow.id, 0x77)
    for counted, parity, n in ((0, 0, 3), (0, 1, 4), (1, 0, 5), (1, 1, 6)):
        for _ in range(n):
            core.process(1, shimmed(frame(flow), 0x77, counted, parity))
    assert [b.count for b in counts(core, DSM, flow, 0)] == [5] * 3
    assert [b.count for b in counts(core, DSM, flow, 1)] == [6] * 3
    assert core.table(DSM.rules).counter(handle)[0] == 18


@pytest.mark.parametrize("parity", [0, 1])
def test_a_flow_on_another_path_makes_its_buckets_dirty(fabric: Fabric, parity: int) -> None:
    """Algorithm 1, line 8: "if the flow changes its path segment"."""
    core = fabric.switches[fabric.topology.core(0)]
    flow = flow_between(fabric, 0, 15)
    monitor_dsm(core, flow.id, 0x77)
    for _ in range(3):
        core.process(1, shimmed(frame(flow), 0x77, 1, parity))
    assert counts(core, DSM, flow, parity) == [Bucket(flow.id, 3, False, 0x77)] * 3
    core.process(1, shimmed(frame(flow), 0x78, 0, parity))  # its upstream does not count it
    assert counts(core, DSM, flow, parity) == [Bucket(flow.id, 3, False, 0x77)] * 3
    core.process(1, shimmed(frame(flow), 0x78, 1, parity))
    assert [bucket.dirty for bucket in counts(core, DSM, flow, parity)] == [True] * 3
    assert total(core, DSM) == [4] * 3  # nothing in the other instance


def test_a_marked_flow_that_no_rule_expects_is_in_dirty_buckets(fabric: Fabric) -> None:
    """Its upstream counts it; it came here because it left the downstream that has its rule."""
    core = fabric.switches[fabric.topology.core(0)]
    flow = flow_between(fabric, 0, 15)
    for _ in range(2):
        core.process(1, shimmed(frame(flow), 0x78, 1))
    assert counts(core, DSM, flow, 0) == [Bucket(flow.id, 2, True, 0x78)] * 3


def test_a_flow_that_moved_is_reported_on_its_new_segment(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    flow = flow_between(fabric, 0, 15)
    monitor_dsm(core, flow.id, 0x77)
    core.table(HEAVY_HITTER.segments).add([0x78, (1, 0xFFFFFFFF)], HEAVY_HITTER.report, priority=1)
    core.process(1, shimmed(frame(flow), 0x78, 1))
    [samples] = core.digests().values()
    assert len(samples) == 1


def test_transit_switches_count_nothing_and_leave_the_marks_alone(fabric: Fabric) -> None:
    index = fabric.topology.switch("agg0_0")
    agg = fabric.switches[index]
    flow = flow_between(fabric, 0, 15)
    monitor_usm(agg, flow.id)
    monitor_dsm(agg, flow.id, 0x77)
    [(_, data)] = agg.process(1, shimmed(frame(flow), 0x77, 1, 1))
    shim = shim_of(data)
    assert shim is not None
    assert (shim.counted, shim.parity) == (1, 1)
    assert shim.path_bf == 0x77 | int(fabric.masks[index])
    assert total(agg, USM) == total(agg, DSM) == [0] * 3


def colliding(first: Flow, row: int) -> Flow:
    """Another flow with the same bucket in one row only."""
    for port in range(1024, 65536):
        other = Flow(first.src, first.dst, port, 81, first.protocol)
        if [other.bucket(r) == first.bucket(r) for r in range(3)] == [r == row for r in range(3)]:
            return other
    raise AssertionError("no such flow")


@pytest.mark.parametrize("row", [0, 1, 2])
def test_usm_bucket_that_two_flows_share_is_dirty(fabric: Fabric, row: int) -> None:
    """Algorithm 2."""
    tor = fabric.switches[0]
    a = flow_between(fabric, 0, 15)
    b = colliding(a, row)
    for flow in (a, b):
        monitor_usm(tor, flow.id)
    for flow in (a, a, b, a):
        tor.process(1, frame(flow))
    for r in range(3):
        shared = bucket(tor, USM, r, a.bucket(r))
        assert shared.flow_id == a.id  # the first flow keeps it
        assert shared.dirty == (r == row)
        if r != row:
            assert shared.count == 3
            assert bucket(tor, USM, r, b.bucket(r)) == Bucket(b.id, 1, False)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_dsm_bucket_that_two_flows_share_is_dirty(fabric: Fabric, row: int) -> None:
    """Algorithm 1."""
    core = fabric.switches[fabric.topology.core(0)]
    a = flow_between(fabric, 0, 15)
    b = colliding(a, row)
    for flow in (a, b):
        monitor_dsm(core, flow.id, 0x77)
    for flow in (a, a, b, a):
        core.process(1, shimmed(frame(flow), 0x77, 1))
    for r in range(3):
        shared = bucket(core, DSM, r, a.bucket(r))
        assert (shared.flow_id, shared.path_bf, shared.dirty) == (a.id, 0x77, r == row)
        if r != row:
            assert shared.count == 3
            assert bucket(core, DSM, r, b.bucket(r)) == Bucket(b.id, 1, False, 0x77)


def test_dsm_buckets_are_dirty_when_the_flow_changes_its_path(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    flow = flow_between(fabric, 0, 15)
    for path_bf in (0x77, 0x78):
        monitor_dsm(core, flow.id, path_bf)
    core.process(1, shimmed(frame(flow), 0x77, 1))
    assert not any(b.dirty for b in counts(core, DSM, flow, 0))
    core.process(1, shimmed(frame(flow), 0x78, 1))
    assert all(b.dirty and b.path_bf == 0x77 for b in counts(core, DSM, flow, 0))
    core.process(1, shimmed(frame(flow), 0x78, 1, 1))
    assert counts(core, DSM, flow, 1) == [Bucket(flow.id, 1, False, 0x78)] * 3
