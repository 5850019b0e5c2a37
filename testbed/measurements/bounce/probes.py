# SPDX-License-Identifier: Apache-2.0
"""NetBouncer's probes, from every host to every core switch and straight back.

Upwards a core switch has one path from a host and downwards another (NetBouncer, section 4.3).
Where there are no core switches, those of the highest tier stand for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.fabric.ecmp import Ecmp
from testbed.fabric.packet_fabric import PacketFabric
from testbed.measurements.ip_in_ip import probe_frames
from testbed.network.schedules import Rounds


@dataclass(frozen=True)
class ProbePlan:
    """N pairs of a host and a core switch, each probed ``packets`` times; those of a host together.

    Attributes:
        host: The host of each pair, int32[N].
        path: Its path, as an index of `testbed.fabric.ecmp.Ecmp.bounces`, int32[N].
        frames: The frame of each pair, uint8[N, 64], checksums included.
        packets: When the probes of each pair are sent.
    """

    host: npt.NDArray[np.int32]
    path: npt.NDArray[np.int32]
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
    paths = Ecmp(topology).bounces()
    half = paths.links.reshape(len(paths), -1)[:, : int(topology.tier.max())]
    tor, core = topology.link_src[half[:, 0]], topology.link_dst[half[:, -1]]
    of_tor = np.bincount(tor, minlength=topology.n_tors)[topology.host_tor]
    host = np.repeat(np.arange(topology.n_hosts), of_tor)
    pairs = np.arange(len(host), dtype=np.int64)
    nth = pairs - np.repeat(of_tor.cumsum() - of_tor, of_tor)
    path = np.searchsorted(tor, topology.host_tor[host]) + nth
    # the two inner ports together are the pair's number
    ports = pairs >> 16, pairs & 0xFFFF
    frames = probe_frames(topology, host, core[path], host, ports)

    phase = rng.random(len(pairs))
    order = np.argsort(phase, kind="stable").astype(np.uint32)
    return ProbePlan(
        host=host.astype(np.int32),
        path=path.astype(np.int32),
        frames=frames,
        packets=Rounds(order, phase[order], packets, duration_s * 1e9 / packets),
    )
