# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from testbed.traffic.distributions import WORKLOADS, Pareto, SizeTable, flow_sizes

GRID = (np.arange(1_000_000) + 0.5) / 1_000_000


@pytest.mark.parametrize(
    ("workload", "size", "share"),
    [
        ("websearch", 10_000, 0.15),
        ("websearch", 1_000_000, 0.70),
        ("websearch", 30_000_000, 1.0),
        ("hadoop", 350, 0.15),
        ("hadoop", 1000, 0.60),
        ("hadoop", 300_000, 0.95),
        ("storage", 4000, 0.2293),
        ("storage", 2_000_000, 1.0),
    ],
)
def test_tables_are_the_published_ones(workload, size, share):
    assert flow_sizes(workload).quantile(np.array([share]))[0] == pytest.approx(size)


@pytest.mark.parametrize("workload", ["hadoop", "websearch", "storage"])
def test_mean_and_byte_weighting_of_tables(workload):
    sizes = flow_sizes(workload)
    drawn = sizes.quantile(GRID)
    assert drawn.mean() == pytest.approx(sizes.mean, rel=1e-3)
    # the mean of the byte-weighted distribution is E[X^2] / E[X]
    expected = (drawn**2).mean() / drawn.mean()
    assert sizes.quantile_by_bytes(GRID).mean() == pytest.approx(expected, rel=1e-3)


def test_byte_weighting_of_a_uniform_size():
    sizes = SizeTable(np.array([0.0, 10.0]), np.array([0.0, 1.0]))
    assert sizes.quantile_by_bytes(np.array([0.25]))[0] == pytest.approx(5.0)


def test_pareto_is_flocks():
    sizes = Pareto()
    smallest = 200e3 * 0.05 / 1.05
    assert sizes.quantile(np.array([0.0]))[0] == pytest.approx(smallest)
    # P(X > x) = (smallest / x)^1.05
    assert sizes.quantile(np.array([0.9]))[0] == pytest.approx(smallest * 10 ** (1 / 1.05))
    # the share of bytes in flows above x is (smallest / x)^0.05
    assert sizes.quantile_by_bytes(np.array([0.5]))[0] == pytest.approx(smallest * 2**20)
    assert np.isfinite(sizes.quantile_by_bytes(np.array([1 - 2**-53]))).all()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_no_flow_is_empty(workload):
    sizes = flow_sizes(workload)
    assert sizes.quantile(np.zeros(1))[0] >= 1 and sizes.quantile_by_bytes(np.zeros(1))[0] >= 1
