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

import numpy as np
import numpy.typing as npt

from analysis.solvers.incidence import Incidence
from analysis.solvers.sweeps import Sweeps
from testbed.fabric.compiled import njit

__all__ = ["log_least_squares"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def log_least_squares(
    incidence: Incidence,
    y: FloatArray,
    *,
    omega: float = 1.0,
    tolerance: float = 1e-4,
    max_iterations: int = 1000,
    used: BoolArray | None = None,
) -> FloatArray:
    """The success probability exp(b_i) of each local link: float64[n_links].

    Coordinate descent from b = 0, until an iteration lowers the objective by less than
    ``tolerance``. A link on no used path stays 1.

    Args:
        incidence: Paths and links.
        y: Success probability of each path, float64[P], above 0.
        omega: Weight of the L1 norm.
        used: The paths to fit (bool[P]); the others are ignored. Default: all.
    """
    residual = np.log(y)
    if used is None:
        used = np.ones(incidence.n_paths, np.bool_)
    sweeps, b = Sweeps(incidence), np.zeros(incidence.n_links)
    before = np.inf
    for _ in range(max_iterations):
        now = sum(sweeps.run(_squares, residual, used)) - omega * float(b.sum())
        if before - now < tolerance:
            break
        before = now
        sweeps.sweep(_step, incidence.link_ptr, incidence.paths, used, residual, b, omega)
    return np.exp(b)


@njit
def _squares(part, parts, residual, used):  # pragma: no cover - compiled
    total = 0.0
    for j in range(len(used) * part // parts, len(used) * (part + 1) // parts):
        if used[j]:
            total += residual[j] ** 2
    return total


@njit
def _step(
    part, parts, order, link_ptr, paths, used, residual, b, omega
):  # pragma: no cover - compiled
    """The exact step of each link of this part of ``order``."""
    for n in range(len(order) * part // parts, len(order) * (part + 1) // parts):
        i = order[n]
        total, count = 0.0, 0
        for e in range(link_ptr[i], link_ptr[i + 1]):
            if used[paths[e]]:
                total += residual[paths[e]]
                count += 1
        if count == 0:
            continue
        step = min(b[i] + (total + 0.5 * omega) / count, 0.0) - b[i]
        if step != 0.0:
            b[i] += step
            for e in range(link_ptr[i], link_ptr[i + 1]):
                residual[paths[e]] -= step
