# SPDX-License-Identifier: Apache-2.0
"""Coordinate descent for the latent factor model of NetBouncer (section 5, appendix B).

Minimises, over link success probabilities x in [0, 1],

    f(x) = sum_j w_j (y_j - prod_{i on path j} x_i)^2 + lambda * sum_i r(x_i)

one link at a time, with the paper's regulariser r(x) = x (1 - x) or the L1 it is compared with
(section 6.4), r(x) = -x. The paper has no w_j: it is how many of its paths path j stands for. With
w paths over the same links whose mean success is y, the paper's sum is w (y - prod x)^2 and what no
x changes. Both regularisers are parabolas r(x) = a x^2 + b x, so with c_j the product of path j's
other links, f is in x_i the parabola

    (sum_j w_j c_j^2 + lambda a) x^2 - (2 sum_j w_j y_j c_j - lambda b) x + const,

and its derivative is R x - S with R = 2 (sum_j w_j c_j^2 + lambda a) and
S = 2 sum_j w_j y_j c_j - lambda b.
Each step is that of algorithm 1, line by line: T = S / R clipped to [0, 1] where R > 0; where
R < 0 the end that is farther from T, 1 if they are equally far; where R = 0 it is 1 if S > 0, else
0. The objective therefore never rises.

The available text of algorithm 1 has lost its operators; they are inferred from the derivative.
Where figure 5 and algorithm 1 differ, this module follows algorithm 1, which section 5.3 calls the
pseudocode: links start at the mean of their paths weighted by packets (figure 5: the plain mean),
and a step goes to the lowest point of [0, 1] (figure 5: the clipped vertex, which may be a
maximum). The descent stops when a round lowers the objective by less than epsilon. The paper does
not print K, the most rounds; no limit is needed, because the objective is bounded.

**Stochastic gradient descent**, with which the paper compares (section 6.4, figure 7), minimises
the same with the paper's regulariser, path by path in random order: each link of path j goes
against the gradient of the path's error and of a P-th of the regulariser, and is clipped to [0, 1].
The regulariser's steps on a link are postponed until a path of the link has its turn ("lazy
update", Carpenter 2008): one step at learning rate r multiplies x_i - 1/2 by 1 + 2 r lambda / P, so
m steps are one power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.solvers.incidence import Incidence, Sweeps
from testbed.arrays import BoolArray, FloatArray, IntArray
from testbed.kernels import Bound, Kernels

_KERNELS = Kernels.beside(__file__)

EPSILON = 1e-4
"""The paper's epsilon for coordinate descent (figure 7; the available text has lost the dot)."""

_AT_ONCE = 64
"""The most iterations of one call of a kernel."""

Regulariser = Literal["specialised", "l1"]

_PARABOLA = {"specialised": (-1.0, 1.0), "l1": (0.0, -1.0)}
"""The a and b of each regulariser."""


@dataclass(frozen=True)
class Descent:
    """The result of a descent.

    Attributes:
        success: Success probability of each local link, float64[n_links].
        objective: The objective before the first and after each iteration,
            float64[iterations + 1].
    """

    success: FloatArray
    objective: FloatArray


@dataclass(frozen=True)
class Fit:
    """The state of a descent, which kernels read and modify.

    Attributes:
        y: Observed success probability of each path, float64[P].
        times: How many paths each one counts as, float64[P]; 0 if it is not fitted.
        x: Current success probability of each local link, float64[L].
        square, linear: lambda times the regulariser's coefficients a and b.
    """

    y: FloatArray
    times: FloatArray
    x: FloatArray
    square: float
    linear: float

    @cached_property
    def bound(self) -> Bound:
        """Return this in the form that kernels take."""
        return _KERNELS.bound("Fit", self)


def coordinate_descent(
    incidence: Incidence,
    y: FloatArray,
    weight: npt.NDArray[np.number],
    times: FloatArray | None = None,
    *,
    penalty: float = 1.0,
    regulariser: Regulariser = "specialised",
    tolerance: float = EPSILON,
    max_iterations: int | None = None,
    used: BoolArray | None = None,
    sweeps: Sweeps | None = None,
) -> Descent:
    """Fit link success probabilities to path success probabilities by coordinate descent, and
    return them with the objective.

    The descent starts from each link's packet-weighted mean path success (appendix B, line 1). It
    stops when an iteration lowers the objective by less than ``tolerance``, after
    ``max_iterations``, or, without that limit, when an iteration does not lower it. A link on no
    used path is not part of the problem and stays 1. The time of one iteration grows with the
    (path, link) incidences times the links of a path.

    Args:
        incidence: Paths and links.
        y: Observed success probability of each path, float64[n_paths], in [0, 1].
        weight: Packets of each path, [n_paths]; used for the starting point only.
        times: How many paths each one counts as in the sum of squared errors, float64[n_paths],
            above 0 for used paths. Default: 1.
        penalty: lambda, the weight of the regulariser.
        regulariser: The function r that ``penalty`` weighs.
        tolerance: The paper's epsilon.
        max_iterations: The paper's K; None for no limit.
        used: The paths to fit, bool[n_paths]; the others are ignored. Default: all.
        sweeps: The order of updates for ``incidence``, if a caller has computed it already.
    """
    times = np.ones(incidence.n_paths) if times is None else times
    if used is not None:
        times = np.where(used, times, 0.0)
    sweeps = Sweeps(incidence) if sweeps is None else sweeps
    fit = started(sweeps, incidence, y, weight, times, penalty, regulariser)
    history: list[float] = []
    while not _ends(history, tolerance, max_iterations):
        if not sweeps.work:  # all iterations in one call
            limit = None if max_iterations is None else max_iterations + 1 - len(history)
            history += _descended(sweeps, fit, history, tolerance, limit)
            continue
        if history:
            sweeps.sweep(_step, sweeps.incidence, fit.bound)
        history.append(value(sweeps, fit))
    return Descent(fit.x, np.array(history))


