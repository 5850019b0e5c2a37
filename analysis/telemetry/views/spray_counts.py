# SPDX-License-Identifier: Apache-2.0
"""What leaves received of sprayed packets, by the spine that they crossed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.telemetry.views.source import Source
from testbed.arrays import FloatArray, IntArray, LongArray
from testbed.record.run_tables import SPRAY_COUNTS

_COUNTER_BYTES = 8


@dataclass(frozen=True)
class SprayCounts:
    """For each of R ways, from a leaf over a spine to another leaf, the packets
    that came and the share of its pair's packets that was sent that way.

    Attributes:
        src_tor, dst_tor, spine: The switches of each way, int32[R].
        share: Its share, float64[R]; the shares of a pair add up to 1.
        packets: The packets that the receiving leaf counted, int64[R].
    """

    src_tor: IntArray
    dst_tor: IntArray
    spine: IntArray
    share: FloatArray
    packets: LongArray

    @property
    def bytes(self) -> int:
        """Return the bytes of all counters that were read."""
        return _COUNTER_BYTES * len(self.packets)


def spray_counts(source: Source) -> SprayCounts:
    """Return the counts of the record."""
    table = source.record.table(SPRAY_COUNTS.name)
    return SprayCounts(*(np.asarray(table[name]) for name in SprayCounts.__annotations__))
