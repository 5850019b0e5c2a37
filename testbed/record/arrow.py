# SPDX-License-Identifier: Apache-2.0
"""Makes Arrow arrays of NumPy's and the other way round, from their memory.

pyarrow's own functions for this import pandas to see whether they were given one of its objects,
which takes a tenth of the processor time of a run with ``k=4``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.arrays import BoolArray


def array_of(values: npt.NDArray[Any], null: BoolArray | None = None) -> Any:
    """Return numbers or truth values, [n], as an Arrow array; ``null`` (bool[n]) marks those that
    have no value."""
    if values.ndim != 1 or values.dtype.kind not in "biuf" or not values.dtype.isnative:
        return pa.array(values, mask=null)
    valid = None
    if null is not None and null.any():
        valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    data = np.packbits(values, bitorder="little") if values.dtype.kind == "b" else values
    buffers = [valid, pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def texts_of(values: Sequence[str | None]) -> Any:
    """Return texts as an Arrow array of strings; None has no value."""
    if not all(value is None or isinstance(value, str) for value in values):
        return pa.array(values, pa.string())  # raises an error
    encoded = [b"" if value is None else value.encode() for value in values]
    ends = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(value) for value in encoded], out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        return pa.array(values, pa.string())
    valid = None
    there = np.array([value is not None for value in values], np.bool_)
    if not there.all():
        valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    buffers = [valid, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def numpy_of(column: Any, null: float | bool = 0) -> npt.NDArray[Any]:
    """Return an array or a chunked array of numbers or truth values as one of NumPy, [n], with
    ``null`` where there is no value. It must not be written to."""
    if isinstance(column, pa.ChunkedArray):
        parts = [numpy_of(chunk, null) for chunk in column.chunks]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.zeros(0, column.type.to_pandas_dtype())
    validity, data = column.buffers()
    begin, end = column.offset, column.offset + len(column)
    if pa.types.is_boolean(column.type):
        values = _bits(data, begin, end)
    else:
        values = np.frombuffer(data or b"", column.type.to_pandas_dtype(), end)[begin:]
    if column.null_count:
        values = np.where(_bits(validity, begin, end), values, values.dtype.type(null))
    return values


def _bits(data: Any, begin: int, end: int) -> BoolArray:
    bytes_ = np.frombuffer(data or b"", np.uint8, (end + 7) // 8)
    return np.unpackbits(bytes_, count=end, bitorder="little")[begin:].view(np.bool_)
