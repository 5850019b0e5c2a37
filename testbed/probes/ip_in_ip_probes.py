# SPDX-License-Identifier: Apache-2.0
"""The probes of NetBouncer and deTector: IP-in-IP packets that take a known path.

The outer header leads a probe up to the switch where its path turns, which removes the header; the
inner one leads it down (NetBouncer, section 3, and deTector, section 3.2). Both ways are unique.

NetBouncer's go from every host to every core switch and straight back: upwards a core switch has
one path from a host and downwards another (its section 4.3). Where there are no core switches,
those of the highest tier stand for them.

deTector's go on to a host of another rack. Every path is probed both ways by several pairs of
hosts, as a path should not depend on one server (section 3.1), and on several ports. A probe is
counted where it arrives; the paper's come back, which tells no direction apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.paths import Paths
from testbed.network.schedules import Rounds
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

PROBE_TTL = 15
"""Switches never count packets with a TTL below 16, so probes cannot look like loss."""

PAIRS = 4
"""The number of pairs of hosts and ports that probe each path of deTector's matrix."""

_IPIP = 4
_FRAME = 64
_PAYLOAD = _FRAME - ETHERNET - 2 * IPV4 - 8
_FIRST_SRC_PORT = 32_768
_FIRST_DST_PORT = 33_436  # traceroute's, where nobody listens; its low two bits count up


@dataclass(frozen=True)
class ProbePlan:
    """N = hosts x core switches pairs, each probed ``packets`` times; those of a host together.

    Attributes:
        host: The host of each pair, int32[N].
        core: Its core switch, as an index among the core switches, int32[N].
        frames: The frame of each pair, uint8[N, 64], checksums included.
        packets: When the probes of each pair are sent.
    """

    host: npt.NDArray[np.int32]
    core: npt.NDArray[np.int32]
    frames: npt.NDArray[np.uint8]
    packets: Rounds


def probe_plan(topology: PacketFabric, duration_s: float, packets: int, seed: int = 0) -> ProbePlan:
    """Return NetBouncer's probes of a run, those of a pair at equal intervals from a random phase.

    Args:
        topology: The fabric.
        duration_s: The length of the run in seconds.
        packets: The number of probes of each pair.
        seed: Draws the phases.
    """
    rng = np.random.default_rng([seed, 0x9B0BE])
    bouncing = topology.bouncing
    below = np.flatnonzero(~np.isin(topology.host_tor, bouncing))
    pairs = np.arange(len(below) * len(bouncing), dtype=np.int64)
    nth, core = np.divmod(pairs, len(bouncing))
    host = below[nth]
    # the two inner ports together are the pair's number
    ports = pairs >> 16, pairs & 0xFFFF
    frames = _frames(topology, host, bouncing[core], host, ports)

    phase = rng.random(len(pairs))
    order = np.argsort(phase, kind="stable").astype(np.uint32)
    return ProbePlan(
        host=host.astype(np.int32),
        core=core.astype(np.int32),
        frames=frames,
        packets=Rounds(order, phase[order], packets, duration_s * 1e9 / packets),
    )


@dataclass(frozen=True)
class MatrixProbes:
    """F = paths x `PAIRS` flows of probes.

    Attributes:
        paths: The paths probed, each direction on its own.
        path: The path of each flow, int32[F].
        src_host, dst_host: The sender and the receiver of each flow, int32[F].
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
    topology: PacketFabric, matrix: ProbeMatrix, duration_s: float, packets: int, seed: int = 0
) -> MatrixProbes:
    """Return deTector's probes of a run, those of a flow at equal intervals from a random phase.

    Args:
        topology: The fabric of the matrix.
        matrix: The matrix, whose paths are probed in both directions.
        duration_s: The length of the run in seconds.
        packets: The total number of probes, rounded down to the same number, at least 1, per flow.
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

    ports = _FIRST_SRC_PORT + path % _FIRST_SRC_PORT, _FIRST_DST_PORT + nth
    frames = _frames(topology, src_host, matrix.turn[path // 2], dst_host, ports)
    _spoil_checksum(frames)

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


def _spoil_checksum(frames: npt.NDArray[np.uint8]) -> None:
    """Write a wrong UDP checksum into each frame, and never 0, which means no checksum."""
    ip = ETHERNET + IPV4
    udp = ip + IPV4
    pseudo = np.zeros((len(frames), 12), np.uint8)
    pseudo[:, :8] = frames[:, ip + 12 : ip + 20]
    pseudo[:, 9] = UDP
    put(pseudo, 10, 8 + _PAYLOAD, 2)
    segment = np.concatenate((pseudo, frames[:, udp : udp + 8 + _PAYLOAD]), axis=1)
    right = internet_checksum(segment)
    put(frames, udp + 6, right ^ np.where(right == 0x5555, 0x3333, 0x5555), 2)


def _frames(
    topology: PacketFabric,
    src_host: npt.NDArray[np.integer],
    turn: npt.NDArray[np.integer],
    dst_host: npt.NDArray[np.integer],
    ports: tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]],
) -> npt.NDArray[np.uint8]:
    """Return the frames of probes, uint8[N, 64], checksums included.

    Each leads from a host to the switch where it turns and down to a host. ``ports`` are the inner
    UDP ports.
    """
    frames = np.zeros((len(src_host), _FRAME), np.uint8)
    inner = ETHERNET + IPV4
    src_ip, dst_ip = topology.host_ip[src_host], topology.host_ip[dst_host]
    put_ethernet(frames, topology, src_host)
    put_ipv4(
        frames, ETHERNET, src_ip, topology.switch_ip[turn], _IPIP, PROBE_TTL, _FRAME - ETHERNET
    )
    put_ipv4(frames, inner, src_ip, dst_ip, UDP, PROBE_TTL, length=_FRAME - inner)
    put_udp(frames, inner + IPV4, *ports, length=8 + _PAYLOAD)
    return frames
