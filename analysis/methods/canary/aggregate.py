"""Segment success probabilities from several epochs (Canary, equation 2 and the n'-of-n filter)."""

from __future__ import annotations

import numpy as np

from analysis.solvers.stages import PathRates
from analysis.telemetry.telemetry import SegmentCounts

__all__ = ["aggregate"]


def aggregate(
    counts: SegmentCounts, *, lossy_share: float = 0.25, noise_floor: float = 1e-4
) -> PathRates:
    """Pool the epochs of each segment and tell loss from noise.

    A segment is lossy if packets were lost in at least ``n' = ceil(lossy_share * n)`` (at least 1)
    of the n epochs that observed it, and the pooled loss rate is at least ``noise_floor``.
    Otherwise its success probability is 1. The paper leaves n and n' open. With 1/4 of the epochs a
    link that drops 1 in 1000 passes on 87-97 % of its segments at 600-1000 packets a segment and
    epoch over 6 epochs (n' = 2), while at a noise of 1e-6 one segment in 20,000 does; the floor, a
    tenth of the least rate the paper localizes, keeps noise out however many packets are counted.
    """
    observed = (counts.sent > 0).sum(axis=0)
    with_loss = (counts.lost > 0).sum(axis=0)
    needed = np.maximum(np.ceil(lossy_share * observed - 1e-9), 1)
    sent, lost = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
    lossy = (with_loss >= needed) & (lost > 0) & (lost >= noise_floor * sent)
    success = np.where(lossy, 1 - lost / np.maximum(sent, 1), 1.0)
    return PathRates(success, sent, lossy)
