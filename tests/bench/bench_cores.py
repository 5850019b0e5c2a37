# SPDX-License-Identifier: Apache-2.0
"""What more cores give: the event loop on one thread and on two, in turns, by the clock; and what
2 to 64 cores would give by the recorded schedule.

`python -m tests.bench cores` needs a quiet machine of two cores or more, as it reads the clock.
`python -m tests.bench.bench_cores K` prints the schedule of one fabric alone, which needs none. It
is recorded on one thread (`schedule.c`): the events of each window and part. These are weighed with
this machine's time for an event, which is taken here, and with `STEP_NS` a window, in which threads
tell each other that they are done.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
from rich.console import Console

from canary_softswitch.compiler.build import load_library, read_c
from scenarios.experiment import loop
from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import inputs_of, layout_of
from scenarios.experiment.observer import Observer
from scenarios.experiment.settings import make_settings
from scenarios.experiment.setup import set_up
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.virtual import FLAGS, VirtualNetwork, c_defines
from testbed.traffic.demand import make_traffic

FABRICS = (8, 16)
CORES = (2, 8, 16, 64)
TURNS = 3
STEP_NS = 150.0
"""A window of one of several threads: two lines of the cache go from core to core."""

RUNS = {8: {"epoch_ms": 500, "probes": 5}, 16: {"epoch_ms": 100, "probes": 1}}
"""A part of the default run each, which has as many events a window as the whole."""


class _Schedule(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_double) for name in ("hop_ns", "step_ns")),
        *((name, ctypes.c_void_p) for name in ("published", "done")),
        *((name, ctypes.c_uint64) for name in ("windows", "events")),
    ]


def bench_cores(console: Console) -> None:
    for k in FABRICS:
        seconds: dict[int, list[float]] = {1: [], 2: []}
        for threads in (1, 2) * TURNS:
            command = [sys.executable, "-m", "tests.bench.bench_packets", str(k), str(threads)]
            told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            seconds[threads].append(json.loads(told)[2])
        one, two = (statistics.median(seconds[threads]) for threads in (1, 2))
        console.print(
            f"K={k}, loop by the clock, {TURNS} turns: {one:.2f} s on one thread, "
            f"{two:.2f} s on two, {one / two:.2f} times as fast"
        )
        console.print(scheduled(k))


def scheduled(k: int) -> str:
    """Return what cores would give to a part of the default run of a fabric."""
    one, hops = _run(k, 1, VirtualNetwork._run)
    hop_ns, found, density = 1e9 * one / hops, [], 0.0
    for cores in CORES:
        published, done = np.zeros(cores), np.zeros(cores)
        schedule = _Schedule(hop_ns, STEP_NS, published.ctypes.data, done.ctypes.data, 0, 0)
        _run(k, cores, _recorder(schedule))
        found.append(f"{cores} cores {1e9 * one / done.max():.2f}")
        density = schedule.events / schedule.windows
    return (
        f"K={k}, by the schedule of {density:.1f} events a window of 5 us, "
        f"{hop_ns:.0f} ns an event: {', '.join(found)} times as fast"
    )


def _recorder(schedule: _Schedule) -> Callable[[VirtualNetwork, int], None]:
    library = load_library(
        c_defines() + read_c(Path(__file__).with_name("schedule.c")),
        {"net_record": (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)},
        FLAGS,
    )

    def record(network: VirtualNetwork, time_ns: int) -> None:
        if library.net_record(network._net, time_ns, ctypes.byref(schedule)):
            raise MemoryError

    return record


def _run(k: int, threads: int, run: Callable[[VirtualNetwork, int], None]) -> tuple[float, int]:
    """Make a run without diagnosis; return the processor seconds of its loop, and its hops."""
    used, usual = 0.0, (VirtualNetwork._run, loop.record)

    def timed(self: VirtualNetwork, time_ns: int) -> None:
        nonlocal used
        begin = time.process_time()
        run(self, time_ns)
        used += time.process_time() - begin

    settings = make_settings(
        {"backend": "virtual", "k": k, "threads": threads, "epochs": 1, **RUNS[k]}
    )
    layout = layout_of(settings)
    assert isinstance(layout.fabric, PacketFabric)
    traffic, _ = make_traffic(layout.demand, layout.fabric, lambda share: None)
    inputs = inputs_of(layout, traffic)
    VirtualNetwork._run = timed
    loop.record = lambda *args, **named: None
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            open_backend(inputs, Path(folder)) as backend,
        ):
            emulation = set_up(inputs, backend)
            loop.run(emulation, Mock(), Observer())
            return used, emulation.network.statistics.packet_hops
    finally:
        VirtualNetwork._run, loop.record = usual


if __name__ == "__main__":
    print(scheduled(int(sys.argv[1])))
