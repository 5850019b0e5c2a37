"""Tables with declared columns, as Parquet or CSV, checked as they are read.

What is wrong with a file is said in one line: the file, the row and the reason. Rows count from 0,
in CSV after the line with the column names. Nothing here loops over rows.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

__all__ = ["Column", "Nested", "Schema", "Table", "TableError", "read_table", "write_table"]

LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ColumnKind = Literal["integer", "number", "text", "integer lists", "text lists"]

pc: Any = pyarrow.compute  # its functions are made when it is imported

_INTEGER = r"^-?[0-9]{1,18}$"
_NUMBER = r"^-?[0-9]+([.][0-9]*)?([eE][-+]?[0-9]{1,3})?$"


class TableError(ValueError):
    """A file is no table of the schema: one line with the file, the row and the reason."""


@dataclass(frozen=True)
class Column:
    """A column; of ``lists`` each cell is a list of lists, in CSV ``1 2|1 3``."""

    name: str
    kind: ColumnKind
    required: bool = False


@dataclass(frozen=True)
class Schema:
    """The columns of a table. ``format``, ``table`` and ``version`` are written into every file."""

    format: str
    table: str
    version: int
    columns: tuple[Column, ...]

    @property
    def header(self) -> str:
        """The first line of a CSV file."""
        return f"# {self.format} {self.table} {self.version}"

    @property
    def metadata(self) -> dict[str, str]:
        """The key-value metadata of a Parquet file."""
        return {"format": self.format, "table": self.table, "version": str(self.version)}


@dataclass(frozen=True)
class Nested:
    """A list of lists a row: row r has ``width[r]`` lists, list p ``length[p]`` values.

    ``values`` are the integers, or the index in ``names`` of each text.
    """

    width: LongArray
    length: LongArray
    values: LongArray
    names: list[str] = field(default_factory=list)


class Table:
    """The columns of a file. A column that the file lacks is not given in any row."""

    def __init__(self, path: Path, schema: Schema, data: pa.Table, is_csv: bool) -> None:
        self.path = path
        self._schema = {column.name: column for column in schema.columns}
        self._data = data
        self._csv = is_csv
        self._key: tuple[str, LongArray] | None = None

    def __len__(self) -> int:
        return self._data.num_rows

    def name_rows_by(self, column: str, values: LongArray) -> None:
        """Let errors name this column's value beside the row."""
        self._key = column, values

    def fail(self, row: int, reason: str) -> TableError:
        """The error of a row, to be raised."""
        key = "" if self._key is None else f" ({self._key[0]} {self._key[1][row]})"
        return TableError(f"{self.path}: row {row}{key}: {reason}")

    def refuse(self, bad: BoolArray, reason: str) -> None:
        """Raise TableError for the first row that is marked, if there is one."""
        if bad.any():
            raise self.fail(int(np.argmax(bad)), reason)

    def refuse_twice(self, name: str, values: LongArray) -> None:
        """Raise TableError for the first row whose value an earlier one has."""
        order = np.argsort(values, kind="stable")
        again = order[1:][np.diff(values[order]) == 0]
        if len(again):
            row = int(again.min())
            earlier = int(np.argmax(values == values[row]))
            raise self.fail(row, f"row {earlier} has the same {name}")

    def given(self, name: str) -> BoolArray:
        """In which rows a column has a value: bool[n]."""
        if name not in self._data.column_names:
            return np.zeros(len(self), np.bool_)
        return _numpy(pc.is_valid(self._data.column(name)))

    def integers(self, name: str) -> LongArray:
        """A column of whole numbers, 0 where not given: int64[n]."""
        if name not in self._data.column_names:
            return np.zeros(len(self), np.int64)
        column = self._data.column(name)
        every = np.arange(len(self))
        return _numpy(self._whole(column, name, every).fill_null(0)).astype(np.int64)

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A column of finite numbers, nan where not given: float64[n]."""
        if name not in self._data.column_names:
            return np.full(len(self), np.nan)
        column = self._data.column(name)
        kind = column.type
        if self._csv:
            self._match(column, _NUMBER, name, "a number", np.arange(len(self)))
        elif not (
            pa.types.is_null(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind)
        ):
            raise self._wrong_type(name, kind)
        values = _numpy(column.cast(pa.float64(), safe=False).fill_null(np.nan))
        bad = self.given(name) & ~np.isfinite(values)
        if bad.any():
            raise self.fail(int(np.argmax(bad)), f"{name} is {values[bad][0]}: a number is needed")
        return values

    def texts(self, name: str) -> tuple[LongArray, list[str]]:
        """A column of texts as int64[n] indices of distinct texts, -1 where not given."""
        if name not in self._data.column_names:
            return np.full(len(self), -1, np.int64), []
        return self._codes(self._data.column(name), name)

    def nested(self, name: str) -> Nested:
        """A column of lists of lists; rows that are not given have none."""
        if name not in self._data.column_names:
            none = np.zeros(0, np.int64)
            return Nested(np.zeros(len(self), np.int64), none, none)
        column = self._data.column(name)
        kind = self._schema[name].kind
        if self._csv:
            column = pc.split_pattern(column, "|")
        elif pa.types.is_null(column.type):
            column = column.cast(pa.list_(pa.list_(pa.null())))
        if not _is_list(column.type):
            raise self._wrong_type(name, column.type)
        width = _numpy(pc.list_value_length(column).fill_null(0)).astype(np.int64)
        lists = pc.list_flatten(column)
        row = np.repeat(np.arange(len(self)), width)
        if self._csv:
            lists = pc.split_pattern(lists, " ")
        elif pa.types.is_null(lists.type):
            lists = lists.cast(pa.list_(pa.null()))
        if not _is_list(lists.type):
            raise self._wrong_type(name, column.type)
        self._no_nulls(lists, name, row)
        length = _numpy(pc.list_value_length(lists)).astype(np.int64)
        values = pc.list_flatten(lists)
        row = np.repeat(row, length)
        self._no_nulls(values, name, row)
        if kind == "integer lists":
            return Nested(width, length, _numpy(self._whole(values, name, row)).astype(np.int64))
        codes, names = self._codes(values, name)
        return Nested(width, length, codes, names)

    def _no_nulls(self, column: Any, name: str, row: LongArray) -> None:
        missing = _numpy(pc.is_null(column))
        if missing.any():
            raise self.fail(int(row[np.argmax(missing)]), f"{name} has a missing value in its list")

    def _whole(self, column: Any, name: str, row: LongArray) -> Any:
        """The column as int64; ``row`` is the row of each value."""
        if self._csv:
            self._match(column, _INTEGER, name, "a whole number", row)
            return column.cast(pa.int64())
        if pa.types.is_null(column.type):
            return column.cast(pa.int64())
        if pa.types.is_floating(column.type):
            values = column.fill_null(0.0).cast(pa.float64())
            number = _numpy(values)
            bad = ~(np.isfinite(number) & (number == np.round(number)))
            if bad.any():
                at = int(np.argmax(bad))
                reason = f"{name} is {number[at]}: a whole number is needed"
                raise self.fail(int(row[at]), reason)
        if not pa.types.is_integer(column.type):
            raise self._wrong_type(name, column.type)
        if pa.types.is_uint64(column.type):
            bad = _numpy(pc.greater(column, pa.scalar(2**63 - 1, pa.uint64())).fill_null(False))
            if bad.any():
                raise self.fail(int(row[np.argmax(bad)]), f"{name} is too large")
        return column.cast(pa.int64())

    def _match(self, column: Any, pattern: str, name: str, needed: str, row: LongArray) -> None:
        bad = ~_numpy(pc.match_substring_regex(column, pattern).fill_null(True))
        if bad.any():
            at = int(np.argmax(bad))
            reason = f"{name} is {column[at].as_py()!r}: {needed} is needed"
            raise self.fail(int(row[at]), reason)

    def _codes(self, column: Any, name: str) -> tuple[LongArray, list[str]]:
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise self._wrong_type(name, column.type)
        encoded = column.cast(kind).dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
            if isinstance(encoded, pa.ChunkedArray):
                encoded = encoded.chunk(0) if encoded.num_chunks else _no_texts()
        return _numpy(encoded.indices.fill_null(-1)).astype(
            np.int64
        ), encoded.dictionary.to_pylist()

    def _wrong_type(self, name: str, found: Any) -> TableError:
        needed = {
            "integer": "whole numbers",
            "number": "numbers",
            "text": "texts",
            "integer lists": "lists of lists of whole numbers",
            "text lists": "lists of lists of texts",
        }[self._schema[name].kind]
        return TableError(f"{self.path}: column {name} has the type {found}: {needed} are needed")


def read_table(path: Path, schema: Schema) -> Table:
    """Read a ``.parquet`` or ``.csv`` file.

    Raises:
        TableError: It is no readable file of this schema and version.
    """
    try:
        if path.stat().st_size == 0:
            raise TableError(f"{path} is empty")
        data = (_read_csv if _is_csv(path) else _read_parquet)(path, schema)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or 'not readable'}") from None
    if not data.num_rows:
        raise TableError(f"{path} has no rows")
    return Table(path, schema, data, _is_csv(path))


def write_table(path: Path, schema: Schema, columns: Mapping[str, Any]) -> None:
    """Write columns (Arrow arrays of equal length) to a ``.parquet`` or ``.csv`` file.

    The file appears when it is complete.

    Raises:
        TableError: The file cannot be written, or has another suffix.
    """
    table = pa.table(dict(columns))
    partial = path.with_name(path.name + ".partial")
    try:
        if _is_csv(path):
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


def _is_csv(path: Path) -> bool:
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
        raise TableError(f"{path}: {_first_line(error)}") from None


def _check_version(path: Path, schema: Schema, found: Sequence[str]) -> None:
    format_, table, version = found
    if (format_, table) != (schema.format, schema.table):
        said = f"says {format_!r} {table!r}" if format_ else "does not say what it is"
        raise TableError(f"{path} {said}: {schema.format!r} {schema.table!r} is needed")
    if version != str(schema.version):
        raise TableError(f"{path} is of version {version!r}: version {schema.version} is needed")


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
    if not _is_list(column.type):
        if pa.types.is_dictionary(column.type):
            return column.cast(column.type.value_type)
        return column
    column = column.combine_chunks()
    inner = pc.list_flatten(column)
    texts = pc.binary_join(inner.cast(pa.list_(pa.string())), " ")
    width = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(width))).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), "|")
    return pc.if_else(pc.is_valid(column), joined, None)


def _is_list(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _no_texts() -> Any:
    return pa.array([], pa.string()).dictionary_encode()


def _numpy(column: Any) -> npt.NDArray[Any]:
    return column.to_numpy() if isinstance(column, pa.ChunkedArray) else _array(column)


def _array(column: Any) -> npt.NDArray[Any]:
    return column.to_numpy(zero_copy_only=False)


def _first_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) < 200 else text[:197] + "..."
