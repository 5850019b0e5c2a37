# SPDX-License-Identifier: Apache-2.0
"""A fat-tree of soft switches through which a test walks single packets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from canary_softswitch import Program, Switch
from testbed.control.epochs import set_parity
from testbed.control.forwarding import install_forwarding
from testbed.control.switch import Tables
from testbed.dataplane import DSM, USM, VERDICT, Meter
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.monitors import monitor_switches
from testbed.fabric.pathbf import SegmentDecoder, bloom_mask, switch_ids

from .frames import UDP, Flow, frame

PATH = ("tor0_0", "agg0_0", "core0", "agg3_0", "tor3_1")  # host 0 to host 15


@dataclass
class Journey:
    """What happened to one packet: (switch, port, frame) of every hop, and where it ended."""

    hops: list[tuple[int, int, bytes]] = field(default_factory=list)
    host: int | None = None
    cause: int = 0
    expired: int = 0

    @property
    def switches(self) -> list[int]:
        return [switch for switch, _, _ in self.hops]

    @property
    def last(self) -> bytes:
        return self.hops[-1][2]


class Fabric:
    """Every switch of a fat-tree, with the testbed's own forwarding installed."""

    def __init__(self, program: Program, k: int = 4, monitors: str = "tor+core") -> None:
        self.topology = topology = FatTree(k)
        self.segments = topology.segments(monitors)
        ids = switch_ids(topology, self.segments, seed=1)
        self.decoder = SegmentDecoder(topology, self.segments, ids)
        self.masks = bloom_mask(ids)
        self.switches = [Switch(program, seed=i + 1) for i in range(topology.n_switches)]
        self.is_monitor = monitor_switches(topology, monitors, seed=0)
        for i, switch in enumerate(self.switches):
            install_forwarding(topology, i, switch, int(self.masks[i]), bool(self.is_monitor[i]))
        self._next: dict[tuple[int, int], tuple[int, int]] = {
            (int(s), int(p)): (int(d), int(q))
            for s, p, d, q in zip(
                topology.link_src,
                topology.link_src_port,
                topology.link_dst,
                topology.link_dst_port,
                strict=True,
            )
        }
        self._hosts = {
            (int(t), int(p)): h
            for h, (t, p) in enumerate(zip(topology.host_tor, topology.host_port, strict=True))
        }

    def host_ip(self, host: int) -> int:
        return int(self.topology.host_ip[host])

    def segment(self, *switches: int) -> int:
        """Index of the segment whose switches, downstream one included, are these."""
        *inner, downstream = switches
        wanted = np.full(self.segments.switches.shape[1], -1)
        wanted[: len(inner)] = inner
        same = (self.segments.switches == wanted).all(axis=1)
        return int(np.flatnonzero(same & (self.segments.downstream == downstream))[0])

    def set_parity(self, switch: int, parity: int) -> None:
        set_parity(self.switches[switch], parity)

    def monitor(self, flow_id: int, *switches: int) -> None:
        """Install the DSM and then the USM rule of a flow on a segment."""
        path_bf = int(self.decoder.path_bf[self.segment(*switches)])
        monitor_dsm(self.switches[switches[-1]], flow_id, path_bf)
        monitor_usm(self.switches[switches[0]], flow_id)

    def send(self, host: int, data: bytes, now_us: int = 0) -> Journey:
        """Send a frame from a host and follow it."""
        t = self.topology
        return self.inject(int(t.host_tor[host]), int(t.host_port[host]), data, now_us)

    def inject(self, switch: int, port: int, data: bytes, now_us: int = 0) -> Journey:
        """Put a frame into a switch's port and follow it."""
        journey = Journey()
        for _ in range(20):
            out = self.switches[switch].process(port, data, now_us)
            verdict = self.switches[switch].observed
            journey.cause = VERDICT.cause.of(verdict)
            journey.expired |= VERDICT.expired.of(verdict)
            assert bool(out) != bool(journey.cause), "a packet leaves, or it has a cause"
            assert len(out) <= 1
            if not out:
                journey.hops.append((switch, -1, b""))
                return journey
            port, data = out[0]
            journey.hops.append((switch, port, data))
            if (switch, port) in self._hosts:
                journey.host = self._hosts[switch, port]
                return journey
            switch, port = self._next[switch, port]
        raise AssertionError("the packet goes in circles")


def monitor_dsm(switch: Tables, flow_id: int, path_bf: int) -> int:
    return switch.table(DSM.rules).add([flow_id, path_bf], DSM.monitor)


def monitor_usm(switch: Tables, flow_id: int) -> int:
    return switch.table(USM.rules).add([flow_id], USM.monitor)


def flow_between(fabric: Fabric, src: int, dst: int, port: int = 0, protocol: int = UDP) -> Flow:
    return Flow(fabric.host_ip(src), fabric.host_ip(dst), 10_000 + port, 80, protocol)


def flow_over(fabric: Fabric, src: int, dst: int, *switches: int, protocol: int = UDP) -> Flow:
    """A flow from host to host that takes these switches."""
    for port in range(1000):
        flow = flow_between(fabric, src, dst, port, protocol)
        if fabric.send(src, frame(flow)).switches == list(switches):
            return flow
    raise AssertionError("no flow takes this path")


def names(fabric: Fabric, *wanted: str) -> list[int]:
    return [fabric.topology.switch(name) for name in wanted]


@dataclass(frozen=True)
class Bucket:
    flow_id: int
    count: int
    dirty: bool
    path_bf: int = 0


def bucket(switch: Switch, meter: Meter, row: int, index: int) -> Bucket:
    """One bucket of a meter row."""
    value = {field: int(switch.register(name)[index]) for field, name in meter.rows[row].items()}
    flow_id = value["flow_hi"] << meter.half_bits | value["flow_lo"]
    return Bucket(flow_id, value["count"], bool(value["dirty"]), value.get("path_bfs", 0))


def total(switch: Switch, meter: Meter) -> list[int]:
    """Packets counted in each row of a meter, both parities."""
    return [int(switch.register(row["count"]).sum()) for row in meter.rows]
