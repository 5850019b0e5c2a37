# SPDX-License-Identifier: Apache-2.0
"""Instructions a packet-hop of the virtual network, counted by callgrind; no noise moves them.

`python -m tests.bench.instructions` compares them with the committed figures and ends with 1 if one
is more than 3 % above its figure; `--write` replaces the figures. With `K=16` it counts a large
fabric instead, which takes two minutes and is not compared. Without valgrind, or with a compiler
for which there are no figures, it says so and ends with 0. A run is short, on one thread, and
compiled for one processor (`haswell`), so that the figures are the same on every x86-64 machine.
"""

from __future__ import annotations

import ctypes
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

FIGURES = Path(__file__).with_suffix(".json")
MOST = 1.03
RUNS: dict[str, dict[str, Any]] = {
    "K=4": {"k": 4, "epochs": 1},
    "K=8": {"k": 8, "epochs": 1, "epoch_ms": 200, "probes": 2},
}
LARGE: dict[str, dict[str, Any]] = {
    "K=16": {"k": 16, "epochs": 1, "epoch_ms": 200, "probes": 2},
}
_REQUESTS = """
#include <valgrind/callgrind.h>
void count(int on) {
    if (on) CALLGRIND_START_INSTRUMENTATION;
    else CALLGRIND_STOP_INSTRUMENTATION;
}
"""


def missing() -> str:
    """Return why nothing can be counted here, "" if it can."""
    if platform.machine() != "x86_64":
        return f"the figures are for x86-64, this is {platform.machine()}"
    if not shutil.which("valgrind") or not Path("/usr/include/valgrind/callgrind.h").exists():
        return "valgrind is not installed"
    return ""


def compiler_version() -> str:
    """Return the name and the major version of the C compiler that compiles the network."""
    from canary_softswitch.compiler.build import compiler

    done = subprocess.run(
        [*compiler(), "-E", "-P", "-x", "c", "-"],
        input="#ifdef __clang__\nclang __clang_major__\n#else\ngcc __GNUC__\n#endif\n",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def measure(name: str) -> float:
    """Return the instructions a hop of a run, which has a process of its own under callgrind."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no"),
            f"--callgrind-out-file={folder}/out",
            *(sys.executable, "-m", "tests.bench.instructions", "--count", name),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        counted = re.search(r"Collected : (\d+)", done.stderr)
        hops = re.search(r"^hops (\d+)$", done.stdout, re.M)
        if done.returncode or not counted or not hops:
            raise RuntimeError(f"callgrind failed: {done.stderr[-2000:]}")
        return int(counted[1]) / int(hops[1])


def count(name: str) -> int:
    """Make a run without diagnosis, count the instructions of its network alone, and return its
    packet-hops."""
    from canary_softswitch.compiler import build
    from scenarios.experiment import loop
    from scenarios.experiment.backends import open_backend
    from scenarios.experiment.inputs import inputs_of, layout_of
    from scenarios.experiment.observer import Observer
    from scenarios.experiment.settings import make_settings
    from scenarios.experiment.setup import set_up
    from testbed.fabric.packet_fabric import PacketFabric
    from testbed.network.virtual import VirtualNetwork
    from testbed.traffic.demand import make_traffic

    build.identity = lambda command, folder: ""  # not for this processor, but
    build.FLAGS = (*build.FLAGS, "-march=haswell")
    switch_counting = build.load_library(_REQUESTS, {"count": (None, ctypes.c_int)})
    run_until = VirtualNetwork._run

    def run_counted(self: VirtualNetwork, time_ns: int) -> None:
        switch_counting.count(1)
        run_until(self, time_ns)
        switch_counting.count(0)

    VirtualNetwork._run = run_counted
    loop.record = lambda *args, **named: None
    settings = make_settings({"backend": "virtual", "threads": 1, **(RUNS | LARGE)[name]})
    layout = layout_of(settings)
    fabric = layout.fabric
    assert isinstance(fabric, PacketFabric)
    traffic, _ = make_traffic(layout.demand, fabric, lambda share: None)
    inputs = inputs_of(layout, traffic)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_backend(inputs, Path(folder)) as backend,
    ):
        emulation = set_up(inputs, backend)
        loop.run(emulation, Mock(), Observer())
        return emulation.network.statistics.packet_hops


def main() -> int:
    if len(sys.argv) == 3 and sys.argv[1] == "--count":
        print(f"hops {count(sys.argv[2])}")
        return 0
    if reason := missing():
        print(f"instructions a hop: skipped, {reason}")
        return 0
    if sys.argv[1:] and sys.argv[1] in LARGE:
        print(f"instructions a hop, {sys.argv[1]}: {measure(sys.argv[1]):.0f}")
        return 0
    committed = json.loads(FIGURES.read_text(encoding="utf-8"))
    version, write = compiler_version(), sys.argv[1:] == ["--write"]
    if version not in committed and not write:
        print(f"instructions a hop: skipped, there are no figures for {version}")
        return 0
    found = {name: round(measure(name)) for name in RUNS}
    if write:
        committed[version] = found
        FIGURES.write_text(json.dumps(committed, indent=2) + "\n", encoding="utf-8")
    figures = committed[version]
    for name, figure in found.items():
        print(f"instructions a hop, {name}: {figure}, committed {figures[name]}")
    return int(any(figure > MOST * figures[name] for name, figure in found.items()))


if __name__ == "__main__":
    sys.exit(main())
