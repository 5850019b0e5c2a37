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

from analysis.sketches.hashing import bucket
from testbed.arrays import LongArray, WordArray
from testbed.compiled import kernel, njit

BUCKET_BITS = 32 + 104
"""Count and ID (Canary, table I)."""

PRIME = 67_108_879
LIMBS, LIMB_BITS = 4, 26
_P, _ONE = np.uint64(PRIME), np.uint64(1)
_MASK = np.uint64((1 << LIMB_BITS) - 1)


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
        _add(hi, lo, np.ascontiguousarray(packets, np.int64), self.count, self.id_sum, self.seed)

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
        hi, lo, packets = _decode(count, id_sum, self.seed)
        order = np.lexsort((lo, hi))
        hi, lo, packets = hi[order], lo[order], packets[order]
        new = np.ones(len(hi), np.bool_)
        new[1:] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
        first = np.flatnonzero(new)
        total = np.add.reduceat(packets, first) if len(first) else packets
        kept = total != 0
        empty = not (count.any() or id_sum.any())
        return hi[first][kept], lo[first][kept], total[kept], empty


@kernel
def _limb(hi, lo, limb):
    """Return one limb of an ID, 26 bits; limb 0 holds the lowest."""
    if limb == 0:
        return lo & _MASK
    if limb == 1:
        return (lo >> np.uint64(26)) & _MASK
    if limb == 2:
        return ((lo >> np.uint64(52)) | (hi << np.uint64(12))) & _MASK
    return (hi >> np.uint64(14)) & _MASK


@kernel
def _residue(count):
    """Return a count, which may be negative, modulo the prime: uint64 in [0, PRIME)."""
    return np.uint64(count % PRIME)


@kernel
def _inverse(x):
    """Return x^(p - 2), which is 1 / x modulo the prime p (Fermat's little theorem)."""
    result, exponent = _ONE, _P - np.uint64(2)
    while exponent:
        if exponent & _ONE:
            result = result * x % _P
        x = x * x % _P
        exponent >>= _ONE
    return result


@njit
def _add(hi, lo, packets, count, id_sum, seed):
    rows, width = count.shape
    for n in range(len(hi)):
        times = _residue(packets[n])
        for row in range(rows):
            at = bucket(hi[n], lo[n], row, width, seed)
            count[row, at] += packets[n]
            for limb in range(LIMBS):
                product = _limb(hi[n], lo[n], limb) * times % _P
                id_sum[row, at, limb] = (id_sum[row, at, limb] + product) % _P


@kernel
def _candidate(count, id_sum, row, at, limbs):
    """Return whether a bucket can hold a single flow, and the ``hi`` and ``lo`` of that flow.

    ``limbs``, uint64[LIMBS], is overwritten.
    """
    over = _inverse(_residue(count[row, at]))
    for limb in range(LIMBS):
        limbs[limb] = id_sum[row, at, limb] * over % _P
        if limbs[limb] > _MASK:
            return False, np.uint64(0), np.uint64(0)
    lo = limbs[0] | limbs[1] << np.uint64(26) | limbs[2] << np.uint64(52)
    return True, limbs[2] >> np.uint64(12) | limbs[3] << np.uint64(14), lo


@njit
def _decode(count, id_sum, seed):
    rows, width = count.shape
    most = 4 * rows * width  # false extractions cost two each
    found_hi, found_lo = np.empty((2, most), np.uint64)
    found_packets = np.empty(most, np.int64)
    queue = np.empty(most * (rows + 1), np.int64)
    limbs = np.empty(LIMBS, np.uint64)
    end = found = begin = 0
    for cell in range(rows * width):
        if count[cell // width, cell % width] % PRIME:
            queue[end] = cell
            end += 1
    while begin < end and found < most:
        row, at = queue[begin] // width, queue[begin] % width
        begin += 1
        packets = count[row, at]
        if packets % PRIME == 0:
            continue
        possible, hi, lo = _candidate(count, id_sum, row, at, limbs)
        if not possible or bucket(hi, lo, row, width, seed) != at:
            continue
        found_hi[found], found_lo[found], found_packets[found] = hi, lo, packets
        found += 1
        less = _residue(-packets)
        for other in range(rows):
            there = bucket(hi, lo, other, width, seed)
            count[other, there] -= packets
            for limb in range(LIMBS):
                product = _limb(hi, lo, limb) * less % _P
                id_sum[other, there, limb] = (id_sum[other, there, limb] + product) % _P
            if count[other, there] % PRIME and end < len(queue):
                queue[end] = other * width + there
                end += 1
    return found_hi[:found], found_lo[:found], found_packets[:found]
