# SPDX-License-Identifier: Apache-2.0
"""Losses on purpose: after the upstream meter, or before the downstream one."""

from __future__ import annotations

import numpy as np
import pytest

from canary_softswitch import Program, Switch
from testbed.dataplane import DSM, INGRESS_FAULT, USM
from testbed.dataplane import FAULT as EGRESS_FAULT

from .fabric import PATH, Fabric, flow_between, flow_over, names, total
from .frames import (
    CORRUPT,
    FAULT,
    FLOW,
    ICMP,
    TCP,
    UDP,
    Flow,
    ethernet,
    frame,
    ip_of,
    ipv4,
    is_right,
    shimmed,
)

SIDES = {"Egress": EGRESS_FAULT, "Ingress": INGRESS_FAULT}
ANY = (0, 0)
ALL32, ALL16, ALL8 = 0xFFFFFFFF, 0xFFFF, 0xFF
ALWAYS = 0xFFFFFFFF


def fault(
    switch: Switch,
    side: str,
    port: int,
    action: str,
    params: tuple[int, ...] = (),
    match: tuple[tuple[int, int], ...] = (ANY,) * 5,
    priority: int = 1,
) -> int:
    control = SIDES[side]
    return switch.table(control.faults).add(
        [port, *match], getattr(control, action), params, priority
    )


def dropped(switch: Switch, side: str, port: int) -> tuple[int, int]:
    return tuple(switch.counter(SIDES[side].dropped)[port].tolist())


def the_link(fabric: Fabric, name: str) -> tuple[int, int, int, int]:
    """Switch and port at the beginning and the end of a link."""
    t = fabric.topology
    link = t.link(name)
    ends = (t.link_src, t.link_src_port, t.link_dst, t.link_dst_port)
    src, src_port, dst, dst_port = (int(a[link]) for a in ends)
    return src, src_port, dst, dst_port


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
@pytest.mark.parametrize("link", ["tor0_0->agg0_0", "agg0_0->core0"])
def test_fault_acts_after_the_usm_and_before_the_dsm(fabric: Fabric, side: str, link: str) -> None:
    path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, *path[:3])
    fabric.set_parity(path[0], 1)
    src, src_port, dst, dst_port = the_link(fabric, link)
    at, port = (src, src_port) if side == "Egress" else (dst, dst_port)
    handle = fault(fabric.switches[at], side, port, "blackhole")
    journey = fabric.send(0, frame(flow))
    assert journey.host is None
    assert (journey.cause, journey.switches[-1]) == (FAULT, at)
    # The verdict tells the environment that a counted packet was lost, and its parity.
    assert fabric.switches[at].observed & 3 == 3
    assert total(fabric.switches[path[0]], USM) == [1] * 3
    assert total(fabric.switches[path[2]], DSM) == [0] * 3
    assert dropped(fabric.switches[at], side, port)[0] == 1
    assert fabric.switches[at].table(SIDES[side].faults).counter(handle)[0] == 1


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
@pytest.mark.parametrize("rate", [0.001, 0.05, 0.5, 0.98])
def test_lossy_link_drops_with_its_probability(program: Program, side: str, rate: float) -> None:
    fabric = Fabric(program)
    core = fabric.switches[fabric.topology.core(0)]
    port = 4 if side == "Egress" else 1
    fault(core, side, port, "lossy", (round(rate * 2**32),))
    n = 200_000
    data = np.frombuffer(shimmed(frame(flow_between(fabric, 0, 15))), np.uint8)
    offsets = np.arange(n + 1, dtype=np.uint64) * len(data)
    out = core.process_batch(np.full(n, 1, np.uint16), np.tile(data, n), offsets)
    lost = n - len(out.ports)
    assert abs(lost - n * rate) < 3.29 * (n * rate * (1 - rate)) ** 0.5  # 99.9 %
    assert dropped(core, side, port)[0] == lost
    assert ((out.observed >> np.uint64(8)) == FAULT).sum() == lost


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
def test_lossy_with_threshold_0_drops_nothing(fabric: Fabric, side: str) -> None:
    fault(fabric.switches[0], side, 1, "lossy", (0,))
    assert all(fabric.send(0, frame(flow_between(fabric, 0, 1))).host == 1 for _ in range(100))


