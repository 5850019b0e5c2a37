# SPDX-License-Identifier: Apache-2.0
"""deTector (USENIX ATC 2017): PLL, as this project derived it.

The text at hand is cut off in section 4.4 and PLL is section 5, so this cannot be checked against
the paper. It is written from the description in the method's docstring, which says where each part
is from, by enumeration of paths and links: it holds that the method does what is described there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def tail(lost: int, sent: int, rate: float) -> float:
    """The probability that of ``sent`` packets at least ``lost`` are lost."""
    below = sum(
        math.comb(sent, n) * rate**n * (1 - rate) ** (sent - n) for n in range(min(lost, sent + 1))
    )
    return 1 - below


def greedy(
    paths: Sequence[Sequence[int]], lost: Sequence[int], lossy: set[int], suspects: Iterable[int]
) -> dict[int, int]:
    """What each link explains: the suspect that explains most lost packets first (Tomo)."""
    unexplained, suspects, explained = set(lossy), sorted(suspects), dict[int, int]()
    while True:
        gain = {i: sum(lost[j] for j in unexplained if i in paths[j]) for i in suspects}
        most = max(gain.values(), default=0)
        if most <= 0:
            return explained
        best = next(i for i in suspects if gain[i] == most)
        explained[best] = explained.get(best, 0) + most
        unexplained -= {j for j in unexplained if best in paths[j]}


def pll(
    paths: Sequence[Sequence[int]],
    sent: Sequence[int],
    lost: Sequence[int],
    hit_ratio: float,
    noise: float,
    significance: float,
) -> dict[int, int]:
    """The bad links, and how many lost packets each explains."""
    probed = [j for j in range(len(paths)) if sent[j] > 0]
    lossy = {
        j
        for j in probed
        if lost[j] > 0 and tail(lost[j], sent[j], 1 - (1 - noise) ** len(paths[j])) <= significance
    }
    over = {i: [j for j in probed if i in paths[j]] for j in probed for i in paths[j]}
    full = {i for i in over if all(j in lossy for j in over[i])}
    shows_full = {j for j in lossy if full & set(paths[j])}
    explained = greedy(paths, lost, shows_full, full)
    shows_partial = lossy - shows_full
    for link, packets in greedy(paths, lost, shows_partial, over).items():
        hits = sum(1 for j in over[link] if j in shows_partial)
        if hits > hit_ratio * len(over[link]):
            explained[link] = explained.get(link, 0) + packets
    return explained
