# SPDX-License-Identifier: Apache-2.0
"""Tomography on logarithms: L1-regularised least squares, by coordinate descent.

Equation 1 of the NetBouncer paper, y_j = prod of the x_i on path j, is linear in b_i = ln x_i:

    minimise sum_j w_j (ln y_j - sum_{i on j} b_i)^2 + omega * sum_i |b_i|    subject to b_i <= 0

is convex (w_j is how many paths one stands for, as in `coordinate_descent`), and each step of
coordinate descent is exact. NetScope is this (section III-D of Ghita et al., INFOCOM 2010, as the
NetBouncer paper's section 6.5 carries it over), and so is the convex representation of NetBouncer
itself (its section 5.2): near x = 1, where links are, the regulariser x (1 - x) is -ln x.

The logarithm is the weakness of both: a path that loses all packets has no finite logarithm, and
the few packets that pass a very lossy path weigh as much as the many of a good one.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from analysis.solvers.incidence import Incidence, Sweeps
from testbed.arrays import BoolArray, FloatArray, IntArray
from testbed.kernels import Bound, Kernels

_KERNELS = Kernels.beside(__file__)


def log_least_squares(
    incidence: Incidence,
    y: FloatArray,
    times: FloatArray | None = None,
    *,
    omega: float = 1.0,
    tolerance: float = 1e-4,
    max_iterations: int | None = None,
    used: BoolArray | None = None,
) -> FloatArray:
    """Return the success probability exp(b_i) of each local link: float64[n_links].

    Coordinate descent starts from b = 0 and stops when an iteration lowers the objective by less
    than ``tolerance``, or does not lower it. A link on no used path stays 1.

    Args:
        incidence: Paths and links.
        y: Observed success probability of each path, float64[n_paths], above 0.
        times: w, the weight of each path, float64[n_paths], above 0 for used paths. Default: 1.
        omega: Weight of the L1 norm.
        tolerance: The decrease of the objective below which the descent stops.
        max_iterations: The most iterations; None for no limit.
        used: The paths to fit (bool[n_paths]); the others are ignored. Default: all.
    """
    times = np.ones(incidence.n_paths) if times is None else times
    if used is not None:
        times = np.where(used, times, 0.0)
    sweeps, b = Sweeps(incidence), np.zeros(incidence.n_links)
    weight = np.ascontiguousarray(times, np.float64)
    fit = _KERNELS.bound("Fit", _Fit(np.log(y), weight, b, float(omega)))
    before = np.inf
    for number in itertools.count():
        now = sum(sweeps.run(_squares, sweeps.incidence, fit)) - omega * float(b.sum())
        if before - now < tolerance or before <= now or number == max_iterations:
            break
        before = now
        sweeps.sweep(_step, sweeps.incidence, fit)
    return np.exp(b)


class _Fit(NamedTuple):
    """The state of a descent, which kernels read and modify.

    Attributes:
        residual: ln y_j less the sum of b over path j, float64[P].
        times: The weight of each path, float64[P]; 0 if it is not fitted.
        b: Current logarithm of each local link's success probability, float64[L].
        omega: Weight of the L1 norm.
    """

    residual: FloatArray
    times: FloatArray
    b: FloatArray
    omega: float


def _squares(part: int, parts: int, incidence: Bound, fit: Bound) -> float:
    return _KERNELS.squares(part=part, parts=parts, incidence=incidence, fit=fit)


def _step(part: int, parts: int, order: IntArray, incidence: Bound, fit: Bound) -> None:
    _KERNELS.step(part=part, parts=parts, order=order, incidence=incidence, fit=fit)
