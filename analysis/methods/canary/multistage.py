"""Canary's multi-stage inference (section III-F): coordinate descent, one loss range at a time.

The lossy segments are divided into groups by loss rate. From the highest group down, each stage
maps its group's success probabilities into [0, 0.8] (equation 4), where coordinate descent works
well, sets what higher groups left unexplained to 0 and lower groups to 1, and blames every link
that comes out below 1. A blamed link is removed, and with it the segments through it: they are
explained.

Sub-problems (section III-E) share no link and are solved in parallel threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from analysis.methods.base import Diagnosis, sorted_links
from analysis.methods.canary.aggregate import SegmentRates, aggregate
from analysis.solvers.coordinate_descent import coordinate_descent
from analysis.solvers.incidence import Incidence
from analysis.telemetry.telemetry import Telemetry
from testbed.fabric.compiled import njit

__all__ = ["GROUPS", "Canary", "loss_group", "map_success", "solve_stages", "subproblem_segments"]

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

GROUPS = (1.0, 0.2, 0.1, 0.05, 0.01, 0.001)
"""The paper's five loss ranges, as descending edges (section III-F, step 1)."""


def loss_group(success: FloatArray, groups: Sequence[float] = GROUPS) -> npt.NDArray[np.int64]:
    """The group, 0 = most lossy, of each segment that loses packets: int64[S].

    A loss below the last edge belongs to the last group.
    """
    inner = np.asarray(groups[1:-1])
    # 1 - y is not exact: a loss of 0.2 must not fall out of [0.2, 1] by its last bit.
    return (1 - success[:, None] < inner[None, :] - 1e-12).sum(axis=1)


def map_success(
    success: FloatArray, group: npt.NDArray[np.integer], groups: Sequence[float] = GROUPS
) -> FloatArray:
    """Equation 4: y' = exp(ln 0.8 * ln(y - a) / ln(b - a)) for y in the group's range [a, b].

    y = a maps to 0 and y = b to 0.8; y outside the range is moved to its edge.
    """
    edge = 1 - np.asarray(groups)
    a, b = edge[group], edge[group + 1]
    span = np.clip(success, a, b) - a
    # Where y = a the logarithm is minus infinity and y' is 0.
    positive = span > 0
    mapped = np.exp(np.log(0.8) * np.log(np.where(positive, span, 1.0)) / np.log(b - a))
    return np.where(positive, np.minimum(mapped, 0.8), 0.0)


class Canary:
    """Localize faulty links from segment counts as the Canary paper does.

    Args:
        groups: Descending loss-rate edges of the groups (default: the paper's five).
        penalty: lambda of the coordinate descent.
        lossy_share, noise_floor: The n'-of-n filter, see `aggregate`.
        threads: Sub-problems solved at the same time; default: one a processor.
    """

    name = "canary"

    def __init__(
        self,
        *,
        groups: Sequence[float] = GROUPS,
        penalty: float = 1.0,
        lossy_share: float = 0.25,
        noise_floor: float = 1e-4,
        threads: int | None = None,
    ) -> None:
        edges = np.asarray(groups, np.float64)
        if len(edges) < 2 or edges[0] != 1 or (np.diff(edges) >= 0).any() or edges[-1] < 0:
            raise ValueError(f"groups must fall from 1 to a rate above 0, not {tuple(groups)}")
        self.groups = tuple(groups)
        self.penalty = penalty
        self.lossy_share = lossy_share
        self.noise_floor = noise_floor
        self.threads = threads

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        counts = telemetry.need("segments", self.name)
        begin = time.perf_counter()
        rates = aggregate(counts, lossy_share=self.lossy_share, noise_floor=self.noise_floor)
        n_links = telemetry.topology.n_links
        success = np.full(n_links, np.nan)
        stage = np.full(n_links, len(self.groups), np.int64)

        def solve(segment: npt.NDArray[np.int64]) -> None:
            incidence = Incidence.of(counts.segments.paths.take(segment))
            x, when = solve_stages(incidence, _pick(rates, segment), self.groups, self.penalty)
            success[incidence.link_ids], stage[incidence.link_ids] = x, when

        parts = subproblem_segments(counts.segments.subproblem, rates.observed)
        with ThreadPoolExecutor(self.threads or os.cpu_count()) as pool:
            list(pool.map(solve, parts))

        n_stages = len(self.groups) - 1
        return Diagnosis(
            method=self.name,
            native="directed",
            flagged=sorted_links(np.flatnonzero(stage < n_stages)),
            success=success,
            score=np.nan_to_num(1 - success),
            seconds=time.perf_counter() - begin,
            stages=tuple(sorted_links(np.flatnonzero(stage <= s)) for s in range(n_stages)),
        )

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        return telemetry.canary_bytes

    def probe_packets(self, telemetry: Telemetry) -> int:
        del telemetry
        return 0


