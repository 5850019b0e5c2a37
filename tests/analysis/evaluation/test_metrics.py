# SPDX-License-Identifier: Apache-2.0
"""Scores and their conventions."""

import math

import numpy as np
import pytest

from analysis.evaluation.metrics import lossy_links, score
from testbed.fabric.fat_tree import FatTree

TOPOLOGY = FatTree(4)


def links(*ids):
    return np.array(ids, np.int32)


def test_counts_and_names_of_errors():
    result = score(links(0, 1, 7, 7), links(0, 4), TOPOLOGY)
    directed, undirected = result["directed"], result["undirected"]
    assert (directed.true_positives, directed.false_positives, directed.false_negatives) == (
        1,
        2,
        1,
    )
    assert directed.wrong == (1, 7) and directed.missed == (4,)
    assert directed.precision == pytest.approx(1 / 3) and directed.recall == 0.5
    assert directed.f1 == pytest.approx(0.4)
    assert directed.accuracy == pytest.approx(1 - 3 / TOPOLOGY.n_links)
    assert (undirected.true_positives, undirected.wrong, undirected.missed) == (1, (3,), (2,))


def test_conventions():
    silent = score(links(), links(), TOPOLOGY)["directed"]
    assert math.isnan(silent.precision), "of no link blamed none is right, and none is wrong"
    assert (silent.recall, silent.f1, silent.accuracy) == (1, 1, 1)
    blind = score(links(), links(3), TOPOLOGY)["directed"]
    assert math.isnan(blind.precision)
    assert (blind.recall, blind.f1) == (0, 0)
    alarm = score(links(3), links(), TOPOLOGY)["directed"]
    assert (alarm.precision, alarm.recall, alarm.f1) == (0, 1, 0)


def test_links_that_really_lost_packets():
    """A fault that met no packet lost none; noise is no loss; the emulator's own drops are."""
    faulty = np.zeros(TOPOLOGY.n_links, bool)
    faulty[[3, 5]] = True
    fault_drops = np.zeros(TOPOLOGY.n_links, np.int64)
    fault_drops[[5, 9]] = 40, 2
    lost = lossy_links(faulty, fault_drops, links(11, 11, 5))
    assert lost.tolist() == [5, 11]
    blamed = links(5, 11)
    assert score(blamed, np.flatnonzero(faulty), TOPOLOGY)["directed"].wrong == (11,)
    assert score(blamed, lost, TOPOLOGY)["directed"].wrong == ()


def test_unknown_links():
    with pytest.raises(ValueError, match="no link"):
        score(links(10**6), links(), TOPOLOGY)
