# SPDX-License-Identifier: Apache-2.0
"""Fabrics too large for one machine's analysis: segments in parts, diagnosed on a Dask cluster.

`python -m tests.bench parts` makes the counts of a fat-tree pod by pod, as `canary run` on
BACKEND=flow draws them, and has them diagnosed on two workers of at most 8 GB each.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from distributed import Client
from rich.console import Console

from analysis.evaluation.metrics import score
from analysis.methods.registry import find_methods
from analysis.telemetry.parts import write_part
from scenarios.command.localize import localize
from scenarios.experiment.settings import Settings, make_settings
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.monitors import monitor_switches
from testbed.fabric.segments import segment_share, segments
from testbed.faults.plan import noise_rates
from testbed.faults.specification import parse_faults
from testbed.measurements.canary.metering import meter
from testbed.measurements.canary.selection import SelectionParameters
from testbed.network.flow import link_loss, send
from testbed.record.fabric_file import write_fabric
from testbed.traffic.generator import flow_process
from tests.conftest import quiet

SIZES = (64, 96)
WORKERS, MEMORY = 2, "8GB"
METHODS = "canary,canary-mle"


def bench_parts(console: Console) -> None:
    """Each size's counts are made in a process of its own."""
    for k in SIZES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            command = [sys.executable, "-m", "tests.bench.bench_parts", str(k), name]
            made = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            console.print(
                f"K={k}: {made['links']:,} directed links, {made['segments']:,} segments in {k} "
                f"parts of {made['bytes'] / k / 1e6:.1f} MB, made in {made['seconds']:.0f} s "
                f"of the processor with {made['memory'] / 1e9:.1f} GB"
            )
            _diagnose(console, folder, np.array(made["faulty"]))


def _diagnose(console: Console, folder: Path, faulty: np.ndarray) -> None:
    with _workers(folder) as (file, pids):
        for method in find_methods(METHODS):
            begin = time.perf_counter()
            verdicts = localize(
                folder / "fabric.parquet", folder / "parts", [method], quiet, cluster=str(file)
            )
            found = verdicts.diagnoses[method.name]
            fabric = verdicts.numbered.fabric
            f1 = score(found.flagged, faulty, fabric)["directed"].f1
            most = max(_peak(pid) for pid in pids)
            console.print(
                f"  {method.name}: {time.perf_counter() - begin:.0f} s in all, "
                f"{found.seconds:.0f} of them after reading, "
                f"F1 {f1:.3f} of {len(faulty):,} faulty; at most {most / 1e9:.1f} GB a worker, "
                f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB here"
            )


@contextmanager
def _workers(folder: Path) -> Iterator[tuple[Path, list[int]]]:
    """A scheduler's file and its workers' processes."""
    file, here = folder / "scheduler.json", Path(__file__).parents[2]
    environment = {
        **os.environ, "PYTHONPATH": str(here), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    commands = [["scheduler", *common, "--host", "127.0.0.1", "--port", "0"]]
    commands += [
        ["worker", *common, "--nthreads", "1", "--memory-limit", MEMORY, "--no-nanny",
         "--local-directory", str(folder)]
    ] * WORKERS  # fmt: skip
    log = (folder / "log").open("ab")
    processes = [
        subprocess.Popen([sys.executable, "-m", "dask", *words], env=environment, stderr=log)
        for words in commands
    ]
    try:
        with Client(scheduler_file=str(file), timeout=60) as client:
            client.wait_for_workers(WORKERS, timeout=60)
        yield file, [process.pid for process in processes[1:]]
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(timeout=30)
        log.close()


def _peak(pid: int) -> int:
    """The most memory that a process has had, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def make(settings: Settings, folder: Path) -> dict[str, object]:
    """Write the fabric and the parts, one of each pod; what they are, and which links lose."""
    begin = time.process_time()
    fabric = FatTree(settings.k)
    write_fabric(folder / "fabric.parquet", fabric)
    plan = parse_faults(settings.faults, fabric, settings.seed, duration_s=settings.duration_s)
    noise = noise_rates(settings.noise, fabric.n_links, settings.seed)
    loss = link_loss(fabric, plan, settings.epochs, settings.epoch_ms / 1000, noise)
    rng = np.random.default_rng([settings.seed, 0])
    rate = settings.network.line_rate_bps
    process = flow_process(fabric, "hadoop", settings.load, rng, "uniform", rate)
    ecmp = Ecmp(fabric)
    every = segments(ecmp, monitor_switches(fabric, settings.monitors, settings.seed))
    share = segment_share(ecmp, process.pair_share(), every)
    del ecmp
    parameters = SelectionParameters(settings.alpha, settings.beta, settings.delta, settings.eta)
    (folder / "parts").mkdir()
    size = 0
    for pod in range(settings.k):
        rows = np.flatnonzero(every.subproblem == pod)
        paths = every.paths.take(rows)
        links = paths.padded()
        through = np.where(links >= 0, 1 - loss[0, np.maximum(links, 0)], 1.0).prod(axis=1)[None]
        args = settings.epochs, settings.epoch_ms / 1000, parameters, settings.seed * 1000 + pod
        sent = meter(process, share[rows], through, *args).sent
        own = np.random.default_rng([settings.seed, 5, pod])
        lost = np.stack([send(loss, paths, counted, own).lost for counted in sent])
        path = folder / "parts" / f"part-{pod:03}.parquet"
        write_part(path, paths, sent, lost)
        size += path.stat().st_size
    return {
        "links": fabric.n_links,
        "segments": len(every),
        "bytes": size,
        "faulty": sorted(plan.links),
        "seconds": time.process_time() - begin,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    asked = {"k": int(sys.argv[1]), "backend": "flow", "epochs": 3, "load": 0.6, "faults": "1pct"}
    given = make_settings(asked | {"seed": 1001})
    print(json.dumps(make(given, Path(sys.argv[2])), default=int))
