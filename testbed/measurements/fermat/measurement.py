# SPDX-License-Identifier: Apache-2.0
"""The measurement ``fermat``: FermatSketches at both ends of each link."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from testbed.measurements.link_meters import Cells, LinkMeters, LostPackets
from testbed.measurements.sketches.fermat import BUCKET_BITS, LIMBS, PRIME, FermatSketch
from testbed.measurements.sketches.hashing import SWITCH

_LIMBS = tuple(f"id{limb}" for limb in range(LIMBS))


class FermatMeters(LinkMeters):
    """The flows that lost packets on each link, and how many, as FermatSketch decodes them.

    ChameleMon has its sketches at the edge of a network and learns of a flow's losses on its whole
    path. Here they are at both ends of each link, as in the Canary paper's comparison (its table
    II), so that losses have a place.
    """

    name = "fermat"
    view = "fermat"
    help = "FermatSketches at both ends of each link"
    program = Path(__file__).parent / "build" / "canary.json"
    fields = ("count", *_LIMBS)
    cell_bits = BUCKET_BITS

    def decode(self, sent: Cells, arrived: Cells) -> LostPackets:
        """Return the lost packets of each flow that can be decoded from the difference."""
        sketch = FermatSketch(sent["count"].shape[1], seed=SWITCH)
        sketch.count = sent["count"].astype(np.int64) - arrived["count"].astype(np.int64)
        up, down = (np.stack([end[name] for name in _LIMBS], -1) for end in (sent, arrived))
        sketch.id_sum = (up.astype(np.uint64) + np.uint64(PRIME) - down) % np.uint64(PRIME)
        hi, lo, packets, _ = sketch.decode()
        right = packets > 0  # a wrong one may be negative, where not all could be decoded
        return LostPackets(hi[right], lo[right], packets[right])
