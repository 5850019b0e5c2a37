# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays made of NumPy's memory are those that pyarrow makes, without pandas."""

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies

from testbed.record.arrow import array_of, numpy_of, texts_of

KINDS = [bool, "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


@given(st.data(), st.sampled_from(KINDS), st.integers(0, 40), st.integers(0, 9), st.integers(1, 2))
def test_numbers_there_and_back(data: Any, kind: Any, n: int, cut: int, step: int) -> None:
    values = data.draw(numpy_strategies.arrays(kind, n))[::step]
    null = data.draw(st.none() | numpy_strategies.arrays(bool, len(values)))
    made, wanted = array_of(values, null), pa.array(values, mask=null)
    made.validate(full=True)
    same = numpy_of(made, null=1)
    assert same.dtype == values.dtype
    there = np.ones(len(values), bool) if null is None else ~null
    np.testing.assert_array_equal(same[there], values[there])
    assert (same[~there] == 1).all()
    chunked = pa.chunked_array([wanted[:cut], wanted[cut:]])
    np.testing.assert_array_equal(numpy_of(chunked, null=1), same)
    assert made.is_valid().to_pylist() == wanted.is_valid().to_pylist()


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"))))
def test_texts(values: list[str | None]) -> None:
    made = texts_of(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.string()))


def test_what_is_no_column_of_numbers() -> None:
    assert array_of(np.array(["a"])).to_pylist() == ["a"]
    with pytest.raises(pa.ArrowInvalid):
        array_of(np.zeros((2, 2)))


def test_tables_are_written_and_read_without_pandas(tmp_path: Any) -> None:
    """To import it takes a tenth of a run."""
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from testbed.record.tables import Texts, read_table, write_table\n"
        "from testbed.record.schema import Column, Schema\n"
        "from pathlib import Path\n"
        "schema = Schema('t', 'T.', (Column('n', 'int32', 'n'), Column('t', 'text', 't'),\n"
        "    Column('b', 'bool', 'b'), Column('f', 'float64', 'f')))\n"
        "columns = {'n': np.arange(3), 't': Texts(np.array([0, 1, 0]), ['a', 'b']),\n"
        "    'b': np.arange(3) > 1, 'f': np.arange(3.0)}\n"
        "write_table(Path(sys.argv[1]), schema, columns)\n"
        "read = read_table(Path(sys.argv[1]), schema).columns()\n"
        "print(read['t'], read['n'].tolist(), 'pandas' in sys.modules)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "t.parquet")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split("\n")[0] == "['a', 'b', 'a'] [0, 1, 2] False"
