# SPDX-License-Identifier: Apache-2.0
"""Reads and writes files of tables, Parquet or CSV, which state their table and its version.

Errors in a file are reported in one line.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from testbed.fabric.paths import Paths, pointers
from testbed.record import trial
from testbed.record.atomic import atomic_write, output_file
from testbed.record.messages import first_line, shown, why
from testbed.record.outputs import Kind
from testbed.record.schema import FORMAT, VERSION, Schema, TableError

pc: Any = pyarrow.compute  # its functions are made when it is imported

LINE = 2**16  # the most of the first two lines that is looked at
_BLOCK, _LARGEST_BLOCK = 2**20, 2**30
_LARGEST_UNPACKED = 2**32
"""The most bytes of a compressed file when it is unpacked."""
_FEW_UNPACKED, _MOST_TIMES = 2**26, 200
"""A compressed file may unpack to ``_FEW_UNPACKED`` bytes or to ``_MOST_TIMES`` its size.

Tables of observations shrink to a tenth, and of all the same lines to a hundredth.
"""
_PIECE = 2**20  # bytes that are unpacked at a time


SUFFIXES = (".parquet", ".csv", ".csv.gz")
_PARQUET = (".parquet", ".parq", ".pq")


def table_files(folder: Path, suffixes: tuple[str, ...] = SUFFIXES) -> list[Path]:
    """Return the files of a folder that holds a table in parts, sorted by name.

    Spark, Dask and polars write such folders. Names with ``.`` or ``_`` in front, as ``_SUCCESS``,
    are no data.

    Raises:
        TableError: The folder has no ``.parquet``, ``.csv`` or ``.csv.gz`` file, files of both
            kinds, anything else, or is not finished.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise TableError(f"{folder}: {why(error) or 'not readable'}") from None
    if "_temporary" in names:
        raise TableError(f"{folder} is not finished: it holds the folder _temporary")
    files = [folder / name for name in names if not name.startswith((".", "_"))]
    for path in files:
        if path.is_dir() and "=" in path.name:
            raise TableError(
                f"{path} is a folder of one value of a column: write the table without partitionBy"
            )
        if path.is_dir() or not path.name.endswith(suffixes):
            raise TableError(f"{path} is no part: a folder has .parquet, .csv or .csv.gz files")
    if not files:
        raise TableError(f"{folder} has no .parquet, .csv or .csv.gz file")
    for path in files:
        if path.name.endswith(_PARQUET) != files[0].name.endswith(_PARQUET):
            raise TableError(f"{folder} has CSV and Parquet files: one of both is a table")
    return files


def read_file(path: Path, schema: Schema, part: bool = False) -> pa.Table:
    """Return the columns of a ``.parquet``, ``.csv`` or ``.csv.gz`` file; those of CSV are strings.

    ``part``: The file is a part of a table and need not say which, as Spark cannot write that.

    Raises:
        TableError: It is no readable file of this schema and version.
    """
    try:
        if path.stat().st_size == 0:
            raise TableError(f"{path} is empty")
        return (_read_csv if is_text(path) else _read_parquet)(path, schema, part)
    except OSError as error:
        raise TableError(f"{path}: {why(error) or 'not readable'}") from None


def count_rows(path: Path) -> int:
    """Return the number of rows in the metadata of a ``.parquet`` file.

    Raises:
        TableError: It is no readable Parquet file.
    """
    try:
        return pq.read_metadata(path.absolute()).num_rows
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise unreadable(path, error) from None


def column_names(path: Path) -> list[str]:
    """Return the names of the columns in the metadata of a ``.parquet`` file.

    Raises:
        TableError: It is no readable Parquet file.
    """
    try:
        return pq.read_schema(path.absolute()).names
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise unreadable(path, error) from None


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
                flat = {name: flattened(table.column(name)) for name in table.column_names}
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
    trial.note_written(path)


def is_csv(path: Path) -> bool:
    """Return True for the suffix .csv, False for .parquet; raise TableError for any other."""
    if path.suffix not in (".parquet", ".csv"):
        raise TableError(f"{path}: the name must end in .parquet or .csv")
    return path.suffix == ".csv"


def is_text(path: Path) -> bool:
    """Return True for a file to read that is CSV by its name, ``.csv.gz`` included; raise
    TableError if it is no Parquet either."""
    return path.name.endswith(".csv.gz") or is_csv(path)


