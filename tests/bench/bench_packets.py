# SPDX-License-Identifier: Apache-2.0
"""Packet-hops of the event loop alone, on one thread and on two; `bench_scale` has whole runs."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from analysis.methods.registry import find_methods
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings
from testbed.network.virtual import VirtualNetwork

FABRICS = (8, 16)
THREADS = (1, 2)
EPOCHS, EPOCH_MS = 2, 50


def bench_packets(console: Console) -> None:
    """Each run has a process of its own: its memory is its own, too."""
    console.print(f"virtual network, faulty_links, {EPOCHS} epochs of {EPOCH_MS} ms, loop alone:")
    for k in FABRICS:
        for threads in THREADS:
            command = [sys.executable, "-m", "tests.bench.bench_packets", str(k), str(threads)]
            told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            hops, used, waited, memory = json.loads(told)
            console.print(
                f"  K={k:2} THREADS={threads}: {hops / 1e6:6.1f} M packet-hops, "
                f"{hops / used / 1e6:5.2f} M a second of processor, "
                f"{hops / waited / 1e6:5.2f} M of the clock, {memory / 1e6:5.0f} MB"
            )


def measure(k: int, threads: int) -> tuple[int, float, float, int]:
    """Packet-hops, seconds of the processor and of the clock within the loop, peak memory."""
    used = waited = 0.0
    run_until = VirtualNetwork.run_until

    def timed(network: VirtualNetwork, time_ns: int) -> None:
        nonlocal used, waited
        processor, clock = time.process_time(), time.perf_counter()
        run_until(network, time_ns)
        used += time.process_time() - processor
        waited += time.perf_counter() - clock

    VirtualNetwork.run_until = timed  # type: ignore[method-assign]
    settings = Settings(
        k=k, epochs=EPOCHS, epoch_ms=EPOCH_MS, load=0.6, threads=threads, measure="all"
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        made = run_experiment(layout_of(settings), place, methods=find_methods("007"))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1000
    return made["packet_hops"], used, waited, memory


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
