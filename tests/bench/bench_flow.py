# SPDX-License-Identifier: Apache-2.0
"""Runs without packets: time and memory of the simulation alone, K=8 to 48.

Each in a process of its own, `FAULTS=1pct` and noise up to 1e-4.
"""

from __future__ import annotations

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context

from rich.console import Console

from analysis.telemetry.observations import read_telemetry
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.settings import make_settings
from scenarios.experiment.without_packets import simulate

SIZES = (8, 16, 32, 48)


def measure(k: int) -> str:
    """One line about a run at K."""
    small = {"backend": "flow", "epochs": 1, "epoch_ms": 20, "faults": "1links"}
    simulate(layout_of(make_settings(small)))  # compiles
    settings = make_settings({"k": k, "backend": "flow", "faults": "1pct", "load": 0.6})
    layout = layout_of(settings)
    fabric = layout.fabric
    steps: list[tuple[str, float]] = []

    def note(what: str, share: float) -> None:
        del share
        steps.append((what, time.perf_counter()))

    run = simulate(layout, progress=note)
    steps.append(("", time.perf_counter()))
    simulated = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    begin = time.perf_counter()
    read_telemetry(run)
    read = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    parts = ", ".join(f"{what} {after - at:.1f}" for (what, at), (_, after) in pairwise(steps))
    probed, metered = len(run.table("probe_paths")["path"]), run.epochs * len(run.segments)
    return (
        f"K={k}: {fabric.n_links:,} links, {len(run.flows):,} flows, {probed:,} "
        f"probed paths, {metered:,} counts of segments: "
        f"{steps[-1][1] - steps[0][1]:.1f} s ({parts}), {simulated:.1f} GB; "
        f"its telemetry {read:.1f} s, {peak:.1f} GB"
    )


def bench_flow(console: Console) -> None:
    for k in SIZES:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            console.print(pool.submit(measure, k).result())
