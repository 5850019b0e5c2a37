"""Canary's multi-stage inference (section III-F): meters to segments, segments to faulty links.

The success rates of segments, pooled over the epochs, go through stages of coordinate descent, one
loss range at a time (`analysis.solvers.stages`), each sub-problem (section III-E) for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import numpy.typing as npt

from analysis.methods.base import Diagnosis, Method
from analysis.methods.canary.aggregate import aggregate
from analysis.methods.canary.subproblems import solve_subproblems
from analysis.solvers.incidence import Incidence
from analysis.solvers.stages import GROUPS, Mapping, solve_stages
from analysis.telemetry.telemetry import SegmentCounts
from testbed.fabric.clos import Fabric

__all__ = ["Canary"]


class Canary(Method):
    """Localize faulty links from segment counts as the Canary paper does.

    Args:
        groups: Descending loss-rate edges of the groups (default: the paper's five).
        penalty: lambda of the coordinate descent.
        mapping: How a stage spreads its success probabilities: equation 4, or linear, as the
            authors' simulator has it.
        lossy_share, noise_floor: The n'-of-n filter, see `aggregate`.
        threads: Sub-problems solved at the same time; default: one a processor.
    """

    name = "canary"
    reads = "segments"

    def __init__(
        self,
        *,
        groups: Sequence[float] = GROUPS,
        penalty: float = 1.0,
        mapping: Mapping = "logarithmic",
        lossy_share: float = 0.25,
        noise_floor: float = 1e-4,
        threads: int | None = None,
    ) -> None:
        edges = np.asarray(groups, np.float64)
        if len(edges) < 2 or edges[0] != 1 or (np.diff(edges) >= 0).any() or edges[-1] < 0:
            raise ValueError(f"groups must fall from 1 to a rate above 0, not {tuple(groups)}")
        if penalty < 0 or noise_floor < 0:
            raise ValueError(f"penalty={penalty} or noise_floor={noise_floor} is negative")
        if not 0 <= lossy_share <= 1:
            raise ValueError(f"lossy_share={lossy_share} is no share of 0 to 1")
        if mapping not in get_args(Mapping):
            raise ValueError(f"mapping={mapping!r} is none of {', '.join(get_args(Mapping))}")
        if threads is not None and threads < 1:
            raise ValueError(f"threads={threads}: at least 1 is needed")
        self.groups = tuple(groups)
        self.penalty = penalty
        self.mapping: Mapping = mapping
        self.lossy_share = lossy_share
        self.noise_floor = noise_floor
        self.threads = threads

    def infer(self, counts: SegmentCounts, fabric: Fabric) -> Diagnosis:
        rates = aggregate(counts, lossy_share=self.lossy_share, noise_floor=self.noise_floor)
        n_stages = len(self.groups) - 1
        success = np.full(fabric.n_links, np.nan)
        stage = np.full(fabric.n_links, n_stages, np.int64)

        def solve(segment: npt.NDArray[np.int64], incidence: Incidence) -> None:
            x, when = solve_stages(
                incidence, rates.take(segment), self.groups, self.penalty, self.mapping
            )
            success[incidence.link_ids], stage[incidence.link_ids] = x, when

        solve_subproblems(counts.segments, rates.observed, solve, self.threads)
        return self.diagnosis(
            fabric,
            np.flatnonzero(stage < n_stages),
            success=success,
            stages=[np.flatnonzero(stage <= now) for now in range(n_stages)],
        )
