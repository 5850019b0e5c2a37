# SPDX-License-Identifier: Apache-2.0
"""After `make setup` nothing is left to compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

USED = """
import gc
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from scenarios.command.warm_up import HALVES, smallest_run
from scenarios.experiment.run import run_experiment
from scenarios.experiment.request import load_scenario
from scenarios.experiment.settings import Settings

def tell(when):
    for each in gc.get_objects():
        if isinstance(each, Dispatcher):
            for signature in each.signatures:
                print(when, each.py_func.__module__, each.py_func.__qualname__, signature)

for half in HALVES:
    smallest_run(half)
tell("warm")
settings = Settings(k=4, epochs=3, seed=5)
run_experiment("faulty_links", load_scenario("faulty_links"), settings, Path("run"))
tell("used")
"""


def test_the_warm_up_compiles_what_a_run_needs(tmp_path: Path) -> None:
    """That is, a run after it calls no compiled function with other types."""
    done = subprocess.run(
        [sys.executable, "-c", USED], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    warm, used = (
        {line.removeprefix(when) for line in done.stdout.splitlines() if line.startswith(when)}
        for when in ("warm ", "used ")
    )
    assert len(warm) > 20
    assert used == warm
