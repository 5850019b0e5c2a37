# SPDX-License-Identifier: Apache-2.0
"""Traffic: flows, and their packets in the order in which they are sent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.errors import UserError
from testbed.network.ranks import Ranks
from testbed.network.schedules import Packets, Schedule, listed

TCP = 6
UDP = 17

# Ethernet header included, FCS not; the shim of fabric links comes on top.
MIN_FRAME = 64
MAX_FRAME = 1514


@dataclass(frozen=True)
class Traffic:
    """F flows with distinct 5-tuples and P packets.

    Attributes:
        src_host, dst_host: Host indices, int32[F]. They differ.
        src_port, dst_port: uint16[F].
        protocol: 6 or 17, uint8[F].
        packets: When the source host begins to send each packet, its flow, and the bytes of its
            frame with the Ethernet header, 64 to 1514.
        ranks: Hosts that send on the flows as they receive, besides the packets; None: there are
            none.
    """

    src_host: npt.NDArray[np.int32]
    dst_host: npt.NDArray[np.int32]
    src_port: npt.NDArray[np.uint16]
    dst_port: npt.NDArray[np.uint16]
    protocol: npt.NDArray[np.uint8]
    packets: Schedule
    ranks: Ranks | None = None

    @property
    def n_flows(self) -> int:
        """Return the number of flows F, the length of every array with a value a flow."""
        return len(self.src_host)

    @property
    def time_ns(self) -> npt.NDArray[np.uint64]:
        """Return when each packet is sent in ns, uint64[P], sorted; all packets stay in memory."""
        return self._listed.time_ns

    @property
    def flow(self) -> npt.NDArray[np.uint32]:
        """Return the flow that each packet belongs to, uint32[P]."""
        return self._listed.flow

    @property
    def size(self) -> npt.NDArray[np.uint16]:
        """Return the length of each packet's frame in bytes, uint16[P]."""
        assert self._listed.size is not None
        return self._listed.size

    @cached_property
    def _listed(self) -> Packets:
        """Return all packets and keep them in memory, which suits small runs."""
        return listed(self.packets)


def make_distinct(
    rng: np.random.Generator,
    src_host: npt.NDArray[np.int32],
    dst_host: npt.NDArray[np.int32],
    src_port: npt.NDArray[np.uint16],
    dst_port: npt.NDArray[np.uint16],
    protocol: npt.NDArray[np.uint8],
) -> None:
    """Redraw source ports, in place, until all 5-tuples (arrays of [F]) differ.

    The first flow of a 5-tuple keeps it. Destination ports are redrawn as well where source ports
    alone do not suffice.
    """
    for attempt in range(64):
        pair = (src_host.astype(np.uint64) << np.uint64(1 + 19)) | dst_host.astype(np.uint64)
        pair = pair << np.uint64(1) | (protocol == UDP).astype(np.uint64)
        ports = src_port.astype(np.uint64) << np.uint64(16) | dst_port.astype(np.uint64)
        order = np.lexsort((ports, pair))
        same = (pair[order][1:] == pair[order][:-1]) & (ports[order][1:] == ports[order][:-1])
        again = order[1:][same]
        if not len(again):
            return
        src_port[again] = rng.integers(1024, 65536, len(again))
        if attempt >= 8:
            dst_port[again] = rng.integers(1024, 65536, len(again))
    raise UserError("there are too many flows for so few hosts: their 5-tuples cannot be distinct")
