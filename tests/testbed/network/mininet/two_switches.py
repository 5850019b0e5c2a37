"""The smallest network with a fabric link: two switches, a host at each.

    h_left --- left === right --- h_right

Two processes come up where twenty do not, on an emulated processor for instance.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from testbed.control.switch import batch
from testbed.dataplane import IDENTITY, P4INFO, PROGRAM, ROUTING
from testbed.network.mininet import MininetNetwork
from testbed.network.schedules import Packets
from testbed.network.sources import Source
from testbed.network.speed import slowness
from testbed.network.switches import Backend
from testbed.traffic.flows import Traffic
from testbed.traffic.packets import headers
from tests.testbed.network.mininet.conftest import RATE

__all__ = ["TWO", "bring_up_two", "one_flow", "send"]

RIGHTWARD, LEFTWARD = 0, 1  # the directed links
SOON_NS = 50_000_000
FRAME = 1400  # bytes
HOST_PORT, FABRIC_PORT = 1, 2


HOST_IP = np.array([0x0A000002, 0x0A000102], np.uint32)
SWITCH_IP = np.array([0x0A000001, 0x0A000101], np.uint32)

TWO: Any = SimpleNamespace(
    title="two switches",
    k=2,
    half=1,
    n_switches=2,
    n_tors=2,
    n_hosts=2,
    n_links=2,
    switch_names=["left", "right"],
    host_names=["h_left", "h_right"],
    link_names=["left->right", "right->left"],
    tier=np.zeros(2, np.int8),
    link_src=np.array([0, 1], np.int32),
    link_dst=np.array([1, 0], np.int32),
    link_src_port=np.full(2, FABRIC_PORT, np.int32),
    link_dst_port=np.full(2, FABRIC_PORT, np.int32),
    host_tor=np.arange(2, dtype=np.int32),
    host_port=np.full(2, HOST_PORT, np.int32),
    host_ip=HOST_IP,
    switch_ip=SWITCH_IP,
    host_mac=np.uint64(0x0200 << 32) | HOST_IP.astype(np.uint64),
    switch_mac=np.uint64(0x0200 << 32) | SWITCH_IP.astype(np.uint64),
)
"""What a network needs to know of a topology, of this one."""


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
            control.table(IDENTITY.identity).set_default(
                IDENTITY.identify, (0, 0, 1 << switch, int(TWO.switch_ip[switch]))
            )
            routes, other = control.table(ROUTING.routes), 1 - switch
            mac = int(TWO.host_mac[switch])
            routes.add([(int(TWO.host_ip[switch]), 32)], ROUTING.deliver, (HOST_PORT, mac))
            mac = int(TWO.switch_mac[other])
            routes.add([(int(TWO.host_ip[other]), 32)], ROUTING.forward, (FABRIC_PORT, mac))
    return net


def one_flow(net: MininetNetwork, src: int = 0, packets: int = 0) -> Source:
    """Packets from one host to the other, from now on, as fast as this machine carries them."""
    rate = RATE[net.backend] / slowness()
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
