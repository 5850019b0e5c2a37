# SPDX-License-Identifier: Apache-2.0
"""Canary's multi-stage inference (section III-F): from the counts of segments to faulty links.

The success rates of segments, pooled over the epochs, go through stages of coordinate descent, one
loss range at a time (`analysis.solvers.stages`). Each sub-problem (section III-E) is solved alone,
because sub-problems share no link; large ones are solved in parallel threads.

The paper's filter leaves n and n' open, and the fate of the segments that it filters out ("we only
compute success probabilities for the path segments that have packet losses in no less than n' out
of the n epochs"). Here they count as loss-free, since step 2-3 needs loss-free segments.
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
        mapping: How a stage maps its success probabilities to [0, 0.8]: by equation 4, or linearly.
        own_share: A link is blamed only if its segments that cross no other blamed link lose at
            least this share of the lowest loss rate of the stage.
        threads: Sub-problems that are solved at the same time; default: as many as processors.

    One link loses 5 % of the packets that its segments count:

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
            "The authors' simulator maps it so (HPCC724/Canary_FaultDiag, commit 2f11493).",
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
        """Return the diagnosis of all sub-problems, with the links blamed up to each stage."""
        rates = aggregate(counts, lossy_share=self.lossy_share)
        stages = n_stages(self.groups)
        success = np.full(fabric.n_links, np.nan)
        stage = np.full(fabric.n_links, stages, np.int64)

        def solve(segment: LongArray, incidence: Incidence) -> None:
            """Solve a sub-problem, given the numbers of its segments, int64[], and write the
            success probability and the stage of its links."""
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
    """Return each segment's counts summed over the epochs, with noise filtered out.

    A segment is lossy if packets were lost in at least ``n' = ceil(lossy_share * n)`` (at least 1)
    of the n epochs that observed it; otherwise its success probability is set to 1. The paper
    leaves n and n' open. A high share keeps noise out, a low share keeps links with low loss rates
    in: with 600 to 1,000 packets on a segment in an epoch, a link that drops 1 packet in 1,000
    loses some in about half of the epochs.
    """
    observed = (counts.sent > 0).sum(axis=0)
    with_loss = (counts.lost > 0).sum(axis=0)
    needed = np.maximum(np.ceil(lossy_share * observed - 1e-9), 1)
    sent, lost = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
    lossy = (with_loss >= needed) & (lost > 0)
    success = np.where(lossy, 1 - lost / np.maximum(sent, 1), 1.0)
    return PathRates(success, sent, lossy)


FEW = 4_000  # a sub-problem with fewer segments is solved in less time than threads need to start


def solve_subproblems(
    segments: Segments,
    observed: BoolArray,
    solve: Callable[[LongArray, Incidence], None],
    threads: int | None = None,
) -> None:
    """Call ``solve`` for each sub-problem with the numbers of its segments and their incidence.

    Args:
        segments: All segments.
        observed: Which of them counted packets, bool[S]; the others are left out.
        solve: Called once for each sub-problem that has an observed segment.
        threads: Sub-problems that are solved at the same time. Default: as many as processors if
            any has `FEW` segments or more, otherwise one.
    """

    def one(segment: LongArray) -> None:
        """Solve the sub-problem with the segments of these numbers, int64[]."""
        solve(segment, Incidence.of(segments.paths.take(segment)))

    parts = subproblem_segments(segments.subproblem, observed)
    if threads is None and max(map(len, parts), default=0) < FEW:
        for part in parts:
            one(part)
        return
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        list(pool.map(one, parts))


def subproblem_segments(subproblem: IntArray, observed: BoolArray) -> list[LongArray]:
    """Return the numbers of the observed segments of each sub-problem that has any: int64[] each.

    Args:
        subproblem: The sub-problem of each segment, int32[S].
        observed: Which segments counted packets, bool[S].
    """
    segment = np.flatnonzero(observed)
    order = np.argsort(subproblem[segment], kind="stable")
    segment = segment[order]
    cuts = np.flatnonzero(np.diff(subproblem[segment])) + 1
    return [part for part in np.split(segment, cuts) if len(part)]
