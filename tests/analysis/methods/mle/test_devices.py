# SPDX-License-Identifier: Apache-2.0
"""Failed devices: one statement about all links of a switch, or links one by one."""

from functools import cache

import numpy as np
import pytest

from analysis.evaluation.metrics import score
from analysis.methods.mle.devices import _share, choice
from analysis.methods.mle.mle import Mle
from testbed.fabric.fat_tree import FatTree
from tests.analysis.methods.mle.test_mle import with_paths

K8 = FatTree(8)


@pytest.fixture(scope="module")
def found(synthetic):
    """What Mle finds where links lose some shares, measured once for all kinds of telemetry."""

    @cache
    def measured(rates, seed):
        loss = np.array(rates)
        world = synthetic.make_world(k=8, seed=seed, loss=loss, flows=20_000, packets=300)
        return with_paths(world.telemetry, loss, seed, lossy_only=False)

    def find(loss, kinds, seed=1):
        return Mle(kinds=kinds).localize(measured(tuple(loss), seed))

    return find


@pytest.mark.parametrize("kinds", ["segments", "A1", "detector", "INT", "segments+A1+detector"])
@pytest.mark.parametrize("names", [["agg2_1"], ["core5"], ["tor1_3", "agg6_0"]])
def test_failed_devices_are_named_with_all_their_links(found, kinds, names):
    rng = np.random.default_rng(7)
    loss = np.full(K8.n_links, 2e-5)
    devices = [K8.switch(name) for name in names]
    for device in devices:
        links = K8.links_of(device)
        loss[links] = np.exp(rng.uniform(np.log(2e-3), np.log(0.3), len(links)))
    result = found(loss, kinds)
    assert result.devices.tolist() == sorted(devices)
    links = np.flatnonzero(loss > 1e-3)
    assert score(result.flagged, links, K8)[result.native].f1 >= 0.98


def test_one_low_rate_at_all_links_is_a_device(found):
    """Few of its links stand out alone; together they do."""
    device = K8.switch("agg3_2")
    loss = np.full(K8.n_links, 1e-6)
    loss[K8.links_of(device)] = 3e-3
    result = found(loss, "A1")
    assert result.devices.tolist() == [device]
    assert score(result.flagged, K8.links_of(device), K8)["undirected"].f1 > 0.9


@pytest.mark.parametrize("kinds", ["segments", "A1", "INT", "segments+A1+detector"])
def test_scattered_links_are_no_device(found, kinds):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        loss = np.full(K8.n_links, 2e-5)
        loss[rng.choice(K8.n_links, 51, replace=False)] = rng.uniform(0.01, 0.5, 51)
        assert found(loss, kinds, seed).devices.size == 0


def test_healthy_devices(found):
    for seed in range(3):
        loss = np.random.default_rng(seed).uniform(0, 1e-4, K8.n_links)
        result = found(loss, "segments+A1+detector", seed)
        assert result.devices.size == result.flagged.size == 0


def test_what_a_choice_costs():
    assert choice(5, 2) == pytest.approx(np.log(6 * 10))
    shares = np.exp([-_share(6, m) for m in range(7)])
    ways = [1, 6, 15, 20, 15, 6, 1]
    assert shares @ ways == pytest.approx(1.0)
    assert shares[6] == pytest.approx(0.5)
