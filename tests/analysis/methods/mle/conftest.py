# SPDX-License-Identifier: Apache-2.0
"""What the tests of mle compile and the set-up does not, compiled by one test process."""

from __future__ import annotations

import fcntl

import pytest

from analysis.methods.mle.mle import Mle
from tests.analysis.methods.mle.test_black_holes import observed


@pytest.fixture(scope="session", autouse=True)
def compiled_by_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It takes most of a minute, which each process would need; the others wait and find it."""
    with open(tmp_path_factory.getbasetemp().parent / "mle.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Mle(kinds="A1+A2+P").localize(observed(0))
