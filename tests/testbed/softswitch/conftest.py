# SPDX-License-Identifier: Apache-2.0
"""Fixtures: compiled test programs, cached for the whole run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.softswitch import Program, Switch

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="session", autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for all workers of the session: a program is compiled once."""
    old = os.environ.get("XDG_CACHE_HOME")
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "softswitch-cache"
    os.environ["XDG_CACHE_HOME"] = str(cache)
    yield
    if old is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = old


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
