# SPDX-License-Identifier: Apache-2.0
"""deTector's greedy selection of probe paths (PMC, algorithm 1) in one sub-problem.

A *set* is one link or several that fail together ("virtual links", section 4.2); sets are numbered,
single links first. Sets that no selected path distinguishes are in the same *group*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from testbed.arrays import IntArray, LongArray
from testbed.fabric.probe_matrix.identifiability import combinations
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)


class Choice(NamedTuple):
    """The candidates of a sub-problem and the targets of the selection.

    Candidate ``c`` is a path up climb ``first[c]`` and down climb ``second[c]`` (int32[C] each),
    candidates of one length together. The links of climb ``a`` are ``edges[a, :length[a]]``,
    numbers below ``n_links``.
    """

    first: IntArray
    second: IntArray
    edges: IntArray
    length: IntArray
    n_links: int
    alpha: int
    beta: int

    @property
    def width(self) -> int:
        """Return the most links of a climb, H."""
        return self.edges.shape[1]


class _State(NamedTuple):
    """The state of the selection, and working arrays.

    Attributes:
        weight: The number of selected paths over each set, int32[S].
        group: The group of each set, int32[S].
        size: The number of sets in each group, int32[S + 1].
        hits, seen: Working arrays by group; ``hits`` is zero between two calls.
        on, links: Working arrays: the sets and the links of one path.
        rank: A working array, int32[n_links], zero between two calls.
    """

    weight: IntArray
    group: IntArray
    size: IntArray
    hits: IntArray
    seen: IntArray
    on: LongArray
    links: IntArray
    rank: IntArray


def select(choice: Choice, *, lazy: bool) -> LongArray:
    """Return the indices of the selected candidates, int64[], in the order of selection.

    Among equal scores the earlier candidate is selected, with and without lazy update.
    """
    n_sets = combinations(choice.n_links, choice.beta)
    state = _State(
        weight=np.zeros(n_sets, np.int32),
        group=np.zeros(n_sets, np.int32),
        size=np.zeros(n_sets + 1, np.int32),
        hits=np.zeros(n_sets + 1, np.int32),
        seen=np.empty(n_sets, np.int32),
        on=np.empty(n_sets, np.int64),
        links=np.empty(2 * choice.edges.shape[1], np.int32),
        rank=np.zeros(choice.n_links, np.int32),
    )
    state.size[0] = n_sets
    chosen = np.empty(len(choice.first), np.int64)
    # The score of each candidate when it was last computed; no score is below -1.
    bound = np.full(len(choice.first), -1, np.int64)
    n = _KERNELS.select_paths(choice=choice, state=state, lazy=lazy, bound=bound, chosen=chosen)
    return chosen[:n]
