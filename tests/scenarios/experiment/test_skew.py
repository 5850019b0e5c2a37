# SPDX-License-Identifier: Apache-2.0
"""Switches change their epochs at different times, and no meter takes that for a loss."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import Inputs
from scenarios.experiment.loop import run
from scenarios.experiment.recording import Epoch
from scenarios.experiment.request import Scenario
from scenarios.experiment.settings import Settings, SettingsError, make_settings
from scenarios.experiment.setup import set_up
from testbed.network.virtual import LinkModel
from tests.conftest import SMALL, inputs_for
from tests.scenarios.experiment.nowhere import EpochObserver, Nowhere

HEALTHY = replace(SMALL, faults="none", epochs=3, epoch_ms=40, alpha=50, beta=2)
EPOCH_NS = HEALTHY.epoch_ms * 1_000_000
LINKS = LinkModel(delay_ns=100_000)  # so slow that many packets are under way at any time


def drawn(chosen: Settings, links: LinkModel = LINKS) -> Inputs:
    return inputs_for(chosen, Scenario(links=links))


def metered(chosen: Settings, skew_ns: int, drain_ns: int, folder: Path) -> npt.NDArray[np.int64]:
    """Of each epoch of a run the flows whose packets the meters counted, the packets that they call
    lost, and the flows of which they counted more at the downstream: int64[epochs, 3]."""
    found: list[tuple[int, int, int]] = []

    def ended(epoch: Epoch) -> None:
        meter = epoch.found["canary"]
        wrong = meter.negative + meter.inconsistent + meter.unmatched
        found.append((len(meter), int(meter.lost.sum()), wrong))

    with open_backend(drawn(chosen), folder) as backend:
        other = replace(backend, skew_ns=skew_ns, drain_ns=drain_ns)
        run(set_up(drawn(chosen), other), Nowhere(), EpochObserver(ended))
    return np.array(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("skew")


@given(
    share=st.floats(0, 1),
    drain_ms=st.floats(2, 15),
    seed=st.integers(0, 1000),
    monitors=st.sampled_from(["tor", "tor+core"]),
)
@example(share=1.0, drain_ms=13.3, seed=1, monitors="tor")
@settings(max_examples=12, deadline=None, derandomize=True)
def test_no_skew_below_the_drain_time_invents_a_loss(
    share: float, drain_ms: float, seed: int, monitors: str, folder: Path
) -> None:
    """The slowest packet leaves its segment in four links' time, and half an epoch has room for a
    skew and a drain."""
    drain_ns = round(drain_ms * 1e6)
    most = min(drain_ns - 5 * LINKS.transit_ns, EPOCH_NS // 2 - drain_ns)
    chosen = replace(HEALTHY, seed=seed, monitors=monitors)
    counts = metered(chosen, round(share * most), drain_ns, folder)
    assert (counts[1:, 0] > 20).all()
    assert not counts[:, 1:].any()


def test_a_skew_above_the_drain_time_invents_losses(folder: Path) -> None:
    counts = metered(HEALTHY, 8_000_000, 2_000_000, folder)
    assert counts[:, 1].sum() > 10


@pytest.mark.parametrize("skew", [0, 0.01, 0.1])
def test_the_drain_time_covers_the_skew(skew: float, tmp_path: Path) -> None:
    chosen = replace(HEALTHY, skew=skew)
    with open_backend(drawn(chosen), tmp_path) as backend:
        assert backend.skew_ns == skew * EPOCH_NS
        assert backend.drain_ns >= backend.skew_ns + 4 * LINKS.transit_ns
        emulation = set_up(drawn(chosen), backend)
        monitors = list(emulation.run.monitors)
        flips = np.array([at for at, _ in emulation.run.clock.flips(0, monitors)])
    off = np.abs(flips - EPOCH_NS)
    assert off.max() <= backend.skew_ns and (off.max() > 0.7 * backend.skew_ns or not skew)


@pytest.mark.parametrize("skew", [0.01, 0.1])
def test_an_epoch_too_short_for_the_skew_names_one_that_will_do(
    skew: float, tmp_path: Path
) -> None:
    slow = LinkModel(delay_ns=4_000_000)

    def make(epoch_ms: int) -> None:
        chosen = replace(HEALTHY, skew=skew, epoch_ms=epoch_ms)
        with open_backend(drawn(chosen, slow), tmp_path) as backend:
            set_up(drawn(chosen), backend)

    with pytest.raises(SettingsError, match="EPOCH_MS=20 is too short") as error:
        make(20)
    found = re.search(r"use (\d+)$", str(error.value))
    assert found is not None
    make(int(found[1]))


def test_skew_is_of_packets() -> None:
    with pytest.raises(SettingsError, match="SKEW=0.05 has no effect with BACKEND=flow"):
        make_settings({"backend": "flow", "skew": 0.05})
    with pytest.raises(SettingsError, match="SKEW=0.2 is out of range: use 0 to 0.1"):
        make_settings({"skew": 0.2})
    assert make_settings({"backend": "flow"}).skew == 0.01
