"""Stochastic gradient descent for the latent factor model of NetBouncer (section 6.4, figure 7).

Minimises the objective of `analysis.solvers.coordinate_descent` with the paper's regulariser, path
by path in random order: each link of path j goes against the gradient of the path's error and of a
P-th of the regulariser, and is clipped to [0, 1]. What the regulariser does to a link while other
paths have their turn is made up for when a path of the link comes ("lazy update", Carpenter 2008):
one step multiplies x_i - 1/2 by 1 + 2 r lambda / P, so m steps are one power.
"""

from __future__ import annotations

import numpy as np

from analysis.solvers.coordinate_descent import Descent, started, value
from analysis.solvers.incidence import Incidence
from analysis.solvers.sweeps import Sweeps
from testbed.arrays import FloatArray
from testbed.fabric.compiled import njit


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
    """Fit link success probabilities to path success probabilities.

    Starts from each link's mean path success (appendix B, line 1); ends with the round over all
    paths that changes the objective by less than ``tolerance`` of what it is.

    Args:
        incidence: Paths and links.
        y: Success probability of each path, float64[P], in [0, 1].
        rate: Learning rate.
        seed: Of the order of the paths.
        penalty: lambda.
    """
    rng = np.random.default_rng(seed)
    sweeps, alike = Sweeps(incidence), np.ones(incidence.n_paths)
    fit = started(sweeps, incidence, y, alike, alike > 0, penalty)
    history = [value(sweeps, incidence, fit)]
    while len(history) <= max_rounds:
        order = rng.permutation(incidence.n_paths)
        _round(incidence, fit.y, fit.x, order, rate, penalty / incidence.n_paths)
        history.append(value(sweeps, incidence, fit))
        if abs(history[-2] - history[-1]) < tolerance * history[-1]:
            break
    return Descent(fit.x, np.array(history))


@njit
def _round(incidence, y, x, order, rate, penalty):
    """One pass over the paths; ``penalty`` is that of one step."""
    growth = np.log1p(2.0 * rate * penalty)
    seen = np.zeros(len(x), np.int64)
    for step in range(len(order) + 1):
        if step == len(order):  # the rest of the regulariser's steps
            for i in range(len(x)):
                x[i] = _regularised(x[i], growth * (step - seen[i]))
            return
        j = order[step]
        begin, end = incidence.path_ptr[j], incidence.path_ptr[j + 1]
        product = 1.0
        for e in range(begin, end):
            i = incidence.links[e]
            x[i] = _regularised(x[i], growth * (step - seen[i]))
            seen[i] = step
            product *= x[i]
        error = 2.0 * rate * (y[j] - product)
        before = 1.0
        for e in range(begin, end):  # a link at 0 has a gradient, too: no division
            i = incidence.links[e]
            others = before
            for o in range(e + 1, end):
                others *= x[incidence.links[o]]
            before *= x[i]
            x[i] = min(max(x[i] + error * others, 0.0), 1.0)


@njit
def _regularised(x, log_growth):
    return min(max(0.5 + (x - 0.5) * np.exp(log_growth), 0.0), 1.0)
