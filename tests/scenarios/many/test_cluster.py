# SPDX-License-Identifier: Apache-2.0
"""Comparisons on the workers of a Dask cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster

from analysis.methods.registry import find_methods
from scenarios.experiment.settings import Settings
from scenarios.many import cluster as module
from scenarios.many.cluster import Cluster
from scenarios.many.compare import compare
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
TINY = Settings(epochs=2, load=0.005)
METHODS = find_methods("netbouncer")


def quiet(what: str, share: float) -> None:
    pass


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[int]]]:
    """A scheduler's file, and who begins each of its two workers again when it dies."""
    folder = tmp_path_factory.mktemp("cluster")
    file = folder / "scheduler.json"
    environment = {
        **os.environ, "DASK_DISTRIBUTED__WORKER__DAEMON": "False", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    here = ["--scheduler-file", str(file), "--no-dashboard"]
    commands = [
        ["scheduler", *here, "--host", "127.0.0.1", "--port", "0"],
        *(["worker", *here, "--nthreads", "1", "--local-directory", str(folder)] for _ in range(2)),
    ]
    processes = []
    for words in commands:
        command = [sys.executable, "-m", "dask", *words]
        log = (folder / "log").open("ab")
        processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        log.close()
    try:
        yield file, [process.pid for process in processes[1:]]
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(timeout=PATIENCE_S)


def workers_of(nanny: int) -> list[int]:
    """The processes that a nanny has begun and that begin others."""
    found = []
    for child in psutil.Process(nanny).children():
        with suppress(psutil.NoSuchProcess):  # it has just been killed
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child.pid)
    return found


def figures(rows: dict[str, object]) -> dict[str, object]:
    return {name: column for name, column in rows.items() if name not in ("seconds", "found_at")}


@pytest.mark.nightly  # half a minute
@pytest.mark.parametrize("n", [4, 40])
def test_a_worker_that_is_killed_twice_loses_no_seed(
    cluster: tuple[Path, list[int]], tmp_path: Path, n: int
) -> None:
    file, nannies = cluster
    killed: list[int] = []

    def kill() -> None:
        while len(killed) < 2:
            kept = len(list((tmp_path / "there").glob("seed-*.parquet")))
            found = workers_of(nannies[0])
            if kept > len(killed) and found and found[0] not in killed:
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])
            time.sleep(0.1)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    seeds = range(1, n + 1)
    with Client(scheduler_file=str(file), timeout=PATIENCE_S) as client:
        client.wait_for_workers(2, timeout=PATIENCE_S)
    result = compare(
        "faulty_links", TINY, seeds, METHODS, tmp_path / "there", quiet, cluster=str(file)
    )
    assert len(killed) == 2 and not result.failures
    alone = compare("faulty_links", TINY, seeds, METHODS, tmp_path / "here", quiet)
    there, here = figures(dict(result.rows)), figures(dict(alone.rows))
    assert list(there) == list(here)
    for name in there:
        np.testing.assert_array_equal(there[name], here[name])
    assert not list(tmp_path.glob("*/.seed-*"))


def test_workers_of_other_code_are_refused() -> None:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as local,
        Client(local) as client,
    ):
        workers = Cluster(client, "")
        workers.check({"code_sha256": "a", "k": 4}, lambda: {"code_sha256": "a", "k": 4})
        with pytest.raises(ValueError, match="^worker .* has other code_sha256: give it"):
            workers.check({"code_sha256": "a", "k": 4}, lambda: {"code_sha256": "b", "k": 4})

        def absent() -> dict[str, str]:
            raise ModuleNotFoundError("No module named 'scenarios'")

        with pytest.raises(ValueError, match="^worker .* cannot run this: No module named"):
            workers.check({}, absent)


def test_a_worker_that_may_start_no_process_is_refused() -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as local,
        Client(local) as client,
        pytest.raises(ValueError, match="may not start processes: start it with --no-nanny"),
    ):
        Cluster(client, "").check({}, dict)


def test_a_cluster_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT", 0.5)
    for where, message in [
        (str(tmp_path / "none.json"), "there is no such scheduler file"),
        ("tcp://127.0.0.1:1", "does not answer"),
        ("nowhere", "does not answer"),
    ]:
        with pytest.raises(ValueError, match=message):
            compare("faulty_links", TINY, [1], METHODS, tmp_path / "out", quiet, cluster=where)
    real = replace(TINY, backend="softswitch")
    with pytest.raises(ValueError, match="CLUSTER= runs only simulated networks"):
        compare("faulty_links", real, [1], METHODS, tmp_path / "real", quiet, cluster="x.json")
