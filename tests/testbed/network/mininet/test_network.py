# SPDX-License-Identifier: Apache-2.0
"""The real network: hosts' kernels, agents, control over the wire, faults."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from testbed.control.epochs import set_parity
from testbed.control.remote.connection import RemoteError
from testbed.control.remote.switch import RemoteSwitch
from testbed.control.switch import batch
from testbed.dataplane import FAULT, HEAVY_HITTER, ROUTING
from testbed.faults.injector import FaultInjector
from testbed.faults.specification import parse_faults
from testbed.measurements.bounce.probes import probe_plan
from testbed.measurements.canary.meters import clear_hashpipe, collect
from testbed.measurements.canary.minus_meters import MeterDump, Rules, minus_meter
from testbed.measurements.canary.selection import FlowSelector, SelectionParameters
from testbed.measurements.traces.path_discovery import parse_time_exceeded
from testbed.network.mininet import MininetNetwork
from testbed.network.schedules import Packets, listed
from testbed.network.sources import Source
from testbed.traffic.flows import Traffic
from testbed.traffic.generator import generate
from testbed.traffic.packets import headers
from tests import sockets
from tests.binomial import tail
from tests.patience import PATIENCE_S
from tests.testbed.network.mininet.conftest import (
    DECODER,
    MONITORS,
    SEGMENTS,
    TOPOLOGY,
    died,
    pace,
    wait_until,
)

pytestmark = pytest.mark.root


def source(traffic: Traffic, packets: int, rate: float, start_ns: int) -> Source:
    """The first packets of some traffic, again and again, at a steady rate."""
    templates, lengths = headers(traffic, TOPOLOGY)
    which = np.arange(packets) % len(traffic.packets)
    return Source(
        Packets(
            start_ns + (np.arange(packets) * 1e9 / rate).astype(np.uint64),
            traffic.flow[which],
            traffic.size[which],
        ),
        templates,
        lengths.astype(np.uint16),
        traffic.src_host,
        traffic.dst_host,
    )


SOON_NS = 50_000_000


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return generate(TOPOLOGY, "hadoop", 0.05, 0.3, seed=1)


@pytest.fixture(scope="module")
def sent(net: MininetNetwork, traffic: Traffic) -> int:
    """Number of a source of that traffic, which has nothing to send."""
    return net.add_source(source(traffic, 0, 1, 0))


@pytest.mark.real_time
def test_hosts_of_all_pods_reach_each_other_without_loss(net: MininetNetwork) -> None:
    for src, dst in (("h0_0_0", "h3_1_1"), ("h1_0_1", "h1_1_0"), ("h2_0_0", "h2_0_1")):
        address = TOPOLOGY.host_ip[TOPOLOGY.host_names.index(dst)]
        ip = ".".join(str(int(address) >> s & 255) for s in (24, 16, 8, 0))
        out = net.host(src).cmd(f"ping -c 5 -i 0.05 -W 2 -s 1400 {ip}")
        assert "5 received, 0% packet loss" in re.sub(r"\+\d+ duplicates, ", "", out)


SERVE = """
import hashlib, socket
s = socket.create_server(("10.2.1.2", 5300)); print("ready", flush=True)
c, _ = s.accept(); h = hashlib.sha256()
while data := c.recv(1 << 16): h.update(data)
c.sendall(h.hexdigest().encode())
"""
FETCH = """
import hashlib, socket
data = bytes(range(251)) * 8000
c = socket.create_connection(("10.2.1.2", 5300), 10)
c.sendall(data); c.shutdown(socket.SHUT_WR)
print(c.recv(100).decode() == hashlib.sha256(data).hexdigest())
"""


def test_tcp_between_pods_carries_data_whole(net: MininetNetwork) -> None:
    server = net.host("h2_1_0").popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    client = net.host("h0_1_1").popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE)
    out, _ = client.communicate(timeout=PATIENCE_S)
    assert out == b"True\n"
    server.wait(timeout=PATIENCE_S)


@pytest.mark.real_time
def test_what_sources_send_arrives_and_kernels_keep_silent(
    net: MininetNetwork, traffic: Traffic, sent: int
) -> None:
    before = net._hosts.statistics()
    sent_before, missing = net.sent(sent).sum(), net.sent(sent) - net.delivered(sent)
    rate = pace(net)
    packets = 2 * rate
    net.feed(sent, source(traffic, packets, rate, net.now_ns + SOON_NS))
    net.drain()
    after = net._hosts.statistics()
    assert net.sent(sent).sum() - sent_before == packets
    assert (net.sent(sent) - net.delivered(sent) == missing).all()
    assert after["misdelivered"] == after["shims"] == after["send_errors"] == 0
    assert after["strangers"] == before["strangers"]  # no RST, no ICMP, no ARP
    assert net.degraded == []


@pytest.mark.real_time
def test_frames_leave_on_time(net: MininetNetwork, traffic: Traffic, sent: int) -> None:
    start = net.now_ns + SOON_NS
    already = int(net.sent(sent).sum())
    net.feed(sent, source(traffic, 1000, 1000, start))
    for ms in (200, 500, 800):
        net.run_until(start + ms * 1_000_000)
        share = int(net.sent(sent).sum()) - already
        due = min((net.now_ns - start) / 1e6, 1000)  # run_until() may return late, after the last
        assert abs(share - due) < 30
    net.drain()


@pytest.fixture(scope="module")
def probes(net: MininetNetwork) -> tuple[int, Source, np.ndarray, np.ndarray]:
    plan = probe_plan(TOPOLOGY, 1.0, packets=1)
    made = Source(
        listed(plan.packets).cut(0),
        plan.frames,
        np.full(len(plan.frames), plan.frames.shape[1], np.uint16),
        plan.host,
        plan.host,
    )
    return net.add_source(made), made, plan.host, plan.path % len(TOPOLOGY.bouncing)


def send_probes(net: MininetNetwork, probes, tor: int, core: int, packets: int) -> tuple[int, int]:
    """Probes from a ToR's hosts to a core switch and back: sent and lost."""
    number, made, host, core_of = probes
    pairs = np.flatnonzero((TOPOLOGY.host_tor[host] == tor) & (core_of == core)).astype(np.uint32)
    sent, delivered = (int(a[pairs].sum()) for a in (net.sent(number), net.delivered(number)))
    time_ns = net.now_ns + SOON_NS + np.arange(packets) * 10**9 // pace(net)
    flow = pairs[np.arange(packets) % len(pairs)]
    fed = Source(
        Packets(time_ns.astype(np.uint64), flow),
        made.templates,
        made.template_length,
        made.src_host,
        made.dst_host,
    )
    net.feed(number, fed)
    net.drain()
    sent = int(net.sent(number)[pairs].sum()) - sent
    return sent, sent - (int(net.delivered(number)[pairs].sum()) - delivered)


