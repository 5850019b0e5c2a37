"""Work on this machine: in threads and processes, none of which listens on the network."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from scenarios.many.workers import workers_of

COMPARE = ["compare", "--backend", "flow", "--epochs", "2", "--seeds", "1-4"]
COMPARE += ["--methods", "netbouncer"]
REPRODUCE = ["reproduce", "--fig", "canary-table-3", "--draws", "2"]


def test_what_a_job_raises_is_its_own() -> None:
    def wrong() -> int:
        raise OSError("no such luck")

    with workers_of(None, 1) as workers:
        workers.check({"k": 4}, dict)
        found = dict(workers.outcomes({1: lambda: 5, 2: wrong}))
    assert found == {1: 5, 2: "OSError: no such luck"}


def test_parts_are_held_in_order(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    with workers_of(None, 2) as workers:
        parts = workers.held(lambda file: file.name, files)
        assert parts.each(lambda part, more: part + more, "!") == ["a!", "b!", "c!"]
        with pytest.raises(FileNotFoundError):
            workers.held(Path.read_text, files)


def test_the_end_does_not_wait_for_what_runs() -> None:
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), workers_of(None, 2) as workers:
        for _ in workers.outcomes({1: lambda: None, 2: lambda: time.sleep(600)}):
            raise KeyboardInterrupt
    assert time.monotonic() - begin < 300


def listeners(process: psutil.Process) -> list[tuple[str, int]]:
    """Where a process, and those that it started, accept connections from the network."""
    found = []
    for each in (process, *process.children(recursive=True)):
        try:
            found += [
                (connection.laddr.ip, connection.laddr.port)
                for connection in each.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN
            ]
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended, or ends now
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("command", [COMPARE, REPRODUCE], ids=lambda command: command[0])
def test_many_runs_listen_nowhere(
    command: list[str], installed: Callable[[str], Path], tmp_path: Path
) -> None:
    process = psutil.Popen(
        [installed("scenarios/canary"), *command, "--out", "out"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    found, children = set(), set()
    while process.poll() is None:
        found |= set(listeners(process))
        children |= {child.pid for child in process.children(recursive=True)}
        time.sleep(0.02)
    assert process.returncode == 0, process.stderr.read()
    assert len(children) > 1, "no process of a seed was seen"
    assert not found


def test_without_a_cluster_nothing_of_dask_is_loaded() -> None:
    code = (
        "import sys\n"
        "from scenarios.many.workers import workers_of\n"
        "import scenarios.many.compare, scenarios.command.localize, scenarios.papers.reproduce\n"
        "with workers_of(None, 1) as workers: list(workers.outcomes({1: dict}))\n"
        "print(sorted({'distributed', 'dask', 'bokeh', 'tornado'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
