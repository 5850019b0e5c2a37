# SPDX-License-Identifier: Apache-2.0
"""HashPipe (Sivaraman et al., SOSR 2017, algorithm 1): the largest flows, in stages of hash tables.

The first stage always takes the packet's flow and evicts the flow that it finds there; each later
stage keeps the larger of the flow it holds and the one evicted from the stage before. A flow may be
in several stages; its count is the sum over them. A packet reads this sum if its flow is already in
the first stage, since it then evicts nothing and the later stages can look up its own flow. The
P4 program has 3 stages of 32 entries, the original 6 (`tests/p4/test_hashpipe.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray, LongArray
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)

ENTRY_BITS = 104 + 32
"""Flow ID and count (Canary, table I)."""


class HashPipe:
    """A HashPipe with ``places.shape[1]`` stages of ``entries`` entries each.

    Args:
        places: The entry of each flow in each stage, int32[flows, stages], all below ``entries``.
        entries: Entries in a stage.

    Attributes:
        flow: The flow in each entry, int64[stages, entries], -1 = none.
        count: The packets of that flow counted in this entry, int64[stages, entries].
    """

    def __init__(self, places: IntArray, entries: int) -> None:
        stages = places.shape[1]
        self.places = np.ascontiguousarray(places, np.int32)
        self.flow = np.full((stages, entries), -1, np.int64)
        self.count = np.zeros((stages, entries), np.int64)

    @property
    def bytes(self) -> float:
        """Return the bytes that all stages take in a switch, at `ENTRY_BITS` an entry."""
        return self.flow.size * ENTRY_BITS / 8

    def add(self, flows: npt.NDArray[np.integer]) -> LongArray:
        """Count one packet for each element of ``flows``, int[packets], in this order.

        Returns:
            The count of its flow that each packet reads, int64[packets]: the sum over all stages
            after the packet, or 1 for a packet whose flow was not in the first stage.
        """
        sequence = np.ascontiguousarray(flows, np.int64)
        learned = np.empty(len(sequence), np.int64)
        _KERNELS.add(
            sequence=sequence,
            places=self.places,
            flow=self.flow,
            count=self.count,
            learned=learned,
        )
        return learned

    def read(self) -> LongArray:
        """Return the packets of each flow, summed over the stages that hold it: int64[flows]."""
        held = self.flow >= 0
        total = np.zeros(len(self.places), np.int64)
        np.add.at(total, self.flow[held], self.count[held])
        return total

    def clear(self) -> None:
        """Empty all stages, as the controller does between two epochs."""
        self.flow[:] = -1
        self.count[:] = 0
