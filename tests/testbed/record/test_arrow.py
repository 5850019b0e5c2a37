"""Arrays to Arrow and back."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from testbed.record.arrow import from_numpy, from_texts, to_numpy

VALUES = [
    np.arange(-3, 10),
    np.arange(7, dtype=np.int8),
    np.array([2**64 - 1, 0], np.uint64),
    np.array([0.5, np.nan, -np.inf]),
    np.arange(21) % 3 == 0,
    np.arange(20)[::3],
    np.array([], np.int32),
    np.array([], np.bool_),
]


@pytest.mark.parametrize("values", VALUES, ids=lambda v: f"{v.dtype}-{len(v)}")
def test_arrays_become_what_arrow_makes_of_them_and_come_back(values):
    column = from_numpy(values)
    column.validate(full=True)
    assert column.equals(pa.array(values)) or values.dtype.kind == "f"
    back = to_numpy(column)
    np.testing.assert_array_equal(back, values)
    assert back.dtype == values.dtype and back.flags.writeable
    parts = pa.chunked_array([column[1:], column[:3]])
    np.testing.assert_array_equal(to_numpy(parts), np.concatenate((values[1:], values[:3])))


def test_what_is_marked_is_null():
    null = np.array([True, False, False] * 5)
    assert from_numpy(np.arange(15), null).equals(pa.array(np.arange(15), mask=null))


def test_only_one_value_a_row():
    with pytest.raises(ValueError, match="2 dimensions"):
        from_numpy(np.zeros((2, 2)))


def test_texts_become_what_arrow_makes_of_them():
    for texts in ([], ["", "tor0_0->agg0_1", "ä–"], ["a", None]):
        assert from_texts(texts).equals(pa.array(texts, pa.string()))
    with pytest.raises((TypeError, ValueError)):
        from_texts(["a", 1])  # type: ignore[list-item]


def test_a_table_is_written_and_read_without_pandas(tmp_path):
    """It takes an eighth of a second to load, of every run."""
    program = f"""
import sys
from pathlib import Path
import numpy as np
from testbed.fabric.fat_tree import FatTree
from testbed.record.fabric_file import fabric_columns, read_fabric
from testbed.record.run_tables import of
from testbed.record.tables import Texts, read_table, write_table
place, schema = Path({str(tmp_path)!r}) / "drops.parquet", of("drops")
fabric = place.with_name("fabric.parquet")
write_table(fabric, of("fabric"), fabric_columns(FatTree(4)))
read_fabric(fabric)
one = np.zeros(1, np.int32)
columns = dict(time_ns=one.astype(np.uint64), flow=one, link=one, cause=Texts(one, ["queue"]))
columns |= dict(counted=one == 1, epoch=one)
write_table(place, schema, columns)
read_table(place, schema).values()
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
