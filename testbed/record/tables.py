"""Tables with declared columns, as Parquet or CSV, checked as they are read.

What is wrong with a file is said in one line: the file, the row and the reason. Rows count from 0,
in CSV after the line with the column names. Nothing here loops over rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from testbed.arrays import BoolArray, LongArray
from testbed.fabric.paths import Paths, PathSets, pointers
from testbed.record.files import is_csv, is_list, read_file, write_file
from testbed.record.messages import first_line, shown
from testbed.record.schema import Column, Schema, TableError

pc: Any = pyarrow.compute  # its functions are made when it is imported

_NEEDED = {
    "bool": "true and false",
    "float64": "numbers",
    "text": "texts",
    "path": "lists of whole numbers",
    "paths": "lists of lists of whole numbers",
    "node paths": "lists of lists of texts",
}

_INTEGER = r"^-?[0-9]{1,18}$"
_EXACT = 2**53  # up to here, a float that looks like a whole number is one
_NUMBER = r"^-?[0-9]+([.][0-9]*)?([eE][-+]?[0-9]{1,3})?$"


class Texts(NamedTuple):
    """A column of few distinct texts: their numbers, int[n], -1 for none, and the texts."""

    codes: npt.NDArray[np.integer]
    names: Sequence[str]


Columns = Mapping[str, "npt.NDArray[Any] | Sequence[str] | Texts | Paths | PathSets"]
"""Columns of a table by name. `Paths` are lists of links, `PathSets` lists of such lists (an empty
set is null); what masked arrays mask is null."""


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

    def __init__(self, path: Path, schema: Schema, data: pa.Table) -> None:
        self.path = path
        self._schema = {column.name: column for column in schema.columns}
        self._data = data
        self._csv = is_csv(path)
        self._key: tuple[str, LongArray] | None = None

    def __len__(self) -> int:
        return self._data.num_rows

    def need_rows(self) -> None:
        """Raise TableError if there is none."""
        if not len(self):
            raise TableError(f"{self.path} has no rows")

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

    def values(self) -> dict[str, Any]:
        """The columns that are there, all rows given: arrays, lists of texts, and `Paths`.

        Raises:
            TableError: A value is missing, of another type or too large for its column.
        """
        return {name: self._values(self._schema[name]) for name in self._data.column_names}

    def _values(self, wanted: Column) -> Any:
        name, column = wanted.name, self._data.column(wanted.name)
        if column.null_count:
            raise self.fail(int(np.argmin(self.given(name))), f"{name} is missing")
        if wanted.type == "text":
            codes, names = self._codes(column, name)
            return np.array(names, np.object_)[codes].tolist() if names else []
        kind = column.type
        if wanted.type == "path":
            if not (is_list(kind) and pa.types.is_integer(kind.value_type)):
                raise self._wrong_type(name, kind)
            width = _numpy(pc.list_value_length(column))
            return Paths(pointers(width), _numpy(pc.list_flatten(column)).astype(np.int32))
        if kind == wanted.type or (wanted.type == "float64" and pa.types.is_floating(kind)):
            return _numpy(column).astype(wanted.type, copy=False)
        if wanted.type == "bool" or not pa.types.is_integer(kind):
            raise self._wrong_type(name, kind)
        try:
            return _fitting(_numpy(column), wanted.type)
        except ValueError as error:
            raise TableError(f"{self.path}: column {name}: {error}") from None

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
        kind = self._schema[name].type
        if self._csv:
            column = pc.split_pattern(column, "|")
        elif pa.types.is_null(column.type):
            column = column.cast(pa.list_(pa.list_(pa.null())))
        if not is_list(column.type):
            raise self._wrong_type(name, column.type)
        width = _numpy(pc.list_value_length(column).fill_null(0)).astype(np.int64)
        lists = pc.list_flatten(column)
        row = np.repeat(np.arange(len(self)), width)
        if self._csv:
            lists = pc.split_pattern(lists, " ")
        elif pa.types.is_null(lists.type):
            lists = lists.cast(pa.list_(pa.null()))
        if not is_list(lists.type):
            raise self._wrong_type(name, column.type)
        length, values, row = self._lists(lists, name, row)
        if kind == "paths":
            return Nested(width, length, self._longs(values, name, row))
        codes, names = self._codes(values, name)
        return Nested(width, length, codes, names)

    def links(self, name: str) -> tuple[LongArray, LongArray]:
        """A column of a list of links in every row: their pointers, int64[n + 1], and all links."""
        column = self._data.column(name)
        if not is_list(column.type):
            raise self._wrong_type(name, column.type)
        length, values, row = self._lists(column, name, np.arange(len(self)))
        return pointers(length), self._longs(values, name, row)

    def _lists(self, lists: Any, name: str, row: LongArray) -> tuple[LongArray, Any, LongArray]:
        """The length of each list, all values, and the row of each value; ``row`` is the lists'."""
        self._no_nulls(lists, name, row)
        length = _numpy(pc.list_value_length(lists)).astype(np.int64)
        values = pc.list_flatten(lists)
        row = np.repeat(row, length)
        self._no_nulls(values, name, row)
        return length, values, row

    def _longs(self, column: Any, name: str, row: LongArray) -> LongArray:
        return _numpy(self._whole(column, name, row)).astype(np.int64)

    def _no_nulls(self, column: Any, name: str, row: LongArray) -> None:
        missing = _numpy(pc.is_null(column))
        if missing.any():
            raise self.fail(int(row[np.argmax(missing)]), f"{name} has a missing value in its list")

    def _whole(self, column: Any, name: str, row: LongArray) -> Any:
        """The column as int64; ``row`` is the row of each value."""
        if self._csv:
            self._match(column, _NUMBER, name, "a whole number", row)
            plain = pc.match_substring_regex(column, _INTEGER)
            as_float = pc.if_else(plain, None, column).cast(pa.float64())
            as_is = pc.if_else(plain, column, None).cast(pa.int64())
            return pc.coalesce(as_is, self._whole_floats(as_float, name, row))
        if pa.types.is_null(column.type):
            return column.cast(pa.int64())
        if pa.types.is_floating(column.type):
            return self._whole_floats(column.cast(pa.float64()), name, row)
        if not pa.types.is_integer(column.type):
            raise self._wrong_type(name, column.type)
        if pa.types.is_uint64(column.type):
            bad = _numpy(pc.greater(column, pa.scalar(2**63 - 1, pa.uint64())).fill_null(False))
            if bad.any():
                raise self.fail(int(row[np.argmax(bad)]), f"{name} is too large")
        return column.cast(pa.int64())

    def _whole_floats(self, column: Any, name: str, row: LongArray) -> Any:
        """Floats as int64: what pandas and R make of whole numbers where some are missing."""
        number = _numpy(column.fill_null(0.0))
        bad = ~((np.abs(number) <= _EXACT) & (number == np.round(number)))
        if bad.any():
            at = int(np.argmax(bad))
            large = np.isfinite(number[at]) and abs(number[at]) > _EXACT
            needed = "too large for a float to be exact" if large else "a whole number is needed"
            raise self.fail(int(row[at]), f"{name} is {number[at]}: {needed}")
        return column.cast(pa.int64())

    def _match(self, column: Any, pattern: str, name: str, needed: str, row: LongArray) -> None:
        bad = ~_numpy(pc.match_substring_regex(column, pattern).fill_null(True))
        if bad.any():
            at = int(np.argmax(bad))
            reason = f"{name} is {shown(column[at].as_py())}: {needed} is needed"
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
        needed = _NEEDED.get(self._schema[name].type, "whole numbers")
        return TableError(f"{self.path}: column {name} has the type {found}: {needed} are needed")


