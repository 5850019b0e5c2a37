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
{}
for each in gc.get_objects():
    if isinstance(each, Dispatcher):
        for signature in each.signatures:
            print("used", each.py_func.__module__, each.py_func.__qualname__, signature)
"""
WARM_UP = (
    "from scenarios.command.warm_up import HALVES, smallest_run; [smallest_run(h) for h in HALVES]"
)
SMALL_RUN = """
from scenarios.experiment.run import run_experiment
from scenarios.experiment.request import load_scenario
from scenarios.experiment.settings import Settings
run_experiment("faulty_links", load_scenario("faulty_links"), Settings(k=4, epochs=3, seed=5),
               Path("run"))
"""


def used(code: str, folder: Path) -> set[str]:
    """The compiled functions that a program calls, each with the types it gives them."""
    done = subprocess.run(
        [sys.executable, "-c", USED.format(code)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return {line for line in done.stdout.splitlines() if line.startswith("used ")}


def test_the_warm_up_compiles_what_a_run_needs(tmp_path: Path) -> None:
    warm = used(WARM_UP, tmp_path)
    assert len(warm) > 20
    assert used(SMALL_RUN, tmp_path) <= warm
