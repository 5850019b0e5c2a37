"""Coordinate descent for the latent factor model of NetBouncer (section 5, appendix B).

Minimises, over link success probabilities x in [0, 1],

    f(x) = sum_j (y_j - prod_{i on path j} x_i)^2 + lambda * sum_i x_i (1 - x_i)

one link at a time. With c_j the product of path j's other links, f is in x_i the parabola

    (sum_j c_j^2 - lambda) x^2 - (2 sum_j y_j c_j - lambda) x + const,

so each step is exact: the vertex clipped to [0, 1] where the parabola opens upwards, else the
better of the two ends, 1 on a tie (a link is good until shown otherwise). Algorithm 1 of the paper,
whose scan is garbled there, comes to the same. The objective therefore never rises.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
import numpy.typing as npt

from analysis.incidence import Incidence

__all__ = ["Descent", "coordinate_descent", "objective"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Descent:
    """The outcome: ``success`` float64[n_links], the objective before the first and after each
    iteration (``objective`` float64[iterations + 1])."""

    success: FloatArray
    objective: FloatArray


def coordinate_descent(
    incidence: Incidence,
    y: FloatArray,
    weight: FloatArray,
    *,
    penalty: float = 1.0,
    tolerance: float = 1e-9,
    max_iterations: int = 200,
    used: npt.NDArray[np.bool_] | None = None,
) -> Descent:
    """Fit link success probabilities to path success probabilities.

    Starts from each link's packet-weighted mean path success (appendix B, line 1) and stops when
    an iteration lowers the objective by less than ``tolerance``. A link on no used path stays 1.
    One iteration costs the number of (path, link) incidences times the links of a path.

    Args:
        incidence: Paths and links.
        y: Success probability of each path, float64[P], in [0, 1].
        weight: Packets of each path, float64[P]; they weigh only in the starting point.
        penalty: lambda.
        used: The paths to fit (bool[P]); the others are ignored. Default: all.
    """
    if used is None:
        used = np.ones(incidence.n_paths, np.bool_)
    success, history, n = _descend(
        incidence.path_ptr,
        incidence.links,
        incidence.link_ptr,
        incidence.paths,
        np.ascontiguousarray(y, np.float64),
        np.ascontiguousarray(weight, np.float64),
        used,
        float(penalty),
        float(tolerance),
        int(max_iterations),
    )
    return Descent(success, history[:n])


def objective(
    incidence: Incidence, y: FloatArray, success: FloatArray, penalty: float = 1.0
) -> float:
    """f(x), over all paths (reference form, for tests and reports)."""
    product = np.array(
        [
            np.prod(success[incidence.links[a:b]])
            for a, b in zip(incidence.path_ptr[:-1], incidence.path_ptr[1:], strict=True)
        ]
    )
    return float(((y - product) ** 2).sum() + penalty * (success * (1 - success)).sum())


@nb.njit(cache=True, nogil=True)
def _descend(
    path_ptr, links, link_ptr, paths, y, weight, used, penalty, tolerance, max_iterations
):  # pragma: no cover - compiled
    n_paths, n_links = len(path_ptr) - 1, len(link_ptr) - 1
    x = np.ones(n_links)
    for i in range(n_links):
        packets = good = 0.0
        for e in range(link_ptr[i], link_ptr[i + 1]):
            j = paths[e]
            if used[j]:
                packets += weight[j]
                good += weight[j] * y[j]
        if packets > 0:
            x[i] = min(max(good / packets, 0.0), 1.0)
    history = np.empty(max_iterations + 1)
    n = 0
    while True:
        total = 0.0
        for j in range(n_paths):
            if used[j]:
                product = 1.0
                for e in range(path_ptr[j], path_ptr[j + 1]):
                    product *= x[links[e]]
                total += (y[j] - product) ** 2
        for i in range(n_links):
            total += penalty * x[i] * (1.0 - x[i])
        history[n] = total
        n += 1
        if n > max_iterations or (n > 1 and history[n - 2] - total < tolerance):
            return x, history, n
        for i in range(n_links):
            squares = fit = 0.0
            seen = False
            for e in range(link_ptr[i], link_ptr[i + 1]):
                j = paths[e]
                if not used[j]:
                    continue
                seen = True
                others = 1.0
                for o in range(path_ptr[j], path_ptr[j + 1]):
                    if links[o] != i:
                        others *= x[links[o]]
                squares += others * others
                fit += y[j] * others
            if not seen:
                continue
            if squares > penalty:
                vertex = (2.0 * fit - penalty) / (2.0 * (squares - penalty))
                x[i] = min(max(vertex, 0.0), 1.0)
            elif squares - 2.0 * fit <= 0.0:
                x[i] = 1.0
            else:
                x[i] = 0.0
