# SPDX-License-Identifier: Apache-2.0
"""Hashes of IDs of up to 128 bits, and decoding by peeling; kernels compute them with `hashing.h`.

An ID is two words: ``hi`` and ``lo``, uint64, as in `testbed.record.flow_ids`.
"""

from __future__ import annotations

import numpy as np

from testbed.arrays import IntArray, LongArray, WordArray
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)
_30 = np.uint64(30)

SWITCH = -1
"""In place of a seed: the hash of the switch programs (`p4/include/link.p4`), for up to 3 rows of
at most 65,536 buckets."""


def buckets(hi: WordArray, lo: WordArray, rows: int, width: int, seed: int = 0) -> IntArray:
    """Return the bucket of each ID (uint64[n]) in each row: int32[n, rows], below ``width``."""
    out = np.empty((len(hi), rows), np.int32)
    _KERNELS.write_buckets(hi=hi, lo=lo, width=width, seed=seed, out=out)
    return out


def peeled(
    flow_xor: WordArray,
    flow_count: IntArray,
    packet_count: LongArray,
    seed: int,
    bits: tuple[int, int] = (32, 64),
) -> tuple[WordArray, WordArray, LongArray]:
    """Decode the ID of each cell that holds one flow and remove it from the flow's other cells,
    until no cell holds a single flow.

    Args:
        flow_xor: The exclusive or of the ``hi`` and of the ``lo`` of all IDs in each cell:
            uint64[2, rows, width]. Decoded flows are removed from this array and the next two.
        flow_count: Number of IDs in each cell: int32[rows, width].
        packet_count: Packets of these IDs: int64[rows, width].
        seed: Seed of the hashes.
        bits: The bits of a switch's counters of IDs and of packets. Of 32 and 64 bits they are
            signed; of fewer they are not, and wrap around.

    Returns:
        The ``hi``, uint64[n], ``lo``, uint64[n], and packets, int64[n], of the decoded IDs.
    """
    rows, width = flow_count.shape
    n_cells = rows * width
    found_hi, found_lo = np.empty((2, n_cells), np.uint64)
    found_packets = np.empty(n_cells, np.int64)
    found = _KERNELS.peel(
        rows=rows,
        width=width,
        seed=seed,
        hi_xor=flow_xor[0].reshape(-1),
        lo_xor=flow_xor[1].reshape(-1),
        flow_count=flow_count.reshape(-1),
        flow_mask=-1 if bits[0] == 32 else (1 << bits[0]) - 1,
        packet_count=packet_count.reshape(-1),
        packet_mask=-1 if bits[1] == 64 else (1 << bits[1]) - 1,
        found_hi=found_hi,
        found_lo=found_lo,
        found_packets=found_packets,
        queue=np.empty(n_cells * (rows + 1), np.int64),
    )
    return found_hi[:found], found_lo[:found], found_packets[:found]


def peels(items: int, width: int, *, rows: int = 3, seed: int = 0) -> bool:
    """Return whether a number of items with random hashes, ``items``, can all be decoded by peeling
    from ``rows`` rows of ``width`` buckets."""
    return _KERNELS.peel_all(
        items=items,
        seed=seed,
        degree=np.zeros((rows, width), np.int32),
        members=np.zeros((rows, width), np.int64),
        places=np.empty((items, rows), np.int32),
        queue=np.empty(rows * (items + width), np.int64),
    )


def flow_ids(n: int, rng: np.random.Generator) -> tuple[WordArray, WordArray]:
    """Draw ``n`` different flow IDs of 104 bits; return the upper 40 bits, uint64[n], and the lower
    64, uint64[n]."""
    hi = rng.integers(0, 1 << 40, n, dtype=np.uint64)
    lo = rng.permutation(n).astype(np.uint64) | rng.integers(0, 1 << 40, n, dtype=np.uint64) << _30
    return hi, lo
