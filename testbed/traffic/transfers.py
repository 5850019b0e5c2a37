# SPDX-License-Identifier: Apache-2.0
"""Selects the flows of a run's traffic that real TCP carries, and their size, start and rate."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from testbed.errors import UserError
from testbed.network.schedules import Packets
from testbed.traffic.flows import TCP, Traffic
from testbed.traffic.packets import TCP_FRAME

MIN_PAYLOAD = 10 * 1460
"""iperf3's control connection takes some 20 packets: smaller flows would be mostly that."""

CLIENT_PORTS = np.arange(10_000, 20_000)
SERVER_PORTS = np.arange(20_000, 30_000)  # below what kernels hand out themselves, from 32768


@dataclass(frozen=True)
class Transfers:
    """N flows that TCP carries, in the order of their start.

    Attributes:
        flow: The indices of these flows in the traffic, int32[N].
        start_ns: When each begins, int64[N], sorted.
        payload: The payload in bytes, int64[N].
        rate_bps: The highest rate that the sender offers, bits a second, float64[N].
    """

    flow: npt.NDArray[np.int32]
    start_ns: npt.NDArray[np.int64]
    payload: npt.NDArray[np.int64]
    rate_bps: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.flow)


def take_transfers(
    traffic: Traffic, share: float, seed: int, line_rate_bps: float
) -> tuple[Traffic, Transfers]:
    """Return the traffic without a share of its TCP flows, and these flows for real TCP.

    The flows are drawn evenly over all sizes from `MIN_PAYLOAD` on. They keep their place among the
    flows, their hosts, bytes, start and mean rate; their ports change, so that each has a port of
    its own at both hosts.

    Args:
        traffic: Flows and their packets.
        share: The share of the sufficiently large flows to take, 0 to 1.
        seed: Draws the flows.
        line_rate_bps: The highest rate of a transfer, bits a second.

    Raises:
        ValueError: More than 10,000 transfers at one host.
    """
    if not share:
        return traffic, Transfers(*(np.zeros(0, t) for t in (np.int32, np.int64, np.int64, float)))
    flow, time = traffic.flow, traffic.time_ns.astype(np.int64)
    payload = np.bincount(
        flow, traffic.size.astype(np.int64) - TCP_FRAME, minlength=traffic.n_flows
    ).astype(np.int64)
    large = np.flatnonzero((traffic.protocol == TCP) & (payload >= MIN_PAYLOAD))
    large = large[np.argsort(payload[large], kind="stable")]
    wanted = round(share * len(large))
    phase = np.random.default_rng([seed, 0x7C9]).random()
    chosen = large[((np.arange(wanted) + phase) * len(large) / max(wanted, 1)).astype(np.int64)]

    first, last = np.zeros((2, traffic.n_flows), np.int64)
    first[flow[::-1]] = time[::-1]
    last[flow] = time
    chosen = chosen[np.argsort(first[chosen], kind="stable")].astype(np.int32)
    seconds = np.maximum(last[chosen] - first[chosen], 1) / 1e9
    transfers = Transfers(
        chosen,
        first[chosen],
        payload[chosen],
        np.minimum(payload[chosen] * 8 / seconds, line_rate_bps),
    )

    others = np.ones(traffic.n_flows, bool)
    others[chosen] = False
    src_port, dst_port = traffic.src_port.copy(), traffic.dst_port.copy()
    src, dst = traffic.src_host, traffic.dst_host
    src_port[chosen] = _own_ports(CLIENT_PORTS, src[chosen], src[others], src_port[others])
    dst_port[chosen] = _own_ports(SERVER_PORTS, dst[chosen], dst[others], dst_port[others])
    kept = others[flow]
    left = replace(
        traffic,
        src_port=src_port,
        dst_port=dst_port,
        packets=Packets(traffic.time_ns[kept], flow[kept], traffic.size[kept]),
    )
    return left, transfers


def _own_ports(
    ports: npt.NDArray[np.integer],
    host: npt.NDArray[np.int32],
    other_host: npt.NDArray[np.int32],
    other_port: npt.NDArray[np.uint16],
) -> npt.NDArray[np.uint16]:
    """Return a port for each row that no other row with the same host has, uint16[N]."""
    mine = np.zeros(len(host), np.uint16)
    for one in np.unique(host):
        at = np.flatnonzero(host == one)
        free = ports[~np.isin(ports, other_port[other_host == one])]
        if len(free) < len(at):
            raise UserError(f"{len(at)} TCP transfers at one host: use a smaller TCP share")
        mine[at] = free[: len(at)]
    return mine
