"""Flows of hidden paths: alike ones together."""

import numpy as np

from analysis.methods.mle.hidden import sum_up


def test_alike_flows_add_up():
    arrived, lost = np.array([100.0, 104.0, 100.0, 7.0]), np.array([0.0, 0.0, 1.0, 0.0])
    ptr, arrived, lost, times = sum_up(2, np.array([1, 1, 1, 0]), arrived, lost, np.ones(4))
    assert ptr.tolist() == [0, 1, 3]
    assert (arrived.tolist(), lost.tolist()) == ([7.0, 102.0, 100.0], [0.0, 0.0, 1.0])
    assert times.tolist() == [1.0, 2.0, 1.0]
