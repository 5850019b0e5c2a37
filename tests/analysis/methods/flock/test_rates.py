"""Flock's rates and priors: one setting for few small faults and for many large ones."""

import numpy as np

from analysis.evaluation.metrics import score
from analysis.methods.flock.flock import Flock
from scenarios.papers.flock_world import World, lossy_links
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree


def test_flows_of_hidden_path_do_not_acquit_a_small_fault():
    """A2+P: flows without loss may have crossed a link that loses 0.3 %, and say little of it."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        fabric = FatTree(6)
        truth = np.sort(rng.choice(fabric.n_links, 4, replace=False))
        loss = lossy_links(fabric, truth, np.full(4, 3e-3), rng)
        telemetry = World(Ecmp(fabric), loss, 40_000, 0, rng).telemetry("A2+P")
        assert Flock().localize(telemetry).flagged.tolist() == truth.tolist()


def test_large_faults_of_hidden_paths_convict_few_others(synthetic):
    """A1+P, a tenth of the links lossy at rates up to 1: with one small rate, two bad paths explain
    a lossy flow better than one, and half the fabric is blamed."""
    rng = np.random.default_rng(1)
    fabric = FatTree(8)
    truth, loss = synthetic.break_links(fabric, rng)
    telemetry = World(Ecmp(fabric), loss, 60_000, 2048, rng, packets=40).telemetry("A1+P")
    small, likelier = (method.localize(telemetry) for method in (Flock(severe_p_bad=None), Flock()))
    figures = [score(d.flagged, truth, fabric)["directed"].f1 for d in (small, likelier)]
    assert figures[1] > figures[0] + 0.2


def test_a_large_fabric_has_fewer_false_alarms():
    """The more links there are, the likelier one of them looks bad by chance: a prior that is the
    same for every link blames some of the healthy ones."""
    fabric = FatTree(8)
    alarms = {"same": 0, "spread": 0}
    for seed in range(1000, 1012):
        rng = np.random.default_rng(seed)
        loss = rng.uniform(0, 1e-4, fabric.n_links)
        telemetry = World(Ecmp(fabric), loss, 10_000, 0, rng).telemetry("INT")
        for name, prior in (("same", {"link_prior": -5.0}), ("spread", {"fabric_prior": -2.0})):
            method = Flock(p_good=2e-4, **prior)
            alarms[name] += len(method.localize(telemetry).flagged)
    assert alarms["spread"] <= 1 < 3 <= alarms["same"]
