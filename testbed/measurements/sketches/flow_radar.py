# SPDX-License-Identifier: Apache-2.0
"""FlowRadar (Li, Miao, Kim, Yu, NSDI 2016): every flow with its packets, in an invertible table.

A packet of a flow that the flow filter (a Bloom filter) has not seen adds the flow's ID and 1 to
one cell of each row; every packet counts in these cells. A cell with one flow gives it away, and
once that is taken out of its other cells, these may have one flow left (SingleDecode).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.arrays import LongArray, WordArray
from testbed.kernels import Kernels
from testbed.measurements.sketches.hashing import peeled

_KERNELS = Kernels.beside(__file__)

CELL_BITS = 104 + 8 + 32
"""FlowXOR, FlowCount, PacketCount (Canary, table I)."""

FILTER_BITS_A_CELL = 16
"""The filter takes 1/9 of the counting table's memory (Canary, section IV-B)."""


class FlowRadar:
    """A counting table of ``rows`` by ``width`` cells with its flow filter.

    Args:
        width: Cells in a row.
        rows: Rows of the table; each has a hash of its own.
        filter_hashes: Hashes of the filter; the paper gives no number, ChameleMon's version has 10.
        seed: Seed of the hashes; both ends of a link use the same one.
    """

    def __init__(
        self, width: int, *, rows: int = 3, filter_hashes: int = 10, seed: int = 0
    ) -> None:
        self.seed, self.filter_hashes = seed, filter_hashes
        self.flow_xor = np.zeros((2, rows, width), np.uint64)
        self.flow_count = np.zeros((rows, width), np.uint8)
        self.packet_count = np.zeros((rows, width), np.uint32)
        self.filter = np.zeros(FILTER_BITS_A_CELL * rows * width, np.bool_)

    @property
    def bytes(self) -> float:
        """Return the bytes that the counting table and the flow filter take in a switch."""
        return (self.flow_count.size * CELL_BITS + len(self.filter)) / 8

    def add(self, hi: WordArray, lo: WordArray, packets: npt.NDArray[np.integer]) -> None:
        """Count ``packets``, int[n], of the flows ``hi``, ``lo``, uint64[n], which are given in the
        order of their first packets.

        The order of all later packets makes no difference: add([f, g], [2, 1]) counts the packets
        f, g, f.
        """
        counted = np.ascontiguousarray(packets, np.uint32)
        _KERNELS.add(
            hi=hi,
            lo=lo,
            packets=counted,
            flow_xor=self.flow_xor,
            flow_count=self.flow_count,
            packet_count=self.packet_count,
            seen=self.filter,
            hashes=self.filter_hashes,
            seed=self.seed,
        )

    def decode(self) -> tuple[WordArray, WordArray, LongArray, bool]:
        """Return the decoded flows (``hi``, ``lo``), the packets of each, int64[n], and whether the
        table is empty once they are removed.

        The table is not empty where every cell left holds several flows. A flow that the filter
        took for an earlier one is in no FlowXOR: it is not decoded, and its packets are counted for
        other flows.
        """
        flow_xor, flow_count = self.flow_xor.copy(), self.flow_count.astype(np.int32)
        packet_count = self.packet_count.astype(np.int64)
        hi, lo, packets = peeled(flow_xor, flow_count, packet_count, self.seed, bits=(8, 32))
        return hi, lo, packets, not (flow_count.any() or flow_xor.any())
