# SPDX-License-Identifier: Apache-2.0
"""Segments that should have counted packets by ECMP's share, but counted none.

Canary selects flows by the packets that arrive, so a link that loses every packet from the start is
on no segment that a downstream meter learns of. But ECMP divides flows evenly. Of the segments that
lead up from one monitor, down to one, or from one to another, each is expected to get its share of
their flows. With many flows, it is too improbable that all of them took other segments by chance.
"""

from __future__ import annotations

import numpy as np

from analysis.telemetry.telemetry import SegmentCounts
from testbed.arrays import BoolArray, IntArray
from testbed.fabric.clos import Fabric

CHANCE = 1e-3
"""The probability that a segment of the fabric is called silent although all flows took others by
chance."""


def silent_segments(counts: SegmentCounts, fabric: Fabric) -> BoolArray:
    """Return which segments counted no packet in any epoch although they should have: bool[S]. All
    are False if the number of monitored flows is unknown."""
    segments, paths = counts.segments, counts.segments.paths
    unseen = ~counts.sent.any(axis=0)
    if counts.flows is None or not unseen.any():
        return np.zeros(len(segments), np.bool_)
    rises = fabric.tier[fabric.link_dst[paths.links]] > fabric.tier[fabric.link_src[paths.links]]
    n_up = np.bincount(paths.owner, rises, len(segments))
    n = np.int64(fabric.n_switches + 1)
    # A flow chooses among the segments up from a monitor, down to one, or between two.
    start = np.where(n_up > 0, segments.upstream + 1, 0)
    end = np.where(n_up < paths.length, segments.downstream + 1, 0)
    _, group = np.unique(start * n + end, return_inverse=True)
    group = group.reshape(-1)
    ways = np.bincount(fabric.link_src, fabric.tier[fabric.link_dst] > fabric.tier[fabric.link_src])
    lower = np.where(rises, fabric.link_src[paths.links], fabric.link_dst[paths.links])
    share = np.exp(-np.bincount(paths.owner, np.log(ways[lower]), len(segments)))
    share /= np.bincount(group, share)[group]
    flows = np.bincount(group, counts.flows)[group]
    with np.errstate(divide="ignore", invalid="ignore"):  # no flow, and no other way: 0 times -inf
        return unseen & (flows * np.log1p(-share) < np.log(CHANCE / len(segments))) & (flows > 0)


def silent_links(counts: SegmentCounts, fabric: Fabric) -> IntArray:
    """Return the ids of the links that a silent segment crosses and no segment with packets,
    ascending: int32[]."""
    silent = np.zeros(fabric.n_links, np.bool_)
    paths = counts.segments.paths
    silent[paths.take(np.flatnonzero(silent_segments(counts, fabric))).links] = True
    silent[paths.take(np.flatnonzero(counts.sent.any(axis=0))).links] = False
    return np.flatnonzero(silent).astype(np.int32)
