# SPDX-License-Identifier: Apache-2.0
"""The hosts' agents on a cable of their own, without a switch."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pytest

from testbed.fabric.fat_tree import FatTree
from testbed.network.hosts import HostAgents
from testbed.network.schedules import Packets
from testbed.network.sources import Source
from testbed.traffic.flows import Traffic
from testbed.traffic.packets import headers
from tests.patience import PATIENCE_S
from tests.testbed.network.mininet.conftest import wait_until

pytestmark = pytest.mark.root

RATE, SECONDS = 20_000, 1


def own_networks(*processes: str) -> int:
    """How many different networks these processes are in."""
    return len({os.readlink(f"/proc/{process}/ns/net") for process in processes})


@pytest.fixture
def agents() -> Iterator[HostAgents]:
    """Two hosts, each in its namespace, with a cable between them."""
    sleepers = [subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in range(2)]
    a, b = (str(process.pid) for process in sleepers)
    try:
        wait_until(lambda: own_networks(a, b, "self") == 3)
        subprocess.run(
            ["ip", "link", "add", "a0", "netns", a, "type", "veth", "peer", "b0", "netns", b],
            check=True,
        )
        for pid, name in ((a, "a0"), (b, "b0")):
            command = ["nsenter", "--net", "--target", pid, "ip", "link", "set", name, "up"]
            subprocess.run(command, check=True)
        made = HostAgents([(int(a), "a0"), (int(b), "b0")])
        yield made
        made.close()
    finally:
        for process in sleepers:
            process.kill()
            process.wait()


def traffic() -> Source:
    """One flow from the first host to the second."""
    packets = RATE * SECONDS
    time_ns = (50_000_000 + np.arange(packets) * 10**9 // RATE).astype(np.uint64)
    flow = Traffic(
        src_host=np.zeros(1, np.int32),
        dst_host=np.ones(1, np.int32),
        src_port=np.array([1000], np.uint16),
        dst_port=np.array([80], np.uint16),
        protocol=np.array([17], np.uint8),
        packets=Packets(
            time_ns,
            np.zeros(packets, np.uint32),
            np.full(packets, 64, np.uint16),
        ),
    )
    templates, lengths = headers(flow, FatTree(4))
    return Source(flow.packets, templates, lengths, flow.src_host, flow.dst_host)


def test_totals_are_of_one_moment(agents: HostAgents) -> None:
    """While frames fly, no more of them have arrived than were sent."""
    number = agents.add_source(traffic())
    agents.start()
    seen = []
    while agents.waiting or agents.now_ns < 2e8:
        totals = agents.statistics()
        seen.append((totals["sent"], totals["delivered"]))
    wait_until(lambda: agents.statistics()["delivered"] == RATE * SECONDS)
    assert len(seen) > 1000
    assert all(delivered <= sent for sent, delivered in seen)
    assert agents.statistics()["sent"] == agents.sent(number).sum() == RATE * SECONDS
    assert agents.statistics()["delivered"] == agents.delivered(number).sum() == RATE * SECONDS


def test_each_frame_is_counted_by_how_late_it_was(agents: HostAgents) -> None:
    agents.start()
    time.sleep(0.1)
    late = traffic()
    chosen = np.array([40_000_000, 45_000_000, 10**12], np.int64)  # two are late already
    agents.add_source(
        Source(
            Packets(chosen.astype(np.uint64), np.zeros(3, np.uint32)),
            late.templates,
            late.template_length,
            late.src_host,
            late.dst_host,
        )
    )
    deadline = time.monotonic() + PATIENCE_S
    while agents.statistics()["sent"] < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    counts = agents.late()
    assert counts.sum() == 2
    assert counts[6:].sum() == 2  # 32 ms and more


def test_nothing_is_sent_while_the_clock_stands_still(agents: HostAgents) -> None:
    """The clock goes on where it stood, and so do the frames."""
    number, half = agents.add_source(traffic()), 550_000_000
    agents.hold(half)
    agents.start()
    time.sleep(0.8)
    assert agents.now_ns == half
    sent = int(agents.sent(number).sum())
    assert sent == pytest.approx(RATE * SECONDS / 2, rel=0.01)  # half of those after 50 ms
    agents.hold(half // 2)  # it never goes back
    assert agents.now_ns == half and agents.sent(number).sum() == sent
    held = agents.held_ns
    assert held > 200_000_000
    agents.hold(2**64 - 1)
    assert half <= agents.now_ns < half + 200_000_000
    wait_until(lambda: agents.statistics()["delivered"] == RATE * SECONDS)
    assert agents.held_ns - held < 200_000_000
