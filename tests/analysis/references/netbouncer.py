# SPDX-License-Identifier: Apache-2.0
"""NetBouncer (NSDI 2019): figure 3, figure 5 and algorithm 1 of appendix B.

Algorithm 1 in the text at hand has lost its operators and indices. Read back:

- line 5, "R = 2 sum(prod x)^2 - 2 lambda", and line 6, "S = 2 sum y prod x - lambda", are the
  derivative of the objective in x_i, which is R x_i - S;
- line 7, "TiRi", is T = S / R, its zero;
- lines 8 to 10, R = 0: "Si 0 then xi = 1>" is S > 0: x_i = 1, else 0;
- lines 11 to 14, R > 0: T > 1: 1, T < 0: 0, else T;
- lines 15 to 17, R < 0: "Ti 12 then xi =0>/" is T > 1/2: 0, else 1 (the end farther from the
  maximum is the lower one).

Where figure 5 and algorithm 1 differ, algorithm 1 is taken, which section 5.3 calls the pseudocode:
a link starts at the mean of its paths weighted by packets (figure 5: the plain mean), and a step
takes the lowest point of [0, 1] (figure 5: the vertex, clipped).

A path of n probes stands for n / 100 of the paper's, over each of which 100 probes go (section
6.1): it counts so often in the sum of squared errors, and one of them is sure to be good if fewer
probes than these were lost.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterable, Sequence
from functools import reduce
from typing import TypeVar

Link = TypeVar("Link", bound=Hashable)


def total(values: Iterable[float]) -> float:
    """Return the sum of numbers, added in their order, each sum rounded.

    With few packets both ends of [0, 1] can be as good as each other, and rounding decides.
    Python's `sum` rounds otherwise since 3.12.
    """
    return reduce(operator.add, values, 0.0)


def algorithm_1(
    paths: Sequence[Sequence[Link]],
    y: Sequence[float],
    n: Sequence[float],
    links: Sequence[Link],
    penalty: float,
    epsilon: float,
    times: Sequence[float] | None = None,
) -> tuple[dict[Link, float], list[float]]:
    """Return each link's success probability, and the objective before and after each round.

    Args:
        paths: The links of each path.
        y: Its success probability.
        n: Its packets.
        links: In the order of line 4. Those that are on no path are left out.
        times: How many paths each stands for, 1 unless given.
    """
    w = [1.0] * len(paths) if times is None else times
    over: dict[Link, list[int]] = {i: [] for i in links}
    for j, path in enumerate(paths):
        for i in set(path):
            over[i].append(j)
    x = {}
    for i in links:
        if over[i]:
            x[i] = total(n[j] * y[j] for j in over[i]) / total(n[j] for j in over[i])  # line 1

    def objective() -> float:
        product = [math.prod(x[i] for i in path) for path in paths]
        error = sum(w[j] * (y[j] - product[j]) ** 2 for j in range(len(paths)))
        return error + penalty * sum(x[i] * (1 - x[i]) for i in x)

    values = [objective()]
    while True:  # line 2; the paper prints no number for K
        for i in x:  # lines 3 and 4
            others = {j: math.prod(x[o] for o in paths[j] if o != i) for j in over[i]}
            r = 2 * total(w[j] * others[j] ** 2 for j in over[i]) - 2 * penalty
            s = 2 * total(w[j] * y[j] * others[j] for j in over[i]) - penalty
            if r == 0:
                x[i] = 1.0 if s > 0 else 0.0
            elif r > 0:
                t = s / r
                x[i] = 1.0 if t > 1 else 0.0 if t < 0 else t
            else:
                x[i] = 0.0 if s / r > 1 / 2 else 1.0
        values.append(objective())  # line 18
        if values[-2] - values[-1] < epsilon:  # line 19
            return x, values


def bad_devices(
    paths: Sequence[Sequence[Hashable]], good: Sequence[bool], devices: Iterable[int]
) -> set[int]:
    """Figure 3, lines 9 to 16. ``paths`` are of devices; those on none are not in question."""
    bad = set()
    for device in devices:
        through = [j for j, path in enumerate(paths) if device in path]
        if through and not any(good[j] for j in through):
            bad.add(device)
    return bad


def processor(
    paths: Sequence[Sequence[int]],
    ends: Sequence[tuple[int, int]],
    sent: Sequence[int],
    lost: Sequence[int],
    penalty: float,
    epsilon: float,
    threshold: float,
    rounds: int = 1,
) -> tuple[set[int], set[int]]:
    """Figure 3: the bad devices, and the bad links with all links of these (section 6.3).

    With several ``rounds`` the links found are removed after each, and the paths through them
    (netbouncer-stage: Canary, section IV-D).

    Args:
        paths: Undirected links of each path, ascending.
        ends: The two devices of each link.
        sent, lost: Packets of each path. A path that was not probed has none.
    """
    probed = [j for j in range(len(paths)) if sent[j] > 0]
    y = {j: 1 - lost[j] / sent[j] for j in probed}
    crossed = [[device for link in paths[j] for device in ends[link]] for j in probed]
    good = [lost[j] == 0 or lost[j] < sent[j] / 100 for j in probed]
    devices = bad_devices(crossed, good, {d for two in ends for d in two})
    blamed = {link for link, two in enumerate(ends) if devices & set(two)}
    for _ in range(rounds):
        left = [j for j in probed if not blamed & set(paths[j])]
        x, _ = algorithm_1(
            [paths[j] for j in left],
            [y[j] for j in left],
            [sent[j] for j in left],
            range(len(ends)),
            penalty,
            epsilon,
            [sent[j] / 100 for j in left],
        )
        blamed |= {link for link in x if x[link] <= threshold}  # figure 5, line 10
    return devices, blamed
