# SPDX-License-Identifier: Apache-2.0
"""Reads and writes tables with declared columns, as Parquet or CSV, and checks their values.

Errors are one line: the file, the row and the reason. Rows count from 0, in CSV after the line with
the column names. There are no loops over rows.
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
from testbed.record.arrow import array_of, numpy_of, texts_of
from testbed.record.files import is_text, read_file, table_files, to_arrow, write_file
from testbed.record.foreign import Receipt, read_foreign
from testbed.record.messages import first_line, shown
from testbed.record.schema import Column, Schema, TableError, interval

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
    """A column of strings: the index in ``names`` of each row's string, int[n], -1 for none."""

    codes: npt.NDArray[np.integer]
    names: Sequence[str]


Columns = Mapping[str, "npt.NDArray[Any] | Sequence[str] | Texts | Paths | PathSets"]
"""Columns of a table by name. `Paths` are lists of links, `PathSets` are lists of such lists (an
empty set is null); masked values of masked arrays are null."""


@dataclass(frozen=True)
class Nested:
    """A column of lists of lists: row r has ``width[r]`` lists, list p ``length[p]`` values.

    ``values`` are the integers, or the index in ``names`` of each text.
    """

    width: LongArray
    length: LongArray
    values: LongArray
    names: list[str] = field(default_factory=list)


