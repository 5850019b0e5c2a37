# SPDX-License-Identifier: Apache-2.0
"""The Canary program in BMv2's simple_switch and in the soft switch: the same, packet by packet."""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast, get_args

import pytest

from canary_softswitch import Program, Switch
from testbed.control.epochs import set_parity
from testbed.control.forwarding import install_forwarding
from testbed.control.routings import Routing
from testbed.dataplane import (
    ARRIVING,
    EXPIRY,
    HEAVY_HITTER,
    LEAVING,
    PROGRAM,
    ROUTING_BLOCK,
    USM,
    VERDICT,
)
from testbed.dataplane import FAULT as EGRESS_FAULT
from testbed.fabric.fat_tree import FatTree
from testbed.measurements.programs import switch_program
from testbed.measurements.registry import find_measurement
from tests.patience import PATIENCE_S
from tests.programs import needs

from .bmv2 import Mirror, SimpleSwitch
from .fabric import monitor_dsm, monitor_usm
from .frames import (
    CORRUPT,
    EXPIRED,
    FAULT,
    ICMP,
    IPIP,
    LOCAL,
    MALFORMED,
    TCP,
    UDP,
    Flow,
    ethernet,
    frame,
    ip_of,
    ipv4,
    l4,
    packet,
    shimmed,
)

pytestmark = needs("simple_switch", "simple_switch_CLI")

PACKETS = 5000  # a switch; three switches
PATH_BFS = (0x0, 0x77, 0x10400101, 0xFFFFFFFF)
WINDOW_US = 1 << 17
ICMP_PER_WINDOW = 13
ICMP_WINDOW = EXPIRY.icmp_window
TIMES = ("last_us", "since_us")
"""Registers of times, which are real in BMv2."""
NEVER_US = 2**32 - 1
ALL32, ALL16, ALL8 = 0xFFFFFFFF, 0xFFFF, 0xFF
ANY = (0, 0)
# All that simple_switch's control tells of a wider register. `owners_again` makes up for it.
THRIFT_MAX = (1 << 63) - 1


