"""Hashes of IDs of up to 128 bits, in compiled code and as arrays.

An ID is two words: ``hi`` and ``lo``, uint64, as in `analysis.telemetry.minus_meters.MeterDump`.
"""

from __future__ import annotations

import numpy as np

from testbed.arrays import IntArray, WordArray
from testbed.compiled import kernel

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
    """The bucket of an ID in a row of ``width``; rows and seeds are independent of each other."""
    start = _mixed((np.uint64(seed) << _32) + np.uint64(row) + _GOLDEN)
    x = _mixed(_mixed(lo ^ start) + hi * _GOLDEN)
    return np.int64(((x >> _32) * np.uint64(width)) >> _32)


@kernel
def _buckets(hi, lo, width, seed, out):
    for n in range(len(hi)):
        for row in range(out.shape[1]):
            out[n, row] = bucket(hi[n], lo[n], row, width, seed)


def buckets(hi: WordArray, lo: WordArray, rows: int, width: int, seed: int = 0) -> IntArray:
    """The bucket of each ID in each row: int32[n, rows]."""
    out = np.empty((len(hi), rows), np.int32)
    _buckets(hi, lo, width, seed, out)
    return out


def flow_ids(n: int, rng: np.random.Generator) -> tuple[WordArray, WordArray]:
    """``n`` different flow IDs of 104 bits, drawn at random: 40 bits above 64."""
    hi = rng.integers(0, 1 << 40, n, dtype=np.uint64)
    lo = rng.permutation(n).astype(np.uint64) | rng.integers(0, 1 << 40, n, dtype=np.uint64) << _30
    return hi, lo
