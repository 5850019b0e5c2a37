# SPDX-License-Identifier: Apache-2.0
"""F1 at the best cut of a method's own ranking."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.evaluation.metrics import best_cut, score
from analysis.evaluation.report import threshold_line
from testbed.fabric.fat_tree import FatTree

FABRIC = FatTree(4)
N = FABRIC.n_links
EVERY = np.ones(N, np.bool_)


def scores(first: list[int]) -> np.ndarray:
    found = np.zeros(N)
    found[first] = np.arange(len(first), 0, -1)
    return found


def test_a_threshold_that_is_too_high_is_seen() -> None:
    ranked, truth = scores([7, 3, 9, 1]), np.array([3, 7, 9])
    own = score(np.array([7]), truth, FABRIC, suspicion=ranked)["directed"]
    assert own.f1 == 0.5 and own.best_f1 == 1.0
    assert "costs 0.50 of F1" in threshold_line(own.f1, own.best_f1)
    assert threshold_line(0.9, 1.0) == "" and threshold_line(None, 1.0) == ""


def test_a_threshold_that_is_too_low_is_seen() -> None:
    blamed = np.array([7, 3, 9, 1])
    own = score(blamed, np.array([7]), FABRIC, suspicion=scores([7, 3, 9, 1]))["directed"]
    assert own.f1 == 0.4 and own.best_f1 == 1.0


def test_equal_scores_are_taken_together() -> None:
    flat = np.zeros(N)
    assert best_cut(np.zeros(0, int), np.array([5]), EVERY, flat) == 2 / (N + 1)


def test_blamed_links_come_first_and_what_is_not_observed_never() -> None:
    judged = EVERY.copy()
    judged[[8, 3]] = False
    ranked = scores([8, 3, 5])
    assert best_cut(np.zeros(0, int), np.array([5]), judged, ranked) == 1.0
    assert math.isnan(best_cut(np.zeros(0, int), np.array([3]), judged, ranked))
    assert best_cut(np.zeros(0, int), np.zeros(0, int), judged, ranked) == 1.0


@given(
    st.lists(st.integers(0, 3), min_size=N, max_size=N),
    st.sets(st.integers(0, N - 1)),
    st.sets(st.integers(0, N - 1), min_size=1),
)
def test_it_is_the_best_of_all_cuts(levels: list[int], blamed: set[int], faulty: set[int]) -> None:
    """And so never below the method's own F1."""
    flagged, truth = (np.array(sorted(links), int) for links in (blamed, faulty))
    keys = {link: (link in blamed, levels[link]) for link in range(N)}
    best = 0.0
    for least in set(keys.values()):
        accused = {link for link in range(N) if keys[link] >= least}
        best = max(best, 2 * len(accused & faulty) / (len(accused) + len(faulty)))
    found = score(flagged, truth, FABRIC, suspicion=np.array(levels, float))["directed"]
    assert found.best_f1 == best and found.best_f1 >= found.f1
