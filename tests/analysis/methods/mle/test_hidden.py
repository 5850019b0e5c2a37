"""Flows of hidden paths: what a unit's entries say against the mixture written out."""

import numpy as np
import pytest

from analysis.methods.mle.hidden import (
    GIVEN,
    HiddenFlows,
    entries_gain,
    likelihood,
    share_out,
    sum_up,
)

PATHS = [[4, a, b] for a in (0, 1) for b in (2, 3)]
RATES = np.array([1e-4, 2e-3, 3e-4, 0.05, 1e-4])


def flows(seed, n=30):
    rng = np.random.default_rng(seed)
    sent = rng.integers(1, 500, n)
    lost = np.minimum(np.where(rng.random(n) < 0.3, rng.integers(1, 5, n), 0), sent)
    return sent.astype(float), lost.astype(float)


def hidden(arrived, lost):
    columns = sum_up(1, np.zeros(len(lost), np.int64), arrived, lost, np.ones(len(lost)))
    units = np.array(PATHS, np.int32).reshape(-1)
    return HiddenFlows(
        np.array([0, 4]), np.arange(5) * 3, units, np.ones(4), *columns, np.full(1, 3.0)
    )


def plain(h, x):
    """The logarithm of (1/w) sum over paths of e^(-aX) (1 - e^-X)^k, over all flows."""
    rate = np.array([x[path].sum() for path in PATHS])
    total = 0.0
    for arrived, lost, times in zip(h.arrived, h.lost, h.times, strict=True):
        if lost == GIVEN:
            total -= times * np.log(np.mean(-np.expm1(-arrived * rate)))
        else:
            each = np.exp(-arrived * rate) * (-np.expm1(-rate)) ** lost
            total += times * np.log(each.mean())
    return total


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("given", [False, True])
def test_entries_are_the_mixture(seed, given):
    sent, lost = flows(seed)
    h = hidden(sent, np.full(len(sent), GIVEN)) if given else hidden(sent - lost, lost)
    now = plain(h, RATES)
    assert likelihood(h, RATES, np.zeros((2, 4))) == pytest.approx(now)
    entries = share_out(h, RATES, 2e-3)
    for unit in (0, 1, 2):
        for rate in (1e-5, 1e-3, 1e-2):
            x = RATES.copy()
            x[unit] = rate
            gain = entries_gain(unit, RATES[unit], rate - RATES[unit], entries)
            assert gain == pytest.approx(plain(h, x) - now, rel=0.05, abs=0.05)


def test_alike_flows_add_up():
    arrived, lost = np.array([100.0, 104.0, 100.0, 7.0]), np.array([0.0, 0.0, 1.0, 0.0])
    ptr, arrived, lost, times = sum_up(2, np.array([1, 1, 1, 0]), arrived, lost, np.ones(4))
    assert ptr.tolist() == [0, 1, 3]
    assert (arrived.tolist(), lost.tolist()) == ([7.0, 102.0, 100.0], [0.0, 0.0, 1.0])
    assert times.tolist() == [1.0, 2.0, 1.0]