def need_harmless(path: Path) -> None:
    """Raise TableError for a Parquet file that needs more memory or time than one of its size."""
    if (harm := trial.harm([path])) is not None:
        raise TableError(harm)


def _read_parquet(path: Path, schema: Schema, part: bool) -> pa.Table:
    def check(found: Mapping[str, str], names: Sequence[str]) -> None:
        """Check that a file says that it is this table, and its columns."""
        if not part or not found.keys().isdisjoint(schema.metadata):
            check_version(path, schema, [found.get(key, "") for key in schema.metadata])
        _check_names(path, schema, names)

    return read_parquet(path, check)


def read_parquet(path: Path, check: Callable[[Mapping[str, str], Sequence[str]], None]) -> pa.Table:
    """Return all columns of a Parquet file.

    Args:
        check: Receives the file's metadata and the names of its columns before these are read, and
            raises TableError if it is another table.

    Raises:
        TableError: It is damaged, or too large.
    """
    need_harmless(path)
    try:
        file = pq.ParquetFile(path.absolute(), page_checksum_verification=True)
        found = {
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in (file.metadata.metadata or {}).items()
        }
        check(found, file.schema_arrow.names)
        data = file.read()
        data.validate(full=True)
    except TableError:
        raise
    except MemoryError:
        raise TableError(f"{path} does not fit into the memory that is free") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise unreadable(path, error) from None
    return data


def unreadable(path: Path, error: Exception) -> TableError:
    """Return the error of a Parquet file that Arrow cannot read; its message is about internals."""
    if isinstance(error, pa.ArrowNotImplementedError):
        reason = str(error).splitlines()[0][:100]
        return TableError(
            f"{path} has a column of a type that cannot be read ({reason}): write whole numbers "
            "as 64-bit integers"
        )
    return TableError(f"{path} is not a readable Parquet file: it may be cut off or damaged")


def _read_csv(path: Path, schema: Schema, part: bool) -> pa.Table:
    with unpacked(path) if path.suffix == ".gz" else path.open("rb") as file:
        first, second = file.readline(LINE), file.readline(LINE)
        size = file.seek(-1, 2) + 1
        complete = file.read(1) == b"\n"
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise TableError(f"{path} is in UTF-16: save it as CSV in UTF-8")
        # Spreadsheets begin with a byte-order mark and fill the line up with commas.
        words = first.decode("utf-8-sig", errors="replace").rstrip(",;\r\n ").split(" ")
        stated = words[0] == "#" and len(words) == 4
        if stated:
            check_version(path, schema, words[1:])
        elif not part or words[0] == "#":
            raise TableError(f"{path}: the first line must be {schema.header!r}")
        if not complete:
            raise TableError(f"{path}: the last line has no line break: it may be cut off")
        try:
            names = next(csv.reader([(second if stated else first).decode("utf-8-sig")]), [])
        except (UnicodeDecodeError, csv.Error):
            line = "second" if stated else "first"
            raise TableError(f"{path}: the {line} line must name the columns, in UTF-8") from None
        if len(names) == 1 and ";" in names[0]:
            raise TableError(f"{path}: semicolons separate the columns: commas are needed")
        _check_names(path, schema, names)
        source = file if isinstance(file, io.BytesIO) else path.absolute()
        try:
            return parse(source, names, int(stated) + 1, size)
        except (ValueError, MemoryError, pa.ArrowException) as error:
            raise TableError(f"{path}: {parse_error(error)}") from None


def unpacked(path: Path) -> io.BytesIO:
    """Return the content of a file that gzip compressed, as far as tables go, to be read from its
    start."""
    data = io.BytesIO()
    most = min(_LARGEST_UNPACKED, max(_FEW_UNPACKED, _MOST_TIMES * path.stat().st_size))
    try:
        with gzip.open(path) as file:
            # Read at once, it would take as much memory as is allowed, however little there is.
            while data.tell() <= most and (piece := file.read(_PIECE)):
                data.write(piece)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise TableError(f"{path} is no readable gzip file: cut off or damaged?") from None
    except MemoryError:
        raise TableError(f"{path} does not fit into memory when it is unpacked") from None
    if data.tell() > most:
        raise TableError(f"{path} is larger than {most:,} bytes when it is unpacked")
    if not data.tell():
        raise TableError(f"{path} is empty")
    data.seek(0)
    return data


