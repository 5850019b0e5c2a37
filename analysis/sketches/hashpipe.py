"""HashPipe (Sivaraman et al., SOSR 2017, algorithm 1): the largest flows, in stages of hash tables.

The first stage always takes the packet's flow and pushes out what it finds there; each later stage
keeps the larger of what it holds and what is pushed to it. A flow may be in several stages: its
count is their sum. A packet learns it if its flow is in the first stage, so that it pushes nothing
out and the later stages can be asked for its own flow. The P4 program's has 3 stages of 32 entries,
the original one 6 (`tests/p4/test_hashpipe.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray, LongArray
from testbed.compiled import kernel

ENTRY_BITS = 104 + 32
"""Flow ID and count (Canary, table I)."""


class HashPipe:
    """``places.shape[1]`` stages of ``entries``.

    Args:
        places: The entry of each flow in each stage, int32[flows, stages], all below ``entries``.
        entries: Entries of a stage.

    Attributes:
        flow: The flow in each entry, int64[stages, entries], -1 = none.
        count: Its packets there, int64[stages, entries].
    """

    def __init__(self, places: IntArray, entries: int) -> None:
        stages = places.shape[1]
        self.places = np.ascontiguousarray(places, np.int32)
        self.flow = np.full((stages, entries), -1, np.int64)
        self.count = np.zeros((stages, entries), np.int64)

    @property
    def bytes(self) -> float:
        return self.flow.size * ENTRY_BITS / 8

    def add(self, flows: npt.NDArray[np.integer]) -> LongArray:
        """Count a packet of each of ``flows``, in this order.

        Returns:
            The count that each packet learns of its flow, int64[packets]: what all stages then
            hold of it, or 1 for a packet whose flow was not in the first stage.
        """
        sequence = np.ascontiguousarray(flows, np.int64)
        learned = np.empty(len(sequence), np.int64)
        _add(sequence, self.places, self.flow, self.count, learned)
        return learned

    def read(self) -> LongArray:
        """The packets of each flow that the stages hold, int64[flows]."""
        held = self.flow >= 0
        total = np.zeros(len(self.places), np.int64)
        np.add.at(total, self.flow[held], self.count[held])
        return total

    def clear(self) -> None:
        """Forget everything."""
        self.flow[:] = -1
        self.count[:] = 0


@kernel
def _add(sequence, places, flow, count, learned):
    for n in range(len(sequence)):
        key = sequence[n]
        at = places[key, 0]
        if flow[0, at] == key:
            count[0, at] += 1
            learned[n] = count[0, at]
            for stage in range(1, places.shape[1]):
                at = places[key, stage]
                if flow[stage, at] == key:
                    learned[n] += count[stage, at]
            continue
        carried, packets = flow[0, at], count[0, at]
        flow[0, at], count[0, at], learned[n] = key, 1, 1
        for stage in range(1, places.shape[1]):
            if carried < 0:
                break
            at = places[carried, stage]
            if flow[stage, at] == carried:
                count[stage, at] += packets
                break
            if count[stage, at] < packets:
                out, out_packets = flow[stage, at], count[stage, at]
                flow[stage, at], count[stage, at] = carried, packets
                carried, packets = out, out_packets
