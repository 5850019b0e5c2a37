# SPDX-License-Identifier: Apache-2.0
"""The run directory: round trips, atomicity, versions, hostile directories."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.fabric.paths import Paths, pointers
from testbed.record.files import read_columns, write_columns
from testbed.record.run import RunDirectory, RunError, RunWriter
from testbed.record.schema import VERSION

CAUSES = {"flow": np.arange(3), "cause": np.array([5, -1, 7])}


@settings(deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=20),
)
def test_columns_read_back_as_written(rows: list[list[int]], tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    ptr = pointers([len(r) for r in rows])
    links = np.array([x for r in rows for x in r], np.int32)
    columns = {
        "path": Paths(ptr, links),
        "id": np.arange(len(rows), dtype=np.uint64) + np.uint64(2**63),
        "dirty": np.arange(len(rows)) % 2 == 0,
        "name": [f"tor{i}_0" for i in range(len(rows))],
    }
    write_columns(path, columns)
    back = read_columns(path)
    assert (back["path"].ptr == ptr).all()
    assert (back["path"].links == links).all()
    assert back["id"].dtype == np.uint64
    assert (back["id"] == columns["id"]).all()
    assert (np.asarray(back["dirty"], bool) == columns["dirty"]).all()
    assert list(back["name"]) == columns["name"]


def test_nothing_appears_before_a_run_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "run"
    writer = RunWriter(path)
    writer.table("diagnoses/007-connections", CAUSES)
    assert not path.exists()
    writer.finish()
    assert (path / "diagnoses" / "007-connections.parquet").is_file()
    assert list(tmp_path.iterdir()) == [path]


def test_an_abandoned_run_leaves_nothing(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.text("truth.yaml", "")
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


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cause": None}, "column cause is missing"),
        ({"why": np.arange(3)}, "column why is unknown"),
        ({"cause": np.arange(2)}, "columns of different lengths"),
        ({"cause": np.zeros(3)}, "column cause: float64 values: whole numbers are needed"),
        ({"cause": np.arange(3) + 2**31}, "column cause: 2147483648 does not fit into int32"),
    ],
)
def test_columns_that_are_not_the_schemas_are_not_written(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    writer = RunWriter(tmp_path / "run")
    columns = {name: values for name, values in (CAUSES | change).items() if values is not None}
    with pytest.raises(RunError, match=rf"007-connections\.parquet: {reason}") as raised:
        writer.table("diagnoses/007-connections", columns)
    assert "\n" not in str(raised.value)
    assert not list((writer.partial / "diagnoses").iterdir())


def test_a_complete_run_opens(finished_run: RunDirectory) -> None:
    assert finished_run.epochs == 4
    assert len(finished_run.table("links")["name"]) == 64
    assert finished_run.fabric.title == "a K=4 fat-tree"
    assert finished_run.fabric.link_names == finished_run.table("links")["name"]


@pytest.fixture
def copy(run_path: Path, tmp_path: Path) -> Path:
    shutil.copytree(run_path, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "truth.yaml",
        "fabric.parquet",
        "flows.parquet",
        "switches.parquet",
        "summary.json",
        "registers/epoch-002.parquet",
    ],
)
def test_a_run_that_lacks_a_file_is_refused(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(RunError, match="lacks"):
        RunDirectory(copy)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "from before records had versions: version {} is read here: make the run again"),
        (0, "of version 0: version {} is read here: make the run again"),
        (VERSION + 1, "of version 2: version {} is read here: use the newer version"),
        ("x", "of version 'x': version {} is read here: make the run again"),
    ],
)
def test_a_record_of_another_version_is_refused(copy: Path, found: object, message: str) -> None:
    config = json.loads((copy / "config.json").read_text())
    config.pop("record_version")
    if found is not None:
        config["record_version"] = found
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "fabric.parquet").unlink()  # what another version has is not looked at
    with pytest.raises(RunError, match=message.format(VERSION)) as raised:
        RunDirectory(copy)
    assert "\n" not in str(raised.value)


def test_garbage_in_a_run_is_named(copy: Path) -> None:
    (copy / "flows.parquet").write_bytes(b"garbage")
    with pytest.raises(RunError, match="flows.parquet is not a readable Parquet"):
        RunDirectory(copy, trust=True).table("flows")
    (copy / "flows.parquet").write_bytes((copy / "links.parquet").read_bytes())
    with pytest.raises(RunError, match=r"flows.parquet says .* 'links': .* 'flows' is needed"):
        RunDirectory(copy, trust=True).table("flows")
    for text in ("{", "[]"):
        (copy / "config.json").write_text(text)
        with pytest.raises(RunError, match="config.json is not readable"):
            RunDirectory(copy)


def test_an_unfinished_run_is_refused(run_path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "x.partial"
    shutil.copytree(run_path, copy)
    with pytest.raises(RunError, match="is an unfinished run"):
        RunDirectory(copy)


def test_rewriting_replaces_files_only_when_it_succeeds(copy: Path) -> None:
    before = (copy / "summary.json").read_bytes()
    changed = RunDirectory(copy).summary | {"wall_seconds": 7.5}
    with pytest.raises(ZeroDivisionError), RunWriter.again(RunDirectory(copy)) as writer:
        writer.json("summary.json", changed)
        _ = 1 / 0
    assert (copy / "summary.json").read_bytes() == before
    with RunWriter.again(RunDirectory(copy)) as writer:
        writer.json("summary.json", changed)
    assert RunDirectory(copy).summary == changed
    assert not list(copy.glob(".partial*"))