class Table:
    """The columns of a file, as its schema has them.

    Args:
        path: The file, which errors name.
        schema: The schema of the table.
        data: The columns of the file, of any types; those of a CSV file are strings.
        parts: The files of a folder ``path`` that make up the table, in order, and the number of
            rows of each; errors name them.
        foreign: Whether the forgiving reader made ``data`` (`testbed.record.foreign`), so that any
            column of strings is read as one of a CSV file.

    Raises:
        TableError: Two rows have the same value in the one column that is the schema's key.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema,
        data: pa.Table,
        parts: Sequence[tuple[Path, int]] = (),
        foreign: bool = False,
    ) -> None:
        self.path = path
        self._schema = {column.name: column for column in schema.columns}
        self._data = data
        self._parts = parts
        self._foreign = foreign
        self._csv = not foreign and is_text(parts[0][0] if parts else path)
        self._key: tuple[str, LongArray] | None = None
        if len(schema.key) == 1:
            self._key = schema.key[0], self.values(schema.key[0])
            self.refuse_twice(*self._key)

    def __len__(self) -> int:
        return self._data.num_rows

    def need_rows(self) -> None:
        """Raise TableError if the table has no rows."""
        if not len(self):
            raise TableError(f"{self.path} has no rows")

    def fail(self, row: int, reason: str) -> TableError:
        """Return the error of a row, from 0, with its key of one column; the caller raises it."""
        key = "" if self._key is None else f" ({self._key[0]} {self._key[1][row]})"
        path, own = self._place(row)
        return TableError(f"{path}: row {own}{key}: {reason}")

    def _place(self, row: int) -> tuple[Path, int]:
        """Return the file that a row is in, and its number there."""
        for path, size in self._parts:
            if row < size:
                return path, row
            row -= size
        return self.path, row

    def refuse(self, bad: BoolArray, reason: str) -> None:
        """Raise TableError for the first row that ``bad`` (bool[n]) marks, if there is one."""
        if bad.any():
            raise self.fail(int(np.argmax(bad)), reason)

    def refuse_twice(self, name: str, values: LongArray) -> None:
        """Raise TableError for the first of the values, int64[n_rows], that an earlier row has."""
        order = np.argsort(values, kind="stable")
        again = order[1:][np.diff(values[order]) == 0]
        if len(again):
            row = int(again.min())
            (file, _), (other, earlier) = map(
                self._place, (row, int(np.argmax(values == values[row])))
            )
            where = "" if file == other else f" of {other.name}"
            raise self.fail(row, f"row {earlier}{where} has the same {name}")

    def refuse_outside(
        self,
        name: str,
        values: npt.NDArray[Any],
        low: float | None,
        high: float | None,
        needed: str = "",
    ) -> None:
        """Raise TableError for the first value that is not from ``low`` to ``high``.

        There is a value for each row, [n_rows]. nan counts as outside unless the column allows
        it; rows without a value are skipped.
        """
        column, outside = self._schema[name], np.zeros(len(values), np.bool_)
        if values.dtype.kind == "f" and not column.null.startswith("nan"):
            outside |= np.isnan(values)
        if low is not None and len(values) and not values.min() >= low:  # nan, too
            outside |= values < low
        if high is not None and len(values) and not values.max() <= high:
            outside |= values > high
        if column.nullable and outside.any():
            outside &= self.has_value(name)
        for row in np.flatnonzero(outside)[:1]:
            reason = needed or f"{interval(low, high) or 'a number'} is needed"
            raise self.fail(int(row), f"{name} is {values[row]}: {reason}")

    def has_value(self, name: str) -> BoolArray:
        """Return in which rows a column has a value, bool[n]."""
        return numpy_of(pc.is_valid(self._column(name)))

    def columns(self) -> dict[str, Any]:
        """Return all columns of the file as of `values`, except that strings are lists.

        Raises:
            TableError: See `values`.
        """
        every: dict[str, Any] = {name: self.values(name) for name in self._data.column_names}
        for name, value in every.items():
            if isinstance(value, Texts):
                codes, names = value
                every[name] = np.array([*names, None], np.object_)[codes].tolist()
        return every

    def values(self, name: str) -> Any:
        """Return a column: an array of the schema's type, with 0 or nan where a row has no value;
        `Texts`, with the column's words for names where it has some; `Paths`; or `Nested`.

        Raises:
            TableError: A value is missing where one must be, is of another type, does not fit into
                that of the column, is out of the column's bounds or none of its words.
        """
        column, wanted = self._column(name), self._schema[name]
        if column.null_count and not wanted.nullable:
            raise self.fail(int(np.argmin(self.has_value(name))), f"{name} is missing")
        rows = np.arange(len(self))
        match wanted.type:
            case "text":
                return self._words(wanted, *self._texts(column, name))
            case "bool":
                if not pa.types.is_boolean(column.type):
                    raise self._wrong_type(name)
                return numpy_of(column)
            case "path":
                (length,), values, row = self._lists(column, name, " ")
                links = self._fitting(self._whole(values, name, row), "int32", name, row)
                return Paths(pointers(length), links)
            case "paths" | "node paths":
                (width, length), values, row = self._lists(column, name, "| ")
                if wanted.type == "node paths" or self._names_links(values):
                    return Nested(width, length, *self._texts(values, name))
                numbers = self._fitting(self._whole(values, name, row), "int64", name, row)
                return Nested(width, length, numbers)
            case "float64":
                values = self._floats(column, name)
                self.refuse_outside(name, values, wanted.low, wanted.high)
                return values
            case _:
                values = self._whole(column, name, rows)
                self.refuse_outside(name, values, wanted.low, wanted.high)
                return self._fitting(values, wanted.type, name, rows)

    def _column(self, name: str) -> Any:
        """Return a column of the file; one that is absent has no value in any row."""
        if name in self._data.column_names:
            return self._data.column(name)
        return pa.nulls(len(self), pa.string() if self._csv else pa.null())

    def _is_csv(self, column: Any) -> bool:
        """Return True if the values of a column are texts that stand for numbers or lists."""
        return self._csv or (self._foreign and pa.types.is_string(column.type))

    def _names_links(self, values: Any) -> bool:
        """Return True if the links of paths are given by their names, which have an arrow."""
        if not (self._foreign and pa.types.is_string(values.type)):
            return False
        return bool(pc.any(pc.match_substring(values, "->")).as_py())

    def _words(self, wanted: Column, codes: LongArray, names: list[str]) -> Texts:
        if not wanted.words:
            return Texts(codes, names)
        number = {word: i for i, word in enumerate(wanted.words)}
        known = np.array([number.get(name, -2) for name in names] + [-1])[codes]
        for row in np.flatnonzero(known == -2)[:1]:
            found, words = shown(names[codes[row]]), ", ".join(wanted.words)
            raise self.fail(int(row), f"{wanted.name} is {found}: none of {words}")
        return Texts(known, wanted.words)

    def _lists(
        self, column: Any, name: str, separators: str
    ) -> tuple[list[LongArray], Any, LongArray]:
        """Return the lengths of the lists of each depth, all values, and the row of each value."""
        row, lengths, as_text = np.arange(len(self)), [], self._is_csv(column)
        for separator in separators:
            if lengths:
                self._no_nulls(column, name, row)
            if as_text:
                column = pc.split_pattern(column, separator)
            elif pa.types.is_null(column.type):
                column = column.cast(pa.list_(pa.null()))
            if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
                raise self._wrong_type(name)
            lengths.append(numpy_of(pc.list_value_length(column)).astype(np.int64))
            column, row = pc.list_flatten(column), np.repeat(row, lengths[-1])
        self._no_nulls(column, name, row)
        return lengths, column, row

    def _no_nulls(self, column: Any, name: str, row: LongArray) -> None:
        missing = numpy_of(pc.is_null(column))
        if missing.any():
            raise self.fail(int(row[np.argmax(missing)]), f"{name} has a missing value in its list")

    def _floats(self, column: Any, name: str) -> npt.NDArray[np.float64]:
        kind = column.type
        if self._is_csv(column):
            self._match(column, _NUMBER, name, "a number", np.arange(len(self)))
        elif not (
            pa.types.is_null(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind)
        ):
            raise self._wrong_type(name)
        return numpy_of(column.cast(pa.float64(), safe=False), null=np.nan)

    def _whole(self, column: Any, name: str, row: LongArray) -> npt.NDArray[np.integer]:
        """Return integers, 0 where a row has no value; ``row`` is the row of each value."""
        if self._is_csv(column):
            self._match(column, _NUMBER, name, "a whole number", row)
            plain = pc.match_substring_regex(column, _INTEGER)
            as_float = pc.if_else(plain, None, column).cast(pa.float64())
            as_is = pc.if_else(plain, column, None).cast(pa.int64())
            column = pc.coalesce(as_is, self._whole_floats(as_float, name, row))
        elif pa.types.is_floating(column.type):
            column = self._whole_floats(column.cast(pa.float64()), name, row)
        elif pa.types.is_null(column.type):
            column = column.cast(pa.int64())
        elif not pa.types.is_integer(column.type):
            raise self._wrong_type(name)
        return numpy_of(column)

    def _whole_floats(self, column: Any, name: str, row: LongArray) -> Any:
        """Return floats as int64; pandas and R write integers so if some are missing."""
        number = numpy_of(column)
        bad = ~((np.abs(number) <= _EXACT) & (number == np.round(number)))
        if bad.any():
            at = int(np.argmax(bad))
            large = np.isfinite(number[at]) and abs(number[at]) > _EXACT
            needed = "too large for a float to be exact" if large else "a whole number is needed"
            raise self.fail(int(row[at]), f"{name} is {number[at]}: {needed}")
        return column.cast(pa.int64())

    def _fitting(
        self, values: npt.NDArray[np.integer], wanted: str, name: str, row: LongArray
    ) -> npt.NDArray[Any]:
        try:
            return _fitting(values, wanted)
        except Misfit as misfit:
            raise self.fail(int(row[misfit.at]), f"{name}: {misfit}") from None

    def _match(self, column: Any, pattern: str, name: str, needed: str, row: LongArray) -> None:
        bad = ~numpy_of(pc.match_substring_regex(column, pattern), null=True)
        if bad.any():
            at = int(np.argmax(bad))
            reason = f"{name} is {shown(column[at].as_py())}: {needed} is needed"
            raise self.fail(int(row[at]), reason)

    def _texts(self, column: Any, name: str) -> tuple[LongArray, list[str]]:
        """Return the index of each string, -1 where a row has none, and the distinct strings."""
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise self._wrong_type(name)
        encoded = column.cast(kind).dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
            if isinstance(encoded, pa.ChunkedArray):
                encoded = encoded.chunk(0) if encoded.num_chunks else _no_texts()
        codes = numpy_of(encoded.indices, null=-1).astype(np.int64)
        return codes, encoded.dictionary.to_pylist()

    def _wrong_type(self, name: str) -> TableError:
        found = self._column(name).type
        needed = _NEEDED.get(self._schema[name].type, "whole numbers")
        return TableError(f"{self.path}: column {name} has the type {found}: {needed} are needed")


def read_table(path: Path, schema: Schema) -> Table:
    """Read a ``.parquet`` or ``.csv`` file.

    Raises:
        TableError: It is no readable file of this schema and version.
    """
    return Table(path, schema, read_file(path, schema))


def read_table_or_parts(
    path: Path | pa.Table, schema: Schema, receipt: Receipt | None = None
) -> Table:
    """Read a file as `read_table` does, or all files of a folder as one table (`table_files`).

    With a ``receipt``, tables are read as other programs write them (`testbed.record.foreign`), and
    ``path`` may be an Arrow table; the receipt notes what that took.

    Raises:
        TableError: A file is none of this schema and version, or has a value that it may not have.
    """
    if receipt is not None or isinstance(path, pa.Table):
        receipt = receipt or Receipt()
        data, rows = read_foreign(path, schema, receipt)
        where = Path(schema.name) if isinstance(path, pa.Table) else path
        return Table(where, schema, data, rows, foreign=True)
    if not path.is_dir():
        return read_table(path, schema)
    read: list[pa.Table] = []
    parts: list[tuple[Path, int]] = []
    for file in table_files(path):
        data = read_file(file, schema, part=True)
        one = Table(file, schema, data)
        for name in data.column_names:
            one.values(name)
        for i, kind in enumerate(data.schema.types):
            if pa.types.is_dictionary(kind):
                data = data.set_column(i, data.field(i).name, data.column(i).cast(kind.value_type))
        read.append(data.replace_schema_metadata(None))
        parts.append((file, data.num_rows))
    try:
        whole = pa.concat_tables(read, promote_options="permissive")
    except pa.ArrowException as error:
        raise TableError(f"{path}: the parts do not fit together: {first_line(error)}") from None
    return Table(path, schema, whole, parts)


def write_table(path: Path, schema: Schema, columns: Columns) -> None:
    """Write columns to a ``.parquet`` or ``.csv`` file, which appears when it is complete.

    Raises:
        TableError: The columns are not the schema's, or the file cannot be written or has another
            suffix.
    """
    write_file(path, schema, _as_table(path, schema, columns))


def _as_table(path: Path, schema: Schema, columns: Columns) -> pa.Table:
    """Return an Arrow table of the columns, in the schema's order and types."""
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
    """Return a column as an Arrow array; raise ValueError or TypeError for other types."""
    needed = _NEEDED.get(column.type, "whole numbers")
    if isinstance(value, Texts):
        codes = np.asarray(value.codes, np.int32)
        codes = array_of(codes, codes < 0)
        return pa.DictionaryArray.from_arrays(codes, texts_of(value.names))
    if isinstance(value, PathSets):
        lists = _to_arrow(value.paths, column)
        offsets = array_of(value.ptr.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, lists, mask=array_of(value.width == 0))
    if isinstance(value, Paths):
        return to_arrow(value)
    if column.type == "text":
        return texts_of(value)
    values = np.asarray(value)
    null = np.ma.getmaskarray(value) if isinstance(value, np.ma.MaskedArray) else None
    if column.type in ("path", "paths", "node paths") or values.dtype.kind not in (
        {"bool": "b", "float64": "f"}.get(column.type, "iu")
    ):
        raise ValueError(f"{values.dtype.name} values: {needed} are needed")
    fits = values if column.type == "bool" else _fitting(values, column.type)
    return array_of(fits, null)


class Misfit(ValueError):
    """A value does not fit into the type of its column; ``at`` is its index."""

    def __init__(self, value: int, wanted: str, at: int) -> None:
        super().__init__(f"{value} does not fit into {wanted}")
        self.at = at


def _fitting(values: npt.NDArray[Any], wanted: str) -> npt.NDArray[Any]:
    """Return integers as the type ``wanted``; raise Misfit if one does not fit."""
    if not np.can_cast(values.dtype, wanted) and len(values):
        bounds = np.iinfo(wanted)
        for at in (int(values.argmin()), int(values.argmax())):
            if not bounds.min <= int(values[at]) <= bounds.max:
                raise Misfit(int(values[at]), wanted, at)
    return values.astype(wanted, copy=False)


def _no_texts() -> Any:
    return texts_of([]).dictionary_encode()