@contextmanager
def injected(net: MininetNetwork, link: str, rate: float) -> Iterator[None]:
    plan = parse_faults(f"{link}:{rate}", TOPOLOGY, seed=1)
    injector = FaultInjector(TOPOLOGY, list(net.controls), plan)
    injector.start()
    try:
        yield
    finally:
        table = net.controls[TOPOLOGY.link_src[TOPOLOGY.link(link)]].table(FAULT.faults)
        for handle in injector._active.values():
            table.delete(handle)


@pytest.mark.real_time
def test_injected_rate_is_within_the_binomial_interval_and_in_one_direction(
    net: MininetNetwork, probes
) -> None:
    tor, there, back = 0, TOPOLOGY.link("tor0_0->agg0_0"), TOPOLOGY.link("agg0_0->tor0_0")
    rate = 0.05
    with injected(net, "tor0_0->agg0_0", rate):
        before = net.link_packets()
        sent, lost = send_probes(net, probes, tor, core=0, packets=20_000)
        passed = net.link_packets() - before
    assert sent == 20_000
    assert tail(lost, sent, rate) > 0.0005
    # of the two directions each probe takes, the other loses nothing
    assert passed[there] == passed[back] == sent - lost
    sent, lost = send_probes(net, probes, tor, core=0, packets=1000)
    assert (sent, lost) == (1000, 0)


