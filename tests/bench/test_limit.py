"""The exhaustive search of the limit bench is what it says."""

import numpy as np
import pytest

from tests.bench.bench_laws import LAWS
from tests.bench.bench_limit import ALIKE, limit


@pytest.mark.parametrize("faults", [0, 2])
def test_no_set_is_more_likely_than_the_best(faults):
    for seed in range(2):
        case = limit(seed, faults, 1000, LAWS["usual"])
        assert case.of_best >= max(case.of_truth, *case.of_found) - ALIKE
        assert len(case.truth) == faults
        if np.array_equal(case.best, case.truth):
            assert case.of_best == pytest.approx(case.of_truth, abs=ALIKE)
