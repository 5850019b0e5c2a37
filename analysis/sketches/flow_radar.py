# SPDX-License-Identifier: Apache-2.0
"""FlowRadar (Li, Miao, Kim, Yu, NSDI 2016): every flow with its packets, in an invertible table.

A packet of a flow that the flow filter (a Bloom filter) has not seen adds the flow's ID and 1 to
one cell of each row; every packet counts in these cells. A cell with one flow gives it away, and
once that is taken out of its other cells, these may have one flow left (SingleDecode).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analysis.sketches.hashing import bucket, peeled
from testbed.arrays import LongArray, WordArray
from testbed.compiled import njit

CELL_BITS = 104 + 8 + 32
"""FlowXOR, FlowCount, PacketCount (Canary, table I)."""

FILTER_BITS_A_CELL = 16
"""The filter takes 1/9 of the counting table's memory (Canary, section IV-B)."""

_FILTER_ROW = 1000
"""The filter's hashes are numbered from here, apart from the table's."""


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
        state = (self.flow_xor, self.flow_count, self.packet_count, self.filter)
        _add(hi, lo, counted, *state, self.filter_hashes, self.seed)

    def decode(self) -> tuple[WordArray, WordArray, LongArray, bool]:
        """Return the decoded flows (``hi``, ``lo``), the packets of each, int64[n], and whether the
        table is empty once they are removed.

        The table is not empty where every cell left holds several flows. A flow that the filter
        took for an earlier one is in no FlowXOR: it is not decoded, and its packets are counted for
        other flows.
        """
        table = (self.flow_xor.copy(), self.flow_count.copy(), self.packet_count.copy())
        hi, lo, packets = peeled(*table, self.seed)
        flow_xor, flow_count, _ = table
        return hi, lo, packets, not (flow_count.any() or flow_xor.any())


@njit
def _add(hi, lo, packets, flow_xor, flow_count, packet_count, seen, hashes, seed):
    rows, width = flow_count.shape
    for n in range(len(hi)):
        new = False
        for h in range(hashes):
            at = bucket(hi[n], lo[n], _FILTER_ROW + h, len(seen), seed)
            if not seen[at]:
                new = True
                seen[at] = True
        for row in range(rows):
            at = bucket(hi[n], lo[n], row, width, seed)
            if new:
                flow_xor[0, row, at] ^= hi[n]
                flow_xor[1, row, at] ^= lo[n]
                flow_count[row, at] += np.uint8(1)
            packet_count[row, at] += packets[n]
