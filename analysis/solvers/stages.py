"""Coordinate descent one loss range at a time (Canary, section III-F).

The lossy paths are divided into groups by loss rate. From the highest group down, each stage maps
its group's success probabilities into [0, 0.8] (equation 4), where coordinate descent works well,
sets what higher groups left unexplained to 0 and lower groups to 1, and blames every link that
comes out below 1. A blamed link is removed, and with it the paths through it: they are explained.

Canary's paths are segments; NetBouncer-stage's are probes (section IV-D).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.solvers.coordinate_descent import coordinate_descent
from analysis.solvers.incidence import Incidence
from analysis.solvers.sweeps import Sweeps
from testbed.fabric.compiled import kernel

__all__ = ["GROUPS", "Mapping", "PathRates", "loss_group", "map_success", "solve_stages"]

FloatArray = npt.NDArray[np.float64]
LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

Mapping = Literal["logarithmic", "linear"]
"""How a group's success probabilities are spread over [0, 0.8]: by equation 4, or evenly, as the
Canary authors' simulator does (HPCC724/Canary_FaultDiag, commit 2f11493)."""

GROUPS = (1.0, 0.2, 0.1, 0.05, 0.01, 0.001)
"""The paper's five loss ranges, as descending edges (section III-F, step 1)."""


OWN_SHARE = 0.5
"""A link is blamed in a stage only if its own paths lose this share of what the stage looks for."""


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
    groups: Sequence[float] = GROUPS,
    penalty: float = 1.0,
    mapping: Mapping = "logarithmic",
) -> tuple[FloatArray, LongArray]:
    """All stages on one problem.

    Returns the success of each local link (float64[n_links]) and the stage it was blamed in
    (int64[n_links]; ``len(groups) - 1`` = never). Unobserved paths do not speak.
    """
    n_stages = len(groups) - 1
    lossy, weight = rates.lossy, rates.sent.astype(np.float64)
    # Few paths lose packets: only theirs are worked out.
    some = np.flatnonzero(lossy)
    group = loss_group(rates.success[some], groups)
    mapped, y = map_success(rates.success[some], group, groups, mapping), np.ones(len(lossy))
    success = np.ones(incidence.n_links)
    stage = np.full(incidence.n_links, n_stages, np.int64)
    present, sweeps = rates.observed, Sweeps(incidence)
    for now in range(n_stages):
        if not (present[some] & (group <= now)).any():
            continue
        y[some] = np.where(group == now, mapped, np.where(group < now, 0.0, 1.0))
        x = coordinate_descent(
            incidence, y, weight, penalty=penalty, used=present, sweeps=sweeps
        ).success
        bad = (x < 1 - 1e-6) & (stage == n_stages)
        paths = _Paths(rates.sent, rates.success, present, incidence.marked_on(bad))
        links = np.flatnonzero(bad)
        pooled = np.empty((len(links), 2))
        _pool(incidence, paths, links, pooled)
        order = links[np.argsort(-pooled[:, 1], kind="stable")]  # the least lossy first
        _acquit(incidence, paths, order, 1 - OWN_SHARE * groups[now + 1], bad)
        links = np.flatnonzero(bad)
        pooled = np.empty((len(links), 2))
        _pool(incidence, paths, links, pooled)
        stage[bad] = now
        success[bad] = pooled[:, 0]
        present = present & ~incidence.rows_with(bad)
    return success, stage


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
