# SPDX-License-Identifier: Apache-2.0
"""Places that several commands want: one has it, what is not this project's stays as it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.record.atomic import MARK, FolderError, PendingRun, at_work, atomic_write, held
from testbed.record.run import RunDirectory, RunError, RunWriter

HOLDER = """
import sys, time
from pathlib import Path
from testbed.record.run import RunWriter
writer = RunWriter(Path(sys.argv[1]))
writer.text("truth.yaml", "faults: []")
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that writes the run ``run``."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_run_that_is_being_written_is_let_alone_until_its_process_ends(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    path = tmp_path / "run"
    partial = tmp_path / "run.partial"
    before = sorted(partial.rglob("*"))
    assert at_work(path)
    with pytest.raises(RunError, match=r"another command writes to .*run\.partial: wait"):
        RunWriter(path)
    assert sorted(partial.rglob("*")) == before
    other = RunWriter(path, numbered=True)
    assert other.path == tmp_path / "run-2"
    other.abandon()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not at_work(path)
    writer = RunWriter(path)
    assert not (partial / "truth.yaml").exists()
    writer.finish()
    assert sorted(entry.name for entry in path.iterdir()) == [
        "diagnoses",
        "manifest.json",
        "registers",
    ]
    assert list(tmp_path.iterdir()) == [path]


def no_mark(path: Path) -> None:
    (path / "chapter").mkdir(parents=True)
    (path / "chapter" / "one.txt").write_text("It was a dark night.")


def a_file(path: Path) -> None:
    path.write_text("dear diary")


def a_link(path: Path) -> None:
    there = path.with_name("elsewhere")
    no_mark(there)
    (there / MARK).touch()
    path.symlink_to(there)


@pytest.mark.parametrize("make", [no_mark, a_file, a_link, Path.mkdir])
def test_a_partial_of_the_users_own_is_not_touched(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "thesis.partial")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    with pytest.raises(RunError, match=r"thesis\.partial is not a partial run: move it"):
        RunWriter(tmp_path / "thesis")
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_a_finished_run_is_kept_when_its_place_was_taken_meanwhile(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.text("truth.yaml", "faults: []")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious").write_text("data")
    (tmp_path / "run-2").write_text("data")
    writer.finish()
    assert writer.path == tmp_path / "run-3"
    assert (writer.path / "truth.yaml").is_file()
    assert (tmp_path / "run" / "precious").read_text() == "data"
    writer.abandon()
    assert writer.path.is_dir()


@pytest.mark.parametrize("name", ["x.partial", "."])
def test_a_name_that_no_run_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FolderError, match="cannot be the name of a run"):
        PendingRun(Path(name))


def test_what_an_abandoned_run_made_on_its_way_goes_too(tmp_path: Path) -> None:
    RunWriter(tmp_path / "a" / "b" / "run").abandon()
    assert not list(tmp_path.iterdir())


def test_one_analysis_at_a_time(finished_run: RunDirectory) -> None:
    before = sorted(finished_run.path.rglob("*"))
    with (
        RunWriter.again(finished_run),
        pytest.raises(RunError, match="another command writes to"),
        RunWriter.again(finished_run),
    ):
        pass
    assert sorted(finished_run.path.rglob("*")) == before


def test_two_who_write_one_file_do_not_mix(tmp_path: Path) -> None:
    with (
        atomic_write(tmp_path / "plan.parquet") as first,
        atomic_write(tmp_path / "plan.parquet") as second,
    ):
        assert first != second and first.suffix == ".parquet"
        first.write_text("one")
        second.write_text("two")
    assert (tmp_path / "plan.parquet").read_text() == "one"
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "plan.parquet") as third:
        third.write_text("three")
        _ = 1 / 0
    assert [path.name for path in tmp_path.iterdir()] == ["plan.parquet"]
    assert (tmp_path / "plan.parquet").read_text() == "one"


def test_a_folder_is_held_without_a_trace(tmp_path: Path) -> None:
    with held(tmp_path, tmp_path):
        with pytest.raises(FolderError, match="another command"), held(tmp_path, tmp_path):
            pass
        assert os.listdir(tmp_path) == []
