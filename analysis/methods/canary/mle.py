"""canary-mle: the sparse maximum-likelihood explanation of Canary's segment counts.

The losses of segment j are binomial in its packets n_j, with success probability the product over
its links. A healthy link loses a known tiny share ``noise``; a blamed link's loss rate is free. In
u_i = ln(success of link i) the log-likelihood

    sum_j (n_j - k_j) U_j + k_j ln(1 - e^U_j),    U_j = sum_{i on j} u_i

is concave, so for a given set of blamed links the rates are found exactly. The set is grown: blame
the link that gains most, refit all blamed links, release those whose own evidence has fallen under
the penalty, and stop when no link gains more than the penalty. The penalty a blamed link pays is
half of BIC's ``ln(segments)`` for its rate plus ``ln(links)`` for having been picked among so many.

Nothing is filtered and no loss range is named: all epochs' raw counts are used. Unlike the paper's
coordinate descent this needs no third segment to outvote a regulariser, which is what it lacks on
small fat-trees.
"""

from __future__ import annotations

import math
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from analysis.methods.base import Diagnosis, sorted_links
from analysis.methods.canary.multistage import subproblem_segments
from analysis.solvers.incidence import Incidence
from analysis.telemetry.telemetry import Telemetry
from testbed.fabric.compiled import njit

__all__ = ["CanaryMle", "explain"]

FloatArray = npt.NDArray[np.float64]

SAFETY = 2.0
"""Nats added to the penalty, so that one lost packet in an unlucky place convicts nobody."""


class CanaryMle:
    """Localize faulty links as the sparsest likely cause of the segments' losses.

    Args:
        noise: Loss rate of a healthy link. Ten times the noise of a good fabric (1e-6) costs little
            and keeps stray losses from being explained.
        min_loss: Least loss rate a link is blamed for, however strong the evidence.
        penalty: Nats a blamed link must gain; default ``0.5 ln(segments) + ln(links) + 2`` of its
            sub-problem.
        threads: Sub-problems solved at the same time; default: one a processor.
    """

    name = "canary-mle"

    def __init__(
        self,
        *,
        noise: float = 1e-5,
        min_loss: float = 1e-4,
        penalty: float | None = None,
        threads: int | None = None,
    ) -> None:
        if not 0 < noise < min_loss < 1:
            raise ValueError(f"0 < noise < min_loss < 1 is needed, not {noise} and {min_loss}")
        self.noise = noise
        self.min_loss = min_loss
        self.penalty = penalty
        self.threads = threads

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        counts = telemetry.need("segments", self.name)
        begin = time.perf_counter()
        sent, lost = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
        n_links = telemetry.topology.n_links
        success, score = np.full(n_links, np.nan), np.zeros(n_links)
        blamed = np.zeros(n_links, np.bool_)

        def solve(segment: npt.NDArray[np.int64]) -> None:
            incidence = Incidence.of(counts.segments.paths.take(segment))
            loss, gain = explain(
                incidence,
                sent[segment],
                lost[segment],
                noise=self.noise,
                min_loss=self.min_loss,
                penalty=self.penalty,
            )
            ids = incidence.link_ids
            success[ids], score[ids], blamed[ids] = 1 - loss, gain, loss > self.noise

        parts = subproblem_segments(counts.segments.subproblem, sent > 0)
        with ThreadPoolExecutor(self.threads or os.cpu_count()) as pool:
            list(pool.map(solve, parts))
        return Diagnosis(
            method=self.name,
            native="directed",
            flagged=sorted_links(np.flatnonzero(blamed)),
            success=success,
            score=score,
            seconds=time.perf_counter() - begin,
        )

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        return telemetry.canary_bytes

    def probe_packets(self, telemetry: Telemetry) -> int:
        del telemetry
        return 0


def explain(
    incidence: Incidence,
    sent: npt.NDArray[np.int64],
    lost: npt.NDArray[np.int64],
    *,
    noise: float = 1e-5,
    min_loss: float = 1e-4,
    penalty: float | None = None,
) -> tuple[FloatArray, FloatArray]:
    """The loss rate of each local link (``noise`` = healthy) and its evidence in nats.

    The evidence of a blamed link is what its release would cost, of another what blaming it would
    still gain. Both float64[n_links].

    Complexity: each link added costs O(incidences) to find and O(B * incidences of the B blamed
    links) a refit sweep.
    """
    if penalty is None:
        rate, choice = (
            0.5 * math.log(max(incidence.n_paths, 1)),
            math.log(max(incidence.n_links, 1)),
        )
        penalty = rate + choice + SAFETY
    return _explain(
        incidence.path_ptr,
        incidence.links,
        incidence.link_ptr,
        incidence.paths,
        np.ascontiguousarray(sent, np.float64),
        np.ascontiguousarray(lost, np.float64),
        float(noise),
        float(min_loss),
        float(penalty),
    )


