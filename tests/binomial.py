# SPDX-License-Identifier: Apache-2.0
"""How likely binomial counts are. `scipy.stats` says it, too, but its import takes a tenth of the
time in which a process collects all tests."""

from __future__ import annotations

import numpy as np
from scipy.special import bdtr, bdtrc


def tail(k: np.ndarray | int, n: np.ndarray | int, p: np.ndarray | float) -> np.ndarray:
    """Return the probability of a count, of ``n`` trials that succeed with probability ``p``, that
    is as far from the mean as ``k`` or farther on the same side."""
    return np.minimum(bdtr(k, n, p), bdtrc(np.subtract(k, 1), n, p))
