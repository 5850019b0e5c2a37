# SPDX-License-Identifier: Apache-2.0
"""deTector's probes, from a host to a host of another rack over the paths of the probe matrix.

Every path is probed both ways by several pairs of hosts, as a path should not depend on one server
(deTector, section 3.1), and on several ports. A probe is counted where it arrives; the paper's come
back, which tells no direction apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray
from testbed.fabric.clos import Fabric
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.paths import Paths
from testbed.fabric.probe_matrix.matrix import ProbeMatrix
from testbed.measurements.ip_in_ip import PAYLOAD, probe_frames
from testbed.network.schedules import Rounds
from testbed.traffic.flows import UDP
from testbed.traffic.packets import ETHERNET, IPV4, internet_checksum, put

PAIRS = 4
"""The number of pairs of hosts and ports that probe each path of deTector's matrix."""

_FIRST_SRC_PORT = 32_768
_FIRST_DST_PORT = 33_436  # traceroute's, where nobody listens; its low two bits count up


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
    topology: PacketFabric, matrix: ProbeMatrix, duration_s: float, each: int, seed: int = 0
) -> MatrixProbes:
    """Return deTector's probes of a run, those of a flow at equal intervals from a random phase.

    Args:
        topology: The fabric of the matrix.
        matrix: The matrix, whose paths are probed in both directions.
        duration_s: The length of the run in seconds.
        each: The number of probes of each flow.
        seed: Draws the phases.
    """
    rng = np.random.default_rng([seed, 0xDE7EC])
    paths = matrix.both_ways
    path, nth, (src_host, dst_host) = probing_pairs(topology, matrix)
    ports = _FIRST_SRC_PORT + path % _FIRST_SRC_PORT, _FIRST_DST_PORT + nth
    frames = probe_frames(topology, src_host, matrix.turn[path // 2], dst_host, ports)
    _spoil_checksum(frames)

    phase = rng.random(len(path))
    order = np.argsort(phase, kind="stable").astype(np.uint32)
    return MatrixProbes(
        paths=paths,
        path=path,
        src_host=src_host,
        dst_host=dst_host,
        frames=frames,
        packets=Rounds(order, phase[order], each, duration_s * 1e9 / each),
    )


def probing_pairs(
    fabric: Fabric, matrix: ProbeMatrix
) -> tuple[IntArray, IntArray, tuple[IntArray, IntArray]]:
    """Return the path of each flow of probes, its number among those of the path, and its sender
    and receiver, int32[F] each: the hosts of a rack take turns over its paths."""
    n_paths = len(matrix.both_ways)
    path = np.arange(n_paths, dtype=np.int32).repeat(PAIRS)
    nth = np.tile(np.arange(PAIRS, dtype=np.int32), n_paths)
    ends = np.stack((matrix.src_tor, matrix.dst_tor), axis=1)
    rack = fabric.hosts_per_tor
    host = (path + nth) % rack
    src_host, dst_host = (
        (side.reshape(-1)[path] * rack + host).astype(np.int32) for side in (ends, ends[:, ::-1])
    )
    return path, nth, (src_host, dst_host)


def _spoil_checksum(frames: npt.NDArray[np.uint8]) -> None:
    """Write a wrong UDP checksum into each frame, and never 0, which means no checksum."""
    ip = ETHERNET + IPV4
    udp = ip + IPV4
    pseudo = np.zeros((len(frames), 12), np.uint8)
    pseudo[:, :8] = frames[:, ip + 12 : ip + 20]
    pseudo[:, 9] = UDP
    put(pseudo, 10, 8 + PAYLOAD, 2)
    segment = np.concatenate((pseudo, frames[:, udp : udp + 8 + PAYLOAD]), axis=1)
    right = internet_checksum(segment)
    put(frames, udp + 6, right ^ np.where(right == 0x5555, 0x3333, 0x5555), 2)
