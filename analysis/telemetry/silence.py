# SPDX-License-Identifier: Apache-2.0
"""Segments that should have counted packets or flows by ECMP's share, but counted none or few.

Canary selects flows by the packets that arrive, so a link that loses every packet from the start is
on no segment that a downstream meter learns of. But ECMP divides flows evenly. Of the segments that
lead up from one monitor, down to one, or from one to another, each is expected to get its share of
their flows. With many flows, it is too improbable that all of them took other segments by chance.

**Silent in part.** A black hole that takes some flows from the start loses no packet that is
counted, either: its flows never arrive and are never selected. Only the number of flows shows it,
and only where the controller asked for more flows than came; a segment that met its targets was not
asked. There its flows with rules are all the large flows that arrive, while other segments may have
more than were selected. So the share of all selected flows is at most what is expected on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.telemetry.telemetry import SegmentCounts
from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.segments import Segments, segment_share

CHANCE = 1e-3
"""The probability that a segment or link of the fabric is called silent although its flows took
other ways by chance."""


@dataclass(frozen=True)
class Scarce:
    """Links whose segments count far fewer flows than ECMP sends over them, the clearest first.

    Attributes:
        links: Their ids, int32[N].
        share: The counted share of the expected flows, float64[N], above 0.
        evidence: The logarithm of the odds that as few flows came by chance, float64[N] in nats.
    """

    links: IntArray
    share: FloatArray
    evidence: FloatArray


def silent_segments(counts: SegmentCounts, fabric: Fabric) -> BoolArray:
    """Return which segments counted no packet in any epoch although they should have: bool[S]. All
    are False if the number of monitored flows is unknown."""
    unseen = ~counts.sent.any(axis=0)
    if counts.flows is None or not unseen.any():
        return np.zeros(len(counts.segments), np.bool_)
    group, share = _ecmp_shares(counts.segments, fabric)
    flows = np.bincount(group, counts.flows)[group]
    with np.errstate(divide="ignore", invalid="ignore"):  # no flow, and no other way: 0 times -inf
        few = flows * np.log1p(-share) < np.log(CHANCE / len(counts.segments))
        return unseen & few & (flows > 0)


def silent_links(counts: SegmentCounts, fabric: Fabric) -> IntArray:
    """Return the ids of the links that a silent segment crosses and no segment with packets,
    ascending: int32[]."""
    silent = np.zeros(fabric.n_links, np.bool_)
    paths = counts.segments.paths
    silent[paths.take(np.flatnonzero(silent_segments(counts, fabric))).links] = True
    silent[paths.take(np.flatnonzero(counts.sent.any(axis=0))).links] = False
    return np.flatnonzero(silent).astype(np.int32)


def scarce_links(counts: SegmentCounts, fabric: Fabric) -> Scarce:
    """Return the links that are silent in part; none if the selection of flows is unknown.

    The flows of a group of segments are divided at random, so the number on any of them exceeds no
    Poisson variable's deviation (Chernoff's bound for sums of negatively associated indicators):
    that x or fewer of e come has a probability of at most exp(-(x ln(x / e) - x + e)). Links are
    taken in the order of that exponent, each with all its segments, as long as it is clear.
    """
    rules, short = counts.rules, counts.short
    if rules is None or short is None or not short.any():
        return Scarce(np.zeros(0, np.int32), np.zeros(0), np.zeros(0))
    paths, n_segments = counts.segments.paths, len(counts.segments)
    group, share = _ecmp_shares(counts.segments, fabric)
    last = len(short) - 1 - np.argmax(short[::-1], axis=0)  # the last epoch in which too few came
    of_group = np.stack([np.bincount(group, each)[group] for each in rules])
    segment = np.arange(n_segments)
    came, expected = (
        np.where(short.any(axis=0), each[last, segment], 0.0) for each in (rules, of_group * share)
    )
    found: list[tuple[int, float, float]] = []
    while True:
        here, mean = (
            np.bincount(paths.links, each[paths.owner], fabric.n_links) for each in (came, expected)
        )
        fewer = (here > 0) & (here < mean)
        x, e = np.where(fewer, here, 1.0), np.where(fewer, mean, 1.0)
        evidence = x * np.log(x / e) - x + e
        link = int(np.argmax(evidence))
        if not evidence[link] > np.log(fabric.n_links / CHANCE):
            break
        found.append((link, float(x[link] / e[link]), float(evidence[link])))
        over = paths.owner[paths.links == link]
        came[over] = expected[over] = 0.0
    links, shares, nats = (np.array([each[i] for each in found]) for i in range(3))
    return Scarce(links.astype(np.int32), shares.astype(float), nats.astype(float))


def _ecmp_shares(segments: Segments, fabric: Fabric) -> tuple[LongArray, FloatArray]:
    """Return for each segment the number of its group, between whose segments a flow's ECMP paths
    choose, and the share of the group's flows that it is expected to get: int64[S], float64[S]."""
    paths = segments.paths
    rises = fabric.tier[fabric.link_dst[paths.links]] > fabric.tier[fabric.link_src[paths.links]]
    n_up = np.bincount(paths.owner, rises, len(segments))
    n = np.int64(fabric.n_switches + 1)
    # A flow chooses among the segments up from a monitor, down to one, or between two.
    start = np.where(n_up > 0, segments.upstream + 1, 0)
    end = np.where(n_up < paths.length, segments.downstream + 1, 0)
    _, group = np.unique(start * n + end, return_inverse=True)
    group = group.reshape(-1).astype(np.int64)
    ways = np.bincount(fabric.link_src[::2], minlength=fabric.n_switches)
    below = fabric.tier < fabric.tier.max()
    if len(np.unique(np.stack((fabric.tier, ways))[:, below], axis=1)[0]) == fabric.tier.max():
        lower = np.where(rises, fabric.link_src[paths.links], fabric.link_dst[paths.links])
        share = np.exp(-np.bincount(paths.owner, np.log(ways[lower]), len(segments)))
    else:  # uplinks lead to different ToRs: what crosses each if all pairs of ToRs send alike
        pairs = 1.0 - np.eye(fabric.n_tors)
        share = segment_share(Ecmp(fabric), pairs / pairs.sum(), segments)
    whole = np.bincount(group, share)[group]
    return group, np.divide(share, whole, out=np.zeros_like(share), where=whole > 0)
