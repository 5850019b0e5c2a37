# SPDX-License-Identifier: Apache-2.0
"""Incidence: both directions of look-up say the same, whatever the paths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.solvers import incidence as incidence_module
from analysis.solvers import parts
from analysis.solvers.coordinate_descent import coordinate_descent
from analysis.solvers.incidence import Incidence
from analysis.solvers.log_least_squares import log_least_squares
from testbed.fabric.paths import Paths

PATHS = st.lists(st.lists(st.integers(0, 15), max_size=6), max_size=20)


def csr(paths):
    ptr = np.concatenate(([0], np.cumsum([len(p) for p in paths]))).astype(np.int64)
    return Paths(ptr, np.array([link for p in paths for link in p], np.int32))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), large=st.sampled_from([1, 10**9]))
def test_a_path_that_stands_for_several_is_as_many_equal_paths(seed, large):
    """To coordinate descent and to least squares, but for rounding, and in parts of any size."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(12, rng.integers(1, 5), replace=False).tolist() for _ in range(30)]
    times = rng.integers(1, 4, len(rows))
    each = np.repeat(np.arange(len(rows)), times)
    weight = times.astype(np.float64)
    every, once = Incidence.of(csr([rows[j] for j in each])), Incidence.of(csr(rows))
    sent = rng.integers(1, 100, len(rows))
    y = 1 - rng.binomial(sent, rng.choice([0.0, 0.3], len(rows))) / sent
    used = rng.random(len(rows)) < 0.8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incidence_module, "LARGE", large)
        patch.setattr(parts, "FEW", large)
        many = coordinate_descent(every, y[each], sent[each], penalty=0.1, used=used[each])
        few = coordinate_descent(once, y, sent * times, weight, penalty=0.1, used=used)
        assert np.allclose(many.success, few.success, rtol=0, atol=1e-9)
        assert np.allclose(many.objective, few.objective, rtol=0, atol=1e-9)
        first = log_least_squares(every, y[each] + 0.01, used=used[each])
        second = log_least_squares(once, y + 0.01, weight, used=used)
        assert np.allclose(first, second, rtol=0, atol=1e-9)
