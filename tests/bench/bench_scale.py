"""What a run costs as K grows: packet-hops a second, memory, set-up and each method's diagnosis.

`python -m tests.bench scale` prints it and draws `runs/bench-scale.png`; seconds are of the
processor.
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

from matplotlib.figure import Figure
from rich.console import Console

from analysis.methods.registry import METHODS
from scenarios.experiment.observer import ProgressObserver
from scenarios.experiment.run import run_experiment
from scenarios.experiment.scenario import load_scenario
from scenarios.experiment.settings import make_settings

RUNS = (*(("virtual", k) for k in (4, 8, 12, 16)), *(("flow", k) for k in (16, 32, 48, 64)))
OWN = {
    "virtual": {"epochs": 2, "epoch_ms": 50, "load": 0.6},
    "flow": {"epochs": 3, "load": 0.6, "faults": "1pct"},
}
PICTURE = Path("runs/bench-scale.png")
DIAGNOSIS = "diagnosis: "


def bench_scale(console: Console) -> None:
    """Each run has a process of its own: its memory is its own, too."""
    found = []
    for backend in OWN:
        _measured(backend, 4)  # what has to be compiled is kept
    for backend, k in RUNS:
        cost = _measured(backend, k)
        if cost is None:
            console.print(f"{backend} K={k}: does not run here")
            continue
        found.append((backend, k, cost))
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in cost["steps"].items())
        console.print(
            f"{backend} K={k}: {cost['hops'] / 1e6:.1f} M packet-hops, "
            f"{cost['hops'] / cost['sending'] / 1e6:.2f} M a second, "
            f"{cost['memory'] / 1e6:.0f} MB; seconds: {parts}"
        )
    _draw(found)
    console.print(f"drawn: {PICTURE}")


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
        scenario, place = load_scenario("faulty_links"), Path(folder) / "run"
        observer = ProgressObserver(note)
        made = run_experiment("faulty_links", scenario, settings, place, observer=observer)
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


def _draw(found: list[tuple[str, int, dict[str, Any]]]) -> None:
    figure = Figure(figsize=(12, 3.5), layout="constrained")
    axes = figure.subplots(1, 3)
    titles = ("packet-hops a second", "memory (bytes)", "diagnosis (s)")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(xlabel="K", title=title, yscale="log", xticks=sorted({k for _, k in RUNS}))
    for backend in OWN:
        costs = [(k, cost) for name, k, cost in found if name == backend]
        ks = [k for k, _ in costs]
        axes[0].plot(ks, [c["hops"] / c["sending"] for _, c in costs], "o-", label=backend)
        axes[1].plot(ks, [c["memory"] for _, c in costs], "o-", label=backend)
        for name in METHODS:
            points = [(k, c["steps"][name]) for k, c in costs if name in c["steps"]]
            if points:
                axes[2].plot(*zip(*points, strict=True), "o-", label=f"{name}, {backend}")
    for axis in axes:
        axis.legend(fontsize=5)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=150)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
