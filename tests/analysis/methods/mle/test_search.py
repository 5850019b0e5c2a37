# SPDX-License-Identifier: Apache-2.0
"""The sparse likelihood over known paths: known answers, against exhaustive search, accuracy.

And: the search in components is the search of the whole, on any number of threads.
"""

from __future__ import annotations

import os
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from analysis.evaluation.metrics import score
from analysis.methods.mle import search
from analysis.methods.mle.mle import CanaryMle, Mle
from analysis.methods.mle.problem import Components, Observed, Rows, Units, marks, observe
from analysis.methods.mle.search import explain as explain_rows
from analysis.methods.mle.search import penalty_of, suspects
from testbed.fabric.paths import Paths

GRID = np.array([[a, 4 + b] for a in range(4) for b in range(4)])


def explain(paths, sent, lost, penalty=None, fault_rate=1e-3):
    """Loss rate of each link, 1e-5 where healthy in a clean background, and its evidence."""
    observed = Observed(paths, np.asarray(sent, float), np.asarray(lost, float))
    units = Units.of(marks([paths], int(paths.links.max()) + 1))
    rows = observe([observed], units)
    if penalty is None:
        penalty = penalty_of(len(units.size))
    candidate = suspects(rows.lost_over(), rows.arrived, fault_rate)
    found = explain_rows(rows, units.size, candidate, fault_rate=fault_rate, penalty=penalty)
    loss = -np.expm1(-np.where(found.blamed, found.x, found.law[0]))
    return loss[units.of_link], found.gains[units.of_link]


def test_two_lossy_links_and_their_rates():
    paths = Paths.from_padded(GRID)
    truth = np.zeros(8)
    truth[1], truth[6] = 0.3, 0.002
    sent = np.full(16, 100_000)
    lost = np.round(sent * (1 - (1 - truth[GRID]).prod(axis=1))).astype(np.int64)
    loss, gain = explain(paths, sent, lost)
    assert loss == pytest.approx(np.where(truth > 0, truth, 1e-5), rel=0.01)
    assert gain[[1, 6]].min() > 100


def test_dead_link():
    paths = Paths.from_padded(GRID)
    sent = np.full(16, 500)
    lost = np.where(GRID[:, 0] == 2, 500, 0)
    loss, _ = explain(paths, sent, lost)
    assert loss[2] == pytest.approx(1.0) and np.delete(loss, 2) == pytest.approx(1e-5)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))]
)
def test_reaches_the_best_explanation(seed):
    """No set of up to three links has a better penalised likelihood."""
    rng = np.random.default_rng(seed)
    paths = Paths.from_padded(GRID)
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
            method="SLSQP",
        )
        return -fit.fun - penalty * len(chosen)

    loss, _ = explain(paths, sent, lost, penalty=penalty)
    blamed = tuple(np.flatnonzero(loss > 1e-4))
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
    loss, gain = explain(Paths.from_padded(rows), sent, lost, penalty=6.0)
    for part in (0, 1):
        own = rows[:, 0] % 2 == part
        links = np.unique(rows[own])
        alone = Paths.from_padded(rows[own])
        found, evidence = explain(alone, sent[own], lost[own], penalty=6.0)
        assert found[links] == pytest.approx(loss[links], rel=0.01)
        assert evidence[links] == pytest.approx(gain[links], abs=0.1)
    assert (loss > 1e-4).sum() >= 3


@pytest.mark.parametrize(("k", "seeds", "least"), [(4, 10, 0.97), (8, 3, 0.99)])
def test_accuracy(synthetic, k, seeds, least):
    f1 = []
    for seed in range(seeds):
        world = synthetic.make_world(k=k, seed=seed, packets=1000, flows=10)
        result = CanaryMle().localize(world.telemetry)
        f1.append(score(result.flagged, world.faulty, world.topology)["directed"].f1)
    assert np.mean(f1) >= least


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="fault_rate"):
        CanaryMle(fault_rate=0)
    with pytest.raises(ValueError, match="kind 'B1' is unknown: use segments, A1"):
        Mle(kinds="A1+B1")


@pytest.mark.parametrize(
    ("sent", "lost"), [(10_000, 7_525), (334_463_996_606_017, 251_703_877_191_280)]
)
def test_equal_explanations_of_many_packets_come_to_an_end(sent, lost):
    """Two links of which only one segment tells are one tie; with a little more, rounding must not
    swap them for ever."""
    paths = Paths(np.array([0, 2]), np.array([0, 1], np.int32))
    loss, gain = explain(paths, np.array([sent]), np.array([lost]))
    assert (loss > 0.1).all() and np.isfinite(gain).all()
    paths = Paths(np.array([0, 2, 3, 4]), np.array([0, 1, 0, 1], np.int32))
    loss, gain = explain(paths, np.array([sent, 1, 1]), np.array([lost, 0, 0]))
    assert (loss > 0.1).sum() == 1 and np.isfinite(gain).all()
    assert loss.max() == pytest.approx(lost / sent, rel=1e-3)


@pytest.mark.parametrize("kinds", ["segments", "segments+A1", "detector"])
def test_components_and_threads_change_nothing(synthetic, monkeypatch, kinds):
    rng = np.random.default_rng(4)
    loss = rng.uniform(0, 1e-4, 256)
    loss[rng.choice(256, 25, replace=False)] = rng.uniform(2e-3, 0.5, 25)
    telemetry = synthetic.make_world(k=6, seed=4, loss=np.resize(loss, 216)).telemetry
    whole = Mle(kinds=kinds).localize(telemetry)
    monkeypatch.setattr(search, "FEW", 0)
    split = Mle(kinds=kinds).localize(telemetry)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(5))
    threads = Mle(kinds=kinds).localize(telemetry)
    assert np.array_equal(split.flagged, whole.flagged) and split.flagged.size
    assert split.success == pytest.approx(whole.success, rel=0.01, nan_ok=True)
    for name in ("flagged", "success", "score"):
        assert np.array_equal(getattr(split, name), getattr(threads, name), equal_nan=True)


def test_each_component_has_rows_of_its_own():
    """Rows {0, 3}, {3, 4} and {1, 2}; nothing is known of unit 5."""
    rows = Rows(
        ptr=np.array([0, 2, 4, 6]),
        units=np.array([0, 3, 1, 2, 3, 4], np.int32),
        unit_ptr=np.array([0, 1, 2, 3, 5, 6, 6]),
        rows=np.array([0, 1, 1, 0, 2, 2], np.int32),
        lost=np.array([1.0, 2.0, 3.0]),
        arrived=np.arange(6.0),
    )
    parts = Components.of(rows)
    found = [
        (set(parts.unit[w.units].tolist()), set(rows.lost[parts.row[w.rows]].tolist()))
        for w in parts.windows
    ]
    assert found == [({0, 3, 4}, {1.0, 3.0}), ({1, 2}, {2.0}), ({5}, set())]
    assert parts.rows.arrived.tolist() == parts.unit.tolist()
