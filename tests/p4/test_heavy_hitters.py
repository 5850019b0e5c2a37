# SPDX-License-Identifier: Apache-2.0
"""Which flows are reported to the controller."""

from __future__ import annotations

import numpy as np
import pytest

from canary_softswitch import Switch
from testbed.dataplane import HASHPIPE, HEAVY_HITTER

from .fabric import PATH, Fabric, flow_over, monitor_dsm, names
from .frames import FLOW, ICMP, UDP, Flow, ethernet, frame, ipv4, shimmed

ETA = 5


def select(switch: Switch, path_bf: int, eta: int = ETA) -> None:
    switch.table(HEAVY_HITTER.segments).add(
        [path_bf, (eta, 0xFFFFFFFF)], HEAVY_HITTER.report, priority=1
    )


def digests(switch: Switch) -> list[tuple[int, ...]]:
    [samples] = switch.digests().values()
    return [row[:6] for row in samples.tolist()]


def fields(flow: Flow, path_bf: int) -> tuple[int, ...]:
    return (flow.src, flow.dst, flow.src_port, flow.dst_port, flow.protocol, path_bf)


def test_heavy_hitter_is_reported_from_eta_packets_on_with_its_segment(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    select(core, 0x77)
    for n in range(1, 10):
        core.process(1, shimmed(frame(FLOW), 0x77))
        assert digests(core) == ([fields(FLOW, 0x77)] if n >= ETA else [])


def test_heavy_hitter_is_reported_only_on_a_segment_that_asks(fabric: Fabric) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    select(core, 0x77)
    for _ in range(20):
        core.process(1, shimmed(frame(FLOW), 0x78))
    assert digests(core) == []
    core.process(1, shimmed(frame(FLOW), 0x77))
    assert digests(core) == [fields(FLOW, 0x77)]


@pytest.mark.parametrize("counted", [0, 1])
def test_monitored_flow_is_neither_reported_nor_in_hashpipe(fabric: Fabric, counted: int) -> None:
    core = fabric.switches[fabric.topology.core(0)]
    select(core, 0x77)
    monitor_dsm(core, FLOW.id, 0x77)
    for _ in range(20):
        core.process(1, shimmed(frame(FLOW), 0x77, counted))
    assert digests(core) == []
    assert not core.register(HASHPIPE.stages[0]["counts"]).any()
    for _ in range(ETA):
        core.process(1, shimmed(frame(FLOW), 0x78))  # on another segment it is not monitored
    assert int(core.register(HASHPIPE.stages[0]["counts"]).sum()) == ETA


def test_heavy_hitter_report_names_the_segment_it_came_on_in_a_real_fabric(
    fabric: Fabric,
) -> None:
    tor, agg, core, _, last = path = names(fabric, *PATH)
    flow = flow_over(fabric, 0, 15, *path)
    segments = [(tor, agg, core), tuple(path[2:])]
    for segment in segments:
        select(fabric.switches[segment[-1]], int(fabric.decoder.path_bf[fabric.segment(*segment)]))
    for _ in range(ETA):
        fabric.send(0, frame(flow))
    for segment in segments:
        [report] = digests(fabric.switches[segment[-1]])
        decoded = fabric.decoder.decode(np.array([segment[-1]]), np.array([report[5]]))
        assert decoded == [fabric.segment(*segment)]
        assert report[:5] == fields(flow, 0)[:5]
    assert digests(fabric.switches[tor]) == []
    assert last == path[-1]


def test_packets_from_hosts_and_expiring_or_portless_ones_stay_out_of_hashpipe(
    fabric: Fabric,
) -> None:
    tor = fabric.switches[0]
    select(tor, 0, 1)
    tor.process(1, frame(Flow(FLOW.src, FLOW.dst, 1, 2)))
    tor.process(3, shimmed(frame(FLOW, ttl=15)))
    tor.process(3, shimmed(ethernet(ipv4(FLOW.src, FLOW.dst, ICMP, bytes(20)))))
    tor.process(3, shimmed(ethernet(ipv4(FLOW.src, FLOW.dst, UDP, bytes(20), fragment=3))))
    assert digests(tor) == []
    assert not tor.register(HASHPIPE.stages[0]["counts"]).any()


def test_transit_switches_report_nothing(fabric: Fabric) -> None:
    agg = fabric.switches[fabric.topology.switch("agg0_0")]
    select(agg, 0x77, 1)
    agg.process(1, shimmed(frame(FLOW), 0x77))
    assert digests(agg) == []
