# SPDX-License-Identifier: Apache-2.0
"""Canary's meters (section III-C) at any width.

A bucket belongs to the first flow that is hashed to it, and becomes dirty when another flow is; it
counts the packets of all of them. Both ends of a segment use the same hashes, so that the loss of a
flow whose bucket is clean at both ends is known exactly (algorithm 3). The P4 program's meters are
these with 1,024 buckets a row (`tests/p4/test_meter_model.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, IntArray, LongArray
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)

USM_BUCKET_BITS = 1 + 104 + 32
"""dirtyFlag, flowID, count (Canary, section IV-A)."""
DSM_BUCKET_BITS = USM_BUCKET_BITS + 32
"""The fields of a USM bucket, and a pathBF of 32 bits."""


class FlowMeter:
    """A meter of ``rows`` by ``width`` buckets.

    Flows are numbers from 0. In a downstream meter a number stands for a flow on one of its paths.

    Args:
        places: The bucket of each flow in each row, int32[flows, rows], all below ``width``.
        width: Buckets in a row.

    Attributes:
        owner: The first flow in each bucket, int64[rows, width], -1 = the bucket is empty.
        count: Packets counted in each bucket, int64[rows, width].
        dirty: Whether these are of several flows, bool[rows, width].
    """

    def __init__(self, places: IntArray, width: int) -> None:
        rows = places.shape[1]
        self.places = np.ascontiguousarray(places, np.int32)
        self.owner = np.full((rows, width), -1, np.int64)
        self.count = np.zeros((rows, width), np.int64)
        self.dirty = np.zeros((rows, width), np.bool_)

    def add(self, flows: npt.NDArray[np.integer], packets: npt.NDArray[np.integer]) -> None:
        """Count ``packets``, int[n], of ``flows``, int[n], which are given in the order of their
        first packets."""
        _KERNELS.add(
            flows=np.ascontiguousarray(flows, np.int64),
            packets=np.ascontiguousarray(packets, np.int64),
            places=self.places,
            owner=self.owner,
            count=self.count,
            dirty=self.dirty,
        )

    def read(self) -> tuple[LongArray, BoolArray]:
        """Return the packets of each flow, int64[flows], and whether a clean bucket holds them,
        bool[flows]; a flow without a clean bucket has 0 and False."""
        rows = np.arange(self.places.shape[1])
        own = self.owner[rows, self.places] == np.arange(len(self.places))[:, None]
        clean = own & ~self.dirty[rows, self.places]
        count = np.where(clean, self.count[rows, self.places], 0).max(axis=1, initial=0)
        return count, clean.any(axis=1)


def minus(upstream: FlowMeter, downstream: FlowMeter) -> tuple[LongArray, LongArray, BoolArray]:
    """Return the packets that each flow sent and lost, int64[flows] each, and whether these are
    known, bool[flows] (Canary, algorithm 3).

    A flow with a clean bucket upstream whose bucket downstream, in the same row, is empty has lost
    all its packets.
    """
    sent, known = upstream.read()
    arrived, known_below = downstream.read()
    rows = np.arange(upstream.places.shape[1])
    here = upstream.owner[rows, upstream.places] == np.arange(len(sent))[:, None]
    clean = here & ~upstream.dirty[rows, upstream.places]
    gone = (clean & (downstream.owner[rows, downstream.places] < 0)).any(axis=1)
    both = known & (known_below | gone)
    return np.where(both, sent, 0), np.where(both, sent - arrived, 0), both
