# SPDX-License-Identifier: Apache-2.0
"""LossRadar (Li, Miao, Kim, Yu, CoNEXT 2016): every lost packet, from two meters of all packets.

A packet's signature is its flow ID and its IP ID: 120 bits. Both ends of a link add it to one cell
of each row; the upstream meter less the downstream meter holds the lost packets alone, and cells
with one of them give it away.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.arrays import LongArray, WordArray
from testbed.errors import UserError
from testbed.kernels import Kernels
from testbed.measurements.sketches.hashing import peeled

_KERNELS = Kernels.beside(__file__)

CELL_BITS = 32 + 120
"""Count and xorSum (Canary, table I)."""


def signatures(
    hi: WordArray, lo: WordArray, packets: npt.NDArray[np.integer]
) -> tuple[WordArray, WordArray, LongArray]:
    """Return the signatures of all packets of some flows, one flow after the other.

    The IP ID counts the packets of a flow, from 0.

    Args:
        hi, lo: The flows' IDs of 104 bits, uint64[flows] each.
        packets: Packets of each flow, int[flows].

    Returns:
        The upper 56 and the lower 64 bits of each signature, uint64[n], and the index of the flow
        that each belongs to, int64[n].

    Raises:
        UserError: A flow has more than 65,536 packets, so that its IP IDs would repeat.
    """
    if len(packets) and int(packets.max()) > 1 << 16:
        raise UserError(
            f"a flow of {int(packets.max()):,} packets is too large: IP IDs number 65,536"
        )
    flow = np.repeat(np.arange(len(hi)), packets)
    start = np.cumsum(packets) - packets
    ip_id = (np.arange(len(flow)) - start[flow]).astype(np.uint64)
    above = hi[flow] << np.uint64(16) | lo[flow] >> np.uint64(48)
    return above, lo[flow] << np.uint64(16) | ip_id, flow


class LossRadar:
    """A meter of ``rows`` by ``width`` cells; meters of one seed can be subtracted."""

    def __init__(self, width: int, *, rows: int = 3, seed: int = 0) -> None:
        self.seed = seed
        self.count = np.zeros((rows, width), np.int32)
        self.xor_sum = np.zeros((2, rows, width), np.uint64)

    @property
    def bytes(self) -> float:
        """Return the bytes that the meter takes in a switch, at `CELL_BITS` a cell."""
        return self.count.size * CELL_BITS / 8

    def add(self, hi: WordArray, lo: WordArray) -> None:
        """Count one packet for each signature, given by its upper and lower bits: uint64[n]."""
        _KERNELS.add(hi=hi, lo=lo, count=self.count, xor_sum=self.xor_sum, seed=self.seed)

    def __sub__(self, downstream: LossRadar) -> LossRadar:
        rows, width = self.count.shape
        if downstream.count.shape != (rows, width) or downstream.seed != self.seed:
            raise ValueError("meters of other sizes or hashes cannot be subtracted")
        left = LossRadar(width, rows=rows, seed=self.seed)
        left.count = self.count - downstream.count
        left.xor_sum = self.xor_sum ^ downstream.xor_sum
        return left

    def decode(self) -> tuple[WordArray, WordArray, bool]:
        """Return the decoded signatures (upper and lower bits, uint64[n] each), and whether every
        cell is empty once they are removed."""
        count, xor_sum = self.count.copy(), self.xor_sum.copy()
        packets = np.zeros(count.shape, np.int64)  # LossRadar counts no packets a flow
        hi, lo, _ = peeled(xor_sum, count, packets, self.seed)
        return hi, lo, not (count.any() or xor_sum.any())
