# SPDX-License-Identifier: Apache-2.0
"""007 (NSDI 2018): section 5.1 and algorithm 1, by enumeration of all paths.

Choices that the text leaves open, as the method's docstring has them: the threshold is a share of
the votes cast, or follows the votes that are left; connections whose drops are noise (section 6)
lost one packet and share no link with another; of a blamed link's votes those that are left are
shared out; a connection with a partial trace spreads each hop's part of its vote over the links
that ECMP may have taken there; of equally many votes the first link is taken, but for rounding.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

ROUNDING = 1e-9

Path = tuple[int, ...]
Pair = tuple[int, int]


def votes(
    traces: Sequence[tuple[Pair, Path, bool]], paths: Mapping[Pair, Sequence[Path]], n_links: int
) -> list[float]:
    """The tally of each link.

    Args:
        traces: Of each connection with a retransmission its ToRs, the links that its trace saw, and
            whether that is all of them.
        paths: All equal-cost paths of each pair of ToRs.
    """
    tally = [0.0] * n_links
    for pair, seen, complete in traces:
        if complete:
            for link in seen:
                tally[link] += 1 / len(seen)
            continue
        possible = [path for path in paths[pair] if path[: len(seen)] == seen]
        for path in possible:
            for link in path:
                tally[link] += 1 / len(path) / len(possible)
    return tally


def without_noise(
    traces: Sequence[tuple[Pair, Path, bool]],
    lost: Sequence[int],
    paths: Mapping[Pair, Sequence[Path]],
    n_links: int,
) -> list[tuple[Pair, Path, bool]]:
    """The connections whose drops are no noise."""
    crossed = []
    for one in traces:
        (pair, seen, complete), part = one, [0.0] * n_links
        possible = [seen] if complete else [p for p in paths[pair] if p[: len(seen)] == seen]
        for path in possible:
            for link in path:
                part[link] += 1 / len(possible)
        crossed.append(part)
    every = [sum(column) for column in zip(*crossed, strict=True)]
    return [
        one
        for one, part, n in zip(traces, crossed, lost, strict=True)
        if n > 1
        or any(part[i] > 0 and every[i] > part[i] + ROUNDING for i in range(n_links))
        or not any(part)
    ]


def least_votes(votes: float, hops: float, n_links: int, spread: float, alarms: float) -> float:
    """The votes that fewer than ``alarms`` links have by chance, if all have as many voters."""
    expected = max(spread * votes * hops / n_links, 1e-12)
    voters, term, below = 0, math.exp(-expected), math.exp(-expected)
    while below < max(1 - alarms / n_links, 0.0):
        voters += 1
        term *= expected / voters
        below += term
    return (voters + 1) / hops


def shares_of_votes(blamed: int, paths: Mapping[Pair, Sequence[Path]]) -> dict[int, float]:
    """Of the votes for a blamed link, the part that its connections cast for each other one, if
    ECMP spreads those of all pairs of ToRs "uniformly at random"."""
    of_both: dict[int, float] = defaultdict(float)
    for every in paths.values():
        for path in every:
            if blamed in path:
                for link in path:
                    of_both[link] += 1 / len(every) / len(path)
    return {link: votes / of_both[blamed] for link, votes in of_both.items()}


def algorithm_1(
    tally: Sequence[float],
    paths: Mapping[Pair, Sequence[Path]],
    threshold: float | Callable[[float], float],
) -> list[int]:
    """The problematic links, in the order in which they are found.

    Args:
        tally: The votes for each link.
        paths: All equal-cost paths of each pair of ToRs.
        threshold: A share of the votes cast, or the least votes by the votes that are left.
    """
    v, blamed = list(tally), []
    cast = sum(tally)
    while len(blamed) < len(v):
        others = [link for link in range(len(v)) if link not in blamed]  # line 7
        most = max(v[link] for link in others)
        left = sum(v[link] for link in others)
        least = threshold(left) if callable(threshold) else threshold * cast
        if most < (1 - ROUNDING) * least or most <= 0:  # line 6
            return blamed
        top = next(link for link in others if v[link] >= (1 - ROUNDING) * most)
        blamed.append(top)  # line 8
        shares = shares_of_votes(top, paths)
        for link in others:  # lines 9 to 13
            if link != top:
                v[link] = max(v[link] - v[top] * shares.get(link, 0.0), 0.0)
    return blamed
