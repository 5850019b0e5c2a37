# SPDX-License-Identifier: Apache-2.0
"""Coordinate descent one loss range at a time (Canary, section III-F).

The lossy paths are divided into groups by loss rate. From the highest group down, each stage maps
its group's success probabilities into [0, 0.8] (equation 4), where coordinate descent works well.
It sets the remaining paths of higher groups to 0 and those of lower groups to 1, and blames every
link whose fitted success is below 1. A blamed link is removed together with the paths through it,
because it explains their losses.

The paper leaves three points open. A removed link's paths are removed with it, because figure 5
calls their losses explained. A path that loses less than the last range belongs to the last group,
and equation 4 moves it to the edge of the range. Where section IV-E says that paths are "evenly
divided" into groups, the groups here hold equal numbers of paths, and their ranges meet at
quantiles.

Canary's paths are segments; NetBouncer-stage's are probes (section IV-D).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.solvers.coordinate_descent import EPSILON, coordinate_descent
from analysis.solvers.incidence import Incidence, Sweeps
from testbed.arrays import BoolArray, FloatArray, LongArray
from testbed.kernels import Bound, Kernels

_KERNELS = Kernels.beside(__file__)

Mapping = Literal["logarithmic", "linear"]
"""How a group's success probabilities are spread over [0, 0.8]: by equation 4, or evenly, as the
Canary authors' simulator does (HPCC724/Canary_FaultDiag, commit 2f11493)."""

GROUPS = (1.0, 0.2, 0.1, 0.05, 0.01, 0.001)
"""The paper's five loss ranges, as descending edges (section III-F, step 1)."""

Groups = int | Sequence[float]
"""Loss ranges as descending edges, or how many groups of equal numbers of lossy paths there are
(Canary, section IV-E)."""


@dataclass(frozen=True)
class PathRates:
    """The counts of N paths.

    Attributes:
        success: Share of the packets that passed, float64[N]; 1 where none was sent.
        sent: Packets sent, int64[N].
        lossy: Whether the path counts as lossy, bool[N].
    """

    success: FloatArray
    sent: LongArray
    lossy: BoolArray

    @property
    def observed(self) -> BoolArray:
        """Return which paths had at least one packet sent, bool[N]."""
        return self.sent > 0

    def take(self, paths: npt.NDArray[np.integer]) -> PathRates:
        """Return the counts of the paths with the given numbers, in that order."""
        return PathRates(self.success[paths], self.sent[paths], self.lossy[paths])


def n_stages(groups: Groups) -> int:
    """Return the number of groups, each of which has a stage."""
    return groups if isinstance(groups, int) else len(groups) - 1


def even_groups(loss: FloatArray, n: int) -> tuple[float, ...]:
    """Return the descending edges of ``n`` groups that hold equally many of the paths.

    Args:
        loss: The loss rate of each lossy path, float64[].

    The outer edges are those of `GROUPS`; the others are quantiles of the loss.
    """
    inner = np.quantile(loss, 1 - np.arange(1, n) / n) if len(loss) else np.zeros(0)
    return (1.0, *np.clip(inner, 1.01 * GROUPS[-1], 0.999).tolist(), GROUPS[-1])


def loss_group(success: FloatArray, groups: Sequence[float] = GROUPS) -> LongArray:
    """Return the group of each lossy path, 0 = most lossy: int64[P].

    A loss rate below the last edge belongs to the last group.

    Args:
        success: Success probability of each path, float64[P].
        groups: The groups' loss rates as descending edges.
    """
    inner = np.asarray(groups[1:-1])
    # 1 - y is not exact: a loss of 0.2 must not fall out of [0.2, 1] by its last bit.
    return (1 - success[:, None] < inner[None, :] - 1e-12).sum(axis=1)


