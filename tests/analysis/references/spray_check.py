# SPDX-License-Identifier: Apache-2.0
"""SprayCheck (arXiv 2605.03702), as this project derived it from its public description.

The paper's text was not at hand. This is written from the docstrings of the method, with loops over
ways and links: it holds that the method does what is described there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from statistics import NormalDist, median

Way = tuple[int, int, int]
"""A leaf, a spine and the leaf that receives."""


def lossy_ways(
    share: Mapping[Way, float], packets: Mapping[Way, float], significance: float, noise: float
) -> tuple[set[Way], dict[Way, float]]:
    """The lossy ways, and what each way would have brought."""
    pairs: dict[tuple[int, int], list[Way]] = defaultdict(list)
    for src, spine, dst in packets:
        pairs[src, dst].append((src, spine, dst))
    limit = NormalDist().inv_cdf(1 - significance / len(packets))
    lossy: set[Way] = set()
    while True:
        expected = {}
        for ways in pairs.values():
            middle = median(packets[way] / share[way] for way in ways if way not in lossy)
            expected |= {way: middle * share[way] for way in ways}
        some = [way for way in packets if way not in lossy and expected[way] > 0]
        off = {w: (expected[w] - packets[w]) / math.sqrt(expected[w]) for w in some}
        beside = {(src, spine, dst): (src, spine + 1, dst) for src, spine, dst in some}
        apart = [abs(off[w] - off[beside[w]]) for w in some if beside[w] in off]
        spread = 1.4826 * median(apart) / math.sqrt(2) if apart else 0.0
        more = set()
        for ways in pairs.values():
            left = [way for way in ways if way in some]
            if len([way for way in ways if way not in lossy]) < 2 or not left:
                continue

            def lacks(way: Way, spread: float = spread, expected: dict = expected) -> float:
                healthy = 2 * noise * expected[way]
                chance = math.sqrt(spread**2 * expected[way] + healthy + 1)
                return (expected[way] - packets[way] - healthy) / chance

            worst = max(left, key=lacks)
            if lacks(worst) > limit:
                more.add(worst)
        if not more:
            return lossy, expected
        lossy |= more


def blamed(
    share: Mapping[Way, float],
    packets: Mapping[Way, float],
    significance: float,
    noise: float,
    pairs: int,
) -> set[tuple[int, int]]:
    """The links, each from a switch to another, that lossy ways have in common."""
    left, expected = lossy_ways(share, packets, significance, noise)
    lacking: dict[tuple[int, int], float] = defaultdict(float)
    sent: dict[tuple[int, int], float] = defaultdict(float)
    ways: dict[tuple[int, int], int] = defaultdict(int)
    for src, spine, dst in packets:
        for link in ((src, spine), (spine, dst)):
            ways[link] += 1
            sent[link] += expected[src, spine, dst]
            lacking[link] += max(expected[src, spine, dst] - packets[src, spine, dst], 0)
    found: set[tuple[int, int]] = set()
    while True:
        explains: dict[tuple[int, int], set[Way]] = defaultdict(set)
        for src, spine, dst in left:
            explains[src, spine].add((src, spine, dst))
            explains[spine, dst].add((src, spine, dst))
        enough = [link for link in explains if len(explains[link]) >= min(pairs, ways[link])]
        worst = max(
            enough,
            key=lambda link: len(explains[link]) + lacking[link] / max(sent[link], 1) / 2,
            default=None,
        )
        if worst is None:
            return found
        found.add(worst)
        left -= explains[worst]