# Compiled core. u is ln(success) per link, total the U_j per segment; DEAD stands for total loss.
# Segments without loss say only how many packets arrived over their links, so that sum is taken
# once for each link and ``lossy`` lists the other segments of link i at ptr[i]:ptr[i + 1].

DEAD = -60.0


@njit
def _gain(i, new, u, total, ptr, lossy, lost, arrived):  # pragma: no cover - compiled
    """Log-likelihood gained by setting u_i to ``new`` with the other links held."""
    change = new - u[i]
    gain = arrived[i] * change
    for e in range(ptr[i], ptr[i + 1]):
        j = lossy[e]
        gain += lost[j] * np.log(np.expm1(total[j] + change) / np.expm1(total[j]))
    return gain


@njit
def _losses(i, change, total, ptr, lossy, lost):  # pragma: no cover - compiled
    """sum_j lost_j o_j and its slope in u_i, o = e^U / (1 - e^U), after u_i moves by ``change``."""
    value = slope = 0.0
    for e in range(ptr[i], ptr[i + 1]):
        j = lossy[e]
        failing = -np.expm1(total[j] + change)
        odds = (1.0 - failing) / failing
        value += lost[j] * odds
        slope += lost[j] * odds / failing
    return value, slope


@njit
def _best(i, u, total, ptr, lossy, lost, arrived, high):  # pragma: no cover - compiled
    """The best u_i <= ``high`` with the others held.

    The slope of the likelihood, arrived_i - sum_j lost_j o_j, falls as u_i rises. In w = ln(-u_i)
    the logarithm of the losses' sum is nearly a line, so Newton's steps, kept inside the bracket of
    a bisection, take a few rounds at every rate. Without a single arrival the link is DEAD.
    """
    if arrived[i] == 0:
        return DEAD
    value, slope = _losses(i, high - u[i], total, ptr, lossy, lost)
    if value <= arrived[i]:
        return high
    left, right = np.log(-high), np.log(-DEAD)
    w = left
    for _ in range(60):
        after = 0.5 * (left + right)
        if value > 0.0 and slope > 0.0:
            step = np.log(value / arrived[i]) * value / (np.exp(w) * slope)
            if abs(step) < 1e-12:
                break
            if left < w + step < right:
                after = w + step
        w = after
        value, slope = _losses(i, -np.exp(w) - u[i], total, ptr, lossy, lost)
        if value > arrived[i]:
            left = w
        else:
            right = w
    return min(-np.exp(w), high)


@njit
def _move(i, new, u, total, ptr, lossy):  # pragma: no cover - compiled
    for e in range(ptr[i], ptr[i + 1]):
        total[lossy[e]] += new - u[i]
    u[i] = new


@njit
def _refit(links, blamed, u, total, ptr, lossy, lost, arrived, high):  # pragma: no cover
    """Cyclic exact maximisation over the blamed links; returns what it gained."""
    gained = 0.0
    for _ in range(200):
        sweep = 0.0
        for i in links:
            if blamed[i]:
                new = _best(i, u, total, ptr, lossy, lost, arrived, high)
                gain = _gain(i, new, u, total, ptr, lossy, lost, arrived)
                if gain > 0:
                    sweep += gain
                    _move(i, new, u, total, ptr, lossy)
        gained += sweep
        if sweep < 1e-6:
            break
    return gained


@njit
def _candidate(
    links, blamed, skip, u, total, ptr, lossy, lost, arrived, high, gains
):  # pragma: no cover - compiled
    """The link, not blamed and not ``skip``, that gains most; fills ``gains``. -1 if none gains."""
    pick, most = -1, 0.0
    for i in links:
        if blamed[i] or ptr[i] == ptr[i + 1] or i == skip:
            continue
        new = _best(i, u, total, ptr, lossy, lost, arrived, high)
        gains[i] = _gain(i, new, u, total, ptr, lossy, lost, arrived)
        if gains[i] > most:
            pick, most = i, gains[i]
    return pick


