# SPDX-License-Identifier: Apache-2.0
"""The pace that a run on real packets takes from its fabric and from this machine."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from scenarios.experiment import pace
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.pace import BUSY, at_this_pace, free_processors
from scenarios.experiment.run import expected_of
from scenarios.experiment.settings import Settings, make_settings
from testbed.fabric.fat_tree import FatTree
from testbed.network.kinds import SOFTSWITCH


@pytest.fixture(autouse=True)
def two_idle_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "free_processors", lambda: 2.0)
    monkeypatch.setattr(pace, "slowness", lambda: 1.0)


def packets(settings: Settings) -> float:
    return expected_of(layout_of(settings), flock=False).packets


def paced_by(settings: Settings, named: Collection[str] = ()) -> Settings:
    return at_this_pace(settings, layout_of(settings), named)


def per_second(settings: Settings) -> float:
    return packets(settings) / (settings.epochs * settings.epoch_ms / 1000)


@pytest.mark.parametrize("backend", ["softswitch", "bmv2"])
def test_the_defaults_are_made_for_two_idle_processors_and_k4(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings({"backend": backend})
    assert paced_by(settings) is settings
    assert not capsys.readouterr().out


@pytest.mark.parametrize("k", [6, 8])
def test_a_larger_fabric_sends_the_same_packets_over_more_time(
    k: int, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings({"backend": "softswitch", "k": k})
    paced = paced_by(settings)
    assert per_second(paced) < 1.05 * 2 * BUSY / SOFTSWITCH.packet_s < per_second(settings)
    assert packets(paced) == pytest.approx(packets(settings), rel=0.1)
    assert paced.icmp_per_s * paced.epoch_ms == pytest.approx(
        settings.answers_per_s(FatTree(k)) * settings.epoch_ms, rel=0.01
    )
    assert f"LOAD={paced.load} EPOCH_MS={paced.epoch_ms}" in capsys.readouterr().out


def test_busy_or_slow_processors_carry_less(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_settings({"backend": "softswitch", "k": 6})
    idle = paced_by(settings)
    monkeypatch.setattr(pace, "free_processors", lambda: 1.0)
    busy = paced_by(settings)
    assert busy.epoch_ms == pytest.approx(2 * idle.epoch_ms, rel=0.05)
    monkeypatch.setattr(pace, "slowness", lambda: 3.0)
    assert paced_by(settings).epoch_ms == pace.LONGEST_EPOCH_MS


def test_what_is_named_stays_and_other_networks_too() -> None:
    settings = make_settings({"backend": "softswitch", "k": 6})
    named = paced_by(settings, ("load", "epoch_ms"))
    assert (named.load, named.epoch_ms) == (settings.load, settings.epoch_ms)
    for backend in ("virtual", "flow"):
        settings = make_settings({"backend": backend, "k": 16})
        assert paced_by(settings) is settings


def _spin() -> None:
    while True:
        pass


def test_processors_that_others_use_count_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    cores = len(pace.os.sched_getaffinity(0))
    spinning = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(2 * cores)]
    for process in spinning:
        process.start()
    try:
        time.sleep(0.2)
        assert free_processors() == pytest.approx(cores / 2, rel=0.3)
    finally:
        for process in spinning:
            process.kill()
    assert Path("/proc/stat").exists() and free_processors() <= cores
