# SPDX-License-Identifier: Apache-2.0
"""A mistake of the user is one line; a defect of the testbed shows its traceback."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.methods.canary import Canary as Method
from tests.scenarios.conftest import Canary


def test_a_defect_shows_its_traceback_and_asks_for_a_report(
    canary: Canary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Method, telemetry: object) -> object:
        return np.zeros(3) + np.zeros(4)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Method, "localize", broken)
    result = canary("run", "EPOCHS=1", "LOAD=0.01", "METHODS=canary")
    assert result.code == 1
    assert "Traceback" in result.err and "in broken" in result.err
    assert "could not be broadcast" in result.err
    assert result.err.rstrip().splitlines()[-1].startswith("canary: this is a defect of canary")
    assert not list(tmp_path.rglob("config.json")), "nothing half-written stays"


@pytest.mark.parametrize(("words", "lines"), [((), 1), (("--debug",), 5)])
def test_a_mistake_is_one_line_and_a_traceback_if_asked_for(
    canary: Canary, words: tuple[str, ...], lines: int
) -> None:
    result = canary(*words, "run", "FAULTS=core9->agg0_0")
    assert result.code == 2
    found = result.err.strip().splitlines()
    assert (len(found) == 1) == (lines == 1), result.err
    assert len(found) >= lines
    assert found[-1].startswith("canary: ")