@njit
def _components(path_ptr, links, n_links):  # pragma: no cover - compiled
    """The connected component of each link, numbered by their lowest links: int32[n_links]."""
    parent = np.arange(n_links).astype(np.int32)
    for j in range(len(path_ptr) - 1):
        for e in range(path_ptr[j] + 1, path_ptr[j + 1]):
            a, b = links[e - 1], links[e]
            while parent[a] != a:
                parent[a] = parent[parent[a]]
                a = parent[a]
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            parent[max(a, b)] = min(a, b)
    n = 0
    component = np.empty(n_links, np.int32)
    for i in range(n_links):
        if parent[i] == i:
            component[i] = n
            n += 1
        else:
            component[i] = component[parent[i]]
    return component


@njit
def _explain(
    path_ptr, links, link_ptr, paths, sent, lost, noise, min_loss, penalty
):  # pragma: no cover - compiled
    n_links, n_paths = len(link_ptr) - 1, len(path_ptr) - 1
    good, high = np.log1p(-noise), np.log1p(-min_loss)
    u, total = np.full(n_links, good), np.zeros(n_paths)
    blamed, gains = np.zeros(n_links, np.bool_), np.zeros(n_links)
    for j in range(n_paths):
        total[j] = good * (path_ptr[j + 1] - path_ptr[j])
    arrived = np.zeros(n_links)
    ptr = np.zeros(n_links + 1, np.int64)
    lossy = np.empty(len(paths), np.int32)
    for i in range(n_links):
        ptr[i + 1] = ptr[i]
        for e in range(link_ptr[i], link_ptr[i + 1]):
            j = paths[e]
            arrived[i] += sent[j] - lost[j]
            if lost[j] > 0:
                lossy[ptr[i + 1]] = j
                ptr[i + 1] += 1
    component = _components(path_ptr, links, n_links)
    order = np.argsort(component, kind="mergesort")
    begin = 0
    while begin < n_links:
        end = begin + 1
        while end < n_links and component[order[end]] == component[order[begin]]:
            end += 1
        _explain_component(
            order[begin:end], blamed, u, total, ptr, lossy, lost, arrived,
            good, high, penalty, gains,
        )  # fmt: skip
        begin = end
    loss = np.full(n_links, noise)
    for i in range(n_links):
        if blamed[i]:
            loss[i] = -np.expm1(u[i])
    return loss, gains


@njit
def _explain_component(
    links, blamed, u, total, ptr, lossy, lost, arrived, good, high, penalty, gains
):  # pragma: no cover - compiled
    swapping = False
    # Of equal explanations rounding prefers now one, now the other: of 10^10 packets by tenths of
    # a nat. So a swap must gain more than that, and links are released a limited number of times.
    released, limit = 0, 100 + 10 * len(links)
    while True:
        pick = _candidate(links, blamed, -1, u, total, ptr, lossy, lost, arrived, high, gains)
        if pick >= 0 and gains[pick] > penalty:
            blamed[pick] = True
            new = _best(pick, u, total, ptr, lossy, lost, arrived, high)
            _move(pick, new, u, total, ptr, lossy)
            _refit(links, blamed, u, total, ptr, lossy, lost, arrived, high)
        elif swapping:
            break
        # Release what no longer earns its penalty; once nothing can be added, also try to hand
        # each blamed link's losses to another link.
        swapping = True
        at = 0
        while at < len(links):
            i = links[at]
            if blamed[i]:
                kept = u[links]
                cost = -_gain(i, good, u, total, ptr, lossy, lost, arrived)
                _move(i, good, u, total, ptr, lossy)
                blamed[i] = False
                cost -= _refit(links, blamed, u, total, ptr, lossy, lost, arrived, high)
                if cost < penalty and released < limit:
                    released += 1
                    at = 0
                    swapping = False
                    continue
                other = _candidate(
                    links, blamed, i, u, total, ptr, lossy, lost, arrived, high, gains
                )
                if other >= 0 and gains[other] > cost - 1.0:
                    blamed[other] = True
                    new = _best(other, u, total, ptr, lossy, lost, arrived, high)
                    better = _gain(other, new, u, total, ptr, lossy, lost, arrived)
                    _move(other, new, u, total, ptr, lossy)
                    better += _refit(links, blamed, u, total, ptr, lossy, lost, arrived, high)
                    if better > cost + 1e-3 + 1e-9 * abs(cost) and released < limit:
                        released += 1
                        at = 0
                        swapping = False
                        continue
                    blamed[other] = False
                blamed[i] = True
                for n in range(len(links)):
                    if u[links[n]] != kept[n]:
                        _move(links[n], kept[n], u, total, ptr, lossy)
                gains[i] = cost
            at += 1
