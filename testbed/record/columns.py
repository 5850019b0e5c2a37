"""Columns as Parquet or CSV, without a schema: results that are no part of a run's record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from testbed.fabric.paths import Paths, pointers
from testbed.record.files import is_csv
from testbed.record.messages import why
from testbed.record.places import whole
from testbed.record.schema import TableError


def write_columns(path: Path, columns: Mapping[str, npt.NDArray[Any] | list[Any] | Paths]) -> None:
    """Write equally long columns to a ``.parquet`` or ``.csv`` file, which appears when it is
    complete.

    `Paths` become lists of link ids, which CSV cannot hold.

    Raises:
        TableError: It cannot be written, or has another suffix.
    """
    table = pa.table({name: to_arrow(column) for name, column in columns.items()})
    as_csv = is_csv(path)
    try:
        with whole(path) as partial:
            if as_csv:
                pacsv.write_csv(table, partial.absolute())
            else:
                pq.write_table(
                    table, partial.absolute(), compression="zstd", write_page_checksum=True
                )
    except OSError as error:
        raise TableError(f"cannot write {path}: {why(error)}") from None


def to_arrow(column: npt.NDArray[Any] | list[Any] | Paths) -> pa.Array:
    """A column as Arrow has it; `Paths` are lists of link ids."""
    if isinstance(column, Paths):
        offsets = pa.array(column.ptr.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array(column.links))
    return pa.array(column)


def read_arrow(path: Path) -> pa.Table:
    """Read all columns of a Parquet file.

    Raises:
        TableError: The file is missing, damaged or not Parquet.
    """
    try:
        # a:b would be an address
        table = pq.read_table(path.absolute(), page_checksum_verification=True)
        table.validate(full=True)
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else "is not readable Parquet"
        raise TableError(f"{path} {reason}") from None
    return table


def read_columns(path: Path) -> dict[str, Any]:
    """Read what `write_columns` wrote: arrays by column name, lists as `Paths`.

    Raises:
        TableError: The file is missing, damaged or not Parquet.
    """
    table = read_arrow(path)
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        if pa.types.is_list(column.type):
            links = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.int32)
            lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False))
            ptr = pointers(lengths)
            columns[name] = Paths(ptr, links)
        elif pa.types.is_string(column.type):
            columns[name] = column.to_pylist()
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return columns