@pytest.mark.real_time
def test_traceroutes_are_answered_by_the_switches(
    net: MininetNetwork, traffic: Traffic, sent: int
) -> None:
    inter_pod = TOPOLOGY.host_tor[traffic.src_host] // 2 != TOPOLOGY.host_tor[traffic.dst_host] // 2
    flow = int(np.flatnonzero(inter_pod & (traffic.protocol == 6))[0])
    templates, lengths = headers(traffic, TOPOLOGY)
    already, answered = net.delivered(sent).sum(), len(net.replies())
    net.add_source(
        Source(
            Packets(
                (net.now_ns + SOON_NS + np.arange(5) * 1_000_000).astype(np.uint64),
                np.full(5, flow, np.uint32),
                ttl=np.arange(1, 6, dtype=np.uint8),
            ),
            templates,
            lengths.astype(np.uint16),
            traffic.src_host,
            traffic.dst_host,
        )
    )
    net.drain()
    replies = net.replies()[answered:]
    assert (replies["host"] == traffic.src_host[flow]).all()
    hops = parse_time_exceeded(replies["data"], TOPOLOGY)
    assert sorted(hops.ttl.tolist()) == [1, 2, 3, 4, 5]
    assert TOPOLOGY.tier[hops.switch[np.argsort(hops.ttl)]].tolist() == [0, 1, 2, 1, 0]
    assert net.delivered(sent).sum() == already  # a trace is not the flow's traffic


@pytest.mark.real_time
def test_an_epoch_over_the_wire_counts_every_packet(
    net: MininetNetwork, traffic: Traffic, sent: int
) -> None:
    """Digests select flows, rules count them, registers come back, nothing looks like loss."""
    controls = {switch: net.controls[switch] for switch in MONITORS}
    with selecting(controls) as selector:
        count_an_epoch(net, traffic, sent, controls, selector)


@contextmanager
def selecting(controls: dict[int, RemoteSwitch]) -> Iterator[FlowSelector]:
    """A selector in an even epoch, with nothing counted yet; it leaves no rule behind."""
    with batch(controls.values()):
        for control in controls.values():
            set_parity(control, 0)
    collect(dict(controls), 0)
    collect(dict(controls), 1)
    clear_hashpipe(dict(controls))
    selector = FlowSelector(SEGMENTS, DECODER, dict(controls), SelectionParameters(eta=4))
    none = np.zeros(len(SEGMENTS), np.int64)
    with batch(controls.values()):
        selector.plan(none, none)
    try:
        yield selector
    finally:
        with batch(controls.values()):
            selector.close()
        for _ in range(2):  # nothing was counted between them
            selector.retire_quiet()
        selector.finish_retiring()


