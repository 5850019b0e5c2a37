# SPDX-License-Identifier: Apache-2.0
"""Hashes of IDs of up to 128 bits, in compiled code and as arrays.

An ID is two words: ``hi`` and ``lo``, uint64, as in `analysis.telemetry.minus_meters.MeterDump`.
"""

from __future__ import annotations

import numpy as np

from testbed.arrays import IntArray, WordArray
from testbed.compiled import kernel, njit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32 = (np.uint64(n) for n in (27, 30, 31, 32))


@kernel
def _mixed(x):
    """The finaliser of SplitMix64: each bit of x changes half of the bits."""
    x = (x ^ (x >> _30)) * _A
    x = (x ^ (x >> _27)) * _B
    return x ^ (x >> _31)


@kernel
def bucket(hi, lo, row, width, seed):
    """Return the bucket, 0 to ``width`` - 1, of an ID in a row; the hashes of any two rows or seeds
    are independent."""
    start = _mixed((np.uint64(seed) << _32) + np.uint64(row) + _GOLDEN)
    x = _mixed(_mixed(lo ^ start) + hi * _GOLDEN)
    return np.int64(((x >> _32) * np.uint64(width)) >> _32)


@kernel
def _buckets(hi, lo, width, seed, out):
    for n in range(len(hi)):
        for row in range(out.shape[1]):
            out[n, row] = bucket(hi[n], lo[n], row, width, seed)


def buckets(hi: WordArray, lo: WordArray, rows: int, width: int, seed: int = 0) -> IntArray:
    """Return the bucket of each ID (uint64[n]) in each row: int32[n, rows], below ``width``."""
    out = np.empty((len(hi), rows), np.int32)
    _buckets(hi, lo, width, seed, out)
    return out


@njit
def peeled(flow_xor, flow_count, packet_count, seed):
    """Decode the ID of each cell that holds one flow and remove it from the flow's other cells,
    until no cell holds a single flow.

    Args:
        flow_xor: The exclusive or of the ``hi`` and of the ``lo`` of all IDs in each cell:
            uint64[2, rows, width]. Decoded flows are removed from this array and the next two.
        flow_count: Number of IDs in each cell: int[rows, width].
        packet_count: Packets of these IDs: int[rows, width].
        seed: Seed of the hashes.

    Returns:
        The ``hi``, uint64[n], ``lo``, uint64[n], and packets, int64[n], of the decoded IDs.
    """
    rows, width = flow_count.shape
    found_hi, found_lo = np.empty((2, rows * width), np.uint64)
    found_packets = np.empty(rows * width, np.int64)
    queue = np.empty(rows * width * (rows + 1), np.int64)
    end = found = 0
    for cell in range(rows * width):
        if flow_count[cell // width, cell % width] == 1:
            queue[end] = cell
            end += 1
    begin = 0
    while begin < end:
        row, at = queue[begin] // width, queue[begin] % width
        begin += 1
        if flow_count[row, at] != 1:
            continue
        hi, lo = flow_xor[0, row, at], flow_xor[1, row, at]
        # A count of 8 bits wraps at 256: of 257 flows, too, it says 1.
        if bucket(hi, lo, row, width, seed) != at or found == len(found_hi):
            continue
        packets = packet_count[row, at]
        found_hi[found], found_lo[found], found_packets[found] = hi, lo, packets
        found += 1
        for other in range(rows):
            there = bucket(hi, lo, other, width, seed)
            flow_xor[0, other, there] ^= hi
            flow_xor[1, other, there] ^= lo
            flow_count[other, there] -= 1
            packet_count[other, there] -= packets
            if flow_count[other, there] == 1 and end < len(queue):
                queue[end] = other * width + there
                end += 1
    return found_hi[:found], found_lo[:found], found_packets[:found]


def flow_ids(n: int, rng: np.random.Generator) -> tuple[WordArray, WordArray]:
    """Draw ``n`` different flow IDs of 104 bits; return the upper 40 bits, uint64[n], and the lower
    64, uint64[n]."""
    hi = rng.integers(0, 1 << 40, n, dtype=np.uint64)
    lo = rng.permutation(n).astype(np.uint64) | rng.integers(0, 1 << 40, n, dtype=np.uint64) << _30
    return hi, lo