MATCHES = [
    ((FLOW.src, ALL32), ANY, ANY, ANY, ANY),
    (ANY, (FLOW.dst, ALL32), ANY, ANY, ANY),
    (ANY, ANY, (TCP, ALL8), ANY, ANY),
    (ANY, ANY, ANY, (FLOW.src_port, ALL16), ANY),
    (ANY, ANY, ANY, ANY, (FLOW.dst_port, ALL16)),
    ((0x0A000000, 0xFF000001), (0x0A030100, 0xFFFFFF00), ANY, (0, 1), ANY),
]
OTHERS = [
    Flow(FLOW.src + 1, FLOW.dst, FLOW.src_port, FLOW.dst_port, TCP),
    Flow(FLOW.src, 0x0A030002, FLOW.src_port, FLOW.dst_port, TCP),
    Flow(FLOW.src, FLOW.dst, FLOW.src_port, FLOW.dst_port, UDP),
    Flow(FLOW.src, FLOW.dst, FLOW.src_port + 1, FLOW.dst_port, TCP),
    Flow(FLOW.src, FLOW.dst, FLOW.src_port, FLOW.dst_port + 1, TCP),
    Flow(FLOW.src, FLOW.dst, FLOW.src_port + 1, FLOW.dst_port, TCP),
]


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
@pytest.mark.parametrize(("match", "other"), list(zip(MATCHES, OTHERS, strict=True)))
def test_fault_on_a_flow_pattern_hits_only_matching_packets(
    fabric: Fabric, side: str, match: tuple[tuple[int, int], ...], other: Flow
) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    fault(core, side, 4 if side == "Egress" else 1, "blackhole", match=match)
    assert core.process(1, shimmed(frame(FLOW))) == []
    assert len(core.process(1, shimmed(frame(other)))) == 1
    assert len(core.process(2 if side == "Ingress" else 1, shimmed(frame(other)))) == 1


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
def test_fault_acts_on_its_port_only(fabric: Fabric, side: str) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    fault(core, side, 4 if side == "Egress" else 1, "blackhole")
    assert core.process(1, shimmed(frame(FLOW))) == []
    other = FLOW if side == "Ingress" else Flow(FLOW.src, 0x0A020102, 1, 2)
    assert len(core.process(2, shimmed(frame(other)))) == 1


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
def test_ports_of_a_packet_without_ports_match_as_0(fabric: Fabric, side: str) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    port = 4 if side == "Egress" else 1
    handle = fault(
        core, side, port, "blackhole", match=(ANY, ANY, ANY, (FLOW.src_port, ALL16), ANY)
    )
    for ip in (
        ipv4(FLOW.src, FLOW.dst, ICMP, bytes(20)),
        ipv4(FLOW.src, FLOW.dst, TCP, bytes(20), fragment=5),
    ):
        core.process(1, shimmed(frame(FLOW)))
        assert len(core.process(1, shimmed(ethernet(ip)))) == 1
    faults = core.table(SIDES[side].faults)
    assert faults.counter(handle)[0] == 2
    fault(core, side, port, "blackhole", match=(ANY, ANY, ANY, (0, ALL16), ANY))
    assert core.process(1, shimmed(ethernet(ipv4(FLOW.src, FLOW.dst, ICMP, bytes(20))))) == []


def test_the_fault_of_the_highest_priority_wins(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    fault(core, "Egress", 4, "blackhole", priority=1)
    fault(core, "Egress", 4, "healthy", match=(ANY, ANY, (TCP, ALL8), ANY, ANY), priority=2)
    assert len(core.process(1, shimmed(frame(FLOW)))) == 1
    assert core.process(1, shimmed(frame(OTHERS[2]))) == []


@pytest.mark.parametrize("side", ["Egress", "Ingress"])
def test_corrupted_packet_is_discarded_by_the_next_hop_and_counted_as_sent(
    fabric: Fabric, side: str
) -> None:
    path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    fabric.monitor(flow.id, *path[:3])
    tor, tor_port, agg, agg_port = the_link(fabric, "tor0_0->agg0_0")
    at, port = (tor, tor_port) if side == "Egress" else (agg, agg_port)
    fault(fabric.switches[at], side, port, "corrupt", (ALWAYS,))
    journey = fabric.send(0, frame(flow))
    next_hop = path[path.index(at) + 1]
    assert (journey.cause, journey.switches[-1]) == (CORRUPT, next_hop)
    assert not is_right(ip_of(journey.hops[-2][2]))
    assert fabric.switches[next_hop].observed & 2  # the lost packet was counted upstream
    assert total(fabric.switches[path[0]], USM) == [1] * 3
    assert total(fabric.switches[path[2]], DSM) == [0] * 3
    assert dropped(fabric.switches[at], side, port) == (0, 0)


def test_corruption_on_arrival_is_not_undone_by_a_lucky_departure(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    fault(core, "Ingress", 1, "corrupt", (ALWAYS,))
    fault(core, "Egress", 4, "corrupt", (0,))
    [(_, data)] = core.process(1, shimmed(frame(FLOW)))
    assert not is_right(ip_of(data))


@pytest.mark.parametrize("rate", [0.02, 0.6])
def test_corrupting_link_corrupts_with_its_probability(program: Program, rate: float) -> None:
    fabric = Fabric(program)
    core = fabric.switches[fabric.topology.core(0)]
    fault(core, "Egress", 4, "corrupt", (round(rate * 2**32),))
    n = 50_000
    data = np.frombuffer(shimmed(frame(FLOW)), np.uint8)
    offsets = np.arange(n + 1, dtype=np.uint64) * len(data)
    out = core.process_batch(np.full(n, 1, np.uint16), np.tile(data, n), offsets)
    frames = out.data.reshape(n, len(data))
    right = (frames[:, 31:33] != data[31:33]).any(axis=1)  # the checksum followed the TTL
    assert abs((~right).sum() - n * rate) < 3.29 * (n * rate * (1 - rate)) ** 0.5