def count_an_epoch(
    net: MininetNetwork,
    traffic: Traffic,
    sent: int,
    controls: dict[int, RemoteSwitch],
    selector: FlowSelector,
) -> None:
    rate = 2 * pace(net)  # enough packets for many flows to be large
    start, deadline = net.now_ns + SOON_NS, time.monotonic() + PATIENCE_S
    fed = int(net.sent(sent).sum())

    def feed(packets: int, start_ns: int) -> None:
        nonlocal fed
        net.feed(sent, source(traffic, packets, rate, start_ns))
        fed += packets

    feed(3 * rate, start)
    while net.now_ns < start + 1_800_000_000 or selector.installed <= 50:
        assert time.monotonic() < deadline
        net.run_until(net.now_ns + 20_000_000)
        with batch(controls.values()):
            selector.poll(net.now_ns)
        if net.sent(sent).sum() == fed:  # a busy machine has polled after all had passed
            feed(3 * rate, net.now_ns + SOON_NS)
    with batch(controls.values()):
        for control in controls.values():
            set_parity(control, 1)
    while net.sent(sent).sum() < fed:
        net.run_until(net.now_ns + 20_000_000)
    feed(rate // 2, net.now_ns + SOON_NS)  # surely after the parity
    net.drain()
    first = collect(dict(controls), 0)
    second = collect(dict(controls), 1)
    rules = Rules(*selector.in_force())
    assert len(second["switch"]) > 0
    for dump in (first, second):
        meter = minus_meter(MeterDump(**dump), DECODER.decode, SEGMENTS, rules)
        assert len(meter) > 20
        assert meter.lost.sum() == meter.negative == meter.inconsistent == 0
        assert meter.undecodable == 0
    counted = selector._usm.packets(selector.monitored.entries["handle"]).tolist()
    clean = first["meter"] == 0
    assert sum(counted) >= first["count"][clean & (first["row"] == 0)].sum()
    assert max(counted) > 0
    assert (collect(dict(controls), 0)["count"] == 0).all()


def test_nothing_listens_in_the_machines_own_namespace(net: MininetNetwork) -> None:
    pids = {net.process(name) for name in TOPOLOGY.switch_names}
    ours = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(fd.readlink())
            except OSError:
                continue
            ours.add(target.removeprefix("socket:[").removesuffix("]"))
    assert not ours & {row[9] for row in sockets.rows("tcp", "udp")}
    for name in ("tor0_0", "core1"):
        addresses = net.host(name).cmd("ip -color=never -o addr")
        assert set(re.findall(r"inet6? (\S+)", addresses)) <= {"127.0.0.1/8", "::1/128"}


def test_interfaces_are_named_after_their_nodes_and_have_no_offloads(net: MininetNetwork) -> None:
    link = TOPOLOGY.link("tor0_0->agg0_1")
    assert net.egress(link)[1] == "tor0_0-eth4"
    names = re.findall(r"\d+: (\S+)@", net.host("tor0_0").cmd("ip -color=never -o link"))
    assert sorted(names) == [f"tor0_0-eth{port}" for port in (1, 2, 3, 4)]


def test_a_cable_that_is_switched_off_is_named(net: MininetNetwork) -> None:
    assert net.cables_down == []
    ends = {"agg0_1": net.egress(TOPOLOGY.link("agg0_1->core2"))[1], "tor0_0": "tor0_0-eth1"}
    try:
        for switch, interface in ends.items():
            net.host(switch).cmd(f"ip link set {interface} down")
        assert set(net.cables_down) == {("agg0_1", "core2"), ("tor0_0", "h0_0_0")}
    finally:
        for switch, interface in ends.items():
            net.host(switch).cmd(f"ip link set {interface} up")
    assert net.cables_down == []


def test_what_a_switch_refuses_is_one_line(net: MininetNetwork) -> None:
    control = net.controls[0]
    routes = control.table(ROUTING.routes)
    with pytest.raises(RemoteError, match=r"^tor0_0: update 0: [^\n]+$"):
        routes.add([(0, 0)], ROUTING.up)  # it is there already
    with pytest.raises(RemoteError, match="no table 'nowhere'"):
        control.table("nowhere")
    assert net.degraded == []


def test_a_channel_that_is_cut_is_named(net: MininetNetwork) -> None:
    control = net.controls[TOPOLOGY.switch("agg3_1")]
    control.connection.cut()
    wait_until(lambda: control.digests() == {} or bool(control.lost))
    assert net.degraded == ["agg3_1: its P4Runtime connection broke"]
    control.table(ROUTING.routes).add([(1, 32)], ROUTING.up)
    control.connection.lost = ""  # the switch itself is well, and the next test wants it


VICTIM = "core3"


def test_switches_that_die_are_named_and_the_rest_goes_on(net: MininetNetwork, probes) -> None:
    """The last test: it breaks the network. All soft switches are one process."""
    os.kill(net.process(VICTIM), signal.SIGKILL)
    wait_until(lambda: died(net, VICTIM, "signal SIGKILL"))
    dead = [VICTIM] if net.backend == "bmv2" else TOPOLOGY.switch_names
    for name in dead:
        control = net.controls[TOPOLOGY.switch(name)]
        set_parity(control, 0)  # vanishes
        assert control.digests()[HEAVY_HITTER.digest.name].size == 0
    dump = collect({switch: net.controls[switch] for switch in MONITORS}, 0)
    assert not {TOPOLOGY.switch(name) for name in dead} & set(dump["switch"].tolist())
    others = net.backend == "bmv2"
    assert send_probes(net, probes, tor=0, core=0, packets=200) == (200, 0 if others else 200)
    assert send_probes(net, probes, tor=0, core=3, packets=200) == (200, 200)
