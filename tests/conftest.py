# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures: one small run of the main job, made once a test session and worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from scenarios.experiment.inputs import Inputs, inputs_of, layout_of
from scenarios.experiment.request import Scenario
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings
from scenarios.process import namespace
from testbed.fabric.packet_fabric import PacketFabric
from testbed.record.run import RunDirectory
from testbed.traffic.demand import make_traffic
from tests.browser import browser
from tests.every_suite import *  # noqa: F403

SMALL = Settings(k=4, epochs=4, epoch_ms=100, load=0.3, noise="0", seed=3)


def inputs_for(settings: Settings, scenario: Scenario = Scenario()) -> Inputs:
    """The inputs of a run with packets."""
    layout = layout_of(settings, scenario)
    assert isinstance(layout.fabric, PacketFabric)
    return inputs_of(layout, make_traffic(layout.demand, layout.fabric)[0])


def quiet(what: str, share: float) -> None:
    """No progress bar."""


def without_progress(errors: str) -> list[str]:
    """The lines of standard error but those that say how far something is."""
    return [message for message in errors.splitlines() if not message.startswith("... ")]


@pytest.fixture(autouse=True)
def stays_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in this process is not started again in namespaces of its own."""
    monkeypatch.setattr(namespace, "may_make_networks", lambda: True)


@pytest.fixture(scope="session")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "small"
    run_experiment(layout_of(SMALL), path)
    return path


@pytest.fixture(scope="session")
def finished_run(run_path: Path) -> RunDirectory:
    return RunDirectory(run_path)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with browser() as made:
        yield made
