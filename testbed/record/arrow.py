"""Arrays to Arrow and back, by their buffers.

Arrow's own conversions look whether pandas is there, which loads it: an eighth of a second of
every run, which never has a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["filled", "from_numpy", "from_texts", "to_numpy"]


def from_numpy(values: npt.NDArray[Any], null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """An array of numbers or truth values; what ``null`` marks is null.

    Raises:
        ValueError: There is not one value a row.
    """
    if values.ndim != 1:
        raise ValueError(f"{values.ndim} dimensions: one is needed")
    kind = pa.from_numpy_dtype(values.dtype)
    data = _bits(values) if values.dtype == np.bool_ else np.ascontiguousarray(values)
    valid = None if null is None else pa.py_buffer(_bits(~null))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(data)])


def from_texts(texts: Sequence[str]) -> pa.Array:
    """Texts as an array of strings."""
    try:
        encoded = [text.encode() for text in texts]
    except AttributeError:
        return pa.array(texts, pa.string())  # says what is no text
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    if ends[-1] > np.iinfo(np.int32).max:
        return pa.array(texts, pa.string())  # says that it is too much
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def filled(column: Any, value: float) -> Any:
    """The array with ``value`` for each null."""
    return column.fill_null(value) if column.null_count else column


def to_numpy(column: Any) -> npt.NDArray[Any]:
    """The values of an array without nulls, perhaps in chunks: a copy, which may be written to."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_values(chunk) for chunk in chunks]
    kind = np.dtype(column.type.to_pandas_dtype())
    return np.concatenate(parts) if parts else np.empty(0, kind)


def _values(column: Any) -> npt.NDArray[Any]:
    if pa.types.is_boolean(column.type):
        return _values(column.cast(pa.uint8())).astype(np.bool_)
    kind, data = np.dtype(column.type.to_pandas_dtype()), column.buffers()[1]
    if data is None or not len(column):
        return np.empty(0, kind)
    return np.frombuffer(data, kind, len(column), column.offset * kind.itemsize)


def _bits(values: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    return np.packbits(values, bitorder="little")
