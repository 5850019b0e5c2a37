# SPDX-License-Identifier: Apache-2.0
"""The paper's figure 5, equation 4, the noise filter and the accuracy the method has."""

import numpy as np
import pytest

from analysis.evaluation.metrics import score
from analysis.methods import canary
from analysis.methods.canary import Canary, Filter, aggregate
from analysis.solvers.incidence import Incidence
from analysis.solvers.stages import PathRates, loss_group, map_success, solve_stages
from analysis.telemetry.telemetry import SegmentCounts, Telemetry
from testbed.fabric.fat_tree import FatTree
from tests.analysis.conftest import paper_rates


def test_equation_4():
    assert map_success(np.array([0.998]), np.array([4]))[0] == pytest.approx(
        0.7955, abs=1e-4
    )  # printed as 0.795
    edges = map_success(np.array([0.8, 0.9, 0.99, 0.9999, 0.0]), np.array([1, 1, 4, 4, 0]))
    assert edges == pytest.approx([0.0, 0.8, 0.0, 0.8, 0.0])
    assert map_success(np.array([0.3]), np.array([0]))[0] == pytest.approx(0.3)


def test_the_linear_map():
    y, last = np.array([0.99, 0.9945, 0.999, 0.5]), np.full(4, 4)
    mapped = map_success(y, last, mapping="linear")
    assert mapped == pytest.approx([0.0, 0.4, 0.8, 0.0])
    with pytest.raises(ValueError, match="mapping='log': it should be 'logarithmic' or 'linear'"):
        Canary(mapping="log")  # pyright: ignore[reportArgumentType]


def test_groups():
    y = 1 - np.array([1.0, 0.2, 0.199, 0.1, 0.05, 0.01, 0.009, 0.001, 1e-5])
    assert loss_group(y).tolist() == [0, 0, 1, 1, 2, 3, 4, 4, 4]
    with pytest.raises(ValueError, match="groups"):
        Canary(groups=(0.5, 0.1))


@pytest.mark.parametrize("k", [8])
def test_figure_5(k):
    """core->agg at 0.3 and agg->tor at 0.002: both found, in the first and in the last stage."""
    topology = FatTree(k)
    core, agg, tor = topology.core(0), topology.agg(0, 0), topology.tor(0, 3)
    names = topology.switch_names
    high = topology.link(f"{names[core]}->{names[agg]}")
    low = topology.link(f"{names[agg]}->{names[tor]}")
    loss = np.zeros(topology.n_links)
    loss[high], loss[low] = 0.3, 0.002
    segments = topology.segments()
    through = np.array([np.prod(1 - loss[segments.paths[s]]) for s in range(len(segments))])
    # As in the figure: the lossy segments are those through core 0 and the other three cores of
    # the same aggregation switch; segments from other ToRs are not in the picture.
    shown = segments.upstream >= topology.n_tors
    sent = np.where(shown, 10**6, 0).astype(np.int64)[None, :]
    lost = np.round(sent * (1 - through)).astype(np.int64)
    telemetry = Telemetry(topology, "tor+core", segments=SegmentCounts(segments, sent, lost))
    result = Canary().localize(telemetry)
    assert result.flagged.tolist() == sorted([high, low])
    assert result.stages[0].tolist() == [high] == result.stages[3].tolist()
    assert result.success[high] == pytest.approx(0.7, abs=0.001)
    assert result.success[low] == pytest.approx(0.998, abs=1e-4)


def test_filter_needs_losses_in_enough_epochs():
    segments = FatTree(4).segments()
    sent = np.zeros((6, len(segments)), np.int64)
    lost = np.zeros_like(sent)
    sent[:, :3] = 1000
    lost[0, 0] = 3  # one epoch of six: noise
    lost[:2, 1] = 1  # two of six: loss
    sent[2:, 2], lost[0, 2] = 0, 1  # one of the two that observed it: loss
    rates = aggregate(SegmentCounts(segments, sent, lost), Filter(0.25))
    assert rates.lossy[:3].tolist() == [False, True, True]
    assert rates.success[:3] == pytest.approx([1, 1 - 2 / 6000, 1 - 1 / 2000])
    assert rates.observed.sum() == 3


@pytest.mark.parametrize(("k", "seeds", "least"), [(4, 10, 0.85), (8, 3, 0.97)])
def test_accuracy(synthetic, k, seeds, least):
    f1 = []
    for seed in range(seeds):
        world = synthetic.make_world(k=k, seed=seed, packets=1000, flows=10)
        result = Canary().localize(world.telemetry)
        f1.append(score(result.flagged, world.faulty, world.topology)["directed"].f1)
    assert np.mean(f1) >= least


def test_threads_do_not_matter(synthetic):
    world = synthetic.make_world(k=6, seed=1, flows=10)
    usual = Canary().localize(world.telemetry)
    for threads in (1, 4):
        other = Canary(threads=threads).localize(world.telemetry)
        assert np.array_equal(usual.flagged, other.flagged)
        assert np.array_equal(usual.success, other.success, equal_nan=True)


def test_small_problems_start_no_threads(synthetic, monkeypatch):
    """They would take several times as long."""
    world = synthetic.make_world(k=6, seed=1, flows=10)
    monkeypatch.setattr(canary, "ThreadPoolExecutor", None)
    Canary().localize(world.telemetry)


def test_few_packets_convict_no_healthy_link_that_is_acquitted():
    """Many paths a link, 30 packets a segment: the rates of a lossy link's segments
    scatter over the groups, and healthy links beside several such seem to lose as much."""
    wrong, as_published = [], 0
    segments = FatTree(24).segments()
    paths = segments.paths.take(np.flatnonzero(segments.subproblem == 0))
    incidence = Incidence.of(paths)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        loss = np.zeros(incidence.n_links)
        faulty = rng.choice(len(loss), len(loss) // 10, replace=False)
        loss[faulty] = paper_rates(len(faulty), rng)
        through = np.multiply.reduceat((1 - loss)[incidence.links], incidence.path_ptr[:-1])
        sent = np.full(len(paths), 30, np.int64)
        lost = rng.binomial(sent, 1 - through)
        rates = PathRates(1 - lost / sent, sent, lost > 0)
        as_published += ((solve_stages(incidence, rates)[1] < 5) & (loss == 0)).sum()
        blamed = solve_stages(incidence, rates, own_share=0.5)[1] < 5
        wrong.append((blamed & (loss == 0)).sum())
        assert (blamed & (loss > 0)).sum() >= 0.9 * len(faulty)
    assert sum(wrong) <= 1 and as_published > 30
