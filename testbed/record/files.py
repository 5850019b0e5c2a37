"""Reads and writes files of tables, Parquet or CSV, which state their table and its version.

Errors in a file are reported in one line.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from testbed.fabric.paths import Paths, pointers
from testbed.record.atomic import atomic_write
from testbed.record.messages import first_line, shown, why
from testbed.record.schema import FORMAT, VERSION, Schema, TableError

pc: Any = pyarrow.compute  # its functions are made when it is imported

_LINE = 2**16  # the most of the first two lines that is looked at
_BLOCK, _LARGEST_BLOCK = 2**20, 2**30


def read_file(path: Path, schema: Schema) -> pa.Table:
    """Return the columns of a ``.parquet`` or ``.csv`` file; those of CSV are strings.

    Raises:
        TableError: It is no readable file of this schema and version.
    """
    try:
        if path.stat().st_size == 0:
            raise TableError(f"{path} is empty")
        return (_read_csv if is_csv(path) else _read_parquet)(path, schema)
    except OSError as error:
        raise TableError(f"{path}: {why(error) or 'not readable'}") from None


def count_rows(path: Path) -> int:
    """Return the number of rows in the metadata of a ``.parquet`` file.

    Raises:
        TableError: It is no readable Parquet file.
    """
    try:
        return pq.read_metadata(path.absolute()).num_rows
    except (OSError, ValueError, MemoryError, pa.ArrowException):
        raise _unreadable(path) from None


def free_buffers() -> None:
    """Return the memory that Arrow keeps after tables were deleted, which may be a gigabyte."""
    pa.default_memory_pool().release_unused()


def prepare_to_write() -> None:
    """Load the libraries that writing a table needs, before a network runs in real time.

    pyarrow imports pandas with its first array, which takes a second or more.
    """
    pa.array(np.zeros(1))


def write_file(path: Path, schema: Schema, table: pa.Table) -> None:
    """Write a ``.parquet`` or ``.csv`` file, which appears when it is complete.

    Raises:
        TableError: It cannot be written, or has another suffix.
    """
    try:
        with atomic_write(path) as partial:
            if is_csv(path):
                flat = {name: _flattened(table.column(name)) for name in table.column_names}
                with partial.open("wb") as file:
                    file.write(f"{schema.header}\n".encode())
                    pacsv.write_csv(pa.table(flat), file)
            else:
                table = table.replace_schema_metadata(schema.metadata)
                pq.write_table(
                    table, partial.absolute(), compression="zstd", write_page_checksum=True
                )
    except OSError as error:
        raise TableError(f"cannot write {path}: {why(error)}") from None


def is_csv(path: Path) -> bool:
    """Return True for the suffix .csv, False for .parquet; raise TableError for any other."""
    if path.suffix not in (".parquet", ".csv"):
        raise TableError(f"{path}: the name must end in .parquet or .csv")
    return path.suffix == ".csv"


def _read_parquet(path: Path, schema: Schema) -> pa.Table:
    try:
        file = pq.ParquetFile(path.absolute(), page_checksum_verification=True)
        found = {
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in (file.metadata.metadata or {}).items()
        }
        _check_version(path, schema, [found.get(key, "") for key in schema.metadata])
        _check_names(path, schema, file.schema_arrow.names)
        data = file.read()
        data.validate(full=True)
    except TableError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException):
        raise _unreadable(path) from None
    return data


def _unreadable(path: Path) -> TableError:
    """Return the error of a damaged Parquet file; Arrow's own message is about its internals."""
    return TableError(f"{path} is no readable Parquet file: cut off or damaged?")


