# SPDX-License-Identifier: Apache-2.0
"""The smallest network with a fabric link, for tests of real networks.

Two processes come up where twenty do not, on an emulated processor for instance.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from testbed.control.forwarding import install_forwarding
from testbed.control.switch import batch
from testbed.dataplane import P4INFO, PROGRAM
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.network.mininet import MininetNetwork
from testbed.network.schedules import Packets
from testbed.network.sources import Source
from testbed.network.switches import Backend
from testbed.traffic.flows import Traffic
from testbed.traffic.packets import headers
from tests.testbed.network.mininet.conftest import pace

UPWARD, DOWNWARD = 0, 1  # the directed links
SOON_NS = 50_000_000
FRAME = 1400  # bytes

TWO = TwoSwitches()


def bring_up_two(path: Path, backend: Backend) -> MininetNetwork:
    """The network, its switches forwarding; the caller starts and stops it."""
    net = MininetNetwork(
        TWO,
        backend,
        PROGRAM,
        P4INFO,
        path / "logs",
        state=path / "state.json",
    )
    with batch(net.controls):
        for switch, control in enumerate(net.controls):
            install_forwarding(TWO, switch, control, 1 << switch, monitor=False)
    return net


def one_flow(net: MininetNetwork, src: int = 0, packets: int = 0) -> Source:
    """Packets from one host to the other, from now on, as fast as this machine carries them."""
    rate = pace(net)
    time_ns = net.now_ns + SOON_NS + (np.arange(packets) * 1e9 / rate).astype(np.uint64)
    flow = Traffic(
        src_host=np.array([src], np.int32),
        dst_host=np.array([1 - src], np.int32),
        src_port=np.array([1000], np.uint16),
        dst_port=np.array([80], np.uint16),
        protocol=np.array([17], np.uint8),
        packets=Packets(
            time_ns,
            np.zeros(packets, np.uint32),
            np.full(packets, FRAME, np.uint16),
        ),
    )
    templates, lengths = headers(flow, TWO)
    return Source(flow.packets, templates, lengths, flow.src_host, flow.dst_host)


def send(net: MininetNetwork, number: int, packets: int, src: int = 0) -> tuple[int, int]:
    """Packets of `one_flow`, which is the net's source ``number``: sent and lost."""
    before = int(net.sent(number).sum()), int(net.delivered(number).sum())
    net.feed(number, one_flow(net, src, packets))
    net.drain()
    sent = int(net.sent(number).sum()) - before[0]
    return sent, sent - (int(net.delivered(number).sum()) - before[1])
