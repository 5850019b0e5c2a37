# SPDX-License-Identifier: Apache-2.0
"""007 (NSDI 2018): section 5.1 and algorithm 1, by enumeration of all paths.

Choices that the text leaves open, as the method's docstring has them: the threshold is a share of
the votes cast; of a blamed link's votes those that are left are shared out; a connection with a
partial trace spreads each hop's part of its vote over the links that ECMP may have taken there; of
equally many votes the first link is taken, but for rounding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

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
    tally: Sequence[float], paths: Mapping[Pair, Sequence[Path]], threshold: float
) -> list[int]:
    """The problematic links, in the order in which they are found."""
    v, blamed = list(tally), []
    cast = sum(tally)
    while len(blamed) < len(v):
        others = [link for link in range(len(v)) if link not in blamed]  # line 7
        most = max(v[link] for link in others)
        if most < (1 - ROUNDING) * threshold * cast or most <= 0:  # line 6
            return blamed
        top = next(link for link in others if v[link] >= (1 - ROUNDING) * most)
        blamed.append(top)  # line 8
        shares = shares_of_votes(top, paths)
        for link in others:  # lines 9 to 13
            if link != top:
                v[link] = max(v[link] - v[top] * shares.get(link, 0.0), 0.0)
    return blamed
