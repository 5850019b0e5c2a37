# SPDX-License-Identifier: Apache-2.0
"""ROUTING=flowlet and adaptive: which uplink a switch chooses, and what leaves count."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canary import run
from canary_softswitch import Program, Switch
from testbed.control.forwarding import Uplinks, install_forwarding
from testbed.control.local import LocalSwitch
from testbed.control.routings import PROGRAMS, Routing, time_routing
from testbed.dataplane import VERDICT
from testbed.errors import UserError
from testbed.fabric.topologies import make_packet_fabric
from testbed.record.run import RunDirectory
from tests.p4.frames import TCP, Flow, frame

FABRIC = make_packet_fabric("leaf-spine:4:4", 4, 1)
GAP_US = 492  # 40 full frames at 1 Gb/s


def leaf(routing: Routing, link_rate: float = 1e9) -> tuple[Switch, Uplinks]:
    """The first leaf of the fabric, with its routes, and its group of uplinks."""
    switch = Switch(Program.load(PROGRAMS[routing], observe=VERDICT.field))
    uplinks = install_forwarding(FABRIC, 0, LocalSwitch(switch), 0x10040100, monitor=True)
    time_routing(routing, [LocalSwitch(switch)], 1e9, link_rate)
    assert uplinks is not None
    return switch, uplinks


def data(port: int, payload: int = 1400) -> bytes:
    to = int(np.flatnonzero(FABRIC.host_tor == 3)[0])
    flow = Flow(int(FABRIC.host_ip[0]), int(FABRIC.host_ip[to]), port, 80, TCP)
    return frame(flow, payload=bytes(payload))


def uplink(switch: Switch, packet: bytes, now_us: int) -> int:
    return switch.process(1, packet, now_us)[0][0]


def test_a_flowlet_keeps_its_uplink_until_a_pause() -> None:
    switch, _ = leaf("flowlet")
    now, ports = 10_000, []
    for _ in range(60):
        of_burst = set()
        for _ in range(20):
            of_burst.add(uplink(switch, data(1000), now))
            now += GAP_US - 1
        assert len(of_burst) == 1
        ports += of_burst
        now += GAP_US
    assert min(Counter(ports).values()) >= 8 and len(set(ports)) == 4


def test_flows_of_one_packet_are_spread_as_ecmp_spreads_them() -> None:
    switch, _ = leaf("flowlet")
    ports = Counter(uplink(switch, data(2000 + i), 1000) for i in range(800))
    assert len(ports) == 4 and min(ports.values()) > 140


def test_adaptive_takes_the_uplinks_alike_where_none_has_a_queue() -> None:
    switch, _ = leaf("adaptive")
    ports = Counter(uplink(switch, data(1000), 1000 * i) for i in range(1, 801))
    assert len(ports) == 4 and max(ports.values()) - min(ports.values()) <= 16


def test_adaptive_avoids_a_long_queue() -> None:
    switch, _ = leaf("adaptive")
    busy = uplink(switch, data(1000), 1000)
    waiting = switch.register("CanaryIngress.routing.waiting")
    assert waiting[busy] > 1400
    waiting[busy] = 100_000  # 800 us of a link of 1 Gb/s
    begin, ports = 1000, []
    for i in range(1, 200):
        ports.append((begin + 12 * i, uplink(switch, data(1000), begin + 12 * i)))
    early = Counter(port for now, port in ports if now < begin + 780)
    assert early[busy] <= 4  # at first, as the others are not known yet
    late = Counter(port for now, port in ports if now > begin + 900)
    assert late[busy] > 0.15 * sum(late.values())


def test_adaptive_balances_bytes() -> None:
    switch, _ = leaf("adaptive", link_rate=1.0)  # nothing leaves a queue
    rng = np.random.default_rng(1)
    bytes_of: Counter[int] = Counter()
    for i in range(2000):
        packet = data(1000, int(rng.choice([10, 1400])))
        bytes_of[uplink(switch, packet, 1000 + i)] += len(packet)
    assert max(bytes_of.values()) - min(bytes_of.values()) < 10_000


def test_adaptive_leaves_a_drained_uplink() -> None:
    switch, uplinks = leaf("adaptive", link_rate=1.0)
    for i in range(100):
        uplink(switch, data(1000), 1000 + i)
    link = next(iter(uplinks.groups.values()))[2][0]
    port = int(FABRIC.link_src_port[link])
    switch.register("CanaryIngress.routing.waiting")[port] = 0  # the best of all
    uplinks.drain(link)
    ports = [uplink(switch, data(1000), 2000 + i) for i in range(300)]
    assert port not in ports[64:]
    assert len(set(ports[64:])) == 3


SMALL: dict[str, Any] = {
    "topology": "leaf-spine:4:3",
    "epochs": 2,
    "epoch_ms": 500,
    "load": 0.2,
    "skew": 0,
    "noise": 0,
}


@pytest.mark.parametrize("routing", ["flowlet", "adaptive"])
def test_a_run_says_what_its_routing_does_to_methods(routing: Routing, tmp_path: Path) -> None:
    run(path=tmp_path / "r", methods="spray-check,flock", faults="none", routing=routing, **SMALL)
    record = RunDirectory(tmp_path / "r")
    flows, counts = record.table("flows"), record.table("spray_counts")
    came = int((flows["sent"] - flows["lost"]).sum())
    assert abs(int(counts["packets"].sum()) - came) <= 300
    methods: Any = record.summary["methods"]
    assert methods["spray-check"]["directed"]["false_positives"] == 0
    words = {"flowlet": "each flowlet took a way", "adaptive": "each packet took the way"}
    assert any(words[routing] in line for line in methods["flock"]["remarks"])


def test_adaptive_needs_uplinks_that_lead_everywhere() -> None:
    with pytest.raises(UserError, match="ROUTING=adaptive needs uplinks that lead everywhere"):
        run(methods="flock", topology="leaf-spine:6:4:irregular=20pct", routing="adaptive")