def map_success(
    success: FloatArray,
    group: npt.NDArray[np.integer],
    groups: Sequence[float] = GROUPS,
    mapping: Mapping = "logarithmic",
) -> FloatArray:
    """Return the mapped success y' of each path, float64[P], in [0, 0.8] (Canary, equation 4).

    With the group's range of success probabilities [a, b], y' = exp(ln 0.8 * ln(y - a) / ln(b -
    a)), or, linearly, 0.8 (y - a) / (b - a). So y = a maps to 0 and y = b to 0.8; y outside the
    range is first moved to its edge.

    Args:
        success: y, the success probability of each path, float64[P].
        group: The group of each path, int[P], see `loss_group`.
        groups: The groups' loss rates as descending edges.
        mapping: Which of the two formulas.
    """
    edge = 1 - np.asarray(groups)
    a, b = edge[group], edge[group + 1]
    span = np.clip(success, a, b) - a
    if mapping == "linear":
        return 0.8 * span / (b - a)
    # Where y = a the logarithm is minus infinity and y' is 0.
    positive = span > 0
    mapped = np.exp(np.log(0.8) * np.log(np.where(positive, span, 1.0)) / np.log(b - a))
    return np.where(positive, np.minimum(mapped, 0.8), 0.0)


def solve_stages(
    incidence: Incidence,
    rates: PathRates,
    groups: Groups = GROUPS,
    penalty: float = 1.0,
    mapping: Mapping = "logarithmic",
    own_share: float = 0.0,
    tolerance: float = EPSILON,
) -> tuple[FloatArray, LongArray]:
    """Run all stages on one sub-problem.

    Paths without packets are ignored.

    Args:
        incidence: Paths and links of the sub-problem.
        rates: What was observed of each path.
        groups, penalty, mapping: See `Groups`, `coordinate_descent` and `Mapping`.
        own_share: A link is blamed in a stage only if the paths that hold no other blamed link lose
            at least this share of the lowest loss rate of the stage's range; with 0, every link
            whose fitted success is below 1 is blamed.
        tolerance: The epsilon of coordinate descent.

    Returns:
        The success probability of each local link, float64[n_links], and the stage in which it was
        blamed, int64[n_links]; ``n_stages(groups)`` means never.
    """
    lossy, weight = rates.lossy, rates.sent.astype(np.float64)
    # Few paths lose packets, and only lossy paths need a group and a mapped success.
    some = np.flatnonzero(lossy & rates.observed)
    stages = n_stages(groups)
    edges = even_groups(1 - rates.success[some], groups) if isinstance(groups, int) else groups
    group = loss_group(rates.success[some], edges)
    mapped, y = map_success(rates.success[some], group, edges, mapping), np.ones(len(lossy))
    success = np.ones(incidence.n_links)
    stage = np.full(incidence.n_links, stages, np.int64)
    sweeps, present = Sweeps(incidence), rates.observed
    blamed = np.zeros(len(lossy), np.int64)
    paths = _KERNELS.bound("PathCounts", _Paths(rates.sent, rates.success, present, blamed))
    for now in range(int(group.min(initial=stages)), stages):
        if not present[some[group <= now]].any():
            continue
        y[some] = np.where(group == now, mapped, np.where(group < now, 0.0, 1.0))
        x = coordinate_descent(
            incidence, y, weight, penalty=penalty, tolerance=tolerance, used=present, sweeps=sweeps
        ).success
        bad = (x < 1) & (stage == stages)
        blamed[:] = incidence.marked_on(bad)
        if own_share > 0:
            links, pooled = _pooled(sweeps.incidence, paths, bad)
            order = links[np.argsort(-pooled[:, 1], kind="stable")]  # the least lossy first
            limit = 1 - own_share * edges[now + 1]
            _KERNELS.acquit(
                incidence=sweeps.incidence, paths=paths, links=order, limit=limit, blamed=bad
            )
        links, pooled = _pooled(sweeps.incidence, paths, bad)
        stage[links], success[links] = now, pooled[:, 0]
        present &= ~incidence.paths_with(bad)
    return success, stage


def _pooled(incidence: Bound, paths: Bound, bad: BoolArray) -> tuple[LongArray, FloatArray]:
    """Return the n blamed links, int64[n], and for each of them both results of ``success``
    (`stages.c`), float64[n, 2]."""
    links = np.flatnonzero(bad)
    pooled = np.empty((len(links), 2))
    _KERNELS.pool(incidence=incidence, paths=paths, links=links, pooled=pooled)
    return links, pooled


class _Paths(NamedTuple):
    """The arrays that kernels read, one element for each path.

    Attributes:
        sent: Packets sent, int64[P].
        success: Share of them that passed, float64[P].
        present: Paths whose losses are not explained yet, bool[P].
        blamed: Number of blamed links on the path, int64[P].
    """

    sent: LongArray
    success: FloatArray
    present: BoolArray
    blamed: LongArray