def _ends(history: Sequence[float], tolerance: float, max_iterations: int | None) -> bool:
    """Return True if a descent with these objectives has ended."""
    gain = history[-2] - history[-1] if len(history) > 1 else np.inf
    # Rounding may make the last small gain negative; without a limit that, too, ends the loop.
    last = gain <= 0 if max_iterations is None else len(history) > max_iterations
    return gain < tolerance or last


def _descended(
    sweeps: Sweeps, fit: Fit, history: Sequence[float], tolerance: float, limit: int | None
) -> list[float]:
    """Return the next objectives of a descent, at most ``limit``, that one call of a kernel
    computes."""
    added = np.empty(_AT_ONCE if limit is None else min(limit, _AT_ONCE))
    (order,) = sweeps.layers
    done = _KERNELS.descend(
        order=order,
        incidence=sweeps.incidence,
        fit=fit.bound,
        before=history[-1] if history else np.inf,
        tolerance=tolerance,
        limited=limit is not None,
        history=added,
    )
    return added[:done].tolist()


def started(
    sweeps: Sweeps,
    incidence: Incidence,
    y: FloatArray,
    weight: npt.NDArray[np.number],
    times: FloatArray,
    penalty: float,
    regulariser: Regulariser = "specialised",
) -> Fit:
    """Return the start of a descent: each link at its packet-weighted mean path success (appendix
    B, line 1), or at 1 if it is on no used path. The arguments are those of
    `coordinate_descent`."""
    square, linear = (penalty * factor for factor in _PARABOLA[regulariser])
    x = np.ones(incidence.n_links)
    y, times, packets = (np.ascontiguousarray(a, np.float64) for a in (y, times, weight))
    fit = Fit(y, times, x, square, linear)
    sweeps.run(_start, sweeps.incidence, fit.bound, packets)
    return fit


def value(sweeps: Sweeps, fit: Fit) -> float:
    """Return the objective f at the current success probabilities of the links."""
    error = sum(sweeps.run(_error, sweeps.incidence, fit.bound))
    return error + _KERNELS.penalty(incidence=sweeps.incidence, fit=fit.bound)


def objective(
    incidence: Incidence,
    y: FloatArray,
    success: FloatArray,
    penalty: float = 1.0,
    regulariser: Regulariser = "specialised",
) -> float:
    """Return f(x) over all paths, written plainly as a reference for tests and reports.

    Args:
        incidence: Paths and links, each path observed once.
        y: Observed success probability of each path, float64[n_paths].
        success: x, the success probability of each local link, float64[n_links].
        penalty, regulariser: lambda and r.
    """
    product = np.array(
        [
            np.prod(success[incidence.links[a:b]])
            for a, b in zip(incidence.path_ptr[:-1], incidence.path_ptr[1:], strict=True)
        ]
    )
    a, b = _PARABOLA[regulariser]
    return float(((y - product) ** 2).sum() + penalty * (a * success**2 + b * success).sum())


def _start(part: int, parts: int, incidence: Bound, fit: Bound, weight: FloatArray) -> None:
    _KERNELS.start(part=part, parts=parts, incidence=incidence, fit=fit, weight=weight)


def _error(part: int, parts: int, incidence: Bound, fit: Bound) -> float:
    return _KERNELS.error(part=part, parts=parts, incidence=incidence, fit=fit)


def _step(part: int, parts: int, order: IntArray, incidence: Bound, fit: Bound) -> None:
    _KERNELS.step(part=part, parts=parts, order=order, incidence=incidence, fit=fit)


def stochastic_descent(
    incidence: Incidence,
    y: FloatArray,
    *,
    rate: float,
    seed: int,
    penalty: float = 1.0,
    tolerance: float = 1e-4,
    max_rounds: int = 1000,
) -> Descent:
    """Fit link success probabilities to path success probabilities by stochastic gradient descent
    (section 6.4, figure 7), and return them with the objective.

    The descent starts from each link's mean path success (appendix B, line 1). It stops after
    ``max_rounds`` rounds over all paths, or after a round that changes the objective by less than
    ``tolerance`` times its value.

    Args:
        incidence: Paths and links, each path observed once.
        y: Observed success probability of each path, float64[P], in [0, 1].
        rate: Learning rate.
        seed: Seed of the random order of the paths.
        penalty: lambda, the weight of the regulariser.
    """
    rng = np.random.default_rng(seed)
    sweeps, alike = Sweeps(incidence), np.ones(incidence.n_paths)
    fit = started(sweeps, incidence, y, alike, alike, penalty)
    history = [value(sweeps, fit)]
    while len(history) <= max_rounds:
        order = rng.permutation(incidence.n_paths)
        _KERNELS.descend_round(
            incidence=sweeps.incidence,
            y=fit.y,
            x=fit.x,
            order=order,
            rate=rate,
            penalty=penalty / incidence.n_paths,
            updated=np.zeros(incidence.n_links, np.int64),
        )
        history.append(value(sweeps, fit))
        if abs(history[-2] - history[-1]) < tolerance * history[-1]:
            break
    return Descent(fit.x, np.array(history))
