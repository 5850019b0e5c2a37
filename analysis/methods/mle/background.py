"""The law of healthy links: exponential, its mean fitted to the losses that no fault explains.

Empirical Bayes. If s_i of the losses fell to a healthy link over which A_i packets arrived, its
rate is Gamma distributed with mean (s_i + 1) / (A_i + 1 / mean); the losses of a row fall to its
links in proportion to their rates; the mean of the law is that of the links' means.
"""

from __future__ import annotations

import math

import numpy as np

from analysis.methods.mle.likelihood import FAULT, MEAN, PENALTY, healthy
from testbed.fabric.compiled import kernel

WIDEST = 0.5
"""The mean rate of healthy links is at most this share of a fault's least."""


@kernel
def mean_rate(s, floor):
    """The mean rate of a healthy link, from ``floor`` to half the least of a fault.

    A rate is at most what would be a fault, so the law is cut off there: cut at half its range or
    more it is nearly flat. Uses ``s.kept`` and ``s.share``.
    """
    fault = s.law[FAULT]
    mean = min(s.law[MEAN], WIDEST * fault)
    rate, fallen = s.kept, s.share
    links = 0.0
    for i in range(len(rate)):
        rate[i] = s.x[i] if s.blamed[i] else max(s.x[i], mean * s.size[i])
        if not s.blamed[i]:
            links += s.size[i]
    if links == 0.0:
        return floor
    for _ in range(300):
        fallen[:] = 0.0
        for r in range(len(s.lost)):
            total = 0.0
            for e in range(s.ptr[r], s.ptr[r + 1]):
                total += rate[s.units[e]]
            each = s.lost[r] / total
            for e in range(s.ptr[r], s.ptr[r + 1]):
                i = s.units[e]
                fallen[i] += each * rate[i]
        before, total = mean, 0.0
        for i in range(len(rate)):
            if not s.blamed[i]:
                after = (fallen[i] + s.size[i]) / (s.arrived[i] + 1.0 / mean)
                rate[i] = min(after, fault * s.size[i])
                total += rate[i]
        mean = max(floor, min(total / links, WIDEST * fault))
        if abs(mean - before) < 1e-3 * before:
            break
    fallen[:] = 0.0
    return mean


@kernel
def settled(lost, size):
    """Nats by which the evidence of a healthy unit of ``size`` links, with its rate integrated over
    their law, is below its likelihood and law at the best rate (Laplace, in ln x)."""
    return size - size * np.log(size) + math.lgamma(size) - 0.5 * np.log(2 * np.pi / (lost + size))


@kernel
def width(lost, least):
    """The integral of x^lost e^(-arrived x) over ln x from a fault's least on, relative to its
    peak, to second order around that; ``least`` are the losses expected at a fault's least."""
    if lost > least:
        return np.sqrt(2 * np.pi / lost) * (
            1.0 - 0.5 * math.erfc(np.log(lost / max(least, 1e-9)) * np.sqrt(lost / 2))
        )
    off = (least - lost) / np.sqrt(2 * least) if least > 0.0 else 0.0
    if off > 5.0:
        return 1.0 / (least - lost)
    return np.sqrt(0.5 * np.pi / max(least, 1e-9)) * np.exp(off * off) * math.erfc(off)


@kernel
def evidence(s):
    """The log-likelihood of the rows with healthy units' rates integrated over their law (Laplace),
    less the penalties: what laws are compared by."""
    mean, fault = s.law[MEAN], s.law[FAULT]
    fallen = s.share
    fallen[:] = 0.0
    total = 0.0
    for r in range(len(s.lost)):
        total += s.lost[r] * np.log(-np.expm1(-s.total[r]))
        for e in range(s.ptr[r], s.ptr[r + 1]):
            fallen[s.units[e]] += s.lost[r] * min(s.x[s.units[e]] / s.total[r], 1.0)
    for i in range(len(s.x)):
        total -= s.arrived[i] * s.x[i]
        if s.blamed[i]:
            total -= s.law[PENALTY]
            continue
        total -= healthy(i, s.x[i], s) + settled(fallen[i], s.size[i])
        total -= np.log(-np.expm1(-fault / mean))
    fallen[:] = 0.0
    return total
