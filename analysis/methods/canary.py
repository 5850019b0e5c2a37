# SPDX-License-Identifier: Apache-2.0
"""Canary's multi-stage inference (section III-F): from the counts of segments to faulty links.

The success rates of segments, pooled over the epochs, go through stages of coordinate descent, one
loss range at a time (`analysis.solvers.stages`). Each sub-problem (section III-E) is solved alone,
because sub-problems share no link; large ones are solved in parallel threads.

The paper's filter leaves n and n' open, and the fate of the segments that it filters out ("we only
compute success probabilities for the path segments that have packet losses in no less than n' out
of the n epochs"). Here n is the epochs that observed a segment, and n' follows from the packets
that it counted and from what a healthy link may lose (`Filter`). A segment with fewer lossy epochs
counts as loss-free if healthy links explain it better than the least fault does, since step 2-3
needs loss-free segments; otherwise it has no success probability and is left out.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from scipy.special import bdtrc, betaincinv, pdtrc, xlogy

from analysis.methods.base import Method
from analysis.methods.constraints import Count, NotNegative, Positive, Probability, Share
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.domain import SPRAYED_SEGMENTS, Domain
from analysis.methods.variants import Change
from analysis.solvers.coordinate_descent import EPSILON
from analysis.solvers.incidence import Incidence
from analysis.solvers.stages import GROUPS, Groups, Mapping, PathRates, n_stages, solve_stages
from analysis.telemetry.telemetry import SegmentCounts
from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.segments import Segments


class Canary(Method):
    """Localize faulty links from segment counts as the Canary paper does.

    Args:
        groups: Descending loss-rate edges of the groups (default: the paper's five), or a number of
            groups that the lossy segments of a sub-problem are divided into evenly (section IV-E).
        penalty: lambda of the coordinate descent.
        lossy_share: n'/n of the filter against noise. None: n' by the rule of `Filter`.
        healthy_loss: What a healthy link loses of its packets, in the rule.
        alarms: How many healthy links of a fabric may be blamed by chance, in the rule.
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
    domain = Domain(
        "Canary, IV-D and IV-E",
        faulty=0.1,
        healthy_loss=0.0,
        links=216,
        devices=False,
        packets=200,
    )
    sprayed = SPRAYED_SEGMENTS
    reads = "segments"
    changes = (
        Change(
            "acquit",
            "own_share",
            1.0,
            "III-F, step 2-4",
            "A link whose success probability comes out below 1 is bad.",
            "It is bad only if its segments that cross no other blamed link lose, together, at "
            "least a share of the least rate that the stage looks for.",
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
        lossy_share: Share | None = None,
        healthy_loss: Probability = 1e-4,
        alarms: Positive = 0.1,
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
        self.healthy_loss = healthy_loss
        self.alarms = alarms
        self.tolerance = tolerance
        self.mapping: Mapping = mapping
        self.own_share = own_share
        self.threads = threads

    def _noise(self, counts: SegmentCounts, fabric: Fabric) -> Filter:
        """Return the filter against noise for these counts."""
        if self.lossy_share is not None:
            return Filter(self.lossy_share)
        chances = chances_of_noise(counts, fabric.n_links, self.penalty, self.alarms)
        groups = GROUPS if isinstance(self.groups, int) else self.groups
        return Filter(None, self.healthy_loss, groups, *chances)

    def infer(self, counts: SegmentCounts, fabric: Fabric) -> Diagnosis:
        """Return the diagnosis of all sub-problems, with the links blamed up to each stage."""
        rates = aggregate(counts, self._noise(counts, fabric))
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


@dataclass(frozen=True)
class Filter:
    """The paper's filter against noise.

    A segment is lossy if it lost packets in at least n' of the n epochs that observed it. With a
    ``share`` n' is that share of n. Otherwise n' follows from the packets that the segment counted
    and lost: it is lossy if healthy links would lose packets in as many epochs, or as many packets,
    with no more than the chance that `chances_of_noise` allows. A segment that lost packets in
    every epoch of the run is always lossy. So one loss in four epochs of few packets does not make
    a segment lossy, and a link that drops 1 packet in 1,000 need not lose some in half of the
    epochs. In a run of several epochs n' is at least 2, since n' = 1 would filter nothing: a burst
    of losses in one epoch of few packets says that a link is faulty, but not at which rate, and a
    segment in the wrong group of loss rates gets a healthy link blamed.

    Attributes:
        share: n'/n; None for the rule.
        healthy_loss: What a healthy link loses, a share of its packets.
        groups: The groups' loss rates as descending edges; the last is the least fault's.
        alone, together: The chance above of segments whose loss rate is not in the last group, and
            of those in it, float64[S] each, see `chances_of_noise`.
    """

    share: float | None = None
    healthy_loss: float = 5e-5
    groups: Sequence[float] = GROUPS
    alone: FloatArray = field(default_factory=lambda: np.zeros(0))
    together: FloatArray = field(default_factory=lambda: np.zeros(0))

    def lossy(
        self, counts: SegmentCounts, some: LongArray, observed: LongArray, with_loss: LongArray
    ) -> tuple[BoolArray, BoolArray]:
        """Return which of ``some`` segments, those that lost packets, are lossy, and which of them
        count as loss-free: bool[len(some)] each. The others are to be left out.

        Args:
            counts: The counts of all segments.
            some: Numbers of the segments, int64[].
            observed, with_loss: Epochs that observed each of them, and that saw it lose packets,
                int64[len(some)].
        """
        if self.share is not None:
            lossy = with_loss >= np.maximum(np.ceil(self.share * observed - 1e-9), 1)
            return lossy, ~lossy
        sent, lost = counts.sent[:, some], counts.lost[:, some].sum(axis=0)
        links = np.diff(counts.segments.paths.ptr)[some]
        healthy = _epochs_with_loss(sent * links, self.healthy_loss) / observed
        faulty = _epochs_with_loss(sent, max(self.groups[-1], 2 * self.healthy_loss)) / observed
        high = lost >= self.groups[-2] * sent.sum(axis=0)
        chance = np.where(high, self.alone[some], self.together[some])
        lossy = bdtrc(with_loss - 1, observed, healthy) <= chance
        lossy |= pdtrc(lost - 1, self.healthy_loss * (sent.sum(axis=0) * links)) <= chance
        lossy &= with_loss >= min(2, len(sent))
        lossy |= with_loss == len(sent)
        for_fault = xlogy(with_loss, faulty / healthy) + xlogy(
            observed - with_loss, (1 - faulty) / (1 - healthy)
        )
        return lossy, ~lossy & (for_fault <= 0)


def _epochs_with_loss(packets: LongArray, rate: float) -> FloatArray:
    """Return in how many epochs each segment is expected to lose packets, float64[S].

    Args:
        packets: Packets in each epoch, times the links that may lose them, int64[E, S].
        rate: The loss rate of a link.
    """
    return np.clip(-np.expm1(packets * np.log1p(-rate)), 0, 1 - 1e-12).sum(axis=0)


def aggregate(counts: SegmentCounts, noise: Filter) -> PathRates:
    """Return each segment's counts summed over the epochs, with noise filtered out.

    A lossy segment has the share of its packets that passed as success probability; one that counts
    as loss-free has 1. A segment that is left out counts as not observed: no packet was sent.
    """
    sent, lost = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
    some = np.flatnonzero(lost > 0)
    observed = (counts.sent[:, some] > 0).sum(axis=0)
    with_loss = (counts.lost[:, some] > 0).sum(axis=0)
    lossy, free = np.zeros((2, len(sent)), np.bool_)
    lossy[some], free[some] = noise.lossy(counts, some, observed, with_loss)
    success = np.where(lossy, 1 - lost / np.maximum(sent, 1), 1.0)
    return PathRates(success, np.where(lossy | free | (lost == 0), sent, 0), lossy)


MISSES = 0.2
"""What a lossy segment misses at least in the descent of its stage: equation 4 maps its success to
at most 0.8."""


def chances_of_noise(
    counts: SegmentCounts, n_links: int, penalty: float, alarms: float
) -> tuple[FloatArray, FloatArray]:
    """Return the chances with which each segment may be lossy if its links are healthy: of segments
    that a later stage may set to 0, and of the others, float64[S] each.

    With these chances fewer than ``alarms`` of the fabric's links are blamed by chance. A link is
    blamed if its segments together miss more than lambda / 2. A segment of the last group misses
    0.2, so with lambda = 1 it takes three of as many as the median link of the sub-problem has. A
    segment of a higher group that its own stage does not explain is set to 0 in the next, misses
    1, and does alone.

    Args:
        counts: The counts.
        n_links: Directed links of the fabric.
        penalty: lambda.
        alarms: The expected number of links.
    """
    segments = counts.segments
    chances = np.ones((2, len(segments)))
    for part in subproblem_segments(segments.subproblem, np.asarray(counts.sent.any(axis=0))):
        of_link = np.bincount(segments.paths.take(part).links)
        n = int(np.median(of_link[of_link > 0]))
        for chance, misses in zip(chances, (1.0, MISSES), strict=True):
            needed = min(math.floor(penalty / 2 / misses + 1e-9) + 1, n)
            chance[part] = betaincinv(needed, n - needed + 1, min(alarms / n_links, 1.0))
    return chances[0], chances[1]


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
