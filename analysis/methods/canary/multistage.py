"""Canary's multi-stage inference (section III-F): meters to segments, segments to faulty links.

The success rates of segments, pooled over the epochs, go through stages of coordinate descent, one
loss range at a time (`analysis.solvers.stages`), each sub-problem (section III-E) for itself.

The text leaves n and n' of its filter open, and what becomes of segments that it filters out ("we
only compute success probabilities for the path segments that have packet losses in no less than n'
out of the n epochs"): here they count as loss-free, as step 2-3 needs segments that are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np

from analysis.methods.base import Diagnosis, Method
from analysis.methods.canary.aggregate import aggregate
from analysis.methods.canary.subproblems import solve_subproblems
from analysis.methods.changes import Change
from analysis.solvers.coordinate_descent import EPSILON
from analysis.solvers.incidence import Incidence
from analysis.solvers.stages import GROUPS, Groups, Mapping, n_stages, solve_stages
from analysis.telemetry.telemetry import SegmentCounts
from testbed.arrays import LongArray
from testbed.fabric.clos import Fabric


class Canary(Method):
    """Localize faulty links from segment counts as the Canary paper does.

    Args:
        groups: Descending loss-rate edges of the groups (default: the paper's five), or a number of
            groups that the lossy segments of a sub-problem are divided into evenly (section IV-E).
        penalty: lambda of the coordinate descent.
        lossy_share: n'/n of the filter against noise, see `aggregate`.
        tolerance: epsilon of the coordinate descent.
        mapping: How a stage spreads its success probabilities: equation 4, or linear.
        own_share: A link is blamed only if what crosses no other blamed link loses this share of
            the least that its stage looks for.
        threads: Sub-problems solved at the same time; default: one a processor.
    """

    base = "canary"
    paper = "Canary, III-F"
    reads = "segments"
    changes = (
        Change(
            "acquit",
            "own_share",
            1.0,
            "III-F, step 2-4",
            "A link whose success probability comes out below 1 is bad.",
            "It is bad only if its segments that cross no other blamed link lose, together, at "
            "least the least rate that the stage looks for.",
            "Equation 4 maps noise of 1e-5 to 0.8 as it does a fault of 0.001, and a link beside "
            "a faulty one shares its segments' losses.",
        ),
        Change(
            "linear",
            "mapping",
            "linear",
            "III-F, step 2-1",
            '"One may use" equation 4, a logarithm, to map a range to [0, 0.8].',
            "The range is mapped linearly.",
            "The authors' simulator does so (HPCC724/Canary_FaultDiag, commit 2f11493).",
            "the authors",
        ),
    )

    def __init__(
        self,
        *,
        groups: int | Sequence[float] = GROUPS,
        penalty: float = 1.0,
        lossy_share: float = 0.5,
        tolerance: float = EPSILON,
        mapping: Mapping = "logarithmic",
        own_share: float = 0.0,
        threads: int | None = None,
    ) -> None:
        if isinstance(groups, int):
            if groups < 1:
                raise ValueError(f"groups={groups}: at least 1 is needed")
        else:
            groups = tuple(groups)
            edges = np.asarray(groups, np.float64)
            if len(edges) < 2 or edges[0] != 1 or (np.diff(edges) >= 0).any() or edges[-1] < 0:
                raise ValueError(f"groups must fall from 1 to a rate above 0, not {groups}")
        for name, limit in (("penalty", penalty), ("tolerance", tolerance)):
            if limit < 0:
                raise ValueError(f"{name}={limit} is negative")
        for name, share in (("lossy_share", lossy_share), ("own_share", own_share)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name}={share} is no share of 0 to 1")
        if mapping not in get_args(Mapping):
            raise ValueError(f"mapping={mapping!r} is none of {', '.join(get_args(Mapping))}")
        if threads is not None and threads < 1:
            raise ValueError(f"threads={threads}: at least 1 is needed")
        self.groups: Groups = groups
        self.penalty = penalty
        self.lossy_share = lossy_share
        self.tolerance = tolerance
        self.mapping: Mapping = mapping
        self.own_share = own_share
        self.threads = threads

    def infer(self, counts: SegmentCounts, fabric: Fabric) -> Diagnosis:
        rates = aggregate(counts, lossy_share=self.lossy_share)
        stages = n_stages(self.groups)
        success = np.full(fabric.n_links, np.nan)
        stage = np.full(fabric.n_links, stages, np.int64)

        def solve(segment: LongArray, incidence: Incidence) -> None:
            x, when = solve_stages(
                incidence,
                rates.take(segment),
                self.groups,
                self.penalty,
                self.mapping,
                self.own_share,
                self.tolerance,
            )
            success[incidence.link_ids], stage[incidence.link_ids] = x, when

        solve_subproblems(counts.segments, rates.observed, solve, self.threads)
        return self.diagnosis(
            fabric,
            np.flatnonzero(stage < stages),
            success=success,
            stages=[np.flatnonzero(stage <= now) for now in range(stages)],
        )
