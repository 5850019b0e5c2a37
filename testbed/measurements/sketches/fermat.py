# SPDX-License-Identifier: Apache-2.0
"""FermatSketch (Yang et al., ChameleMon, SIGCOMM 2023): flows with their lost packets.

A packet adds its flow's ID, modulo a prime, and 1 to one bucket of each row. The sketch is linear:
upstream less downstream holds the flows that lost packets, each as often as it did. A bucket with
one flow holds ID x count, and by Fermat's little theorem 1 / count = count^(p - 2) modulo p.

The 104 bits of an ID are four limbs of 26, each modulo the least prime above 2^26, so that no limb
of an ID is taken for another (with the largest prime below, five of them would be).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.arrays import LongArray, WordArray
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)

BUCKET_BITS = 32 + 104
"""Count and ID (Canary, table I)."""

PRIME = 67_108_879
LIMBS = 4
_P = np.uint64(PRIME)


class FermatSketch:
    """A sketch of ``rows`` by ``width`` buckets; sketches of one seed can be subtracted."""

    def __init__(self, width: int, *, rows: int = 3, seed: int = 0) -> None:
        self.seed = seed
        self.count = np.zeros((rows, width), np.int64)
        self.id_sum = np.zeros((rows, width, LIMBS), np.uint64)

    @property
    def bytes(self) -> float:
        """Return the bytes that the sketch takes in a switch, at `BUCKET_BITS` a bucket."""
        return self.count.size * BUCKET_BITS / 8

    def add(self, hi: WordArray, lo: WordArray, packets: npt.NDArray[np.integer]) -> None:
        """Add ``packets``, int[n], of the flows with IDs ``hi``, ``lo``, uint64[n]; a negative
        number is subtracted."""
        _KERNELS.add(
            hi=hi,
            lo=lo,
            packets=np.ascontiguousarray(packets, np.int64),
            count=self.count,
            id_sum=self.id_sum,
            seed=self.seed,
        )

    def __sub__(self, downstream: FermatSketch) -> FermatSketch:
        rows, width = self.count.shape
        if downstream.count.shape != (rows, width) or downstream.seed != self.seed:
            raise ValueError("sketches of other sizes or hashes cannot be subtracted")
        left = FermatSketch(width, rows=rows, seed=self.seed)
        left.count = self.count - downstream.count
        left.id_sum = (self.id_sum + (_P - downstream.id_sum)) % _P
        return left

    def decode(self) -> tuple[WordArray, WordArray, LongArray, bool]:
        """Return the decoded flows in ascending order (``hi``, ``lo``), the packets of each,
        int64[n], and whether every bucket is empty once they are subtracted.

        A bucket of several flows may by chance (probability 1 / width) look like a bucket of one
        other flow. That flow is decoded a second time with the opposite count when the remaining
        flows are subtracted; its counts add up to 0, and it is left out here.
        """
        count, id_sum = self.count.copy(), self.id_sum.copy()
        room = 4 * count.size  # false extractions cost two each
        hi, lo = np.empty((2, room), np.uint64)
        packets = np.empty(room, np.int64)
        found = _KERNELS.decode(
            count=count,
            id_sum=id_sum,
            seed=self.seed,
            found_hi=hi,
            found_lo=lo,
            found_packets=packets,
            queue=np.empty(room * (len(count) + 1), np.int64),
        )
        hi, lo, packets = hi[:found], lo[:found], packets[:found]
        order = np.lexsort((lo, hi))
        hi, lo, packets = hi[order], lo[order], packets[order]
        new = np.ones(len(hi), np.bool_)
        new[1:] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
        first = np.flatnonzero(new)
        total = np.add.reduceat(packets, first) if len(first) else packets
        kept = total != 0
        empty = not (count.any() or id_sum.any())
        return hi[first][kept], lo[first][kept], total[kept], empty
