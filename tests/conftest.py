# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures: one small run of the main job, made once a test session and worker."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from playwright.sync_api import Browser

from scenarios.experiment import backends
from scenarios.experiment.backends import Choice
from scenarios.experiment.request import load_scenario
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings
from testbed.network.requirements import IP
from testbed.record.run import RunDirectory
from tests.browser import browser

# A busy machine is no failure: time is measured by the benches alone.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

SMALL = Settings(k=4, epochs=4, epoch_ms=100, load=0.3, noise="0", seed=3)


def quiet(what: str, share: float) -> None:
    """No progress bar."""


def without_progress(errors: str) -> list[str]:
    """The lines of standard error but those that say how far something is."""
    return [said for said in errors.splitlines() if not said.startswith("... ")]


def pytest_configure() -> None:
    """Leave out the settings that the user's environment has, as `vagrant/provision.sh` writes."""
    for name in [name for name in os.environ if name.startswith("CANARY_")]:
        del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked ``root``, with the reason, where they cannot run."""
    reason = "needs root" if os.geteuid() else IP.lacking
    for item in items:
        if reason and item.get_closest_marker("root") is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among the modules and thousands of tests, which live to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def auto_is_virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in this process that names no backend takes virtual time, whatever is installed.

    Commands in processes of their own name it.
    """
    monkeypatch.setattr(backends, "choose_backend", lambda *_: Choice("virtual", ""))


@pytest.fixture
def hangup_is_heard() -> Iterator[None]:
    """Start programs that hear SIGHUP, also where this one was started to ignore it.

    A program inherits that a signal is ignored, but not that it is handled.
    """
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, before)


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
