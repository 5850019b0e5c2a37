"""Loss-free flows of hidden paths: shares and rates in turns climb to the mixture's peak."""

import numpy as np
import pytest

from analysis.methods.mle.arrivals import expected_arrivals, explain_loss_free
from analysis.methods.mle.hidden import HiddenFlows
from analysis.methods.mle.problem import Rows

PATHS = [[4, a, b] for a in (0, 1) for b in (2, 3)]


def hidden(arrived, times):
    units = np.array(PATHS, np.int32).reshape(-1)
    n = len(arrived)
    return HiddenFlows(
        set_ptr=np.array([0, 4]),
        path_ptr=np.arange(5, dtype=np.int32) * 3,
        units=units,
        many=np.ones(4, np.float32),
        flow_ptr=np.array([0, n]),
        arrived=np.array(arrived, float),
        lost=np.zeros(n),
        times=np.array(times, float),
        hops=np.array([3.0]),
    )


def test_equal_shares_without_loss():
    assert expected_arrivals(hidden([100, 10], [2, 5]), np.zeros(5)) == pytest.approx(
        [125, 125, 125, 125, 250]
    )


def test_flows_without_loss_missed_the_lossy_link():
    x = np.array([0.02, 0, 0, 0.01, 0])
    got = expected_arrivals(hidden([100, 10], [2, 5]), x)
    rate = np.array([x[path].sum() for path in PATHS])
    want = np.zeros(5)
    for arrived, times in ((100, 2), (10, 5)):
        share = np.exp(-arrived * rate) / np.exp(-arrived * rate).sum()
        for path, q in zip(PATHS, share, strict=True):
            want[path] += times * arrived * q
    assert got == pytest.approx(want)


@pytest.mark.parametrize("rate", [0.003, 0.05, 1.0])
def test_the_rate_is_that_of_the_mixture(rate):
    """Flows over one link of two; those that lost packets were traced."""
    rng = np.random.default_rng(3)
    sent = rng.integers(1, 800, 3000)
    over = rng.random(3000) < 0.5
    lost = np.where(over, rng.binomial(sent, -np.expm1(-rate)), 0)
    traced = lost > 0
    units = np.array([0, 1], np.int32)
    free, times = np.unique(sent[~traced], return_counts=True)
    h = HiddenFlows(
        np.array([0, 2]),
        np.array([0, 1, 2]),
        units,
        np.ones(2),
        np.array([0, len(free)]),
        free.astype(float),
        np.zeros(len(free)),
        times.astype(float),
        np.ones(1),
    )
    ptr = np.array([0, 1])
    rows = Rows(
        ptr,
        units[:1],
        np.array([0, 1, 1]),
        np.zeros(1, np.int32),
        np.array([lost.sum()], float),
        np.array([(sent - lost)[traced].sum(), 0.0]),
    )
    found = explain_loss_free(
        rows, np.ones(2), np.array([True, False]), h, fault_rate=1e-3, penalty=10.0
    )
    assert found.blamed.tolist() == [True, False]
    grid = rate * np.exp(np.linspace(-0.5, 0.5, 2001))
    a, s, n = rows.arrived[0], rows.lost[0], free[:, None]
    like = s * np.log(-np.expm1(-grid)) - a * grid
    like += (times[:, None] * np.log((np.exp(-n * grid) + 1) / 2)).sum(axis=0)
    assert found.x[0] == pytest.approx(grid[like.argmax()], rel=0.02)