def _read_csv(path: Path, schema: Schema) -> pa.Table:
    with path.open("rb") as file:
        first, second = file.readline(_LINE), file.readline(_LINE)
        file.seek(-1, 2)
        complete = file.read(1) == b"\n"
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise TableError(f"{path} is in UTF-16: save it as CSV in UTF-8")
    # Spreadsheets begin with a byte-order mark and fill the line up with commas.
    words = first.decode("utf-8-sig", errors="replace").rstrip(",;\r\n ").split(" ")
    if words[0] != "#" or len(words) != 4:
        raise TableError(f"{path}: the first line must be {schema.header!r}")
    _check_version(path, schema, words[1:])
    if not complete:
        raise TableError(f"{path}: the last line has no end: cut off?")
    try:
        names = next(csv.reader([second.decode()]), [])
    except (UnicodeDecodeError, csv.Error):
        raise TableError(f"{path}: the second line must name the columns, in UTF-8") from None
    if len(names) == 1 and ";" in names[0]:
        raise TableError(f"{path}: semicolons separate the columns: commas are needed")
    _check_names(path, schema, names)
    try:
        return _parse(path, names)
    except (ValueError, MemoryError, pa.ArrowException) as error:
        raise TableError(f"{path}: {_parse_error(error)}") from None


def _parse(path: Path, names: Sequence[str]) -> pa.Table:
    """Return all rows; they are parsed in blocks, and in larger ones if a row does not fit."""
    try:
        return _parse_blocks(path, names, _BLOCK)
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error):
            raise
    return _parse_blocks(path, names, min(path.stat().st_size + 1, _LARGEST_BLOCK))


def _parse_blocks(path: Path, names: Sequence[str], size: int) -> pa.Table:
    return pacsv.read_csv(
        path.absolute(),
        read_options=pacsv.ReadOptions(skip_rows=1, block_size=size),
        parse_options=pacsv.ParseOptions(ignore_empty_lines=False),
        convert_options=pacsv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


def _parse_error(error: Exception) -> str:
    said = first_line(error)
    if "UTF8" in said:
        return f"it is not in UTF-8 ({said})"
    if "straddling" in said:
        return f"a row is longer than {_LARGEST_BLOCK:,} bytes"
    return said


def _check_version(path: Path, schema: Schema, found: Sequence[str]) -> None:
    format_, table, version = found
    if (format_, table) != (FORMAT, schema.name):
        said = f"says {shown(format_)} {shown(table)}" if format_ else "does not say what it is"
        raise TableError(f"{path} {said}: {FORMAT!r} {schema.name!r} is needed")
    if version != str(VERSION):
        raise TableError(f"{path} is of version {shown(version)}: version {VERSION} is needed")


def _check_names(path: Path, schema: Schema, names: Sequence[str]) -> None:
    known = [column.name for column in schema.columns]
    extra = [name for name in names if name not in known]
    if extra:
        raise TableError(
            f"{path}: column {shown(extra[0])} is unknown: known are {', '.join(known)}"
        )
    twice = [name for name in known if list(names).count(name) > 1]
    if twice:
        raise TableError(f"{path}: column {twice[0]} is there twice")
    missing = [c.name for c in schema.columns if c.required and c.name not in names]
    if missing:
        raise TableError(f"{path}: column {missing[0]} is missing")


def _flattened(column: Any) -> Any:
    """Return a column for CSV: lists of lists become texts as ``1 2|1 3``."""
    if not is_list(column.type):
        if pa.types.is_dictionary(column.type):
            return column.cast(column.type.value_type)
        return column
    column = column.combine_chunks()
    inner = pc.list_flatten(column)
    texts = pc.binary_join(inner.cast(pa.list_(pa.string())), " ")
    width = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(pointers(width).astype(np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), "|")
    return pc.if_else(pc.is_valid(column), joined, None)


def is_list(kind: Any) -> bool:
    """Return True if an Arrow type is a list type."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


# ---- columns without a schema: results that are no part of a run's record -----------------------


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
        with atomic_write(path) as partial:
            if as_csv:
                pacsv.write_csv(table, partial.absolute())
            else:
                pq.write_table(
                    table, partial.absolute(), compression="zstd", write_page_checksum=True
                )
    except OSError as error:
        raise TableError(f"cannot write {path}: {why(error)}") from None


def to_arrow(column: npt.NDArray[Any] | list[Any] | Paths) -> pa.Array:
    """Return a column as an Arrow array; `Paths` become lists of link ids."""
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
