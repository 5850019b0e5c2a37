"""Canary's multi-stage inference (section III-F): meters to segments, segments to faulty links.

The success rates of segments, pooled over the epochs, go through stages of coordinate descent, one
loss range at a time (`analysis.solvers.stages`), each sub-problem (section III-E) for itself:
sub-problems share no link, and large ones are solved in parallel threads.

The text leaves n and n' of its filter open, and what becomes of segments that it filters out ("we
only compute success probabilities for the path segments that have packet losses in no less than n'
out of the n epochs"): here they count as loss-free, as step 2-3 needs segments that are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from analysis.methods.base import Change, Diagnosis, Method
from analysis.methods.constraints import Count, NotNegative, Share
from analysis.solvers.coordinate_descent import EPSILON
from analysis.solvers.incidence import Incidence
from analysis.solvers.stages import GROUPS, Groups, Mapping, PathRates, n_stages, solve_stages
from analysis.telemetry.telemetry import SegmentCounts
from testbed.arrays import BoolArray, IntArray, LongArray
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.segments import Segments


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

    One link loses 5 % of what its segments count:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import SegmentCounts, Telemetry
    >>> from testbed.fabric.fat_tree import FatTree
    >>> fabric = FatTree(4)
    >>> segments = fabric.segments("tor+core")
    >>> sent = np.full((1, len(segments)), 10_000)  # of one epoch
    >>> over = segments.paths.links == fabric.link("tor0_0->agg0_1")
    >>> lost = np.zeros_like(sent)
    >>> lost[0, segments.paths.owner[over]] = 500
    >>> counts = SegmentCounts(segments, sent, lost)
    >>> verdict = Canary().localize(Telemetry(fabric, "tor+core", segments=counts))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['tor0_0->agg0_1']
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
        groups: Count | Sequence[float] = GROUPS,
        penalty: NotNegative = 1.0,
        lossy_share: Share = 0.5,
        tolerance: NotNegative = EPSILON,
        mapping: Mapping = "logarithmic",
        own_share: Share = 0.0,
        threads: Count | None = None,
    ) -> None:
        if not isinstance(groups, int):
            groups = tuple(groups)
            edges = np.asarray(groups, np.float64)
            if len(edges) < 2 or edges[0] != 1 or (np.diff(edges) >= 0).any() or edges[-1] < 0:
                raise UserError(f"groups must fall from 1 to a rate above 0, not {groups}")
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


def aggregate(counts: SegmentCounts, *, lossy_share: float) -> PathRates:
    """Pool the epochs of each segment and tell loss from noise.

    A segment is lossy if packets were lost in at least ``n' = ceil(lossy_share * n)`` (at least 1)
    of the n epochs that observed it. Otherwise its success probability is 1. The paper leaves n and
    n' open: many epochs keep noise out, few let links of low rates in. At 600-1000 packets a
    segment and epoch a link that drops 1 in 1000 loses some in half of the epochs.
    """
    observed = (counts.sent > 0).sum(axis=0)
    with_loss = (counts.lost > 0).sum(axis=0)
    needed = np.maximum(np.ceil(lossy_share * observed - 1e-9), 1)
    sent, lost = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
    lossy = (with_loss >= needed) & (lost > 0)
    success = np.where(lossy, 1 - lost / np.maximum(sent, 1), 1.0)
    return PathRates(success, sent, lossy)


FEW = 4_000  # segments of a sub-problem, which are solved before threads have started


def solve_subproblems(
    segments: Segments,
    observed: BoolArray,
    solve: Callable[[LongArray, Incidence], None],
    threads: int | None = None,
) -> None:
    """``solve(numbers of the segments, their links)`` for each sub-problem.

    Args:
        observed: The segments that speak, bool[S].
        threads: Sub-problems solved at the same time; default: one a processor if any is large.
    """

    def one(segment: LongArray) -> None:
        solve(segment, Incidence.of(segments.paths.take(segment)))

    parts = subproblem_segments(segments.subproblem, observed)
    if threads is None and max(map(len, parts), default=0) < FEW:
        for part in parts:
            one(part)
        return
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        list(pool.map(one, parts))


def subproblem_segments(subproblem: IntArray, observed: BoolArray) -> list[LongArray]:
    """The observed segments of each sub-problem, sub-problems that have none left out."""
    segment = np.flatnonzero(observed)
    order = np.argsort(subproblem[segment], kind="stable")
    segment = segment[order]
    cuts = np.flatnonzero(np.diff(subproblem[segment])) + 1
    return [part for part in np.split(segment, cuts) if len(part)]
