"""NetBouncer's probes: from every host to every core switch and straight back.

A probe is IP-in-IP (NetBouncer, section 3): the outer header takes it to the core switch, which
removes it; the inner one takes it back to the host. Upwards a core switch has one path from a host
and downwards another, so both are known (its section 4.3). Where there are no core switches, those
of the highest tier stand for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.fabric.addressed import AddressedFabric
from testbed.network.schedules import Rounds
from testbed.traffic.flows import UDP
from testbed.traffic.packets import ETHERNET, IPV4, put_ethernet, put_ipv4, put_udp

# Switches never count packets with a TTL below 16, so probes cannot look like loss.
PROBE_TTL = 15

_IPIP = 4
_FRAME = 64
_PAYLOAD = _FRAME - ETHERNET - 2 * IPV4 - 8


@dataclass(frozen=True)
class ProbePlan:
    """N = hosts x core switches pairs, each probed ``packets`` times; those of a host together.

    Attributes:
        host: int32[N].
        core: Number among the core switches, int32[N].
        frames: The frame of each pair, uint8[N, 64], checksums included.
        packets: When each probe is sent, and of which pair.
    """

    host: npt.NDArray[np.int32]
    core: npt.NDArray[np.int32]
    frames: npt.NDArray[np.uint8]
    packets: Rounds


def probe_plan(
    topology: AddressedFabric, duration_s: float, packets: int, seed: int = 0
) -> ProbePlan:
    """The probes of a run, those of a pair evenly spread over it from a random phase on.

    Args:
        topology: The fabric.
        duration_s: Length of the run.
        packets: Probes a pair.
        seed: Draws the phases.
    """
    rng = np.random.default_rng([seed, 0x9B0BE])
    bouncing = topology.bouncing
    below = np.flatnonzero(~np.isin(topology.host_tor, bouncing))
    pairs = np.arange(len(below) * len(bouncing), dtype=np.int64)
    nth, core = np.divmod(pairs, len(bouncing))
    host = below[nth]
    host_ip = topology.host_ip[host]
    core_ip = topology.switch_ip[bouncing[core]]

    frames = np.zeros((len(pairs), _FRAME), np.uint8)
    inner = ETHERNET + IPV4
    put_ethernet(frames, topology, host)
    put_ipv4(frames, ETHERNET, host_ip, core_ip, _IPIP, PROBE_TTL, length=_FRAME - ETHERNET)
    put_ipv4(frames, inner, host_ip, host_ip, UDP, PROBE_TTL, length=_FRAME - inner)
    # the two inner ports together are the pair's number
    put_udp(frames, inner + IPV4, pairs >> 16, pairs & 0xFFFF, length=8 + _PAYLOAD)

    phase = rng.random(len(pairs))
    order = np.argsort(phase, kind="stable").astype(np.uint32)
    return ProbePlan(
        host=host.astype(np.int32),
        core=core.astype(np.int32),
        frames=frames,
        packets=Rounds(order, phase[order], packets, duration_s * 1e9 / packets),
    )
