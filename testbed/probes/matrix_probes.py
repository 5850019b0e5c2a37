"""deTector's probes: IP-in-IP from a host to where its path turns, inside it a packet to a host of
the other rack (section 3.2).

The outer header takes a probe up to a core or aggregation switch, which removes it; the inner one
takes it down. Both ways are the only ones, so the path is known. Every path is probed both ways by
several pairs of hosts, as a path should not depend on one server (section 3.1), and on several
ports. A probe is counted where it arrives; the paper's come back, which tells no direction apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.fabric.addressed import AddressedFabric
from testbed.fabric.paths import Paths
from testbed.network.schedules import Rounds
from testbed.probes.bounce_probes import PROBE_TTL
from testbed.probes.probe_matrix import ProbeMatrix
from testbed.traffic.flows import UDP
from testbed.traffic.packets import (
    ETHERNET,
    IPV4,
    internet_checksum,
    put,
    put_ethernet,
    put_ipv4,
    put_udp,
)

PAIRS = 4
"""Pairs of hosts and ports that probe a path."""

_IPIP = 4
_FRAME = 64
_PAYLOAD = _FRAME - ETHERNET - 2 * IPV4 - 8
_FIRST_SRC_PORT = 32_768
_FIRST_DST_PORT = 33_436  # traceroute's, where nobody listens; its low two bits count up


@dataclass(frozen=True)
class MatrixProbes:
    """F = paths x `PAIRS` flows of probes.

    Attributes:
        paths: The paths probed, each direction on its own.
        path: The path of each flow, int32[F].
        src_host, dst_host: int32[F].
        frames: The frame of each flow, uint8[F, 64]. Its UDP checksum is wrong, so that the kernel
            of a real host drops it without an answer.
        packets: When each probe is sent, and of which flow.
    """

    paths: Paths
    path: npt.NDArray[np.int32]
    src_host: npt.NDArray[np.int32]
    dst_host: npt.NDArray[np.int32]
    frames: npt.NDArray[np.uint8]
    packets: Rounds


def matrix_probes(
    topology: AddressedFabric, matrix: ProbeMatrix, duration_s: float, packets: int, seed: int = 0
) -> MatrixProbes:
    """The probes of a run, those of a flow evenly spread over it from a random phase on.

    Args:
        topology: The fat-tree that the matrix is of.
        matrix: Its paths are probed both ways.
        duration_s: Length of the run.
        packets: Probes in all, rounded down to equally many of each flow, but one at least.
        seed: Draws the phases.
    """
    rng = np.random.default_rng([seed, 0xDE7EC])
    paths = matrix.both_ways
    path = np.arange(len(paths), dtype=np.int32).repeat(PAIRS)
    nth = np.tile(np.arange(PAIRS, dtype=np.int32), len(paths))
    ends = np.stack((matrix.src_tor, matrix.dst_tor), axis=1)
    src_tor, dst_tor = (side.reshape(-1)[path] for side in (ends, ends[:, ::-1]))
    # the hosts of a rack take turns over its paths
    rack = topology.hosts_per_tor
    host = (path + nth) % rack
    src_host, dst_host = (tor * rack + host for tor in (src_tor, dst_tor))

    frames = np.zeros((len(path), _FRAME), np.uint8)
    inner = ETHERNET + IPV4
    src_ip, dst_ip = topology.host_ip[src_host], topology.host_ip[dst_host]
    turn_ip = topology.switch_ip[matrix.turn[path // 2]]
    put_ethernet(frames, topology, src_host)
    put_ipv4(frames, ETHERNET, src_ip, turn_ip, _IPIP, PROBE_TTL, length=_FRAME - ETHERNET)
    put_ipv4(frames, inner, src_ip, dst_ip, UDP, PROBE_TTL, length=_FRAME - inner)
    src_port = _FIRST_SRC_PORT + path % _FIRST_SRC_PORT
    put_udp(frames, inner + IPV4, src_port, _FIRST_DST_PORT + nth, length=8 + _PAYLOAD)
    _spoil_checksum(frames, inner)

    each = max(1, packets // max(len(path), 1))
    phase = rng.random(len(path))
    order = np.argsort(phase, kind="stable").astype(np.uint32)
    return MatrixProbes(
        paths=paths,
        path=path,
        src_host=src_host.astype(np.int32),
        dst_host=dst_host.astype(np.int32),
        frames=frames,
        packets=Rounds(order, phase[order], each, duration_s * 1e9 / each),
    )


def _spoil_checksum(frames: npt.NDArray[np.uint8], ip: int) -> None:
    """Write a UDP checksum that is not the right one, nor the 0 of none."""
    udp = ip + IPV4
    pseudo = np.zeros((len(frames), 12), np.uint8)
    pseudo[:, :8] = frames[:, ip + 12 : ip + 20]
    pseudo[:, 9] = UDP
    put(pseudo, 10, 8 + _PAYLOAD, 2)
    segment = np.concatenate((pseudo, frames[:, udp : udp + 8 + _PAYLOAD]), axis=1)
    right = internet_checksum(segment)
    put(frames, udp + 6, right ^ np.where(right == 0x5555, 0x3333, 0x5555), 2)
