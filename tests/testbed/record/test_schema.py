# SPDX-License-Identifier: Apache-2.0
"""The schema: what every network writes, and tables that break it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.record import run_tables, schema
from testbed.record.run import RunDirectory, RunError


def test_every_table_of_a_run_is_of_the_schema(run_path: Path) -> None:
    run = RunDirectory(run_path)
    files = sorted(path.relative_to(run_path) for path in run_path.rglob("*.parquet"))
    read = set()
    for file in files:
        name = str(file.with_suffix(""))
        table, wanted = run.table(name), run_tables.of(name)
        read.add(wanted.name)
        assert list(table) == [c.name for c in wanted.columns if c.name in table]
        for column in wanted.columns:
            if isinstance(values := table.get(column.name), np.ndarray):
                assert values.dtype == column.type
        stored = pq.read_schema(run_path / file)
        assert stored.metadata[b"version"] == str(schema.VERSION).encode()
    # In virtual time the emulator loses nothing of its own; the others are made on request.
    asked_for = {
        "emulator_drops",
        "counters",
        "link_counts",
        "link_losses",
        "verdicts",
        "spray_counts",
        "int_paths",
        "iterations",
    }
    assert read == {table.name for table in run_tables.TABLES} - asked_for


def changed(run: Path, name: str, column: str, row: int, value: Any) -> Path:
    """A cell of a table replaced."""
    path = run / f"{name}.parquet"
    table = pq.read_table(path)
    values, kind = table.column(column).to_pylist(), table.schema.field(column).type
    values[row] = value
    table = table.set_column(table.column_names.index(column), column, pa.array(values, kind))
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize(
    ("name", "column", "value", "reason"),
    [
        ("probe_counts", "path", -1, "path is -1: there are "),
        ("probe_counts", "path", 10**6, "path is 1000000: there are "),
        ("probe_counts", "src_host", 16, "src_host is 16: there are 16 hosts"),
        ("probe_counts", "sent", -5, "sent is -5: 0 to 10^15 is needed"),
        ("probe_counts", "lost", 10**9, "more packets lost than sent"),
        ("probe_paths", "plan", "mine", "plan is 'mine': none of netbouncer, detector"),
        ("probe_paths", "path", [], "path has no link"),
        ("probe_paths", "path", [-1], "path has link -1: there are 64 links"),
        ("probe_paths", "path", [0, 64], "path has link 64: there are 64 links"),
        ("probe_paths", "path", [0, 2], "the links of path do not join up"),
        ("flows", "src_tor", 8, "src_tor is 8: there are 8 tors"),
        ("connections", "flow", -1, "flow is -1: there are "),
        ("links", "rate", float("nan"), "rate is nan: 0 to 1 is needed"),
        ("links", "rate", 1.5, "rate is 1.5: 0 to 1 is needed"),
        ("links", "name", "x", "it is of 'x': 'agg0_1->tor0_0' comes here"),
        ("switches", "id", 2**48, "id is 281474976710656: 0 to 2^48-1 is needed"),
        ("rules", "segment", -1, "segment is -1: there are "),
        ("rules", "epoch", 4, "epoch is 4: there are 4 epochs"),
        ("segments", "segment", 0, "row 0 has the same epoch and segment"),
        ("registers/epoch-001", "switch", 20, "switch is 20: there are 20 switches"),
        ("registers/epoch-001", "meter", 2, "meter is 2: 0 to 1 is needed"),
        ("diagnoses/canary", "success", -0.5, "success is -0.5: 0 to 1 is needed"),
        ("diagnoses/007-connections", "cause", -2, "cause is -2: there are 64 links"),
    ],
)
def test_a_value_out_of_range_is_named(
    run_path: Path, tmp_path: Path, name: str, column: str, value: Any, reason: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run_path, copy)
    before = RunDirectory(copy).table(name)
    row = 3
    if column == "segment" and not value:  # a second row of what row 0 is of
        changed(copy, name, "epoch", row, int(before["epoch"][0]))
        value = int(before["segment"][0])
    path = changed(copy, name, column, row, value)
    with pytest.raises(RunError) as raised:
        RunDirectory(copy, trust=True).table(name)
    message = str(raised.value)
    assert message.startswith(f"{path}: row {row}") and message.isprintable()
    assert f": {reason}" in message


def test_a_table_with_other_rows_than_the_fabric_is_refused(run_path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run_path, copy)
    path = copy / "links.parquet"
    pq.write_table(pq.read_table(path).slice(0, 32), path)
    with pytest.raises(RunError, match=r"links\.parquet has 32 rows: there are 64 links"):
        RunDirectory(copy, trust=True).table("links")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lost": None}, "column lost is missing"),
        ({"more": [1]}, "column 'more' is unknown"),
        ({"lost": ["much"]}, "column lost has the type string: whole numbers are needed"),
        ({"lost": pa.array([None], pa.int64())}, "row 0: lost is missing"),
        ({"path": pa.array([2**40])}, "row 0: path: 1099511627776 does not fit into int32"),
    ],
)
def test_a_broken_table_is_named(
    run_path: Path, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    shutil.copytree(run_path, tmp_path / "copy")
    columns = {"path": [0], "src_host": [0], "dst_host": [0], "sent": [9], "lost": [1]} | change
    table = pa.table({name: value for name, value in columns.items() if value is not None})
    path = tmp_path / "copy" / "probe_counts.parquet"
    pq.write_table(table.replace_schema_metadata(run_tables.PROBE_COUNTS.metadata), path)
    with pytest.raises(RunError) as raised:
        RunDirectory(tmp_path / "copy", trust=True).table("probe_counts")
    message = str(raised.value)
    assert message.startswith(f"{path}: {reason}") and message.endswith(": make the run again")
    assert "\n" not in message
