# SPDX-License-Identifier: Apache-2.0
"""Work on this machine: in threads and processes, none of which listens on the network."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from scenarios.many.cluster import workers_of
from scenarios.many.work import Outcome, complete
from tests.conftest import quiet

COMPARE = ["compare", "--backend", "flow", "--epochs", "1", "--load", "0.01", "--seeds", "1-2"]
COMPARE += ["--methods", "netbouncer"]
REPRODUCE = ["reproduce", "--fig", "canary-table-3", "--draws", "2"]


def no_such_luck(folder: Path) -> bytes:
    raise OSError("no such luck")


def folder_name(folder: Path) -> bytes:
    return folder.name.encode()


def wait_long(folder: Path) -> bytes:
    (folder.parent / "begun").touch()
    time.sleep(600)
    return b""


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes import this module."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))


def test_what_a_piece_raises_is_its_own(tmp_path: Path) -> None:
    with workers_of(None, 1) as workers:
        workers.check({"k": 4}, dict)
        found = dict(workers.outcomes({"a": folder_name, "b": no_such_luck}, tmp_path))
    assert found["a"].content is not None and found["a"].content.startswith(b".a-")
    assert (found["b"].content, found["b"].reason) == (None, "no such luck")
    assert 'OSError("no such luck")' in found["b"].log
    assert not list(tmp_path.iterdir())


def test_parts_are_held_in_order(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    with workers_of(None, 2) as workers:
        parts = workers.held(lambda file: file.name, files)
        assert parts.each(lambda part, more: part + more, "!") == ["a!", "b!", "c!"]
        with pytest.raises(FileNotFoundError):
            workers.held(Path.read_text, files)


def test_the_end_does_not_wait_for_what_runs(tmp_path: Path) -> None:
    begin = time.monotonic()
    pieces = {"a": folder_name, "b": wait_long, "c": wait_long, "d": wait_long}

    def progress(what: str, share: float) -> None:
        while what == "pieces: 4 of 7" and not (tmp_path / "begun").exists():
            time.sleep(0.01)
        if what == "pieces: 4 of 7":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped, workers_of(None, 2) as workers:
        complete(pieces, 3, tmp_path, workers, "pieces", progress)
    assert stopped.value.__notes__ == [
        f"4 of 7 pieces are kept in {tmp_path}: the same command continues from there"
    ]
    assert time.monotonic() - begin < 300
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "begun"]


def listeners(process: psutil.Process) -> list[tuple[str, int]]:
    """Where a process, and those that it started, accept connections from the network."""
    found = []
    for each in (process, *process.children(recursive=True)):
        try:
            found += [
                (connection.laddr.ip, connection.laddr.port)
                for connection in each.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            ]
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended, or ends now
            continue
    return found


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(COMPARE, id="compare"),
        pytest.param(REPRODUCE, id="reproduce", marks=pytest.mark.nightly),
    ],
)
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
        time.sleep(0.1)
    assert process.returncode == 0, process.stderr.read()
    assert len(children) > 1, "no process of a seed was seen"
    assert not found


def test_an_interrupt_between_a_file_and_its_count_counts_it(tmp_path: Path) -> None:
    def stop(key: str, outcome: Outcome) -> None:
        raise KeyboardInterrupt

    pieces = {"a": folder_name, "b": folder_name}
    with workers_of(None, 1) as workers, pytest.raises(KeyboardInterrupt) as stopped:
        complete(pieces, 3, tmp_path, workers, "pieces", quiet, stop)
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]
    assert stopped.value.__notes__[0].startswith(f"4 of 5 pieces are kept in {tmp_path}: ")


def test_without_a_cluster_nothing_of_dask_is_loaded() -> None:
    code = (
        "import sys\n"
        "from scenarios.many.cluster import workers_of\n"
        "import scenarios.many.compare, scenarios.command.localize, scenarios.papers.reproduce\n"
        "with workers_of(None, 1) as workers: list(workers.outcomes({}, None))\n"
        "print(sorted({'distributed', 'dask', 'bokeh', 'tornado'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
