# SPDX-License-Identifier: Apache-2.0
"""The probes of NetBouncer and deTector: IP-in-IP packets that take a known path.

The outer header leads a probe up to the switch where its path turns, which removes the header; the
inner one leads it down (NetBouncer, section 3, and deTector, section 3.2). Both ways are unique.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.schedules import Rounds
from testbed.network.sources import Source
from testbed.traffic.flows import UDP
from testbed.traffic.packets import (
    ETHERNET,
    IPV4,
    put_ethernet,
    put_ipv4,
    put_udp,
)

PROBE_TTL = 15
"""Switches never count packets with a TTL below 16, so probes cannot look like loss."""

_IPIP = 4
_FRAME = 64

PAYLOAD = _FRAME - ETHERNET - 2 * IPV4 - 8
"""Bytes of a probe behind its inner UDP header."""


def probe_frames(
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
    put_udp(frames, inner + IPV4, *ports, length=8 + PAYLOAD)
    return frames


def probe_source(
    packets: Rounds,
    frames: npt.NDArray[np.uint8],
    src_host: npt.NDArray[np.int32],
    dst_host: npt.NDArray[np.int32],
) -> Source:
    """Return the source of probes: a flow for each frame, of which ``packets`` says when it is
    sent. ``src_host`` and ``dst_host`` are the flows' ends, int32[N]."""
    return Source(
        packets=packets,
        templates=frames,
        template_length=np.full(len(frames), frames.shape[1], np.uint16),
        src_host=src_host,
        dst_host=dst_host,
    )
