"""Files of tables: Parquet or CSV, each says which table of which version it is.

What is wrong with a file is said in one line.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from testbed.fabric.paths import pointers
from testbed.record.schema import FORMAT, VERSION, Schema, TableError

__all__ = ["first_line", "is_csv", "is_list", "read_file", "write_file"]

pc: Any = pyarrow.compute  # its functions are made when it is imported


def read_file(path: Path, schema: Schema) -> pa.Table:
    """The columns of a ``.parquet`` or ``.csv`` file, those of CSV as texts.

    Raises:
        TableError: It is no readable file of this schema and version.
    """
    try:
        if path.stat().st_size == 0:
            raise TableError(f"{path} is empty")
        return (_read_csv if is_csv(path) else _read_parquet)(path, schema)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or 'not readable'}") from None


def write_file(path: Path, schema: Schema, table: pa.Table) -> None:
    """Write a ``.parquet`` or ``.csv`` file, which appears when it is complete.

    Raises:
        TableError: It cannot be written, or has another suffix.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        if is_csv(path):
            flat = {name: _flattened(table.column(name)) for name in table.column_names}
            with partial.open("wb") as file:
                file.write(f"{schema.header}\n".encode())
                pacsv.write_csv(pa.table(flat), file)
        else:
            table = table.replace_schema_metadata(schema.metadata)
            pq.write_table(table, partial, compression="zstd", write_page_checksum=True)
        partial.replace(path)
    except OSError as error:
        raise TableError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


def is_csv(path: Path) -> bool:
    """Whether it is CSV; TableError if it is neither that nor Parquet by its name."""
    if path.suffix not in (".parquet", ".csv"):
        raise TableError(f"{path}: the name must end in .parquet or .csv")
    return path.suffix == ".csv"


def _read_parquet(path: Path, schema: Schema) -> pa.Table:
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
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
        # Arrow's own words for a damaged file are about its internals.
        raise TableError(f"{path} is no readable Parquet file: cut off or damaged?") from None
    return data


def _read_csv(path: Path, schema: Schema) -> pa.Table:
    with path.open("rb") as file:
        first, second = file.readline(2**16), file.readline(2**16)
        file.seek(-1, 2)
        whole = file.read(1) == b"\n"
    words = first.decode(errors="replace").strip().split(" ")
    if words[0] != "#" or len(words) != 4:
        raise TableError(f"{path}: the first line must be {schema.header!r}")
    _check_version(path, schema, words[1:])
    if not whole:
        raise TableError(f"{path}: the last line has no end: cut off?")
    try:
        names = next(csv.reader([second.decode()]), [])
        _check_names(path, schema, names)
        return pacsv.read_csv(
            path,
            read_options=pacsv.ReadOptions(skip_rows=1),
            parse_options=pacsv.ParseOptions(ignore_empty_lines=False),
            convert_options=pacsv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except TableError:
        raise
    except (ValueError, csv.Error, pa.ArrowException) as error:
        raise TableError(f"{path}: {first_line(error)}") from None


def _check_version(path: Path, schema: Schema, found: Sequence[str]) -> None:
    format_, table, version = found
    if (format_, table) != (FORMAT, schema.name):
        said = f"says {format_!r} {table!r}" if format_ else "does not say what it is"
        raise TableError(f"{path} {said}: {FORMAT!r} {schema.name!r} is needed")
    if version != str(VERSION):
        raise TableError(f"{path} is of version {version!r}: version {VERSION} is needed")


def _check_names(path: Path, schema: Schema, names: Sequence[str]) -> None:
    known = [column.name for column in schema.columns]
    extra = [name for name in names if name not in known]
    if extra:
        raise TableError(f"{path}: column {extra[0]!r} is unknown: known are {', '.join(known)}")
    twice = [name for name in known if list(names).count(name) > 1]
    if twice:
        raise TableError(f"{path}: column {twice[0]} is there twice")
    missing = [c.name for c in schema.columns if c.required and c.name not in names]
    if missing:
        raise TableError(f"{path}: column {missing[0]} is missing")


def _flattened(column: Any) -> Any:
    """Lists of lists as CSV has them: ``1 2|1 3``."""
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
    """Whether an Arrow type is that of lists."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def first_line(error: Exception) -> str:
    """What Arrow says, in one line of some length."""
    text = " ".join(str(error).split())
    return text if len(text) < 200 else text[:197] + "..."
