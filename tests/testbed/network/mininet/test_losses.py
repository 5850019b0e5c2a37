# SPDX-License-Identifier: Apache-2.0
"""What the emulator loses of its own accord is counted, named, and told from the faults."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from analysis.methods.registry import find_methods
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.observer import Observer
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings
from scenarios.experiment.setup import Emulation
from testbed.network import packet_sockets
from testbed.network.mininet import MininetNetwork
from testbed.network.network import EmulatorDrops
from testbed.network.requirements import missing
from testbed.record.run import RunDirectory
from tests.present import present
from tests.real_packets import paced
from tests.testbed.network.mininet.conftest import died, some_backend, wait_until
from tests.testbed.network.mininet.two_switches import UPWARD, bring_up_two, one_flow, send

pytestmark = pytest.mark.root

NO_FAULTS = np.zeros(2 + 2 * 2, np.uint64)
STOPPED = 3000  # packets: twice what a ring of libpcap's holds


@pytest.fixture(params=["softswitch", "bmv2"])
def net(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MininetNetwork]:
    if reason := missing(request.param):
        pytest.skip(reason)
    with bring_up_two(tmp_path, request.param) as made:
        made.start()
        yield made


def small_buffer(net: MininetNetwork, interface: str) -> None:
    """Leave a switch's socket room for a packet or two (no such thing where it is a ring)."""
    name, _, _ = interface.partition("-")
    pid, node = net.process(name), net.host(name).pid
    fd = packet_sockets._listening(pid, node)[interface]
    with closing(packet_sockets._copy(pid, fd)) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)


def by_place(drops: EmulatorDrops) -> dict[tuple[str, str], int]:
    return {
        (place, where): packets
        for place, where, packets in zip(
            drops.place, drops.where, drops.packets.tolist(), strict=True
        )
    }


def test_a_switch_that_stands_still_loses_packets_that_are_counted_on_their_link(
    net: MininetNetwork,
) -> None:
    number = net.add_source(one_flow(net))
    upper = net.process("tor1")
    small_buffer(net, "tor1-eth2")
    os.kill(upper, signal.SIGSTOP)
    sent, lost = send(net, number, STOPPED)
    assert (sent, lost) == (STOPPED, STOPPED)
    os.kill(upper, signal.SIGCONT)
    net.drain()  # what a buffer kept arrives after all
    drops = net.emulator_drops(NO_FAULTS)
    lost = STOPPED - int(net.delivered(number).sum())
    assert lost > STOPPED // 4
    assert set(drops.link.tolist()) == {UPWARD}
    assert drops.packets.sum() == lost
    assert by_place(drops) == {("tor0->tor1", "socket"): lost}


def test_what_is_sent_to_a_dead_switch_is_lost_on_the_link_to_it(net: MininetNetwork) -> None:
    """All soft switches are one process: the first one on the way is dead, too."""
    number = net.add_source(one_flow(net))
    os.kill(net.process("tor1"), signal.SIGKILL)
    wait_until(lambda: died(net, "tor1", "signal SIGKILL"))
    assert send(net, number, 300) == (300, 300)
    drops = net.emulator_drops(NO_FAULTS)
    cable = "tor0->tor1" if net.backend == "bmv2" else "h0->tor0"
    assert by_place(drops) == {(cable, "dead"): 300}


def test_a_host_that_disappears_is_said_and_the_counters_stay(net: MininetNetwork) -> None:
    number = net.add_source(one_flow(net))
    assert send(net, number, 300) == (300, 0)
    pid = net.host_pids()[0]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: bool(net.degraded))
    assert net.degraded == [f"host h0 disappeared: its process {pid} was ended"]
    assert net.statistics.sent == 300  # of an interface whose process is gone
    assert net.link_packets().tolist() == [300, 0]


class Throttle(Observer):
    """From the first tick on a core switch has no room for packets of one link."""

    network: MininetNetwork | None = None

    def network_up(self, emulation: Emulation) -> None:
        assert isinstance(emulation.network, MininetNetwork)
        self.network = emulation.network

    def progressed(self, what: str, share: float) -> None:
        if what == "emulation" and self.network is not None:
            small_buffer(self.network, "core3-eth3")
            self.network = None


@pytest.mark.nightly
@pytest.mark.real_time
def test_a_method_that_blames_a_link_the_emulator_lost_packets_on_is_right_on_what_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fault, own = "agg0_0->core0", "agg2_1->core3"
    settings = make_settings(
        paced(2, 3000, 0.25)
        | {"backend": some_backend(), "tcp": 0}
        | {"faults": f"{fault}:0.3", "noise": "0"}
    )
    path = tmp_path / "run"
    summary = run_experiment(
        layout_of(settings),
        path,
        find_methods("canary-mle"),
        observer=Throttle(),
    )
    run = RunDirectory(path)
    own_drops = run.table("emulator_drops")
    link = run.fabric.link(own)
    lost_there = int(own_drops["packets"][own_drops["link"] == link].sum())
    assert lost_there > 50
    told = [reason for reason in summary["degraded"] if "the emulator lost" in reason]
    assert re.search(rf"{lost_there:,} at {own}", told[0]), told
    links = run.table("links")
    assert links["fault_drops"][link] == 0
    assert set(present(summary.get("lost_links"))) >= {fault, own}
    verdict = summary["methods"]["canary-mle"]
    assert verdict["directed"]["true_positives"] == 1
    assert own in verdict["directed"]["wrong"]
    lost = present(verdict.get("lost"))["directed"]
    assert own not in lost["wrong"]
    assert lost["true_positives"] >= 2
    # Nothing is lost that nobody counted.
    counts = run.network["conservation"]
    assert counts.get("unaccounted") == 0
    assert counts.get("emulator_drops") == own_drops["packets"].sum()
