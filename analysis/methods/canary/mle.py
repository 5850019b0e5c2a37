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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from analysis.methods.base import Diagnosis, Method
from analysis.methods.canary.subproblems import solve_subproblems
from analysis.solvers.incidence import Incidence
from analysis.telemetry.telemetry import SegmentCounts
from testbed.fabric.clos import Fabric
from testbed.fabric.compiled import kernel

__all__ = ["CanaryMle", "explain"]

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

SAFETY = 2.0
"""Nats added to the penalty, so that one lost packet in an unlucky place convicts nobody."""


class CanaryMle(Method):
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
    reads = "segments"

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

    def infer(self, counts: SegmentCounts, fabric: Fabric) -> Diagnosis:
        sent, lost = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
        success, score = np.full(fabric.n_links, np.nan), np.zeros(fabric.n_links)
        blamed = np.zeros(fabric.n_links, np.bool_)

        def solve(segment: LongArray, incidence: Incidence) -> None:
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

        solve_subproblems(counts.segments, sent > 0, solve, self.threads)
        return self.diagnosis(fabric, np.flatnonzero(blamed), success=success, score=score)


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
    losses = np.ascontiguousarray(lost, np.float64)
    good, high = math.log1p(-noise), math.log1p(-min_loss)
    n_links = incidence.n_links
    arrived, ptr = np.empty(n_links), np.zeros(n_links + 1, np.int64)
    lossy = np.empty(len(incidence.paths), np.int32)
    _sort_out(incidence, np.ascontiguousarray(sent, np.float64), losses, arrived, ptr, lossy)
    state = _State(
        u=np.full(n_links, good),
        total=good * np.diff(incidence.path_ptr),
        blamed=np.zeros(n_links, np.bool_),
        gains=np.zeros(n_links),
        kept=np.empty(n_links),
        ptr=ptr,
        lossy=lossy,
        lost=losses,
        arrived=arrived,
        good=good,
        high=high,
    )
    component = _components(incidence)
    order = np.argsort(component, kind="stable")
    loss = np.full(n_links, noise)
    _explain(order, np.append(0, np.cumsum(np.bincount(component))), state, penalty, loss)
    return loss, state.gains


def _components(incidence: Incidence) -> IntArray:
    """The connected component of each link, numbered by their lowest links: int32[n_links]."""
    n = incidence.n_links + incidence.n_paths
    ptr = np.append(incidence.link_ptr, np.full(incidence.n_paths, incidence.link_ptr[-1]))
    of_link = incidence.n_links + incidence.paths, ptr
    graph = sparse.csr_array((np.ones(len(incidence.paths)), *of_link), shape=(n, n))
    return connected_components(graph, directed=False)[1][: incidence.n_links]


class _State(NamedTuple):
    """A problem's observations, and the explanation as it is found.

    ``u`` float64[L] is ln(success) of each link, ``total`` float64[S] the U_j of each segment;
    ``blamed`` bool[L]; ``gains`` float64[L], see `explain`; ``kept`` float64[L] is room for a copy
    of u. Segments without loss say only how many packets arrived over their links, so that sum is
    taken once for each link, ``arrived`` float64[L], and ``lossy`` lists the other segments of link
    i at ptr[i]:ptr[i + 1]; ``lost`` float64[S]. ``good`` is the u of a healthy link, ``high`` the
    highest of a blamed one.
    """

    u: FloatArray
    total: FloatArray
    blamed: BoolArray
    gains: FloatArray
    kept: FloatArray
    ptr: LongArray
    lossy: IntArray
    lost: FloatArray
    arrived: FloatArray
    good: float
    high: float


DEAD = -60.0
"""The u that stands for total loss."""


@kernel
def _sort_out(incidence, sent, lost, arrived, ptr, lossy):
    """Fill what `_State` says of the segments of each link."""
    for i in range(len(arrived)):
        ptr[i + 1], arrived[i] = ptr[i], 0.0
        for e in range(incidence.link_ptr[i], incidence.link_ptr[i + 1]):
            j = incidence.paths[e]
            arrived[i] += sent[j] - lost[j]
            if lost[j] > 0:
                lossy[ptr[i + 1]] = j
                ptr[i + 1] += 1


@kernel
def _gain(i, new, s):
    """Log-likelihood gained by setting u_i to ``new`` with the other links held."""
    change = new - s.u[i]
    gain = s.arrived[i] * change
    for e in range(s.ptr[i], s.ptr[i + 1]):
        j = s.lossy[e]
        gain += s.lost[j] * np.log(np.expm1(s.total[j] + change) / np.expm1(s.total[j]))
    return gain


@kernel
def _losses(i, change, s):
    """sum_j lost_j o_j and its slope in u_i, o = e^U / (1 - e^U), after u_i moves by ``change``."""
    value = slope = 0.0
    for e in range(s.ptr[i], s.ptr[i + 1]):
        j = s.lossy[e]
        failing = -np.expm1(s.total[j] + change)
        odds = (1.0 - failing) / failing
        value += s.lost[j] * odds
        slope += s.lost[j] * odds / failing
    return value, slope


