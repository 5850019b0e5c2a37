# SPDX-License-Identifier: Apache-2.0
"""Sherlock's search: every hypothesis of at most k failures, with and without JLE."""

from itertools import combinations

import numpy as np
import pytest

from analysis.methods.flock.flock import Flock
from analysis.methods.flock.flow_values import Loss
from analysis.methods.flock.model import FlockModel
from analysis.methods.flock.search import Search
from analysis.methods.sherlock import Sherlock, ferret
from testbed.fabric.paths import Paths, PathSets


def random_model(seed):
    """Flows with one to three possible paths over up to nine components."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 10))
    width = rng.integers(1, 4, rng.integers(1, 12))
    paths = [
        rng.choice(n, rng.integers(1, min(n, 4) + 1), replace=False) for _ in range(width.sum())
    ]
    ptr = np.concatenate(([0], np.cumsum([len(path) for path in paths]))).astype(np.int64)
    sets = PathSets(
        np.concatenate(([0], np.cumsum(width))).astype(np.int64),
        Paths(ptr, np.concatenate(paths).astype(np.int32)),
    )
    sent = rng.integers(1, 80, len(width))
    lost = rng.binomial(sent, rng.choice([0.0, 0.001, 0.05, 0.5], len(width)))
    loss = Loss((0.02, 3e-4), (0.02, 3e-4))
    return FlockModel.of(sets, np.arange(len(width)), sent, lost, loss, np.full(n, -2.0))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_all_hypotheses_are_tried(most):
    for seed in range(30):
        model = random_model(seed)
        best, value = ferret(model, most, jle=True)
        plain, plain_value = ferret(model, most, jle=False)
        assert best.tolist() == plain.tolist()
        assert value == pytest.approx(plain_value, abs=1e-6)
        every = []
        for size in range(most + 1):
            for chosen in combinations(range(model.n_components), size):
                search = Search(model)
                for component in chosen:
                    search.flip(component)
                every.append(search.posterior())
        assert value == pytest.approx(max(every), abs=1e-6)
        search = Search(model)
        search.move_to(best)
        assert search.posterior() == pytest.approx(value, abs=1e-6)


def test_greedy_finds_what_sherlock_finds(synthetic):
    """Two failures of a K=4 fat-tree (section 6.1: the same accuracy for up to two)."""
    for seed in range(5):
        world = synthetic.make_world(k=4, seed=seed, share=2 / 64, flows=600)
        flock = Flock(conditional=True)
        greedy = Flock(refine=True, conditional=True, severe_p_bad=0.05).localize(world.telemetry)
        exact = Sherlock(flock=flock).localize(world.telemetry)
        plain = Sherlock(flock=flock, jle=False).localize(world.telemetry)
        assert exact.flagged.tolist() == plain.flagged.tolist() == greedy.flagged.tolist()
        assert exact.method == "sherlock" and exact.equivalent is not None


def test_failures_are_at_least_one():
    with pytest.raises(ValueError, match="max_failures"):
        Sherlock(max_failures=0)
