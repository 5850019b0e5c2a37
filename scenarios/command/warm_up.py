# SPDX-License-Identifier: Apache-2.0
"""Compiles the switch program and the kernels, once for each installation."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from analysis.methods.registry import METHODS, find_methods
from canary_softswitch.compiler.build import keep, kept
from scenarios.experiment.backends import compile_soft_switches
from scenarios.experiment.inputs import inputs_of, layout_of
from scenarios.experiment.observer import Observer, Progress
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings
from testbed.fabric.packet_fabric import PacketFabric
from testbed.kernels import compile_all
from testbed.network.requirements import no_namespaces
from testbed.rootless import forbidden
from testbed.traffic.demand import make_traffic

ROOT = Path(__file__).parents[2]


def warm_up(progress: Progress) -> None:
    """Compile all kernels, and meanwhile make the smallest run, which compiles the switch program,
    and discard it; then compile what real packets need, where there can be some.

    ``progress`` is called with what is being done.

    What a bundle holds is not compiled again where its compiler and processor are those of here.
    """
    for library in bundled(ROOT, "compiled").glob("*.so"):
        if kept(library.name) is None:
            keep(library.name, library.read_bytes())
    files = [file for room in ("testbed", "analysis", "scenarios") for file in c_files(room)]
    with ThreadPoolExecutor(1) as beside:
        run = beside.submit(smallest_run)
        compile_all(files, lambda share: progress("compiling", share))
        run.result()
        if not (no_namespaces() or forbidden()):
            compile_for_real_packets()


def compile_for_real_packets() -> None:
    """Compile the program with the counters that only real packets need, for `make net` and
    ``BACKEND=softswitch`` with their defaults."""
    layout = layout_of(Settings(backend="softswitch"))
    assert isinstance(layout.fabric, PacketFabric)  # as its network sends packets
    traffic, _ = make_traffic(layout.demand, layout.fabric)
    compile_soft_switches(inputs_of(layout, traffic))


def bundled(project: Path, what: str) -> Path:
    """Return the folder of a project in which a bundle keeps its ``wheels`` or ``compiled``."""
    return project / "bundle" / what


def c_files(room: str) -> list[Path]:
    """Return the C files of a package of ours."""
    return sorted((ROOT / room).rglob("*.c"))


def smallest_run(observer: Observer = Observer()) -> None:
    """Make a run on packets with all methods and discard it."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(k=4, epochs=2, load=0.01)
        path = Path(folder) / "run"
        methods = find_methods(",".join(METHODS))
        run_experiment(layout_of(settings), path, methods, observer)
