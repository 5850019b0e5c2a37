"""Tomography on logarithms: L1-regularised least squares, by coordinate descent.

Equation 1 of the NetBouncer paper, y_j = prod of the x_i on path j, is linear in b_i = ln x_i:

    minimise sum_j (ln y_j - sum_{i on j} b_i)^2 + omega * sum_i |b_i|    subject to b_i <= 0

is convex, and each step of coordinate descent is exact. NetScope is this (section III-D of Ghita et
al., INFOCOM 2010, as the NetBouncer paper's section 6.5 carries it over), and so is the convex
representation of NetBouncer itself (its section 5.2): near x = 1, where links are, the regulariser
x (1 - x) is -ln x.

The logarithm is what they suffer from: a path that lets nothing through has none, and the few
packets that pass a very lossy path weigh as much as the many of a good one.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from analysis.solvers.incidence import Incidence, Sweeps
from testbed.arrays import BoolArray, FloatArray
from testbed.compiled import kernel


def log_least_squares(
    incidence: Incidence,
    y: FloatArray,
    *,
    omega: float = 1.0,
    tolerance: float = 1e-4,
    max_iterations: int | None = None,
    used: BoolArray | None = None,
) -> FloatArray:
    """The success probability exp(b_i) of each local link: float64[n_links].

    Coordinate descent from b = 0, until an iteration lowers the objective by less than
    ``tolerance``, or not at all. A link on no used path stays 1.

    Args:
        incidence: Paths and links.
        y: Success probability of each path as observed, float64[n_rows], above 0.
        omega: Weight of the L1 norm.
        max_iterations: None, as many as it takes.
        used: The observations to fit (bool[n_rows]); the others are ignored. Default: all.
    """
    if used is None:
        used = np.ones(incidence.n_rows, np.bool_)
    sweeps, b = Sweeps(incidence), np.zeros(incidence.n_links)
    fit = _Fit(np.log(y), used, b, float(omega))
    before = np.inf
    for number in itertools.count():
        now = sum(sweeps.run(_squares, fit)) - omega * float(b.sum())
        if before - now < tolerance or before <= now or number == max_iterations:
            break
        before = now
        sweeps.sweep(_step, incidence, fit)
    return np.exp(b)


class _Fit(NamedTuple):
    """What ln y_j misses of its path's sum, ``residual`` float64[N], what of that is ``used``
    bool[N], and the logarithms ``b`` float64[L], as they are found; the weight of the L1 norm."""

    residual: FloatArray
    used: BoolArray
    b: FloatArray
    omega: float


@kernel
def _squares(part, parts, fit):
    total, n = 0.0, len(fit.used)
    for j in range(n * part // parts, n * (part + 1) // parts):
        if fit.used[j]:
            total += fit.residual[j] ** 2
    return total


@kernel
def _step(part, parts, order, incidence, fit):
    """The exact step of each link of this part of ``order``."""
    for n in range(len(order) * part // parts, len(order) * (part + 1) // parts):
        i = order[n]
        total, count = 0.0, 0
        for e in range(incidence.link_ptr[i], incidence.link_ptr[i + 1]):
            j = incidence.paths[e]
            for row in range(incidence.row_ptr[j], incidence.row_ptr[j + 1]):
                if fit.used[row]:
                    total += fit.residual[row]
                    count += 1
        if count == 0:
            continue
        step = min(fit.b[i] + (total + 0.5 * fit.omega) / count, 0.0) - fit.b[i]
        if step != 0.0:
            fit.b[i] += step
            for e in range(incidence.link_ptr[i], incidence.link_ptr[i + 1]):
                j = incidence.paths[e]
                for row in range(incidence.row_ptr[j], incidence.row_ptr[j + 1]):
                    fit.residual[row] -= step
