# SPDX-License-Identifier: Apache-2.0
"""NetScope: the optimum, known answers, the logarithm's edge."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from analysis.evaluation.metrics import score
from analysis.methods.netscope import NetScope
from analysis.solvers.incidence import Incidence
from analysis.solvers.log_least_squares import log_least_squares
from analysis.telemetry.telemetry import Probes, SegmentCounts, Telemetry
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("omega", [0.0, 0.3, 2.0])
def test_reaches_the_optimum(seed, omega):
    """The same objective as a general solver for bounded problems finds."""
    rng = np.random.default_rng(seed)
    rows = np.array([rng.choice(8, 3, replace=False) for _ in range(25)])
    incidence = Incidence.of(Paths.from_padded(rows))
    y = rng.uniform(0.2, 1.0, 25)
    matrix = np.zeros((25, incidence.n_links))
    matrix[np.arange(25).repeat(3), incidence.links] = 1

    def value(b):
        return ((np.log(y) - matrix @ b) ** 2).sum() - omega * b.sum()

    def slope(b):
        return -2 * matrix.T @ (np.log(y) - matrix @ b) - omega

    start = np.full(incidence.n_links, -0.1)
    best = minimize(value, start, jac=slope, bounds=[(None, 0)] * incidence.n_links)
    ours = np.log(log_least_squares(incidence, y, omega=omega, tolerance=1e-12))
    assert (ours <= 0).all()
    assert value(ours) == pytest.approx(best.fun, abs=1e-6)


def test_a_link_alone_is_drawn_up_by_the_norm():
    """b = min(0, mean of ln y + omega / 2n)."""
    incidence = Incidence.of(Paths.from_padded(np.zeros((4, 1), np.int64)))
    y = np.array([0.5, 0.5, 0.6, 0.4])
    b = np.log(log_least_squares(incidence, y, omega=0.8))
    assert b == pytest.approx([np.log(y).mean() + 0.1])
    assert log_least_squares(incidence, y, omega=10.0).tolist() == [1.0]


def exact(topology, paths, loss, packets=10_000):
    through = np.array([np.prod(1 - loss[paths[p]]) for p in range(len(paths))])
    sent = np.full(len(paths), packets, np.int64)
    return sent, np.round(sent * (1 - through)).astype(np.int64)


@pytest.mark.parametrize("rate", [0.05, 0.4, 1.0])
def test_one_lossy_link(rate):
    topology = FatTree(8)
    loss = np.zeros(topology.n_links)
    link = topology.link("tor2_1->agg2_0")
    loss[link] = rate
    paths = Ecmp(topology).bounces()
    telemetry = Telemetry(topology, "tor+core", probes=Probes(paths, *exact(topology, paths, loss)))
    result = NetScope(omega=0.1).localize(telemetry)
    assert result.native == "undirected" and result.flagged.tolist() == [link, link ^ 1]

    segments = topology.segments()
    sent, lost = exact(topology, segments.paths, loss)
    telemetry = Telemetry(
        topology, "tor+core", segments=SegmentCounts(segments, sent[None], lost[None])
    )
    result = NetScope(omega=0.1, inputs="segments").localize(telemetry)
    assert result.native == "directed" and result.flagged.tolist() == [link]
    if rate < 1:
        assert result.success[link] == pytest.approx(1 - rate, abs=0.01)


@pytest.mark.parametrize(
    ("inputs", "omega", "limit"), [("probes", 1.0, 0.99), ("segments", 0.03, 0.997)]
)
def test_accuracy(synthetic, inputs, omega, limit):
    f1 = []
    for seed in range(5):
        world = synthetic.make_world(k=8, seed=seed, undirected=inputs == "probes", flows=10)
        method = NetScope(inputs=inputs, omega=omega, link_threshold=limit)
        flagged = method.localize(world.telemetry).flagged
        kind = "undirected" if inputs == "probes" else "directed"
        f1.append(score(flagged, world.faulty, world.topology)[kind].f1)
    assert np.mean(f1) >= 0.75


def test_parameters_are_checked():
    cases: list[dict[str, Any]] = [{"omega": -1.0}, {"link_threshold": 1.0}, {"inputs": "flows"}]
    for wrong in cases:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            NetScope(**wrong)
