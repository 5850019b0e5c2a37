"""Coordinate descent one loss range at a time (Canary, section III-F).

The lossy paths are divided into groups by loss rate. From the highest group down, each stage maps
its group's success probabilities into [0, 0.8] (equation 4), where coordinate descent works well,
sets what higher groups left unexplained to 0 and lower groups to 1, and blames every link that
comes out below 1. A blamed link is removed, and with it the paths through it: they are explained.

The text leaves open what becomes of a removed link's paths (figure 5 calls their losses explained,
so they go with it), of a path that loses less than the last range (it is in the last group, and
equation 4 takes it for the range's edge) and how paths are "evenly divided" into groups (section
IV-E: here into groups of equal numbers, whose ranges meet at quantiles).

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
from testbed.compiled import kernel

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
    """What was observed of paths: ``success`` float64[N] (1 where unobserved), ``sent`` int64[N]
    packets, ``lossy`` bool[N]."""

    success: FloatArray
    sent: LongArray
    lossy: BoolArray

    @property
    def observed(self) -> BoolArray:
        return self.sent > 0

    def take(self, paths: npt.NDArray[np.integer]) -> PathRates:
        return PathRates(self.success[paths], self.sent[paths], self.lossy[paths])


def n_stages(groups: Groups) -> int:
    """Return how many groups there are, each of which has a stage."""
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
    """The group, 0 = most lossy, of each path that loses packets: int64[P].

    A loss below the last edge belongs to the last group.
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
    """Equation 4: y' = exp(ln 0.8 * ln(y - a) / ln(b - a)) for y in the group's range [a, b]; or
    linearly, 0.8 (y - a) / (b - a).

    y = a maps to 0 and y = b to 0.8; y outside the range is moved to its edge.
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
    """All stages on one problem.

    Returns the success of each local link (float64[n_links]) and the stage it was blamed in
    (int64[n_links]; ``n_stages(groups)`` = never). Unobserved paths do not speak.

    Args:
        own_share: A link is blamed in a stage only if the paths over it alone lose this share of
            the least that the stage looks for; 0 blames whatever comes out below 1.
        tolerance: The epsilon of coordinate descent.
    """
    lossy, weight = rates.lossy, rates.sent.astype(np.float64)
    # Few paths lose packets: only theirs are worked out.
    some = np.flatnonzero(lossy & rates.observed)
    stages = n_stages(groups)
    edges = even_groups(1 - rates.success[some], groups) if isinstance(groups, int) else groups
    group = loss_group(rates.success[some], edges)
    mapped, y = map_success(rates.success[some], group, edges, mapping), np.ones(len(lossy))
    success = np.ones(incidence.n_links)
    stage = np.full(incidence.n_links, stages, np.int64)
    present, sweeps = rates.observed, Sweeps(incidence)
    for now in range(stages):
        if not (present[some] & (group <= now)).any():
            continue
        y[some] = np.where(group == now, mapped, np.where(group < now, 0.0, 1.0))
        x = coordinate_descent(
            incidence, y, weight, penalty=penalty, tolerance=tolerance, used=present, sweeps=sweeps
        ).success
        bad = (x < 1) & (stage == stages)
        paths = _Paths(rates.sent, rates.success, present, incidence.marked_on(bad))
        if own_share > 0:
            links, pooled = _pooled(incidence, paths, bad)
            order = links[np.argsort(-pooled[:, 1], kind="stable")]  # the least lossy first
            _acquit(incidence, paths, order, 1 - own_share * edges[now + 1], bad)
        links, pooled = _pooled(incidence, paths, bad)
        stage[links], success[links] = now, pooled[:, 0]
        present = present & ~incidence.rows_with(bad)
    return success, stage


def _pooled(incidence: Incidence, paths: _Paths, bad: BoolArray) -> tuple[LongArray, FloatArray]:
    """The blamed links, and both figures of `_success` for each: int64[], float64[, 2]."""
    links = np.flatnonzero(bad)
    pooled = np.empty((len(links), 2))
    _pool(incidence, paths, links, pooled)
    return links, pooled


class _Paths(NamedTuple):
    """What `_success` reads of each observation, [N]; and of each path how many blamed links it
    has, ``blamed`` [P]."""

    sent: LongArray
    success: FloatArray
    present: BoolArray
    blamed: LongArray


@kernel
def _success(incidence, paths, i):
    """What link i lets through, pooled over its paths that hold no other blamed link, or over all
    where there is none; and over all. Coordinate descent's own figure is of the mapped y'.
    """
    alone_sent = alone = all_sent = together = 0.0
    for e in range(incidence.link_ptr[i], incidence.link_ptr[i + 1]):
        j = incidence.paths[e]
        for row in range(incidence.row_ptr[j], incidence.row_ptr[j + 1]):
            if paths.present[row]:
                all_sent += paths.sent[row]
                together += paths.sent[row] * paths.success[row]
                if paths.blamed[j] == 1:
                    alone_sent += paths.sent[row]
                    alone += paths.sent[row] * paths.success[row]
    together /= max(all_sent, 1.0)
    return (alone / alone_sent if alone_sent > 0 else together), together


@kernel
def _pool(incidence, paths, links, pooled):
    """Both figures of `_success` for each of the links."""
    for n in range(len(links)):
        pooled[n, 0], pooled[n, 1] = _success(incidence, paths, links[n])


@kernel
def _acquit(incidence, paths, links, most, blamed):
    """Acquit the links that let more than ``most`` through by themselves, one after the other: what
    two of them share speaks against the one that is left."""
    for i in links:
        if _success(incidence, paths, i)[0] > most:
            blamed[i] = False
            for e in range(incidence.link_ptr[i], incidence.link_ptr[i + 1]):
                paths.blamed[incidence.paths[e]] -= 1