def parse(
    source: Path | io.BytesIO,
    names: Sequence[str],
    skipped: int,
    size: int,
    separator: str = "",
) -> pa.Table:
    """Return all rows as strings; they are parsed in blocks, and in larger ones if a row does not
    fit.

    Args:
        source: The file.
        names: The names of the columns, all different.
        skipped: Lines before the first row.
        size: Bytes of all lines.
        separator: The character between columns, for a file of which empty lines are left out; by
            default commas separate, and an empty line is a row.
    """
    try:
        return _parse_blocks(source, names, skipped, _BLOCK, separator)
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error):
            raise
    return _parse_blocks(source, names, skipped, min(size + 1, _LARGEST_BLOCK), separator)


def _parse_blocks(
    source: Path | io.BytesIO, names: Sequence[str], skipped: int, size: int, separator: str
) -> pa.Table:
    if isinstance(source, io.BytesIO):
        source.seek(0)
    return pacsv.read_csv(
        source,
        read_options=pacsv.ReadOptions(
            skip_rows=skipped, block_size=size, column_names=list(names)
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=separator or ",", ignore_empty_lines=bool(separator)
        ),
        convert_options=pacsv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


def parse_error(error: Exception) -> str:
    """Return the reason for which Arrow could not parse a file of text, as a part of a line."""
    message = first_line(error)
    if "UTF8" in message:
        return f"it is not in UTF-8 ({message})"
    if "straddling" in message:
        return f"a row is longer than {_LARGEST_BLOCK:,} bytes"
    return message


def check_version(path: Path, schema: Schema, found: Sequence[str]) -> None:
    """Raise TableError unless the format, table and version in a file are those of a schema."""
    format_, table, version = found
    if (format_, table) != (FORMAT, schema.name):
        problem = f"says {shown(format_)} {shown(table)}" if format_ else "does not name its format"
        raise TableError(f"{path} {problem}: {FORMAT!r} {schema.name!r} is needed")
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
        raise TableError(f"{path}: column {twice[0]} is given twice")
    missing = [c.name for c in schema.columns if c.required and c.name not in names]
    if missing:
        raise TableError(f"{path}: column {missing[0]} is missing")


def flattened(column: Any) -> Any:
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


def columns_kind(name: str, example: str, columns: Sequence[str]) -> Kind:
    """Return the kind of the files that `write_columns` makes of these columns."""

    def matches(path: Path) -> bool:
        """Return True for Parquet with exactly these columns, or for CSV whose first line names
        them."""
        with suppress(OSError, ValueError, MemoryError, csv.Error, pa.ArrowException):
            with path.open("rb") as file:
                head = file.read(LINE)
            if head.startswith(b"PAR1"):
                return column_names(path) == list(columns)
            first, ended, _ = head.partition(b"\n")
            return bool(ended) and next(csv.reader([first.decode()])) == list(columns)
        return False

    return Kind(name, example, matches)


def write_columns(
    path: Path,
    columns: Mapping[str, npt.NDArray[Any] | list[Any] | Paths],
    kind: Kind | None = None,
) -> None:
    """Write equally long columns to a ``.parquet`` or ``.csv`` file, which appears when it is
    complete.

    `Paths` become lists of link ids, which CSV cannot hold.

    Args:
        path: The file.
        columns: The columns by name.
        kind: The kind of file, if the user named it; no file of another kind is replaced.

    Raises:
        FolderError: The path is none for a file of this kind.
        TableError: It cannot be written, or has another suffix.
    """
    table = pa.table({name: to_arrow(column) for name, column in columns.items()})
    as_csv = is_csv(path)
    try:
        with atomic_write(path) if kind is None else output_file(path, kind) as partial:
            if as_csv:
                pacsv.write_csv(table, partial.absolute())
            else:
                pq.write_table(
                    table, partial.absolute(), compression="zstd", write_page_checksum=True
                )
    except OSError as error:
        raise TableError(f"cannot write {path}: {why(error)}") from None
    trial.note_written(path)


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
    if not path.is_file():
        raise TableError(f"{path} is missing")
    need_harmless(path)
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
