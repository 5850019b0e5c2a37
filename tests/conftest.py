# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures: one small run of the main job, made once a test session and worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from scenarios.experiment import backends
from scenarios.experiment.backends import Choice
from scenarios.experiment.request import load_scenario
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings
from testbed.record.run import RunDirectory
from tests.browser import browser
from tests.every_suite import *  # noqa: F403

SMALL = Settings(k=4, epochs=4, epoch_ms=100, load=0.3, noise="0", seed=3)


def quiet(what: str, share: float) -> None:
    """No progress bar."""


def without_progress(errors: str) -> list[str]:
    """The lines of standard error but those that say how far something is."""
    return [said for said in errors.splitlines() if not said.startswith("... ")]


@pytest.fixture(autouse=True)
def auto_is_virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in this process that names no backend takes virtual time, whatever is installed.

    Commands in processes of their own name it.
    """
    monkeypatch.setattr(backends, "choose_backend", lambda *_: Choice("virtual", ""))


@pytest.fixture(scope="session")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "small"
    run_experiment("faulty_links", load_scenario("faulty_links"), SMALL, path)
    return path


@pytest.fixture(scope="session")
def finished_run(run_path: Path) -> RunDirectory:
    return RunDirectory(run_path)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with browser() as made:
        yield made
