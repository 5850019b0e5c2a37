# SPDX-License-Identifier: Apache-2.0
"""Connected components are those of SciPy, in the same order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from testbed.fabric.components import components


@pytest.mark.parametrize("edges", [0, 1, 20, 60, 200, 1000])
@pytest.mark.parametrize("n", [1, 2, 50, 300])
def test_they_are_scipys(n: int, edges: int) -> None:
    rng = np.random.default_rng([n, edges])
    for _ in range(5):
        a, b = rng.integers(0, n, (2, edges))
        graph = coo_array((np.ones(edges), (a, b)), shape=(n, n))
        wanted = connected_components(graph, directed=False)[1]
        assert components(a, b, n).tolist() == wanted.tolist()


def test_a_graph_without_nodes_has_none() -> None:
    none = np.zeros(0, np.int64)
    assert components(none, none, 0).tolist() == []


def test_an_edge_to_no_node_is_refused() -> None:
    with pytest.raises(IndexError):
        components(np.array([0]), np.array([3]), 3)
