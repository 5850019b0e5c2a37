# SPDX-License-Identifier: Apache-2.0
"""Sweeps: layers on threads come to what one link after the other does, bit for bit."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis.solvers import incidence as incidence_module
from analysis.solvers import parts
from analysis.solvers.coordinate_descent import coordinate_descent
from analysis.solvers.incidence import Incidence, Sweeps
from analysis.solvers.log_least_squares import log_least_squares
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths


@pytest.fixture(scope="module")
def threads():
    """Threads however small the problem."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incidence_module, "LARGE", 1)
        patch.setattr(parts, "FEW", 1)
        yield patch


def random_paths(rng, n_links, n_paths):
    rows = np.full((n_paths, 4), -1)
    for row in rows:
        n = rng.integers(1, 5)
        row[:n] = rng.choice(n_links, n, replace=False)
    return Paths.from_padded(rows)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(1400)  # the last gain is a rounding error
def test_layers_are_exact(threads, seed):
    rng = np.random.default_rng(seed)
    incidence = Incidence.of(random_paths(rng, int(rng.integers(4, 20)), int(rng.integers(1, 40))))
    y, weight = rng.random(incidence.n_paths).round(2), np.ones(incidence.n_paths)
    layered = Sweeps(incidence)
    assert np.array_equal(np.sort(np.concatenate(layered.layers)), np.arange(incidence.n_links))
    for links in layered.layers:  # no two links of a layer share a path
        marked = np.isin(incidence.links, links)
        owner = np.repeat(np.arange(incidence.n_paths), np.diff(incidence.path_ptr))
        assert np.bincount(owner[marked]).max(initial=0) <= 1
    results = []
    for large in (1, 10**9):
        threads.setattr(incidence_module, "LARGE", large)
        results.append(
            (
                coordinate_descent(incidence, y, weight, max_iterations=5, tolerance=-1).success,
                log_least_squares(incidence, y + 0.01, max_iterations=5, tolerance=-1),
            )
        )
    threads.setattr(incidence_module, "LARGE", 1)
    assert np.array_equal(results[0], results[1])


def test_layers_of_a_clos_are_its_tiers(threads):
    topology = FatTree(4)
    incidence = Incidence.of(Ecmp(topology).bounces(), undirected=True)
    assert [len(links) for links in Sweeps(incidence).layers] == [16, 16]


def test_a_chain_is_swept_link_by_link(threads):
    chain = Incidence.of(Paths.from_padded(np.stack((np.arange(200), np.arange(1, 201)), axis=1)))
    layered = Sweeps(chain)
    assert [links.tolist() for links in layered.layers] == [list(range(201))]
    assert layered.work_of_layers == 0
