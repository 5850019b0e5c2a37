# SPDX-License-Identifier: Apache-2.0
"""Flows drawn for tests, on K=4."""

import numpy as np

from testbed.fabric.fat_tree import FatTree
from tests.analysis.conftest import path_success

K4 = FatTree(4)


def drawn_flows(loss, seed, n):
    """Flows between ToRs: the two, the path of each, and packets sent and lost."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, K4.n_tors, (2, n)).astype(np.int32)
    dst = np.where(src == dst, (dst + 1) % K4.n_tors, dst).astype(np.int32)
    every = K4.path_sets(src, dst)
    taken = every.paths.take(every.ptr[:-1] + rng.integers(0, every.width))
    sent = rng.integers(5, 400, n)
    return src, dst, taken, sent, rng.binomial(sent, 1 - path_success(taken, loss))
