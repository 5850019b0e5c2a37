"""What a traffic source hands to the network: flows, and their packets in the order of sending."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_FRAME", "MIN_FRAME", "TCP", "UDP", "Traffic"]

TCP = 6
UDP = 17

# Ethernet header included, FCS not; the shim of fabric links comes on top.
MIN_FRAME = 64
MAX_FRAME = 1514


@dataclass(frozen=True)
class Traffic:
    """F flows with distinct 5-tuples and P packets in the order of sending.

    Attributes:
        src_host, dst_host: Host indices, int32[F]. They differ.
        src_port, dst_port: uint16[F].
        protocol: 6 or 17, uint8[F].
        time_ns: When the source host begins to send each packet, uint64[P], sorted.
        flow: The flow of each packet, uint32[P].
        size: Bytes of the frame with its Ethernet header, uint16[P], 64 to 1514.
    """

    src_host: npt.NDArray[np.int32]
    dst_host: npt.NDArray[np.int32]
    src_port: npt.NDArray[np.uint16]
    dst_port: npt.NDArray[np.uint16]
    protocol: npt.NDArray[np.uint8]
    time_ns: npt.NDArray[np.uint64]
    flow: npt.NDArray[np.uint32]
    size: npt.NDArray[np.uint16]

    @property
    def n_flows(self) -> int:
        return len(self.src_host)

    @property
    def n_packets(self) -> int:
        return len(self.time_ns)
