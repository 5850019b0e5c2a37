"""At the limit: the most likely set of links by exhaustive search, against what methods blame.

A sub-problem of the fat-tree of K=4 (16 links, 20 segments) with 0 to 6 faulty links. Every set of
up to 6 of its links is fitted, with code of its own: the rates of its links are free from `FAULT`
up, the others lose `NOISE`. Its posterior is the log-likelihood of the segments less, for each
link, the penalty of canary-mle. `python -m tests.bench limit`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from rich import box
from rich.console import Console
from rich.table import Table

from analysis.methods.registry import make_method, method_names
from analysis.solvers.incidence import Incidence
from analysis.telemetry.telemetry import SegmentCounts, Telemetry
from testbed.fabric.compiled import njit
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from tests.bench.bench_laws import LAWS, Law

FloatArray = npt.NDArray[np.float64]
LongArray = npt.NDArray[np.int64]

METHODS = tuple(name for name in ("canary-mle", "mle") if name in method_names())
NOISE = 1e-5
FAULT: float = getattr(make_method("canary-mle"), "fault_rate", 1e-4)
"""The least rate of a blamed link."""

MOST = 6
"""Links of the largest set tried, and most faults."""

CASES = 30
DEAD = -60.0


class Limit(NamedTuple):
    """The faulty links, those of the best set, and those that each of `METHODS` blames, as numbers
    of the sub-problem; and the posteriors of these sets."""

    truth: LongArray
    best: LongArray
    found: list[LongArray]
    of_truth: float
    of_best: float
    of_found: list[float]


def limit(seed: int, faults: int, packets: int, law: Law) -> Limit:
    """One case: a sub-problem whose segments carry ``packets`` each."""
    rng = np.random.default_rng([seed, faults, packets])
    fabric = FatTree(4)
    segments = fabric.segments()
    mine = np.flatnonzero(segments.subproblem == 0)
    incidence = Incidence.of(segments.paths.take(mine))
    truth = np.sort(rng.choice(incidence.n_links, faults, replace=False))
    loss = np.zeros(incidence.n_links)
    loss[truth] = law(faults, rng)
    on = _matrix(incidence)
    sent, lost = np.zeros((2, 1, len(segments)), np.int64)
    sent[0, mine] = packets
    lost[0, mine] = rng.binomial(packets, 1 - np.where(on, 1 - loss, 1.0).prod(axis=1))
    telemetry = Telemetry(fabric, "tor+core", segments=SegmentCounts(segments, sent, lost))
    flagged = (make_method(name).localize(telemetry).flagged for name in METHODS)
    found = [np.searchsorted(incidence.link_ids, links) for links in flagged]
    arrived, gone = (a.astype(np.float64) for a in ((sent - lost)[0, mine], lost[0, mine]))
    penalty = 0.5 * math.log(incidence.n_paths) + math.log(incidence.n_links) + 2
    case = _Case(on, arrived, gone, penalty, FAULT)
    mask, of_best = _search(case, MOST)
    best = np.flatnonzero(mask >> np.arange(incidence.n_links) & 1)
    of_found = [_posterior(links, case) for links in found]
    return Limit(truth, best, found, _posterior(truth, case), of_best, of_found)


def bench_limit(console: Console, cases: int = CASES) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), show_edge=False)
    for name in ("rates", "packets", "faults", "best is truth", "method"):
        table.add_column(name)
    for name in ("equal", "as likely", "less likely", "mean nats", "most", "truth likelier"):
        table.add_column(name, justify="right")
    for law in ("usual", "log-uniform"):
        for packets in (100, 1000, 6000):
            for faults in range(MOST + 1):
                every = [limit(1000 + seed, faults, packets, LAWS[law]) for seed in range(cases)]
                true = sum(np.array_equal(case.best, case.truth) for case in every)
                for nth, name in enumerate(METHODS):
                    below = np.array([case.of_best - case.of_found[nth] for case in every])
                    equal = np.array([np.array_equal(case.best, case.found[nth]) for case in every])
                    alike = ~equal & (below <= ALIKE)
                    less = ~equal & ~alike
                    likelier = sum(case.of_truth > case.of_found[nth] + ALIKE for case in every)
                    table.add_row(
                        *(law, f"{packets:,}", str(faults), f"{true}/{cases}", name),
                        *(str(part.sum()) for part in (equal, alike, less)),
                        *(f"{below[less].mean():.3f}", f"{below.max():.3f}")
                        if less.any()
                        else ("", ""),
                        str(likelier),
                    )
    console.print(f"All sets of up to {MOST} of a sub-problem's 16 links, {cases} cases each")
    console.print(table)


ALIKE = 1e-3
"""Nats that rounding and the ends of iterations may differ by."""


def _matrix(incidence: Incidence) -> npt.NDArray[np.bool_]:
    paths = Paths(incidence.path_ptr, incidence.links)
    on = np.zeros((incidence.n_paths, incidence.n_links), np.bool_)
    on[paths.owner, paths.links] = True
    return on


class _Case(NamedTuple):
    """Which segment has which link, bool[S, L]; its packets that arrived and were lost, float64[S];
    what a link costs, and the least rate of one."""

    on: npt.NDArray[np.bool_]
    arrived: FloatArray
    lost: FloatArray
    penalty: float
    fault: float


def _posterior(links: LongArray, case: _Case) -> float:
    return float(_fit(links, case) - case.penalty * len(links))


@njit
def _likelihood(total, case):
    value = 0.0
    for j in range(len(total)):
        value += case.arrived[j] * total[j]
        if case.lost[j] > 0:
            value += case.lost[j] * np.log(-np.expm1(total[j]))
    return value


@njit
def _slope(i, change, total, case):
    """The first two derivatives of the log-likelihood after u_i moves by ``change``."""
    first = second = 0.0
    for j in range(len(total)):
        if case.on[j, i]:
            first += case.arrived[j]
            if case.lost[j] > 0:
                failing = -np.expm1(total[j] + change)
                first -= case.lost[j] * (1 - failing) / failing
                second -= case.lost[j] * (1 - failing) / failing**2
    return first, second


@njit
def _fit(links, case):
    """The highest log-likelihood with the rates of ``links`` free, from FAULT up, and the others
    at NOISE. It is concave in u = ln(success), so one u after the other leads there."""
    good, high = np.log1p(-NOISE), np.log1p(-case.fault)
    u = np.full(case.on.shape[1], good)
    u[links] = -0.05
    total = np.zeros(len(case.lost))
    for j in range(len(total)):
        for i in range(len(u)):
            if case.on[j, i]:
                total[j] += u[i]
    value = _likelihood(total, case)
    for _ in range(2000):
        for i in links:
            low, top, x = DEAD, high, u[i]
            for _ in range(100):  # Newton's steps, inside the bracket of a bisection
                first, second = _slope(i, x - u[i], total, case)
                if first > 0:
                    low = x
                else:
                    top = x
                after = x - first / second if second < 0 else low - 1.0
                if not low <= after <= top:
                    after = 0.5 * (low + top)
                if abs(after - x) <= 1e-13 * abs(x):
                    break
                x = after
            for j in range(len(total)):
                if case.on[j, i]:
                    total[j] += x - u[i]
            u[i] = x
        before, value = value, _likelihood(total, case)
        if value - before < 1e-9:
            return value
    return value


@njit
def _search(case, most):
    """The best set of at most ``most`` links, as a mask, and its posterior. A link all of whose
    segments lost nothing is in no best set: blaming it makes every arrival less likely."""
    n = case.on.shape[1]
    seen = 0
    for i in range(n):
        for j in range(len(case.lost)):
            if case.on[j, i] and case.lost[j] > 0:
                seen |= 1 << i
    best, highest = 0, -np.inf
    for mask in range(1 << n):
        if mask & ~seen:
            continue
        size = 0
        for i in range(n):
            size += mask >> i & 1
        if size > most:
            continue
        links = np.empty(size, np.int64)
        at = 0
        for i in range(n):
            if mask >> i & 1:
                links[at] = i
                at += 1
        posterior = _fit(links, case) - case.penalty * size
        if posterior > highest + 1e-7:
            best, highest = mask, posterior
    return best, highest


if __name__ == "__main__":
    bench_limit(Console(width=140, highlight=False))