@dataclass
class Fuzz:
    """Random packets, valid and not, for a switch of a K=4 fat-tree."""

    topology: FatTree
    switch: int
    rng: random.Random
    flows: list[Flow] = field(init=False)

    def __post_init__(self) -> None:
        self.hosts = [int(ip) for ip in self.topology.host_ip]
        self.cores = [int(self.topology.switch_ip[self.topology.core(i)]) for i in range(4)]
        self.own = int(self.topology.switch_ip[self.switch])
        self.flows = [self.flow() for _ in range(400)]

    def flow(self) -> Flow:
        rng = self.rng
        return Flow(
            rng.choice(self.hosts),
            rng.choice(self.hosts),
            rng.randrange(1 << 16),
            rng.choice([80, 443, 5201, rng.randrange(1 << 16)]),
            rng.choice([TCP, TCP, UDP]),
        )

    def noise(self, n: int) -> bytes:
        return self.rng.randbytes(n)

    def address(self) -> int:
        rng = self.rng
        return rng.choice([*self.hosts, *self.cores, self.own, 0x0A0000FE, rng.getrandbits(32)])

    def ttl(self) -> int:
        return self.rng.choice([64, 64, 64, 64, 17, 16, 15, 2, 255])

    def ip(self) -> bytes:
        """An IPv4 packet of any kind that is not a plain flow's."""
        rng = self.rng
        src, dst, ttl = rng.choice(self.hosts), self.address(), self.ttl()
        inner = packet(rng.choice(self.flows), self.ttl())
        kind = rng.randrange(10)
        if kind == 0:
            return ipv4(src, dst, rng.choice([ICMP, 47, 132]), self.noise(rng.randrange(60)), ttl)
        if kind == 1:
            fragment = rng.choice([0x2000, 0x2005, 0x0005, 0x4000])
            return ipv4(src, dst, rng.choice([TCP, UDP]), self.noise(24), ttl, fragment)
        if kind == 2:
            return ipv4(
                src, dst, UDP, self.noise(24), ttl, options=self.noise(4 * rng.choice([1, 10]))
            )
        if kind == 3:
            return ipv4(
                src, dst, UDP, self.noise(24), version=rng.randrange(16), ihl=rng.randrange(16)
            )
        if kind == 4:  # to this switch, or through it
            return ipv4(src, rng.choice([self.own, self.own, dst]), IPIP, inner, ttl)
        if kind == 5:
            other = ipv4(src, dst, ICMP, self.noise(12), ttl=self.ttl())
            return ipv4(src, self.own, IPIP, other, ttl)
        if kind == 6:
            other = ipv4(src, dst, UDP, self.noise(12), options=bytes(8))
            return ipv4(src, self.own, IPIP, other[: rng.randrange(len(other))], ttl)
        if kind == 7:
            return ipv4(src, self.own, IPIP, ipv4(src, dst, IPIP, inner), ttl)
        if kind == 8:  # an echo request: through, to this switch, expired, or cut short
            request = bytes([8, rng.choice([0, 0, 3])]) + self.noise(rng.choice([2, 6, 7, 40]))
            to = rng.choice([dst, self.own, self.own])
            return ipv4(src, to, ICMP, request, ttl=rng.choice([64, 2, 1, 0]))
        # expired, without any answer
        return ipv4(src, dst, rng.choice([ICMP, IPIP, 132]), self.noise(40), ttl=rng.randrange(2))

    def shim(self, plain: bytes) -> bytes:
        rng = self.rng
        bits = [rng.randrange(2), rng.randrange(2), rng.choice([0, 0, rng.randrange(64)])]
        return shimmed(plain, rng.choice(PATH_BFS), *bits)

    def frame(self) -> tuple[int, bytes]:
        """(port, frame)."""
        rng = self.rng
        port = rng.choice([1, 2, 3, 4, 4, 17])
        kind = rng.randrange(100)
        if kind < 60:
            flow = self.flows[min(int(rng.expovariate(1 / 60)), len(self.flows) - 1)]
            data = frame(flow, self.ttl(), self.noise(rng.choice([0, 1, 30, 400, 1400])))
        elif kind < 62:  # expires and is answered
            data = frame(rng.choice(self.flows), rng.randrange(2), self.noise(rng.randrange(40)))
        elif kind < 90:
            data = ethernet(self.ip())
        else:
            data = ethernet(self.noise(rng.randrange(90)), rng.choice([0x800, 0x806, 0x88B5, 0]))
        if rng.random() < 0.7:
            data = self.shim(data)
        if rng.random() < 0.06:
            data = data[: rng.randrange(len(data) + 1)]
        if rng.random() < 0.06 and data:
            spoiled = bytearray(data)
            spoiled[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            data = bytes(spoiled)
        return port, data


def configure(mirror: Mirror, fuzz: Fuzz, name: str) -> None:
    """Entries of every table, on both switches."""
    install_forwarding(
        fuzz.topology, fuzz.switch, mirror, mask=0x10040100, monitor=not name.startswith("agg")
    )
    set_parity(mirror, 1)
    for flow in fuzz.flows[::2]:
        monitor_usm(mirror, flow.id)
    for flow in fuzz.flows[::3]:
        for path_bf in PATH_BFS[1:3]:
            monitor_dsm(mirror, flow.id, path_bf)
    for flow in fuzz.flows[1::6]:
        mirror.table(USM.rules).add([flow.id], USM.skip)
    for path_bf, eta in zip(PATH_BFS[:3], (1, 4, 16), strict=True):
        mirror.table(HEAVY_HITTER.segments).add(
            [path_bf, (eta, ALL32)], HEAVY_HITTER.report, priority=1
        )
    flow = fuzz.flows
    hosts = (0x0A000000, 0xFF000000)  # the flushing packets come from elsewhere
    for side, ports in (("Ingress", (1, 17)), ("Egress", (1, 3))):
        control = f"Canary{side}.fault"
        faults = mirror.table(f"{control}.faults")

        def add(
            port: int, action: str, priority: int, *match: tuple[int, int], params: tuple = ()
        ) -> None:
            key = [port, *match, *[ANY] * (5 - len(match))]
            faults.add(key, f"{control}.{action}", params, priority)  # noqa: B023

        add(ports[1], "healthy", 1, hosts)
        for port in (1, 2, 3, 4):
            add(port, "blackhole", 5, hosts, ANY, ANY, (flow[port].src_port, ALL16))
            add(port, "blackhole", 4, (flow[4 + port].src, ALL32), (flow[4 + port].dst, ALL32))
            add(port, "corrupt", 3, hosts, (port % 2, 1), (TCP, ALL8), (0, 7), params=(ALL32,))
            add(port, "lossy", 2, hosts, ANY, ANY, ANY, (0x100, 0x130), params=(ALL32,))
            # Packets without ports: what the last header in that place held must not matter.
            add(port, "blackhole", 6, hosts, ANY, (ICMP, ALL8), (0, ALL16), (0, ALL16))


def share_ways(mirror: Mirror, hosts: list[int]) -> None:
    """Counters of sprayed packets, from the racks of hosts and by four ports."""
    for number, rack in enumerate(sorted({host >> 8 for host in hosts})):
        key = [(rack << 8, 24)]
        mirror.table(f"{ARRIVING}.racks").add(key, f"{ARRIVING}.begin", (4 * number,))
    for port in (1, 2, 3, 4):
        mirror.table(f"{ARRIVING}.spines").add([port], f"{ARRIVING}.count", (port - 1,))


def report_paths(mirror: Mirror, hosts: list[int]) -> None:
    """Reports of what goes to the racks of hosts, and the bits of four ports."""
    for rack in sorted({host >> 8 for host in hosts}):
        mirror.table(f"{ARRIVING}.racks").add([(rack << 8, 24)], "NoAction")
    for port in (1, 2, 3, 4):
        mirror.table(f"{LEAVING}.uplinks").add([port], f"{LEAVING}.choose", (1 << port,))


def time_choices(mirror: Mirror, value: int) -> None:
    """The pause between flowlets in us, or the rate of links, where the packets' times do not
    matter: no pause, or an endless one; queues that never empty."""
    mirror.table(f"{ROUTING_BLOCK}.timing").set_default(f"{ROUTING_BLOCK}.set_timing", (value,))


def share_cells(mirror: Mirror) -> None:
    """Cells of a measurement's meters for the links of four ports."""
    for block in (ARRIVING, LEAVING):
        links = mirror.table(f"{block}.meter.cells.links")
        for port in (1, 2, 3, 4):
            links.add([port], f"{block}.meter.cells.share", (40 * port, 33))


@dataclass
class Comparison:
    packets: int = 0
    outputs: int = 0
    answers: int = 0  # ICMP time exceeded
    causes: Counter[int] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def differ(self, what: str) -> None:
        self.differences.append(what)
        assert len(self.differences) < 5, self.differences


class Both:
    """The two switches, fed the same packets one at a time."""

    def __init__(
        self, soft: Switch, bmv2: SimpleSwitch, flush: dict[int, tuple[int, bytes]]
    ) -> None:
        self.soft, self.bmv2, self.flush = soft, bmv2, flush
        self.result = Comparison()
        self._dropped = soft.counter(EGRESS_FAULT.dropped)
        self._window = soft.register(ICMP_WINDOW)
        self._answers: list[float] = []
        self._now = 0

    def send(self, port: int, data: bytes) -> None:
        """One packet through both; waits for its outputs so that the order is known."""
        before = self._dropped["packets"].copy()
        self._now += WINDOW_US  # the limiter looks at real time in BMv2: compared apart
        mine = self.soft.process(port, data, self._now)
        if self._window[0] >> 8 == self._now // WINDOW_US & 0xFFFFFF:
            self._stay_below_the_limit()
            self.result.answers += 1
        self.bmv2.send(port, data)
        theirs = [self.bmv2.receive(PATIENCE_S) for _ in mine]
        self.result.packets += 1
        self.result.causes[VERDICT.cause.of(self.soft.observed)] += 1
        self.result.outputs += len(mine)
        if theirs != mine:
            self.result.differ(f"port {port} {data.hex()}: {mine} or {theirs}")
        for lost in (self._dropped["packets"] != before).nonzero()[0]:
            # Egress works in several threads: wait for the one that dropped the packet.
            self.send(*self.flush[int(lost)])

    def _stay_below_the_limit(self) -> None:
        """At most 12 answered expiries within any window's length of real time."""
        if len(self._answers) >= ICMP_PER_WINDOW - 1:
            wait = self._answers[1 - ICMP_PER_WINDOW] + 1.2 * WINDOW_US / 1e6 - time.monotonic()
            time.sleep(max(wait, 0))
        self._answers.append(time.monotonic())

    def finish(self) -> None:
        """Everything under way has arrived; nothing else comes out."""
        for port, data in self.flush.values():
            self.send(port, data)
        if (extra := self.bmv2.receive(0.3)) is not None:
            self.result.differ(f"simple_switch alone sent {extra}")


def flushing(fuzz: Fuzz, soft: Switch) -> dict[int, tuple[int, bytes]]:
    """For each port a packet that leaves there and touches no meter."""
    found: dict[int, tuple[int, bytes]] = {}
    for dst in fuzz.hosts + fuzz.cores:
        for src in range(8):  # ICMP: the hash that chooses an uplink sees the addresses
            data = ethernet(ipv4(0xC0000200 + src, dst, 132, b"flush"))
            for port, _ in soft.process(5, data):
                found.setdefault(port, (5, data))
    return found


def owners_again(both: Both, fuzz: Fuzz) -> None:
    """One more packet of each flow: dirties each bucket that belongs to another flow there."""
    for flow in fuzz.flows:
        for path_bf in PATH_BFS[1:3]:
            for parity in (0, 1):
                both.send(4, shimmed(frame(flow), path_bf, 1, parity))


def compare_state(
    mirror: Mirror, bmv2: SimpleSwitch, handles: list[int], result: Comparison
) -> int:
    """Registers, counters and direct counters; returns how many values were compared."""
    soft = mirror.switch
    names = list(soft.program.registers)
    theirs = bmv2.registers(names)
    compared = 0
    for name in names:
        mine = soft.register(name)
        if name == ICMP_WINDOW or name.endswith(TIMES):
            continue
        if mine.dtype.names:
            values = [min(int(v["hi"]) << 64 | int(v["lo"]), THRIFT_MAX) for v in mine]
        else:
            values = mine.tolist()
        compared += len(values)
        if values != theirs[name]:
            result.differ(f"register {name}")
    places = [(name, i) for name in soft.program.counters for i in range(20)]
    expected = [tuple(soft.counter(name)[i].tolist()) for name, i in places]
    for (table, mine), handle in zip(mirror.entries, handles, strict=True):
        if soft.program.tables[table].counters:
            places.append((f"{table.rsplit('.', 1)[0]}.matched", handle))
            expected.append(soft.table(table).counter(mine))
    for place, ours, other in zip(places, expected, bmv2.counters(places), strict=True):
        compared += 1
        if ours != other:
            result.differ(f"counter {place}: {ours} or {other}")
    return compared


def reports(soft: Switch) -> list[bytes]:
    """The digests of the soft switch, as simple_switch writes them."""
    [samples] = soft.digests(ack=False).values()
    return [struct.pack(">IIHHBI", *row[:6]) for row in samples.tolist()]


@pytest.mark.parametrize(
    ("name", "meter"),
    [
        *(("tor0_0", ""), ("agg1_1", ""), ("core2", "")),
        *(("agg1_1", "loss_radar"), ("core2", "fermat"), ("tor0_0", "flow_radar")),
        *(("tor0_0", "spray"), ("agg1_1", "spray")),
        *(("tor0_0", "flowlet"), ("agg1_1", "flowlet")),
        *(("tor0_0", "adaptive"), ("agg1_1", "adaptive")),
        ("tor0_0", "int"),
    ],
)
def test_soft_switch_and_simple_switch_agree_on_packets_registers_and_counters(
    name: str, meter: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    routing = cast(Routing, meter if meter in get_args(Routing) else "ecmp")
    own = "spray_check" if routing != "ecmp" else meter
    source = switch_program([find_measurement(own)] if own else [], routing)
    program = Program.load(source, observe=VERDICT.field)
    topology = FatTree(4)
    fuzz = Fuzz(topology, topology.switch(name), random.Random(name))
    mirror = Mirror(Switch(program))
    configure(mirror, fuzz, name)
    scratch = Mirror(Switch(program))
    configure(scratch, fuzz, name)
    if meter in ("loss_radar", "fermat"):
        share_cells(mirror)
    if own == "spray_check":
        share_ways(mirror, fuzz.hosts)
    if own == "int":
        report_paths(mirror, fuzz.hosts)
    if meter in ("flowlet", "adaptive"):
        for each in (mirror, scratch):
            time_choices(each, NEVER_US if (name, meter) == ("tor0_0", "flowlet") else 0)
    with SimpleSwitch(source, tmp_path) as bmv2:
        handles = bmv2.configure(mirror.commands)
        both = Both(mirror.switch, bmv2, flushing(fuzz, scratch.switch))
        for _ in range(PACKETS):
            both.send(*fuzz.frame())
        owners_again(both, fuzz)
        both.finish()
        values = compare_state(mirror, bmv2, handles, both.result)
        mine = reports(mirror.switch)
        theirs = bmv2.learned(17, len(mine))
    if mine != theirs:
        both.result.differ(f"digests: {len(mine)} or {len(theirs)}")
    result = both.result
    for what in ("packets", "outputs"):
        record_property(what, getattr(result, what))
    record_property("values", values)
    record_property("digests", len(mine))
    print(
        f"{name} {meter}: {result.packets} packets, {result.outputs} outputs, {values} values, "
        f"{len(mine)} digests, {len(result.differences)} differences"
    )
    assert result.differences == []
    assert result.packets >= PACKETS
    assert 0.3 * PACKETS < result.outputs < 0.95 * result.packets  # the fuzz reaches both sides
    assert set(result.causes) >= {0, FAULT, CORRUPT, EXPIRED, MALFORMED, LOCAL}
    assert result.answers > 50
    assert name.startswith("agg") or len(mine) > 20


def test_simple_switch_limits_time_exceeded_to_13_a_window(
    tmp_path: Path, program: Program
) -> None:
    topology = FatTree(4)
    mirror = Mirror(Switch(program))
    install_forwarding(topology, 0, mirror, mask=1, monitor=True)
    src, dst = int(topology.host_ip[0]), int(topology.host_ip[1])
    expiring = ethernet(ipv4(src, dst, UDP, l4(Flow(src, dst, 1, 2)), ttl=1))
    last = frame(Flow(dst, src, 1, 2))
    with SimpleSwitch(PROGRAM, tmp_path) as bmv2:
        bmv2.configure(mirror.commands)
        begin = time.monotonic()
        for _ in range(60):
            bmv2.send(1, expiring)
        bmv2.send(2, last)
        answers = 0
        while (out := bmv2.receive(PATIENCE_S)) is not None and ip_of(out[1])[9] == ICMP:
            answers += 1
        windows = int((time.monotonic() - begin) * 1e6 / WINDOW_US) + 2
    assert out is not None
    assert ICMP_PER_WINDOW <= answers <= min(60, ICMP_PER_WINDOW * windows)


def test_both_end_flowlets_at_the_same_pauses(tmp_path: Path) -> None:
    source = switch_program([], "flowlet")
    topology = FatTree(4)
    mirror = Mirror(Switch(Program.load(source, observe=VERDICT.field)))
    install_forwarding(topology, 0, mirror, mask=0x10040100, monitor=True)
    pause_us = 200_000
    time_choices(mirror, pause_us)
    rng = random.Random(5)
    hosts = [int(ip) for ip in topology.host_ip]
    flows = [Flow(hosts[0], hosts[-1], port, 80, TCP) for port in range(5000, 5008)]
    numbers, ports = f"{ROUTING_BLOCK}.numbers", Counter[int]()
    with SimpleSwitch(source, tmp_path) as bmv2:
        bmv2.configure(mirror.commands)
        begin = time.monotonic()
        for _ in range(12):
            for flow in rng.choices(flows, k=20):
                now = int((time.monotonic() - begin) * 1e6) + 1_000_000
                mine = mirror.switch.process(1, frame(flow), now)
                bmv2.send(1, frame(flow))
                assert bmv2.receive(PATIENCE_S) == mine[0]
                ports[mine[0][0]] += 1
            time.sleep(rng.choice([0.0, 2 * pause_us / 1e6]))
        found = bmv2.registers([numbers])[numbers]
    assert found == mirror.switch.register(numbers).tolist()
    assert max(found) > 3 and len(ports) == 2
