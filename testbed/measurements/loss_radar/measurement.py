# SPDX-License-Identifier: Apache-2.0
"""The measurement ``loss_radar``: LossRadar's meters at both ends of each link."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from testbed.arrays import WordArray
from testbed.measurements.link_meters import Cells, LinkMeters, LostPackets
from testbed.measurements.sketches.hashing import SWITCH
from testbed.measurements.sketches.loss_radar import CELL_BITS, LossRadar

_HALF = 60
"""Bits of a half of a signature, as ``measurement.p4`` stores it."""


class LossRadarMeters(LinkMeters):
    """The lost packets of each link, as LossRadar decodes them.

    A flow of more than 65,536 packets an epoch repeats its IP IDs, and so does traffic whose frames
    are all alike; two lost packets with one IP ID cancel each other and are counted, not decoded.
    """

    name = "loss_radar"
    view = "loss_radar"
    help = "LossRadar's meters at both ends of each link"
    program = Path(__file__).parent / "build" / "canary.json"
    fields = ("xor_hi", "xor_lo", "count")
    cell_bits = CELL_BITS

    def decode(self, sent: Cells, arrived: Cells) -> LostPackets:
        """Return the lost packets of each flow that can be decoded from the difference."""
        meter = LossRadar(sent["count"].shape[1], seed=SWITCH)
        meter.count = sent["count"].astype(np.int32) - arrived["count"].astype(np.int32)
        upper, lower = (np.asarray(sent[f] ^ arrived[f], np.uint64) for f in self.fields[:2])
        meter.xor_sum = np.stack(_words(upper, lower))
        above, below, _ = meter.decode()
        hi, lo = above >> np.uint64(16), above << np.uint64(48) | below >> np.uint64(16)
        ids, packets = np.unique(np.stack((hi, lo)), axis=1, return_counts=True)
        return LostPackets(ids[0], ids[1], packets.astype(np.int64))


def _words(upper: WordArray, lower: WordArray) -> tuple[WordArray, WordArray]:
    """Return the upper 56 and the lower 64 bits of signatures in two halves of 60 bits."""
    return upper >> np.uint64(64 - _HALF), upper << np.uint64(_HALF) | lower
