# SPDX-License-Identifier: Apache-2.0
"""The fixture ``canary_run`` for tests of methods, scenarios and faults with pytest.

pytest finds it by itself where this project is installed:

    def test_my_method(canary_run):
        run = canary_run(k=4, seed=7, backend="flow", methods="canary,mine.py")
        assert run.figures.f1["mine.py"] >= run.figures.f1["canary"]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from scenarios.api import Run


class MakeRun(Protocol):
    """Makes a run in a temporary folder, see `canary.run`."""

    def __call__(self, scenario: Any = None, **settings: Any) -> Run:
        """Return the run of a scenario with these settings."""
        ...


@pytest.fixture(scope="session")
def canary_run(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """Return a function that takes what `canary.run` does, and makes the run in a temporary
    folder.

    The same words make one run in a session, however many tests ask for it. A run of virtual time
    is the same on every machine, so a bar on its F1 needs no tolerance.
    """
    made: dict[str, Run] = {}

    def make(scenario: Any = None, **settings: Any) -> Run:
        """Return the run of a scenario with these settings."""
        import canary  # it takes a while, and most tests of a session do not need it

        key = repr((scenario, sorted(settings.items())))
        if key not in made:
            folder: Path = tmp_path_factory.mktemp("canary")
            made[key] = canary.run(scenario, path=folder / "run", **settings)
        return made[key]

    return make
