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
    small, likelier = (
        method.localize(telemetry)
        for method in (
            Flock(device_factor=5, refine=True, p_bad=0.003),
            Flock(device_factor=5, refine=True, p_bad=0.003, severe_p_bad=0.05),
        )
    )
    figures = [score(d.flagged, truth, fabric)["directed"].f1 for d in (small, likelier)]
    assert figures[1] > figures[0] + 0.2
