# SPDX-License-Identifier: Apache-2.0
"""What the tests of the testbed and those of the soft switch have in common; their conftest.py
import it."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator

import hypothesis
import pytest

from testbed.network.requirements import IP
from testbed.rootless import forbidden, may_make_networks

__all__ = [
    "hangup_is_heard",
    "pytest_collection",
    "pytest_collection_modifyitems",
    "pytest_configure",
]

# A busy machine is no failure: time is measured by the benches alone.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


def pytest_configure() -> None:
    """Leave out the settings that the user's environment has, as `vagrant/provision.sh` writes."""
    for name in [name for name in os.environ if name.startswith("CANARY_")]:
        del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked ``root``, with the reason, where they cannot run."""
    namespaces = "" if may_make_networks() else forbidden() or "`make test` runs it in namespaces"
    reason = namespaces or IP.lacking
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


@pytest.fixture
def hangup_is_heard() -> Iterator[None]:
    """Start programs that hear SIGHUP, also where this one was started to ignore it.

    A program inherits that a signal is ignored, but not that it is handled.
    """
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, before)
