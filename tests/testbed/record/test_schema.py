"""The schema: what is documented, what every network writes, and tables that break it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.record import schema
from testbed.record.run import RunDirectory, RunError


def test_the_readme_holds_the_schema_as_the_code_has_it() -> None:
    """Made anew by: python -m testbed.record.schema"""
    document = Path(schema.__file__).with_name("README.md").read_text()
    found = re.search(r"<!-- schema -->\n(.*)<!-- end of schema -->", document, re.DOTALL)
    assert found is not None and found[1] == schema.render()


def test_every_table_of_a_run_is_of_the_schema(run_path: Path) -> None:
    run = RunDirectory(run_path)
    files = sorted(path.relative_to(run_path) for path in run_path.rglob("*.parquet"))
    read = set()
    for file in files:
        name = str(file.with_suffix(""))
        table, wanted = run.table(name), schema.of(name)
        read.add(wanted.name)
        assert list(table) == [c.name for c in wanted.columns if c.name in table]
        for column in wanted.columns:
            if isinstance(values := table.get(column.name), np.ndarray):
                assert values.dtype == column.type
        stored = pq.read_schema(run_path / file)
        assert stored.metadata[b"version"] == str(schema.VERSION).encode()
    assert read == {table.name for table in schema.TABLES} - {"observations"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lost": None}, "column lost is missing"),
        ({"more": [1]}, "column 'more' is unknown"),
        ({"lost": ["much"]}, "column lost has the type string: whole numbers are needed"),
        ({"lost": pa.array([None], pa.int64())}, "row 0: lost is missing"),
        ({"path": pa.array([2**40])}, "column path: 1099511627776 does not fit into int32"),
    ],
)
def test_a_broken_table_is_named(
    run_path: Path, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    shutil.copytree(run_path, tmp_path / "copy")
    columns = {"path": [0], "src_host": [0], "dst_host": [0], "sent": [9], "lost": [1]} | change
    table = pa.table({name: value for name, value in columns.items() if value is not None})
    path = tmp_path / "copy" / "probe_counts.parquet"
    pq.write_table(table.replace_schema_metadata(schema.PROBE_COUNTS.metadata), path)
    with pytest.raises(RunError) as raised:
        RunDirectory(tmp_path / "copy").table("probe_counts")
    message = str(raised.value)
    assert message.startswith(f"{path}: {reason}") and message.endswith(": make the run again")
    assert "\n" not in message
