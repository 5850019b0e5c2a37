"""After `make setup` nothing is left to compile."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
from pathlib import Path
import numba.core.event as event

class Compiled(event.Listener):
    names = set()
    def on_start(self, e):
        self.names.add(e.data["dispatcher"].py_func.__qualname__)
    def on_end(self, e): pass

compiled = Compiled()
event.register("numba:compile", compiled)
{}
print(len(compiled.names), *sorted(compiled.names))
"""
WARM_UP = "from scenarios.warm_up import warm_up; warm_up()"
SMALL_RUN = """
from scenarios.experiment import run_experiment
from scenarios.scenario import load_scenario
from scenarios.settings import Settings
run_experiment("faulty_links", load_scenario("faulty_links"), Settings(k=4, epochs=3, seed=5),
               Path("run"), lambda *_: None)
"""


@pytest.mark.slow
def test_a_run_after_the_warm_up_compiles_nothing(tmp_path: Path) -> None:
    def compiled(code: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", RUN.format(code)],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()[-1].split()

    assert int(compiled(WARM_UP)[0]) > 20
    assert compiled(SMALL_RUN) == ["0"]
