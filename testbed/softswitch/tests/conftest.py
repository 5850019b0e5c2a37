# SPDX-License-Identifier: Apache-2.0
"""Fixtures: compiled test programs, which are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from canary_softswitch import Program, Switch
from canary_softswitch.caches import user_cache
from tests.every_suite import *  # noqa: F403

PROGRAMS = Path(__file__).parent / "programs"
MONTH = 30 * 86400.0


@pytest.fixture(scope="session", autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of the test programs beside the user's own, which the next session finds again.

    A library is kept under a hash of its C text, the compiler and its flags: it is never out of
    date. What was compiled a month ago goes.
    """
    folder = user_cache("canary-tests") or tmp_path_factory.mktemp("cache")
    for file in folder.glob("*/*"):
        with suppress(OSError):  # another worker was faster, or it is a folder
            if file.stat().st_mtime < time.time() - MONTH:
                file.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield


@pytest.fixture(scope="session")
def load(_private_cache: None) -> Callable[..., Program]:
    """Program by the name of its file, compiled once per observed field."""
    programs: dict[tuple[str, str | None], Program] = {}

    def get(name: str, observe: str | None = None) -> Program:
        if (name, observe) not in programs:
            programs[name, observe] = Program.load(PROGRAMS / f"{name}.json", observe)
        return programs[name, observe]

    return get


@pytest.fixture
def run(tmp_path: Path) -> Callable[[dict[str, Any]], Switch]:
    """A function that returns a switch that runs a program."""

    def make(program: dict[str, Any]) -> Switch:
        path = tmp_path / "program.json"
        path.write_text(json.dumps(program))
        return Switch(Program.load(path))

    return make
