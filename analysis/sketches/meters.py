"""Canary's meters (section III-C) at any width: a bucket belongs to the first flow that comes, and
is dirty once another one does; it counts all of them.

Both ends of a segment have the same hashes, so a flow whose bucket is clean at both ends tells what
it lost exactly (algorithm 3). The P4 program's meters are these with 1,024 buckets a row
(`tests/p4/test_meter_model.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, IntArray, LongArray
from testbed.compiled import kernel

USM_BUCKET_BITS = 1 + 104 + 32
"""dirtyFlag, flowID, count (Canary, section IV-A)."""
DSM_BUCKET_BITS = USM_BUCKET_BITS + 32
"""The same and pathBF."""


class FlowMeter:
    """A meter of ``rows`` by ``width`` buckets; flows are numbers, in the DSM numbers of a flow on
    its path.

    Args:
        places: The bucket of each flow in each row, int32[flows, rows], all below ``width``.
        width: Buckets a row.

    Attributes:
        owner: The flow of each bucket, int64[rows, width], -1 = empty.
        count, dirty: Its packets, int64[rows, width], and whether they are of several flows.
    """

    def __init__(self, places: IntArray, width: int) -> None:
        rows = places.shape[1]
        self.places = np.ascontiguousarray(places, np.int32)
        self.owner = np.full((rows, width), -1, np.int64)
        self.count = np.zeros((rows, width), np.int64)
        self.dirty = np.zeros((rows, width), np.bool_)

    def add(self, flows: npt.NDArray[np.integer], packets: npt.NDArray[np.integer]) -> None:
        """Count ``packets`` of each of ``flows``, flows in the order of their first packet."""
        counted = np.ascontiguousarray(packets, np.int64)
        state = (self.owner, self.count, self.dirty)
        _add(np.ascontiguousarray(flows, np.int64), counted, self.places, *state)

    def read(self) -> tuple[LongArray, BoolArray]:
        """Packets of each flow, int64[flows], and whether a clean bucket says so, bool[flows]; 0
        and False where none does."""
        rows = np.arange(self.places.shape[1])
        own = self.owner[rows, self.places] == np.arange(len(self.places))[:, None]
        clean = own & ~self.dirty[rows, self.places]
        count = np.where(clean, self.count[rows, self.places], 0).max(axis=1, initial=0)
        return count, clean.any(axis=1)


def minus(upstream: FlowMeter, downstream: FlowMeter) -> tuple[LongArray, LongArray, BoolArray]:
    """Packets sent and lost of each flow, int64[flows], and whether it is known, bool[flows].

    A flow that is clean upstream and whose bucket downstream, in the same row, is empty has lost
    all its packets.
    """
    sent, known = upstream.read()
    arrived, seen = downstream.read()
    rows = np.arange(upstream.places.shape[1])
    here = upstream.owner[rows, upstream.places] == np.arange(len(sent))[:, None]
    clean = here & ~upstream.dirty[rows, upstream.places]
    gone = (clean & (downstream.owner[rows, downstream.places] < 0)).any(axis=1)
    both = known & (seen | gone)
    return np.where(both, sent, 0), np.where(both, sent - arrived, 0), both


@kernel
def _add(flows, packets, places, owner, count, dirty):
    for n in range(len(flows)):
        flow = flows[n]
        if packets[n] <= 0:
            continue
        for row in range(places.shape[1]):
            at = places[flow, row]
            if owner[row, at] < 0:
                owner[row, at] = flow
            elif owner[row, at] != flow:
                dirty[row, at] = True
            count[row, at] += packets[n]
