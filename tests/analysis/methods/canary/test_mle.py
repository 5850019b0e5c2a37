"""canary-mle: known answers, against exhaustive search, accuracy."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from analysis.evaluation.metrics import score
from analysis.methods.canary.mle import CanaryMle, explain
from analysis.solvers.incidence import Incidence
from testbed.fabric.paths import Paths

GRID = np.array([[a, 4 + b] for a in range(4) for b in range(4)])


def test_two_lossy_links_and_their_rates():
    incidence = Incidence.of(Paths.from_padded(GRID))
    truth = np.zeros(8)
    truth[1], truth[6] = 0.3, 0.002
    sent = np.full(16, 100_000)
    lost = np.round(sent * (1 - (1 - truth[GRID]).prod(axis=1))).astype(np.int64)
    loss, gain = explain(incidence, sent, lost)
    assert loss == pytest.approx(np.where(truth > 0, truth, 1e-5), rel=0.01)
    assert gain[[1, 6]].min() > 100


def test_dead_link():
    incidence = Incidence.of(Paths.from_padded(GRID))
    sent = np.full(16, 500)
    lost = np.where(GRID[:, 0] == 2, 500, 0)
    loss, _ = explain(incidence, sent, lost)
    assert loss[2] == pytest.approx(1.0) and (np.delete(loss, 2) == 1e-5).all()


@pytest.mark.parametrize("seed", range(3))
def test_reaches_the_best_explanation(seed):
    """No set of up to three links has a better penalised likelihood."""
    rng = np.random.default_rng(seed)
    incidence = Incidence.of(Paths.from_padded(GRID))
    truth = np.full(8, 1e-6)
    truth[rng.choice(8, 2, replace=False)] = rng.choice([0.002, 0.05, 0.4], 2)
    sent = np.full(16, 1000)
    lost = rng.binomial(sent, 1 - (1 - truth[GRID]).prod(axis=1))
    penalty = 6.0

    def likelihood(log_loss, chosen):
        q = np.full(8, 1e-5)
        q[list(chosen)] = np.exp(log_loss)
        through = np.log1p(-np.minimum(q, 1 - 1e-12))[GRID].sum(axis=1)
        return ((sent - lost) * through + lost * np.log(-np.expm1(through))).sum()

    def best(chosen):
        if not chosen:
            return likelihood([], ())
        fit = minimize(
            lambda z: -likelihood(z, chosen),
            np.full(len(chosen), np.log(0.05)),
            bounds=[(np.log(1e-4), 0)] * len(chosen),
        )
        return -fit.fun - penalty * len(chosen)

    loss, _ = explain(incidence, sent, lost, penalty=penalty)
    blamed = tuple(np.flatnonzero(loss > 1e-5))
    ours = likelihood(np.log(loss[list(blamed)]), blamed) - penalty * len(blamed)
    every = [c for n in range(4) for c in combinations(range(8), n)]
    assert ours >= max(best(c) for c in every) - 0.05


def test_components_do_not_see_each_other():
    """Links that no path joins are explained as if alone, wherever their numbers lie."""
    rng = np.random.default_rng(8)
    truth = np.where(rng.random(16) < 0.3, rng.uniform(0.001, 1, 16), 1e-6)
    rows = np.concatenate((2 * GRID, 2 * GRID + 1))[rng.permutation(32)]
    sent = np.full(32, 1000)
    lost = rng.binomial(sent, 1 - (1 - truth[rows]).prod(axis=1))
    loss, gain = explain(Incidence.of(Paths.from_padded(rows)), sent, lost, penalty=6.0)
    for part in (0, 1):
        own = rows[:, 0] % 2 == part
        alone = Incidence.of(Paths.from_padded(rows[own]))
        result = explain(alone, sent[own], lost[own], penalty=6.0)
        assert np.array_equal(result, (loss[alone.link_ids], gain[alone.link_ids]))
    assert (loss > 1e-5).sum() >= 3


@pytest.mark.parametrize(("k", "seeds", "least"), [(4, 10, 0.97), (8, 3, 0.99)])
def test_accuracy(synthetic, k, seeds, least):
    f1 = []
    for seed in range(seeds):
        world = synthetic.make_world(k=k, seed=seed, packets=1000, flows=10)
        result = CanaryMle().localize(world.telemetry)
        f1.append(score(result.flagged, world.faulty, world.topology)["directed"].f1)
    assert np.mean(f1) >= least


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="noise"):
        CanaryMle(noise=0.1, min_loss=0.01)


@pytest.mark.parametrize(
    ("sent", "lost"), [(10_000, 7_525), (334_463_996_606_017, 251_703_877_191_280)]
)
def test_equal_explanations_of_many_packets_come_to_an_end(sent, lost):
    """Two links that only one segment tells of: rounding must not swap them for ever."""
    incidence = Incidence.of(Paths(np.array([0, 2]), np.array([0, 3], np.int32)))
    loss, gain = explain(incidence, np.array([sent]), np.array([lost]))
    assert (loss > 0.1).sum() == 1 and np.isfinite(gain).all()
    assert loss.max() == pytest.approx(lost / sent, rel=1e-3)