@kernel
def _best(i, s):
    """The best u_i <= ``high`` with the others held.

    The slope of the likelihood, arrived_i - sum_j lost_j o_j, falls as u_i rises. In w = ln(-u_i)
    the logarithm of the losses' sum is nearly a line, so Newton's steps, kept inside the bracket of
    a bisection, take a few rounds at every rate. Without a single arrival the link is DEAD.
    """
    arrived = s.arrived[i]
    if arrived == 0:
        return DEAD
    value, slope = _losses(i, s.high - s.u[i], s)
    if value <= arrived:
        return s.high
    left, right = np.log(-s.high), np.log(-DEAD)
    w = left
    for _ in range(60):
        after = 0.5 * (left + right)
        if value > 0.0 and slope > 0.0:
            step = np.log(value / arrived) * value / (np.exp(w) * slope)
            if abs(step) < 1e-12:
                break
            if left < w + step < right:
                after = w + step
        w = after
        value, slope = _losses(i, -np.exp(w) - s.u[i], s)
        if value > arrived:
            left = w
        else:
            right = w
    return min(-np.exp(w), s.high)


@kernel
def _move(i, new, s):
    for e in range(s.ptr[i], s.ptr[i + 1]):
        s.total[s.lossy[e]] += new - s.u[i]
    s.u[i] = new


@kernel
def _refit(links, s):
    """Cyclic exact maximisation over the blamed links; returns what it gained."""
    gained = 0.0
    for _ in range(200):
        sweep = 0.0
        for i in links:
            if s.blamed[i]:
                new = _best(i, s)
                gain = _gain(i, new, s)
                if gain > 0:
                    sweep += gain
                    _move(i, new, s)
        gained += sweep
        if sweep < 1e-6:
            break
    return gained


@kernel
def _candidate(links, skip, s):
    """The link, not blamed and not ``skip``, that gains most; fills ``gains``. -1 if none gains."""
    pick, most = -1, 0.0
    for i in links:
        if s.blamed[i] or s.ptr[i] == s.ptr[i + 1] or i == skip:
            continue
        s.gains[i] = _gain(i, _best(i, s), s)
        if s.gains[i] > most:
            pick, most = i, s.gains[i]
    return pick


@kernel
def _blame(i, links, s):
    """Blame link i and refit; returns what that gained."""
    s.blamed[i] = True
    new = _best(i, s)
    gained = _gain(i, new, s)
    _move(i, new, s)
    return gained + _refit(links, s)


@kernel
def _release(i, links, penalty, may_change, s):
    """Acquit blamed link i if it no longer earns its penalty, or if another explains its losses
    better, which is then blamed in its place. Says if so; otherwise all is as it was."""
    for n in range(len(links)):
        s.kept[links[n]] = s.u[links[n]]
    cost = -_gain(i, s.good, s)
    _move(i, s.good, s)
    s.blamed[i] = False
    cost -= _refit(links, s)
    if cost < penalty and may_change:
        return True
    other = _candidate(links, i, s)
    if other >= 0 and s.gains[other] > cost - 1.0:
        # Of equal explanations rounding prefers now one, now the other: of 10^10 packets by tenths
        # of a nat. So a swap must gain more than that.
        if _blame(other, links, s) > cost + 1e-3 + 1e-9 * abs(cost) and may_change:
            return True
        s.blamed[other] = False
    s.blamed[i] = True
    for n in range(len(links)):
        if s.u[links[n]] != s.kept[links[n]]:
            _move(links[n], s.kept[links[n]], s)
    s.gains[i] = cost
    return False


@kernel
def _explain_component(links, s, penalty):
    """Blame and release links of a component until neither gains."""
    swapping = False
    released, limit = 0, 100 + 10 * len(links)  # rounding must not make it go round in circles
    while True:
        pick = _candidate(links, -1, s)
        if pick >= 0 and s.gains[pick] > penalty:
            _blame(pick, links, s)
        elif swapping:
            return
        # Release what no longer earns its penalty; once nothing can be added, also try to hand
        # each blamed link's losses to another link.
        swapping = True
        at = 0
        while at < len(links):
            if s.blamed[links[at]] and _release(links[at], links, penalty, released < limit, s):
                released += 1
                at = 0
                swapping = False
            else:
                at += 1


@kernel
def _explain(order, ptr, s, penalty, loss):
    """Every component, links ``order[ptr[c]:ptr[c + 1]]``, for itself; the blamed links' loss."""
    for c in range(len(ptr) - 1):
        _explain_component(order[ptr[c] : ptr[c + 1]], s, penalty)
    for i in range(len(loss)):
        if s.blamed[i]:
            loss[i] = -np.expm1(s.u[i])
