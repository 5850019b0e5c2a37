# SPDX-License-Identifier: Apache-2.0
"""The examples in docstrings run; what users call, each method and each fabric has one."""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect
from pathlib import Path

import pytest

import scenarios
from analysis.methods.registry import METHODS, ON_REQUEST
from scenarios.api import Run
from testbed.fabric.clos import Fabric, clos, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.fabric.topologies import make_fabric

ROOT = Path(__file__).parent.parent
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for room in ("testbed", "analysis", "scenarios")
    for path in sorted((ROOT / room).rglob("*.py"))
    if "    >>> " in path.read_text()
]
FABRICS = (FatTree, TwoSwitches, Fabric, leaf_spine, clos, make_fabric)
FUNCTIONS = (scenarios.run, scenarios.load, scenarios.localize, Run.table, Run.diagnose)


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # runs are written below the current folder
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted and not result.failed


def test_what_users_call_has_an_example() -> None:
    made = [*METHODS.values(), *ON_REQUEST.values()]
    methods = [each.func if isinstance(each, functools.partial) else each for each in made]
    for thing in (*methods, *FABRICS, *FUNCTIONS, Run, Run.addresses):
        assert ">>> " in (inspect.getdoc(thing) or ""), thing