def read_table(path: Path, schema: Schema) -> Table:
    """Read a ``.parquet`` or ``.csv`` file.

    Raises:
        TableError: It is no readable file of this schema and version.
    """
    return Table(path, schema, read_file(path, schema))


def write_table(path: Path, schema: Schema, columns: Columns) -> None:
    """Write columns to a ``.parquet`` or ``.csv`` file, which appears when it is complete.

    Raises:
        TableError: The columns are not the schema's, or the file cannot be written or has another
            suffix.
    """
    write_file(path, schema, _as_table(path, schema, columns))


def _as_table(path: Path, schema: Schema, columns: Columns) -> pa.Table:
    """The columns in the schema's order and types."""
    known = {column.name: column for column in schema.columns}
    made: dict[str, Any] = {}
    reason = ", ".join(f"column {name} is unknown" for name in columns if name not in known)
    for name, column in known.items():
        if name in columns:
            try:
                made[name] = _to_arrow(columns[name], column)
            except (TypeError, ValueError, pa.ArrowException) as error:
                reason = f"column {name}: {first_line(error)}"
        elif column.required:
            reason = f"column {name} is missing"
    lengths = {name: len(column) for name, column in made.items()}
    if not reason and len(set(lengths.values())) > 1:
        reason = f"columns of different lengths: {lengths}"
    if reason:
        raise TableError(f"cannot write {path}: {reason}")
    return pa.table(made)


def _to_arrow(value: Any, column: Column) -> Any:
    """Raises ValueError or TypeError where the values are not of the column's type."""
    needed = _NEEDED.get(column.type, "whole numbers")
    if isinstance(value, Texts):
        codes = np.asarray(value.codes, np.int32)
        codes = pa.array(codes, mask=codes < 0)
        return pa.DictionaryArray.from_arrays(codes, pa.array(value.names, pa.string()))
    if isinstance(value, PathSets):
        lists = _to_arrow(value.paths, column)
        offsets = pa.array(value.ptr.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, lists, mask=pa.array(value.width == 0))
    if isinstance(value, Paths):
        return pa.ListArray.from_arrays(pa.array(value.ptr.astype(np.int32)), pa.array(value.links))
    if column.type == "text":
        return pa.array(value, pa.string())
    values = np.asarray(value)
    null = np.ma.getmaskarray(value) if isinstance(value, np.ma.MaskedArray) else None
    if column.type in ("path", "paths", "node paths") or values.dtype.kind not in (
        {"bool": "b", "float64": "f"}.get(column.type, "iu")
    ):
        raise ValueError(f"{values.dtype.name} values: {needed} are needed")
    fits = values if column.type == "bool" else _fitting(values, column.type)
    return pa.array(fits, mask=null)


def _fitting(values: npt.NDArray[Any], wanted: str) -> npt.NDArray[Any]:
    """Numbers as another type; ValueError where one is too large for it."""
    if not np.can_cast(values.dtype, wanted) and len(values):
        bounds = np.iinfo(wanted)
        for extreme in (int(values.min()), int(values.max())):
            if not bounds.min <= extreme <= bounds.max:
                raise ValueError(f"{extreme} does not fit into {wanted}")
    return values.astype(wanted, copy=False)


def _no_texts() -> Any:
    return pa.array([], pa.string()).dictionary_encode()


def _numpy(column: Any) -> npt.NDArray[Any]:
    return column.to_numpy() if isinstance(column, pa.ChunkedArray) else _array(column)


def _array(column: Any) -> npt.NDArray[Any]:
    return column.to_numpy(zero_copy_only=False)
