# SPDX-License-Identifier: Apache-2.0
"""Calibration: both rules, accuracy as in appendix A.1, and that it learns."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.evaluation.calibration import (
    Case,
    Setting,
    accuracy,
    best,
    calibrate,
    choose,
    search,
)
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.flock.flock import Flock
from analysis.methods.netbouncer import NetBouncer
from analysis.telemetry.telemetry import Telemetry
from testbed.fabric.fat_tree import FatTree


def setting(precision, recall):
    return Setting({"at": (precision, recall)}, precision, recall)


@pytest.mark.parametrize(
    ("points", "chosen"),
    [
        ([(0.99, 0.6), (0.98, 0.7), (0.97, 0.9)], (0.98, 0.7)),  # at P = 98 % the most recall
        ([(0.99, 0.2), (0.94, 0.5), (0.92, 0.9)], (0.94, 0.5)),  # too little recall: P = 93 %
        ([(0.6, 0.9), (0.7, 0.8)], (0.7, 0.8)),  # P falls to 68 %
        ([(0.5, 0.1)], (0.5, 0.1)),
    ],
)
def test_the_rule(points, chosen):
    assert choose([setting(*point) for point in points]).parameters["at"] == chosen


def test_the_other_rule_leaves_the_first_values_for_what_is_clearly_better():
    def one(a, b, *f1):
        return Setting({"a": a, "b": b}, 0.9, 0.9, f1)

    first = one(0, 0, 0.9, 0.5, 0.7, 0.9)
    chance = one(1, 1, 0.7, 0.9, 0.7, 0.9)
    assert best([first, chance]) is first
    better, twice = one(0, 1, 1.0, 0.7, 0.8, 0.9), one(1, 1, 1.0, 0.71, 0.8, 0.9)
    assert best([first, twice, better]) is better, "of the good ones that with fewer changes"
    assert best([first, twice]) is twice


def diagnosis(topology, links, devices=()):
    nothing = np.zeros(topology.n_links)
    devices = np.array(devices, np.int32)
    of_device = np.isin(topology.link_src, devices) | np.isin(topology.link_dst, devices)
    flagged = np.union1d(np.array(links, np.int32), np.flatnonzero(of_device)).astype(np.int32)
    return Diagnosis("x", "directed", flagged, nothing, nothing, 0.0, devices=devices)


def test_accuracy_of_links_and_devices():
    topology = FatTree(4)
    link, device = topology.link("tor0_0->agg0_0"), topology.switch("agg1_0")
    mine = topology.links_of(device)
    case = Case(Telemetry(topology, "tor"), np.append(mine, link), np.array([device]))
    wrong = topology.link("tor3_0->agg3_0")
    assert accuracy(diagnosis(topology, []), case) == (1.0, 0.0)
    assert accuracy(diagnosis(topology, [link], [device]), case) == (1.0, 1.0)
    assert accuracy(diagnosis(topology, [link ^ 1]), case) == (1.0, 0.5)  # links are undirected
    assert accuracy(diagnosis(topology, [link, wrong], [device]), case) == (2 / 3, 1.0)
    # A quarter of the device's four links, and one link that is not faulty.
    assert accuracy(diagnosis(topology, [mine[0], wrong]), case) == (0.5, 0.25 / 2)
    healthy = Case(Telemetry(topology, "tor"), np.zeros(0, np.int32))
    assert accuracy(diagnosis(topology, []), healthy) == (1.0, 1.0)
    assert accuracy(diagnosis(topology, [wrong]), healthy) == (0.0, 1.0)


def test_calibration_learns_the_noise(synthetic):
    """On noisy links a low p_good blames healthy ones; calibration finds a better."""
    cases = []
    for seed in range(4):
        world = synthetic.make_world(k=4, seed=seed, share=0.05, noise=2e-3, flows=1500)
        cases.append(Case(world.telemetry, world.faulty))
    grid = {"p_good": (1e-5, 2e-2, 0.5), "p_bad": (0.1, 0.003), "inputs": ("probes",)}
    settings = calibrate(Flock, grid, cases)
    assert len(settings) == 3  # p_good below p_bad
    assert choose(settings).parameters["p_good"] == 2e-2
    assert choose(settings).precision > settings[0].precision
    with pytest.raises(ValueError, match="no setting"):
        calibrate(Flock, {"p_good": (0.5,), "p_bad": (0.1,)}, cases)
    with pytest.raises(ValueError, match="at least one"):
        calibrate(Flock, grid, [])


def test_a_large_grid_is_searched_in_part(synthetic):
    """Coordinate by coordinate the search finds the best of a grid with one hill."""
    worlds = [synthetic.make_world(k=4, seed=seed) for seed in (1, 2)]
    cases = [Case(world.telemetry, world.faulty) for world in worlds]
    tried = []

    class Hill(NetBouncer):
        """Right about all links only at one setting, and the less right the farther from it."""

        def __init__(self, *, a: int, b: int, c: int) -> None:
            if a == 9:
                raise ValueError("refused")
            super().__init__()
            self.off = abs(a - 3) + abs(b - 5) + abs(c - 2)
            tried.append((a, b, c))

        def decide(self, telemetry):
            faulty = next(w.faulty for w in worlds if w.telemetry is telemetry)
            found = super().decide(telemetry)
            return replace(found, flagged=faulty[self.off :], devices=found.devices[:0])

    grid = {name: range(10) for name in "abc"}
    shares = []
    settings = search(Hill, grid, cases, shares.append)
    assert best(settings).parameters == {"a": 3, "b": 5, "c": 2} and best(settings).mean_f1 == 1
    assert len(settings) == len(tried) < 70 and shares == sorted(shares) and shares[-1] <= 1
    assert settings == search(Hill, grid, cases)
    few = {"a": (3, 9), "b": (4, 5), "c": (2,)}
    assert len(search(Hill, few, cases)) == len(calibrate(Hill, few, cases)) == 2
    with pytest.raises(ValueError, match="at least one case"):
        search(Hill, grid, [])
