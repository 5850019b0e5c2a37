# SPDX-License-Identifier: Apache-2.0
"""What a run costs as K grows: packet-hops a second, memory, set-up and each method's diagnosis.

Seconds are of the processor.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from analysis.methods.registry import METHODS
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.observer import ProgressObserver
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings

RUNS = (*(("virtual", k) for k in (4, 8, 12, 16)), *(("flow", k) for k in (16, 32, 48, 64)))
OWN = {
    "virtual": {"epochs": 2, "epoch_ms": 50, "load": 0.6},
    "flow": {"epochs": 3, "load": 0.6, "faults": "1pct"},
}
DIAGNOSIS = "diagnosis: "


def bench_scale(console: Console) -> None:
    """Each run has a process of its own: its memory is its own, too."""
    for backend in OWN:
        _measured(backend, 4)  # what has to be compiled is kept
    for backend, k in RUNS:
        cost = _measured(backend, k)
        if cost is None:
            console.print(f"{backend} K={k}: does not run here")
            continue
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in cost["steps"].items())
        console.print(
            f"{backend} K={k}: {cost['hops'] / 1e6:.1f} M packet-hops, "
            f"{cost['hops'] / cost['sending'] / 1e6:.2f} M a second, "
            f"{cost['memory'] / 1e6:.0f} MB; seconds: {parts}"
        )


def _measured(backend: str, k: int) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "tests.bench.bench_scale", backend, str(k)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return None if done.returncode else json.loads(done.stdout)


def measure(backend: str, k: int) -> dict[str, Any]:
    """Packet-hops, seconds of sending and of each step, bytes at the peak."""
    begun: list[tuple[str, float]] = []

    def note(what: str, share: float) -> None:
        del share
        if not begun or begun[-1][0] != what:
            begun.append((what, time.process_time()))

    settings = make_settings({"k": k, "backend": backend, **OWN[backend]})
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        observer = ProgressObserver(note)
        made = run_experiment(layout_of(settings), place, observer=observer)
    ends = [at for _, at in begun[1:]] + [time.process_time()]
    steps: dict[str, float] = {}
    for (what, at), end in zip(begun, ends, strict=True):
        what = what.removeprefix("first use, compiling: ").removeprefix(DIAGNOSIS)
        steps[what] = steps.get(what, 0.0) + end - at
    sending = steps.get("emulation") or sum(s for what, s in steps.items() if what not in METHODS)
    return {
        "hops": made["packet_hops"],
        "sending": sending,
        "steps": steps,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1000,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
