# SPDX-License-Identifier: Apache-2.0
"""The child process that reads a table first: what it lets through, and what it says of the rest.

Nothing here depends on time: the limits are made so small, or so large, that one alone decides.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.record import trial

MIB = 1 << 20
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Five files, of 40 MiB each when they are read, but for the last, which has one row."""
    folder = tmp_path_factory.mktemp("tables")
    column = np.arange(MIB) % 7
    for number in range(5):
        rows = 1 if number == 4 else MIB
        table = pa.table({name: column[:rows] for name in ("a", "b", "c", "d", "e")})
        pq.write_table(table, folder / f"{number}.parquet", compression="zstd")
    return sorted(folder.glob("*.parquet"))


@pytest.fixture(autouse=True)
def nothing_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_tried", set())


FRESH = """
import sys
from collections.abc import Sequence
from pathlib import Path
from testbed.record import trial
spare, times, *files = sys.argv[1:]
trial.SPARE, trial.TIMES, trial.SECONDS = int(spare), int(times), 3600
print(trial.harm([Path(file) for file in files]))
"""


def harm(spare: int, times: int, files: Sequence[Path]) -> str:
    """What is said of files in another process: this one may have memory of Arrow's to spare."""
    words = [sys.executable, "-c", FRESH, str(spare), str(times), *map(str, files)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.removesuffix("\n")


def test_what_was_read_before_takes_no_room_from_a_table(tmp_path: Path) -> None:
    """A run at K=48 was refused: a small file of many rows came after a large one, of which Arrow
    kept a GiB that it had mapped."""
    made = {"large": np.random.default_rng(1).bytes(20 * MIB), "many": bytes(40 * MIB)}
    for name, values in made.items():
        column = pa.array(np.frombuffer(values, np.int64))
        table = pa.table(dict.fromkeys("abcde" if name == "many" else "a", column))
        pq.write_table(table, tmp_path / f"{name}.parquet", compression="zstd")
    assert harm(400 * MIB, 64, [tmp_path / f"{name}.parquet" for name in made]) == "None"


def test_each_table_has_its_limit(tables: list[Path]) -> None:
    assert harm(30 * MIB, 0, tables) == f"{tables[0]} {trial.BEYOND}"
    assert harm(30 * MIB, 0, tables[4:]) == "None"
    assert harm(100 * MIB, 0, tables) == "None"


def test_a_file_is_tried_once_until_it_changes(
    tables: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tables[4]
    assert trial.harm([small]) is None
    monkeypatch.setattr(trial, "_read_in_child", lambda paths: pytest.fail(f"tried: {paths}"))
    assert trial.harm([small, small.with_name("absent.parquet")]) is None
    os.utime(small, (1, 1))
    with pytest.raises(pytest.fail.Exception, match="tried"):
        trial.harm([small])


def test_a_child_that_is_killed_is_no_fault_of_the_file(
    tables: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel does when the machine has no memory left."""

    def killed(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(trial, "_read", killed)
    assert trial.harm(tables) == f"{tables[0]} {trial.KILLED}"
