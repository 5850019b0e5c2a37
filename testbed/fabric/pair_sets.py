# SPDX-License-Identifier: Apache-2.0
"""Path sets of pairs of ToRs without listing the paths, which memory could not hold at scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.paths import Paths, PathSets


@dataclass(frozen=True)
class PairSets:
    """Sets of possible paths: first those of pairs of ToRs, then sets that are listed.

    Set ``i`` below ``len(src_tor)`` holds every equal-cost path of ``fabric`` from ``src_tor[i]``
    to ``dst_tor[i]`` (int32[N] each); the sets after them are those of ``listed``, such as the
    known paths of some flows.

    Raises:
        TopologyError: An index is no ToR, or the columns differ in length.
    """

    fabric: Fabric
    src_tor: npt.NDArray[np.int32]
    dst_tor: npt.NDArray[np.int32]
    listed: PathSets

    def __post_init__(self) -> None:
        if self.src_tor.shape != self.dst_tor.shape or self.src_tor.ndim != 1:
            raise TopologyError("src_tor and dst_tor must be arrays of one dimension and length")
        for tor in (self.src_tor, self.dst_tor):
            if len(tor) and (tor.min() < 0 or tor.max() >= self.fabric.n_tors):
                raise TopologyError(f"{self.fabric.title} has ToRs 0 to {self.fabric.n_tors - 1}")

    def __len__(self) -> int:
        return len(self.src_tor) + len(self.listed)

    @classmethod
    def between(
        cls, fabric: Fabric, src_tor: npt.NDArray[np.integer], dst_tor: npt.NDArray[np.integer]
    ) -> PairSets:
        """Return the sets of the distinct pairs among some rows, without pairs within a rack.

        Args:
            fabric: The fabric.
            src_tor, dst_tor: The ToRs of each row, int[R].
        """
        there = np.zeros((fabric.n_tors, fabric.n_tors), np.bool_)
        there[src_tor, dst_tor] = True
        np.fill_diagonal(there, val=False)
        src, dst = np.nonzero(there)
        nothing = Paths(np.zeros(1, np.int64), np.zeros(0, np.int32))
        return cls(fabric, src.astype(np.int32), dst.astype(np.int32), PathSets.known(nothing))

    def climbs(self) -> Ecmp | None:
        """Return the climbs that the pairs' paths are made of.

        None if `Ecmp` does not apply, so that the paths must be listed: a link skips a tier, two
        ToRs have no path, or paths begin above the lowest tier.
        """
        if self.fabric.tier[: self.fabric.n_tors].any():
            return None
        try:
            return Ecmp(self.fabric)
        except TopologyError:
            return None

    def expanded(self) -> PathSets:
        """Return all sets with their paths listed, in order; memory grows with their links."""
        pairs = self.fabric.path_sets(self.src_tor, self.dst_tor)
        return PathSets.join([pairs, self.listed])
