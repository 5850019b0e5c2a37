# SPDX-License-Identifier: Apache-2.0
"""Flock (CoNEXT 2023): the model of section 3.2 and the greedy search of section 3.3.

Every step works out the likelihood of each neighbour anew, "close to n hypotheses" (3.3); joint
likelihood exploration (algorithms 1 and 2) is only a faster way to the same numbers.

Choices that the text leaves open, as the method's docstring has them: a device's prior is five
times a link's log-odds; of components that gain the same but for rounding the first is taken; less
than a millionth of a nat is no gain. Algorithm 2's GetLogLikelihood takes no logarithm, and
ComputeInitialDelta no prior: equation 1 and the prior of section 3.2 are taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

NO_GAIN = 1e-6


class Flow(NamedTuple):
    """The components of each path that a flow may have taken, its packets, how many were bad."""

    paths: Sequence[frozenset[int]]
    sent: int
    bad: int


@cache
def equation_1(b: int, w: int, r: int, t: int, p_bad: float, p_good: float) -> float:
    """Its logarithm, with b of w paths bad."""
    of_bad = r * math.log(p_bad) + (t - r) * math.log1p(-p_bad)
    of_good = r * math.log(p_good) + (t - r) * math.log1p(-p_good)
    parts = [math.log(n / w) + each for n, each in ((b, of_bad), (w - b, of_good)) if n > 0]
    most = max(parts)
    return most + math.log(sum(math.exp(each - most) for each in parts))


def log_likelihood(flow: Flow, failed: set[int], p_bad: float, p_good: float) -> float:
    bad_paths = sum(1 for path in flow.paths if path & failed)
    return equation_1(bad_paths, len(flow.paths), flow.bad, flow.sent, p_bad, p_good)


def greedy(
    flows: Sequence[Flow],
    prior: Sequence[float],
    p_bad: float,
    p_good: float,
) -> set[int]:
    """Section 3.3, "Greedy Search": the failed components.

    Args:
        prior: Log-odds of each component's failure.
    """
    failed: set[int] = set()
    over = [
        [f for f, flow in enumerate(flows) if any(component in path for path in flow.paths)]
        for component in range(len(prior))
    ]
    while True:
        now = [log_likelihood(flow, failed, p_bad, p_good) for flow in flows]
        gain = {}
        for component in range(len(prior)):
            if component not in failed:
                gain[component] = prior[component] + math.fsum(
                    log_likelihood(flows[f], failed | {component}, p_bad, p_good) - now[f]
                    for f in over[component]
                )
        most = max(gain.values(), default=0.0)
        if most <= NO_GAIN:
            return failed
        failed.add(next(c for c, value in gain.items() if value >= most - 1e-9 * most))
