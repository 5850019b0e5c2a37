# SPDX-License-Identifier: Apache-2.0
"""NOISE: one rate is that of every link, a range is drawn from for each, on every network alike."""

from __future__ import annotations

import numpy as np
import pytest

from scenarios.experiment.backends import Backend, make_injector
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.settings import Settings, make_settings
from scenarios.experiment.without_packets import simulate
from testbed.fabric.fat_tree import FatTree
from testbed.faults.plan import FaultError, FaultPlan, noise_range, noise_rates
from testbed.network.clock import VirtualClock


class Recorder:
    """A switch's fault table, which keeps what is added."""

    def __init__(self) -> None:
        self.thresholds: list[tuple[int, int]] = []

    def table(self, name: str) -> Recorder:
        assert name.endswith("faults")
        return self

    def add(self, key: list, action: str, params: list[int], priority: int) -> int:
        assert action.endswith("lossy") and priority > 0
        self.thresholds.append((key[0], params[0]))
        return len(self.thresholds)


def on_packets(settings: Settings) -> np.ndarray:
    """The loss rate of each link as the switches' fault tables have it."""
    topology = FatTree(settings.k)
    switches = [Recorder() for _ in range(topology.n_switches)]
    network = type("Network", (), {"topology": topology})()
    backend = Backend(network, switches, VirtualClock(), 0, 0)  # type: ignore[arg-type]
    noise = noise_rates(settings.noise, topology.n_links, settings.seed)
    make_injector("p4", backend, FaultPlan(), noise).start()
    loss = np.zeros(topology.n_links)
    for link in range(topology.n_links):
        ports = dict(switches[int(topology.link_src[link])].thresholds)
        loss[link] = ports.get(int(topology.link_src_port[link]), 0) / 2**32
    return loss


def without_packets(settings: Settings) -> np.ndarray:
    given = {"backend": "flow", "epochs": 1, "epoch_ms": 20, "faults": "none"}
    flow = make_settings(given | {"noise": settings.noise, "seed": settings.seed})
    run = simulate(layout_of(flow))
    assert run.loss.shape[0] == 1
    return run.loss[0]


@pytest.mark.parametrize(("noise", "low", "high"), [("0.001", 0.001, 0.001), ("0..0.001", 0, 1e-3)])
def test_noise_is_the_same_with_and_without_packets(noise: str, low: float, high: float) -> None:
    settings = Settings(noise=noise, seed=7)
    loss = without_packets(settings)
    assert loss == pytest.approx(on_packets(settings), abs=1e-9)
    assert (loss >= low).all() and (loss <= high).all()
    assert len(np.unique(loss)) == (1 if low == high else len(loss))


def test_equal_seeds_draw_equal_rates() -> None:
    rates = noise_rates("1e-5..1e-4", 100, seed=3)
    assert (rates == noise_rates("1e-5..1e-4", 100, seed=3)).all()
    assert (rates != noise_rates("1e-5..1e-4", 100, seed=4)).all()
    assert rates.min() >= 1e-5 and rates.max() <= 1e-4


@pytest.mark.parametrize("text", ["", "a", "2", "-1", "nan", "0.2..0.1", "..", "0.."])
def test_what_is_no_noise_is_refused(text: str) -> None:
    with pytest.raises(FaultError, match="NOISE="):
        noise_range(text)
