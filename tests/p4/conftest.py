# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the P4 program's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary_softswitch import Program
from testbed.dataplane import PROGRAM, VERDICT

from .fabric import Fabric

P4 = Path(__file__).parents[2] / "p4"


@pytest.fixture(scope="session")
def program() -> Program:
    """The committed program, compiled for the soft switch."""
    return Program.load(PROGRAM, observe=VERDICT.field)


@pytest.fixture
def fabric(program: Program) -> Fabric:
    """A K=4 fat-tree with ToRs and cores as monitors."""
    return Fabric(program)
