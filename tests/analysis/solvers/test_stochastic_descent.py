# SPDX-License-Identifier: Apache-2.0
"""Stochastic gradient descent comes to what coordinate descent comes to."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.solvers.coordinate_descent import coordinate_descent, objective, stochastic_descent
from analysis.solvers.incidence import Incidence
from testbed.fabric.paths import Paths


def problem(seed: int) -> tuple[Incidence, np.ndarray]:
    """60 links, four of them faulty, 600 paths of four links, 200 packets each."""
    rng = np.random.default_rng(seed)
    rows = np.array([rng.choice(60, 4, replace=False) for _ in range(600)], np.int32)
    success = np.ones(60)
    success[rng.choice(60, 4, replace=False)] = rng.uniform(0, 0.9, 4)
    y = rng.binomial(200, success[rows].prod(axis=1)) / 200
    paths = Paths(np.arange(601, dtype=np.int64) * 4, rows.reshape(-1))
    return Incidence.of(paths), y


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_descents_agree(seed: int) -> None:
    incidence, y = problem(seed)
    exact = coordinate_descent(incidence, y, np.full(len(y), 200))
    found = stochastic_descent(incidence, y, rate=0.02, seed=seed, tolerance=1e-7)
    assert np.abs(found.success - exact.success).max() < 0.02
    assert found.objective[-1] == pytest.approx(objective(incidence, y, found.success))
    assert exact.objective[-1] <= found.objective[-1] < exact.objective[-1] * 1.1


def test_the_seed_orders_the_paths() -> None:
    incidence, y = problem(1)
    first, again, other = (
        stochastic_descent(incidence, y, rate=0.02, seed=seed).success for seed in (5, 5, 6)
    )
    assert (first == again).all()
    assert (first != other).any()
