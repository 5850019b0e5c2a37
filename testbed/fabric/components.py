# SPDX-License-Identifier: Apache-2.0
"""Connected components of a graph.

SciPy's function for them imports its linear algebra, which no run of a usual size needs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)


def components(a: npt.NDArray[np.integer], b: npt.NDArray[np.integer], n_nodes: int) -> IntArray:
    """Return the component of each node, int32[n_nodes], of the graph whose edges join the nodes
    ``a`` and ``b``, int[E] each. Components are numbered from 0 in the order of their first nodes.

    >>> components(np.array([3, 1]), np.array([0, 4]), 5).tolist()
    [0, 1, 2, 0, 1]
    """
    ends = [np.ascontiguousarray(each, np.int32) for each in (a, b)]
    if len(ends[0]) and not 0 <= min(map(np.min, ends)) <= max(map(np.max, ends)) < n_nodes:
        raise IndexError(f"a graph of {n_nodes} nodes has no edge to another")
    label = np.empty(n_nodes, np.int32)
    _KERNELS.label_components(a=ends[0], b=ends[1], label=label)
    return label
