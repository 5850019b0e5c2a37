"""Segment success probabilities from several epochs (Canary, equation 2 and the n'-of-n filter)."""

from __future__ import annotations

import numpy as np

from analysis.solvers.stages import PathRates
from analysis.telemetry.telemetry import SegmentCounts


def aggregate(counts: SegmentCounts, *, lossy_share: float) -> PathRates:
    """Pool the epochs of each segment and tell loss from noise.

    A segment is lossy if packets were lost in at least ``n' = ceil(lossy_share * n)`` (at least 1)
    of the n epochs that observed it. Otherwise its success probability is 1. The paper leaves n and
    n' open: many epochs keep noise out, few let links of low rates in. At 600-1000 packets a
    segment and epoch a link that drops 1 in 1000 loses some in half of the epochs.
    """
    observed = (counts.sent > 0).sum(axis=0)
    with_loss = (counts.lost > 0).sum(axis=0)
    needed = np.maximum(np.ceil(lossy_share * observed - 1e-9), 1)
    sent, lost = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
    lossy = (with_loss >= needed) & (lost > 0)
    success = np.where(lossy, 1 - lost / np.maximum(sent, 1), 1.0)
    return PathRates(success, sent, lossy)
