# SPDX-License-Identifier: Apache-2.0
"""The votes of 007's links while its algorithm 1 takes explained ones away."""

from __future__ import annotations

import numpy as np

from analysis.solvers.parts import in_parts
from testbed.arrays import FloatArray
from testbed.fabric.ecmp_probabilities import EcmpProbabilities, Shares


class AdjustedVotes:
    """The votes of all links while algorithm 1 runs (its lines 8 to 13).

    Attributes:
        tally: Votes cast for each link, float64[n_links].
        taken: Votes that picked links explain, float64[n_links].
        picked: The picked links, in order.
    """

    def __init__(self, tally: FloatArray, shares: SharedVotes | None) -> None:
        self.tally = tally
        self.taken = np.zeros_like(tally)
        self.picked: list[int] = []
        self._shares = shares
        self._votes: list[float] = []

    def left(self) -> FloatArray:
        """Return the votes that each link has left, float64[n_links]; 0 for picked links."""
        left = self.tally - self.taken
        left[self.picked] = 0.0
        return left

    def take(self, link: int) -> None:
        """Pick a link, and take the votes that it explains from the others."""
        left = self.left()
        self.picked.append(link)
        self._votes.append(float(left[link]))
        if self._shares is not None:
            links, share = self._shares.of(link, left)
            self.taken[links] = np.minimum(
                self.taken[links] + left[link] * share, self.tally[links]
            )

    def score(self) -> FloatArray:
        """Return the votes that each link had left when it was picked, or has left if it was not:
        float64[n_links]."""
        score = self.left()
        score[self.picked] = self._votes
        return score


class SharedVotes:
    """A cache of `EcmpProbabilities.shared_votes` by link. It computes the links with most votes
    ahead, on all cores, because they are likely to be blamed next."""

    _AHEAD = 64

    def __init__(self, ecmp: EcmpProbabilities) -> None:
        self._ecmp = ecmp
        self._known: dict[int, Shares] = {}

    def of(self, link: int, left: FloatArray) -> Shares:
        """Return the shares of a link, which can be asked for once.

        ``left``, the votes that each link has, float64[n_links], tells which to compute ahead.
        """
        if link not in self._known:
            unknown = left.copy()
            unknown[list(self._known)] = 0.0
            unknown[link] = np.inf
            links = np.argpartition(-unknown, min(self._AHEAD, len(left) - 1))[: self._AHEAD]
            links = links[unknown[links] > 0]
            shares = in_parts(
                len(links) * len(left),
                lambda part, parts: self._ecmp.shared_votes(links[part::parts]),
            )
            for part, of_part in enumerate(shares):
                some = links[part :: len(shares)].tolist()
                self._known |= dict(zip(some, of_part, strict=True))
        return self._known.pop(link)
