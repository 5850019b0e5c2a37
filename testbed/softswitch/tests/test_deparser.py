# SPDX-License-Identifier: Apache-2.0
"""What a deparser writes has room, whatever a program's JSON says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from canary_softswitch import Program, UnsupportedProgram
from testbed.softswitch.tests.conftest import PROGRAMS


def written(tmp_path: Path, change: Any) -> Path:
    program = json.loads((PROGRAMS / "drops.json").read_text())
    change(program)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(program))
    return path


def test_metadata_are_not_emitted(tmp_path: Path) -> None:
    """Their bytes were not counted: they were written behind the packet's memory."""

    def emit(program: Any) -> None:
        program["deparsers"][0]["order"].append("scalars")

    with pytest.raises(UnsupportedProgram, match="emission of the metadata 'scalars'"):
        Program.load(written(tmp_path, emit))
