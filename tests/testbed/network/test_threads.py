# SPDX-License-Identifier: Apache-2.0
"""Any number of threads gives the same bytes, and so does stopping in between."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from analysis.methods.registry import find_methods
from canary_softswitch import Program, Switch
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.request import load_scenario
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings
from testbed.control.forwarding import install_forwarding
from testbed.dataplane import HASHPIPE, PROGRAM, VERDICT
from testbed.fabric.fat_tree import FatTree
from testbed.faults.injector import FaultInjector
from testbed.faults.specification import parse_faults
from testbed.network import schedules
from testbed.network.schedules import Packets
from testbed.network.sources import Source
from testbed.network.virtual import LinkModel, VirtualNetwork
from testbed.softswitch.tests.conftest import PROGRAMS
from testbed.traffic.generator import generate
from testbed.traffic.packets import headers

SLOW = LinkModel(rate_bps=300_000_000, queue_bytes=30_000)


def outcome(
    k: int, threads: int, links: LinkModel, stops: int = 1, always: bool = True
) -> list[bytes]:
    """Everything that a network tells: drops, replies, counters, registers."""
    topology = FatTree(k)
    program = Program.load(PROGRAM, observe=VERDICT.field)
    switches = [Switch(program, seed=i) for i in range(topology.n_switches)]
    for index, switch in enumerate(switches):
        install_forwarding(topology, index, switch, mask=1 << index % 32, monitor=True)
    FaultInjector(topology, list(switches), parse_faults("20pct", topology, seed=1)).start()
    net = VirtualNetwork(topology, program, switches, links, threads, always=always)
    traffic = generate(topology, "hadoop", 0.3, 0.004, seed=5)
    templates, lengths = headers(traffic, topology)
    ends = traffic.src_host, traffic.dst_host
    data = net.add_source(Source(traffic.packets, templates, lengths, *ends))
    ttl = (traffic.flow % 6 + 1).astype(np.uint8)
    at_once = traffic.time_ns // 2000 * 2000  # many are at a switch at the same time
    packets = Packets(at_once, traffic.flow, ttl=ttl)
    traces = net.add_source(Source(packets, templates, lengths, *ends))
    for stop in range(1, stops + 1):
        net.run_until(stop * 10**8 // stops + 777)
    stats = net.statistics
    gone = stats.fault_drops + stats.queue_drops + stats.ttl_drops + stats.other_drops
    assert stats.sent == stats.delivered + gone + stats.in_flight
    assert stats.fault_drops and stats.ttl_drops and bool(stats.queue_drops) == (links is SLOW)
    names = [name for stage in HASHPIPE.stages for name in stage.values()]
    return [
        net.drops().tobytes(),
        net.replies().tobytes(),
        repr(stats).encode(),
        *(
            net.sent(source).tobytes() + net.delivered(source).tobytes()
            for source in (data, traces)
        ),
        net.link_packets().tobytes(),
        *(switch.register(name).tobytes() for switch in switches for name in names),
    ]


@cache
def alone(k: int, links: LinkModel) -> list[bytes]:
    """What one thread makes."""
    return outcome(k, 1, links)


@pytest.mark.parametrize("k", [4, 6])
@pytest.mark.parametrize("links", [LinkModel(), SLOW], ids=["fast", "slow"])
def test_threads_change_nothing(k: int, links: LinkModel) -> None:
    assert all(outcome(k, threads, links) == alone(k, links) for threads in (2, 3, 7))


@pytest.mark.parametrize("k", [8, 10])
def test_threads_change_nothing_in_a_large_fabric(k: int) -> None:
    """At K=10 one thread has more switches than stay in the cache, two have not."""
    one = outcome(k, 1, LinkModel())
    assert all(outcome(k, threads, LinkModel()) == one for threads in (2, 7))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("links", [LinkModel(), SLOW], ids=["fast", "slow"])
def test_stopping_in_between_changes_nothing(threads: int, links: LinkModel) -> None:
    assert outcome(4, threads, links, stops=997) == alone(4, links)


@pytest.mark.parametrize("threads", [1, 3])
def test_events_on_one_thread_and_on_all_by_turns(threads: int) -> None:
    """Where the clock decides, events go from the queue of one thread to the windows of all."""
    by_turns = outcome(4, threads, LinkModel(), stops=97, always=False)
    assert by_turns == alone(4, LinkModel())


def test_packets_made_in_small_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = alone(4, LinkModel())
    monkeypatch.setattr(schedules, "_BLOCK", 40)
    assert all(outcome(4, threads, LinkModel()) == whole for threads in (1, 2))


@pytest.mark.parametrize("capture", [False, True], ids=["generated", "capture"])
def test_runs_are_equal_whatever_made_them(tmp_path: Path, capture: bool) -> None:
    scenario = load_scenario("flap")
    traffic = "hadoop"
    if capture:
        traffic = str(tmp_path / "some.pcap")
        ends = [(f"10.9.0.{n % 7 + 1}", f"10.9.1.{n % 11 + 1}") for n in range(400)]
        packets = [
            Ether() / IP(src=s, dst=d) / UDP(sport=99, dport=7) / bytes(300) for s, d in ends
        ]
        for n, packet in enumerate(packets):
            packet.time = n // 3 * 1e-4  # some at once
        wrpcap(traffic, packets)
    for threads in (1, 2, 3):
        settings = Settings(k=4, epochs=2, epoch_ms=20, load=0.2, threads=threads, traffic=traffic)
        path = tmp_path / str(threads)
        run_experiment(layout_of(settings, scenario, "flap"), path, methods=find_methods("canary"))
    told = {"summary.json", "manifest.json"}  # how long it took
    files = [p.relative_to(tmp_path / "1") for p in (tmp_path / "1").rglob("*") if p.is_file()]
    assert len(files) > 10
    for file in files:
        if file.name not in told:
            made = {(tmp_path / str(threads) / file).read_bytes() for threads in (1, 2, 3)}
            assert len(made) == 1, file


def test_jumbo_frames_go_through() -> None:
    topology = FatTree(4)
    program = Program.load(PROGRAM, observe=VERDICT.field)
    switches = [Switch(program, seed=i) for i in range(topology.n_switches)]
    for index, switch in enumerate(switches):
        install_forwarding(topology, index, switch, mask=1, monitor=False)
    net = VirtualNetwork(topology, program, switches)
    traffic = generate(topology, "hadoop", 0.1, 0.01, seed=2)
    templates, lengths = headers(traffic, topology)
    ends = traffic.src_host, traffic.dst_host
    packets = Packets(traffic.time_ns, traffic.flow, np.full_like(traffic.size, 9014))
    number = net.add_source(Source(packets, templates, lengths, *ends))
    net.drain()
    assert (net.delivered(number) == net.sent(number)).all()
    assert net.statistics.delivered == len(traffic.packets)


def test_a_program_that_reads_all_of_a_packet_is_refused() -> None:
    topology = FatTree(4)
    program = Program.load(PROGRAMS / "router.json")
    switches = [Switch(program, seed=i) for i in range(topology.n_switches)]
    with pytest.raises(ValueError, match="128 bytes"):
        VirtualNetwork(topology, program, switches)
