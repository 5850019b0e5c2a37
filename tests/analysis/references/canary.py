# SPDX-License-Identifier: Apache-2.0
"""Canary (section III-F): success probabilities of segments, and the multi-stage algorithm.

Choices that the text leaves open, as the method's docstring has them:

- A segment that lost packets in fewer than n' of the n epochs that observed it counts as loss-free
  (the text computes success probabilities "only" for the others, but its step 2-3 needs the rest).
  If n' follows from the packets, it is left out where the least fault explains it better.
- Every segment that lost packets is in a group (step 1); one that loses less than the last group's
  range is in the last, and equation 4 takes it for the edge of the range.
- To remove a link "from the sub-problem" is to remove the segments over it, too: figure 5 calls
  their losses explained. So step 2-2 speaks of lossy segments that no earlier stage explained.
- Groups that are "evenly divided" (IV-E) have equally many lossy segments of the sub-problem; the
  ranges meet at the quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import pdtrc

from tests.analysis.references.netbouncer import algorithm_1

LEAST = 0.001


def segment_success(
    sent: Sequence[int], lost: Sequence[int], share: float
) -> tuple[float, int] | None:
    """Equation 2 over the epochs of one segment, and its packets; None if it was not observed."""
    epochs = [e for e in range(len(sent)) if sent[e] > 0]
    if not epochs:
        return None
    n_lossy = sum(lost[e] > 0 for e in epochs)
    needed = max(math.ceil(share * len(epochs) - 1e-9), 1)
    total = sum(sent)
    return (1 - sum(lost) / total if n_lossy >= needed else 1.0), total


def binomial(n: int, k: int, p: float) -> float:
    """The chance of at least k of n."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


def poisson(k: int, mean: float) -> float:
    """The chance of at least k if ``mean`` are expected."""
    return float(pdtrc(k - 1, mean))