def solve_stages(
    incidence: Incidence,
    rates: SegmentRates,
    groups: Sequence[float] = GROUPS,
    penalty: float = 1.0,
) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """All stages on one sub-problem.

    Returns the success of each local link (float64[n_links]) and the stage it was blamed in
    (int64[n_links]; ``len(groups) - 1`` = never). Unobserved paths do not speak.
    """
    n_stages = len(groups) - 1
    lossy, weight = rates.lossy, rates.sent.astype(np.float64)
    group = np.where(lossy, loss_group(rates.success, groups), n_stages)
    mapped = map_success(rates.success, np.minimum(group, n_stages - 1), groups)
    success = np.ones(incidence.n_links)
    stage = np.full(incidence.n_links, n_stages, np.int64)
    present = rates.observed
    for now in range(n_stages):
        if not (present & (group <= now)).any():
            continue
        y = np.where(group == now, mapped, np.where(group < now, 0.0, 1.0))
        x = coordinate_descent(incidence, y, weight, penalty=penalty, used=present).success
        bad = (x < 1 - 1e-6) & (stage == n_stages)
        stage[bad] = now
        success[bad] = _own_success(
            incidence.path_ptr, incidence.links, incidence.link_ptr, incidence.paths,
            rates.sent, rates.success, present, bad,
        )  # fmt: skip
        present = present & ~incidence.paths_with(bad)
    return success, stage


def subproblem_segments(subproblem: IntArray, observed: BoolArray) -> list[npt.NDArray[np.int64]]:
    """The observed segments of each sub-problem, sub-problems that have none left out."""
    segment = np.flatnonzero(observed)
    order = np.argsort(subproblem[segment], kind="stable")
    segment = segment[order]
    cuts = np.flatnonzero(np.diff(subproblem[segment])) + 1
    return [part for part in np.split(segment, cuts) if len(part)]


def _pick(rates: SegmentRates, segment: npt.NDArray[np.int64]) -> SegmentRates:
    return SegmentRates(rates.success[segment], rates.sent[segment], rates.lossy[segment])


@njit
def _own_success(
    path_ptr, links, link_ptr, paths, sent, success, present, bad
):  # pragma: no cover - compiled
    """What each blamed link lets through, pooled over its segments that hold no other blamed link,
    or over all of them where there is none. Coordinate descent's own figure is of the mapped y'.
    """
    n_blamed = np.zeros(len(sent), np.int32)
    for j in range(len(sent)):
        for e in range(path_ptr[j], path_ptr[j + 1]):
            n_blamed[j] += bad[links[e]]
    pooled = np.zeros(bad.sum())
    for n, i in enumerate(np.flatnonzero(bad)):
        alone_sent = alone = all_sent = together = 0.0
        for e in range(link_ptr[i], link_ptr[i + 1]):
            j = paths[e]
            if present[j]:
                all_sent += sent[j]
                together += sent[j] * success[j]
                if n_blamed[j] == 1:
                    alone_sent += sent[j]
                    alone += sent[j] * success[j]
        pooled[n] = alone / alone_sent if alone_sent > 0 else together / max(all_sent, 1.0)
    return pooled
