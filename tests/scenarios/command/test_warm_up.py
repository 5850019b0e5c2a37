# SPDX-License-Identifier: Apache-2.0
"""After `make setup` nothing is left to compile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

USED = """
import subprocess
from pathlib import Path
from scenarios.command.warm_up import c_files, warm_up
from scenarios.experiment.request import load_scenario
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings
from testbed.kernels import compile_all
from canary_softswitch.compiler import build

warm_up(lambda what, share: None)
compiled = len(list(build.cache_dir().glob("*.so")))

def refuse(command, **options):
    raise AssertionError(f"compiled again: {command}")

subprocess.run = refuse
for room in ("testbed", "analysis", "scenarios"):
    compile_all(c_files(room), lambda share: None)
for backend in ("virtual", "flow"):
    settings = Settings(backend=backend, k=4, epochs=3, seed=5)
    run_experiment(layout_of(settings), Path(backend))
assert len(list(build.cache_dir().glob("*.so"))) == compiled
print(compiled)
"""


@pytest.mark.nightly
def test_the_warm_up_compiles_what_a_run_needs(tmp_path: Path) -> None:
    """That is, neither a run after it nor a kernel that only papers use starts the compiler."""
    done = subprocess.run(
        [sys.executable, "-c", USED],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) > 20
