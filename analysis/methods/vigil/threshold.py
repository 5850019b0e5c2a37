# SPDX-License-Identifier: Apache-2.0
"""The threshold of 007's algorithm 1 as a rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import pdtr, pdtrik


@dataclass(frozen=True)
class Rule:
    """The threshold of algorithm 1 as a rule of what 007 knows: links, votes, and hops of a voter.

    If the votes that are left came from noise alone, every link would have their mean number of
    voters, or some times as many, because links differ. The threshold is the least number that
    fewer than ``alarms`` of all links would reach then (Poisson).

    Attributes:
        n_links: Directed links of the fabric.
        hops: Mean number of links that a voter crosses.
        spread, alarms: See `Vigil`.
    """

    n_links: int
    hops: float
    spread: float
    alarms: float

    def least(self, votes: float) -> float:
        """Return the votes that a link must have, if all links together have ``votes``."""
        expected = max(self.spread * votes * self.hops / self.n_links, 1e-12)
        within = max(1 - self.alarms / self.n_links, 0.0)
        voters = max(float(np.ceil(pdtrik(within, expected))), 0.0)
        while voters > 0 and pdtr(voters - 1, expected) >= within:
            voters -= 1
        while pdtr(voters, expected) < within:
            voters += 1
        return (voters + 1) / self.hops
