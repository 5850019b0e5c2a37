"""The run directory: round trips, atomicity, hostile directories."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.fabric.paths import Paths
from testbed.record.run import RunDirectory, RunError, RunWriter, read_table, write_table


@given(
    rows=st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=20),
)
def test_tables_read_back_as_written(rows: list[list[int]], tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    ptr = np.concatenate(([0], np.cumsum([len(r) for r in rows]))).astype(np.int64)
    links = np.array([x for r in rows for x in r], np.int32)
    columns = {
        "path": Paths(ptr, links),
        "id": np.arange(len(rows), dtype=np.uint64) + np.uint64(2**63),
        "dirty": np.arange(len(rows)) % 2 == 0,
        "name": [f"tor{i}_0" for i in range(len(rows))],
    }
    write_table(path, columns)
    back = read_table(path)
    assert (back["path"].ptr == ptr).all()
    assert (back["path"].links == links).all()
    assert back["id"].dtype == np.uint64
    assert (back["id"] == columns["id"]).all()
    assert (np.asarray(back["dirty"], bool) == columns["dirty"]).all()
    assert list(back["name"]) == columns["name"]


def test_nothing_appears_before_a_run_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "run"
    writer = RunWriter(path)
    writer.table("links", {"name": ["a"]})
    assert not path.exists()
    writer.finish()
    assert (path / "links.parquet").is_file()
    assert list(tmp_path.iterdir()) == [path]


def test_an_abandoned_run_leaves_nothing(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.json("config.json", {})
    writer.abandon()
    assert not list(tmp_path.iterdir())


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious").write_text("data")
    with pytest.raises(RunError, match="exists already"):
        RunWriter(tmp_path / "run")
    assert (tmp_path / "run" / "precious").read_text() == "data"


def test_a_place_that_cannot_be_written_is_named() -> None:
    with pytest.raises(RunError, match="cannot write /proc/nowhere/run"):
        RunWriter(Path("/proc/nowhere/run"))


def test_a_complete_run_opens(finished_run: RunDirectory) -> None:
    assert finished_run.epochs == 4
    assert len(finished_run.table("links")["name"]) == 64


@pytest.mark.parametrize(
    "name",
    ["config.json", "truth.yaml", "flows.parquet", "summary.json", "registers/epoch-002.parquet"],
)
def test_a_run_that_lacks_a_file_is_refused(run_path: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run_path, copy)
    (copy / name).unlink()
    with pytest.raises(RunError, match="lacks"):
        RunDirectory(copy)


def test_garbage_in_a_run_is_named(run_path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run_path, copy)
    (copy / "flows.parquet").write_bytes(b"garbage")
    with pytest.raises(RunError, match="flows.parquet is not readable"):
        RunDirectory(copy).table("flows")
    (copy / "config.json").write_text("{")
    with pytest.raises(RunError, match="config.json is not readable"):
        RunDirectory(copy)


def test_an_unfinished_run_is_refused(run_path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "x.partial"
    shutil.copytree(run_path, copy)
    with pytest.raises(RunError, match="did not finish"):
        RunDirectory(copy)


def test_rewriting_replaces_files_only_when_it_succeeds(run_path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run_path, copy)
    before = (copy / "summary.json").read_bytes()
    with pytest.raises(ZeroDivisionError), RunWriter.again(RunDirectory(copy)) as writer:
        writer.json("summary.json", {})
        _ = 1 / 0
    assert (copy / "summary.json").read_bytes() == before
    with RunWriter.again(RunDirectory(copy)) as writer:
        writer.json("summary.json", {"new": 1})
    assert json.loads((copy / "summary.json").read_text()) == {"new": 1}
    assert not list(copy.glob(".partial*"))