def allowed(n: int, needed: int, chance: float) -> float:
    """The p with which ``needed`` of n happen with this chance, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if binomial(n, needed, middle) > chance else (middle, high)
    return low


def by_rule(
    sent: Sequence[int],
    lost: Sequence[int],
    *,
    links: int,
    of_link: int,
    n_links: int,
    edges: Sequence[float],
    penalty: float,
    healthy: float,
    alarms: float,
) -> tuple[float, int] | None:
    """As `segment_success`, with n' by rule.

    Args:
        sent, lost: Packets by epoch.
        links: Links of the segment.
        of_link: Observed segments of the median link of the sub-problem.
        n_links: Links of the fabric.
        edges: Of the groups.
        penalty: lambda.
        healthy: What a healthy link loses.
        alarms: Healthy links that may be blamed.
    """
    epochs, n_lossy = [n for n in sent if n > 0], sum(n > 0 for n in lost)
    if not epochs:
        return None
    if not n_lossy:
        return 1.0, sum(sent)
    misses = 1.0 if sum(lost) >= edges[-2] * sum(sent) else 0.2
    needed = min(math.floor(penalty / 2 / misses + 1e-9) + 1, of_link)
    chance = allowed(of_link, needed, alarms / n_links)
    p = sum(1 - (1 - healthy) ** (n * links) for n in epochs) / len(epochs)
    fault = max(edges[-1], 2 * healthy)
    q = sum(1 - (1 - fault) ** n for n in epochs) / len(epochs)
    n = len(epochs)
    unlikely = (
        binomial(n, n_lossy, p) <= chance
        or poisson(sum(lost), healthy * links * sum(sent)) <= chance
    )
    if (unlikely and n_lossy >= 2) or n_lossy == len(sent):
        return 1 - sum(lost) / sum(sent), sum(sent)
    q = min(q, 1 - 1e-12)
    gain = n_lossy * math.log(q / p) + (n - n_lossy) * math.log((1 - q) / (1 - p))
    return (1.0, sum(sent)) if gain <= 0 else None


def even_edges(losses: Sequence[float], n: int) -> list[float]:
    """The descending edges of ``n`` groups of equal numbers."""
    inner = [float(np.quantile(losses, 1 - i / n)) if losses else LEAST for i in range(1, n)]
    return [1.0, *(min(max(edge, 1.01 * LEAST), 0.999) for edge in inner), LEAST]


def group_of(loss: float, edges: Sequence[float]) -> int:
    for g in range(len(edges) - 2):
        if loss >= edges[g + 1] - 1e-12:
            return g
    return len(edges) - 2


def equation_4(y: float, a: float, b: float) -> float:
    y = min(max(y, a), b)
    if y - a <= 0:
        return 0.0
    return min(math.exp(math.log(0.8) * math.log(y - a) / math.log(b - a)), 0.8)


def stages(
    segments: Sequence[Sequence[int]],
    success: Sequence[float],
    packets: Sequence[int],
    groups: Sequence[float] | int,
    penalty: float,
    epsilon: float,
) -> list[set[int]]:
    """Steps 1 to 3 on one sub-problem: the links labelled bad after each stage."""
    lossy = [j for j in range(len(segments)) if success[j] < 1]
    if isinstance(groups, int):
        edges = even_edges([1 - success[j] for j in lossy], groups)
    else:
        edges = list(groups)
    group = {j: group_of(1 - success[j], edges) for j in lossy}  # step 1
    left, links = list(range(len(segments))), sorted({i for path in segments for i in path})
    bad: set[int] = set()
    after = []
    for now in range(len(edges) - 1):  # steps 2 and 3
        y = []
        for j in left:
            if j not in group or group[j] > now:
                y.append(1.0)  # step 2-3, and what lost nothing
            elif group[j] < now:
                y.append(0.0)  # step 2-2
            else:
                y.append(equation_4(success[j], 1 - edges[now], 1 - edges[now + 1]))  # step 2-1
        x, _ = algorithm_1(
            [segments[j] for j in left], y, [packets[j] for j in left], links, penalty, epsilon
        )
        bad |= {i for i in x if x[i] < 1}  # step 2-4
        left = [j for j in left if not bad & set(segments[j])]
        after.append(set(bad))
    return after


def canary(
    segments: Sequence[Sequence[int]],
    subproblem: Sequence[int],
    sent: Sequence[Sequence[int]],
    lost: Sequence[Sequence[int]],
    groups: Sequence[float] | int,
    share: float | tuple[float, float, int],
    penalty: float,
    epsilon: float,
) -> list[set[int]]:
    """The links labelled bad after each stage, over all sub-problems.

    Args:
        segments: Directed links of each segment, ascending.
        subproblem: That of each segment.
        sent, lost: Packets by epoch and segment.
        share: n' / n; or what healthy links lose, how many may be blamed, and links of the fabric.
    """
    of_links: dict[int, dict[int, int]] = {}
    for j in range(len(segments)):
        if any(e[j] for e in sent):
            for i in segments[j]:
                own = of_links.setdefault(subproblem[j], {})
                own[i] = own.get(i, 0) + 1
    parts: dict[int, list[tuple[int, float, int]]] = {}
    for j in range(len(segments)):
        own_sent, own_lost = [e[j] for e in sent], [e[j] for e in lost]
        if isinstance(share, tuple):
            edges = (1.0, 0.2, 0.1, 0.05, 0.01, 0.001) if isinstance(groups, int) else groups
            healthy, alarms, n_links = share
            counts = sorted(of_links.get(subproblem[j], {0: 1}).values())
            of_link = int(np.median(counts))
            seen = by_rule(
                own_sent,
                own_lost,
                links=len(segments[j]),
                of_link=of_link,
                n_links=n_links,
                edges=edges,
                penalty=penalty,
                healthy=healthy,
                alarms=alarms,
            )
        else:
            seen = segment_success(own_sent, own_lost, share)
        if seen is not None:
            parts.setdefault(subproblem[j], []).append((j, *seen))
    n_stages = groups if isinstance(groups, int) else len(groups) - 1
    found: list[set[int]] = [set() for _ in range(n_stages)]
    for part in parts.values():
        each = stages(
            [segments[j] for j, _, _ in part],
            [y for _, y, _ in part],
            [n for _, _, n in part],
            groups,
            penalty,
            epsilon,
        )
        for every, bad in zip(found, each, strict=True):
            every |= bad
    return found
