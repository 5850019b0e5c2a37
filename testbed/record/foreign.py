# SPDX-License-Identifier: Apache-2.0
"""Reads tables as other programs write them, and keeps a receipt of what it took to read them.

pandas, polars, R, Spark and spreadsheets write tables without this project's first line, with an
index, with columns of their own, with tabs or semicolons, with ``NA`` for no value, and with lists
as text. None of this changes what a row says, so the forgiving reader reads it, and its `Receipt`
says what it left out, numbered or replaced. What would change a row is an error as everywhere.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from testbed.fabric.names import some_of
from testbed.record import files
from testbed.record.messages import first_line, shown, why
from testbed.record.schema import FORMAT, Column, Schema, TableError

pc: Any = pyarrow.compute  # its functions are made when it is imported

MISSING = ("NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "\\N")
"""The words for no value that pandas, R, spreadsheets and databases write."""

TEXT = (".csv", ".tsv", ".tab", ".txt")
PARQUET = (".parquet", ".parq", ".pq")
SUFFIXES = (*PARQUET, *TEXT, *(f"{suffix}.gz" for suffix in TEXT))
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}
_INDEX = re.compile(r"|__index_level_\d+__|Unnamed: \d+|level_\d+|index|rownames?")
"""Names of columns that only number the rows."""
_LISTS = ("path", "paths", "node paths")


@dataclass
class Receipt:
    """What the forgiving reader did to read tables, in the order of reading.

    Attributes:
        entries: The name of each table that took something, and what it took, once each.
    """

    entries: dict[str, list[str]] = field(default_factory=dict)

    def note(self, table: str, what: str) -> None:
        """Add what it took to read a table, if it is not noted yet."""
        noted = self.entries.setdefault(table, [])
        if what not in noted:
            noted.append(what)

    def lines(self) -> list[str]:
        """Return a line for each table that took something."""
        return [f"{table}: {'; '.join(what)}" for table, what in self.entries.items()]


def read_foreign(
    source: Path | pa.Table, schema: Schema, receipt: Receipt
) -> tuple[pa.Table, list[tuple[Path, int]]]:
    """Return a table with the columns of a schema from a file, a folder of files or an Arrow table,
    and, of a folder, its files with the number of rows of each.

    Columns that a program wrote as text are strings.

    Raises:
        TableError: It cannot be read as this table (one line).
    """
    if isinstance(source, pa.Table):
        return _keyed(_fitted(source, schema, schema.name, receipt, ","), schema, receipt), []
    if not source.is_dir():
        data = _read(source, schema, receipt, source.name)
        return _keyed(data, schema, receipt, source.name), []
    parts = [
        (file, _read(file, schema, receipt, source.name))
        for file in files.table_files(source, suffixes=SUFFIXES)
    ]
    alike = _alike([data for _, data in parts])
    try:
        whole = pa.concat_tables(alike, promote_options="permissive")
    except pa.ArrowException as error:
        raise TableError(f"{source}: the parts do not fit together: {first_line(error)}") from None
    rows = [(file, data.num_rows) for file, data in parts]
    return _keyed(whole, schema, receipt, source.name), rows


def is_foreign_text(path: Path) -> bool:
    """Return True for a file of text by its name, False for Parquet.

    Raises:
        TableError: The suffix is of neither.
    """
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(TEXT):
        return True
    if name.endswith(PARQUET) and not path.name.lower().endswith(".gz"):
        return False
    raise TableError(
        f"{path}: the name must end in {', '.join((*PARQUET[:1], *TEXT[:2]))} or .csv.gz: "
        "save the table as CSV or Parquet"
    )


def arrow_table(source: object, name: str) -> pa.Table:
    """Return a frame of pandas or polars, an Arrow table, or anything else with columns as an Arrow
    table: a dictionary of columns, a list of rows, or an object with an Arrow stream.

    Raises:
        TableError: It has no columns, or a column has values of several types (one line).
    """
    kind: Any = source
    try:
        if isinstance(kind, pa.Table):
            return kind
        if isinstance(kind, pa.RecordBatch):
            return pa.Table.from_batches([kind])
        if isinstance(kind, dict):
            return pa.table(kind)
        if isinstance(kind, list):
            return pa.Table.from_pylist(kind)
        if type(source).__module__.partition(".")[0] == "pandas" and hasattr(source, "columns"):
            return pa.Table.from_pandas(kind)
        if hasattr(source, "__arrow_c_stream__"):
            return pa.table(kind)
        if hasattr(source, "to_arrow"):
            return kind.to_arrow()
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise TableError(f"{name}: {first_line(error)}") from None
    raise TableError(
        f"{name} is {shown(type(source).__name__)}: give a file, a frame of pandas or polars, or "
        "an Arrow table (a lazy frame: collect it first)"
    )


def table_in(path: Path, name: str) -> Path:
    """Return the file of a table in a folder that holds both tables under their names, as `export`
    writes them; any other path is returned as it is.

    Raises:
        TableError: The folder has the table in several forms.
    """
    found = [path / f"{name}{suffix}" for suffix in files.SUFFIXES]
    found = [each for each in found if path.is_dir() and each.is_file()]
    if len(found) > 1:
        raise TableError(f"{path} has {' and '.join(each.name for each in found)}: name one")
    return found[0] if found else path


# ---- files ---------------------------------------------------------------------------------------


def _read(path: Path, schema: Schema, receipt: Receipt, name: str) -> pa.Table:
    try:
        if path.stat().st_size == 0:
            raise TableError(f"{path} is empty")
        if not is_foreign_text(path):
            return _fitted(_parquet(path, schema, receipt, name), schema, name, receipt, ",", path)
        return _text(path, schema, receipt, name)
    except OSError as error:
        raise TableError(f"{path}: {why(error) or 'not readable'}") from None


def _parquet(path: Path, schema: Schema, receipt: Receipt, name: str) -> pa.Table:
    def check(found: Mapping[str, str], _: Sequence[str]) -> None:
        """Note that a file does not say which table it is; if it says so, check it."""
        if found.get("format") == FORMAT:
            files.check_version(path, schema, [found.get(key, "") for key in schema.metadata])
        else:
            receipt.note(name, "does not say which table it is")

    return files.read_parquet(path, check)


def _text(path: Path, schema: Schema, receipt: Receipt, name: str) -> pa.Table:
    zipped = path.name.lower().endswith(".gz")
    with files.unpacked(path) if zipped else path.open("rb") as file:
        source: Path | io.BytesIO = file if isinstance(file, io.BytesIO) else path.absolute()
        first = file.readline(files.LINE)
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            file.seek(0)
            try:
                source = io.BytesIO(file.read().decode("utf-16").encode())
            except UnicodeDecodeError:
                raise TableError(f"{path} is in UTF-16 and damaged: save it in UTF-8") from None
            receipt.note(name, "UTF-16 read")
            return _columns(path, schema, receipt, name, source, source)
        file.seek(0)
        return _columns(path, schema, receipt, name, file, source)


def _columns(
    path: Path,
    schema: Schema,
    receipt: Receipt,
    name: str,
    file: Any,
    source: Path | io.BytesIO,
) -> pa.Table:
    """Return the columns of a file of text; ``source`` is what Arrow reads."""
    size = file.seek(-1, 2) + 1
    complete = file.read(1) in (b"\n", b"\r")
    file.seek(0)
    skipped, line = _heading(path, schema, receipt, name, file)
    if not complete:
        raise TableError(
            f"{path}: the last line has no line break: it may be cut off; if it is not, add one"
        )
    separator = _separator(line)
    try:
        header = next(csv.reader([line], delimiter=separator), [])
        second = next(csv.reader([file.readline(files.LINE).decode()], delimiter=separator), [])
    except (UnicodeDecodeError, csv.Error):
        raise TableError(f"{path}: a line must name the columns, in UTF-8") from None
    if len(second) == len(header) + 1:  # R writes no name over the row names
        header = ["", *header]
    if separator != ",":
        receipt.note(name, f"{_SEPARATORS[separator]} separate the columns")
    unique = [word if header.count(word) == 1 else f"{word}\0{i}" for i, word in enumerate(header)]
    try:
        data = files.parse(source, unique, skipped + 1, size, separator)
    except (ValueError, MemoryError, pa.ArrowException) as error:
        raise TableError(f"{path}: {files.parse_error(error)}") from None
    data = data.rename_columns(header)
    return _fitted(data, schema, name, receipt, separator, path)


def _heading(path: Path, schema: Schema, receipt: Receipt, name: str, file: Any) -> tuple[int, str]:
    """Return how many lines come before that of the column names, and that line."""
    skipped = 0
    while raw := file.readline(files.LINE):
        try:
            line = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise TableError(f"{path}: it is not in UTF-8: save it as CSV in UTF-8") from None
        words = line.strip().strip(",;\t\"' ").split()
        if line.startswith("#") or (words and words[0] == "#"):
            if words[1:2] == [FORMAT]:
                files.check_version(path, schema, [*words[1:], "", "", ""][:3])
            elif schema.columns[0].name in line:  # "# id kind ...", as NumPy writes it
                return skipped, line.lstrip("# ")
        elif words:
            return skipped, line
        skipped += 1
    raise TableError(f"{path}: no line names the columns")


def _separator(line: str) -> str:
    """Return the character that separates the names in a line of column names."""
    plain = re.sub(r'"[^"]*"', "", line.strip("\r\n"))
    found = {mark: plain.count(mark) for mark in ",;\t|"}
    best = max(found, key=lambda mark: found[mark])
    return best if found[best] else " " if " " in plain else ","


# ---- columns -------------------------------------------------------------------------------------


def _fitted(
    data: pa.Table,
    schema: Schema,
    name: str,
    receipt: Receipt,
    separator: str,
    path: Path | None = None,
) -> pa.Table:
    """Return the columns of a schema that a table has, as `Table` reads them."""
    where = path or name
    known = {column.name: column for column in schema.columns}
    made: dict[str, Any] = {}
    dropped: list[str] = []
    for i, given in enumerate(data.column_names):
        own = given if given in known else given.strip().lower()
        if own not in known:
            dropped.append(given)
        elif own in made:
            raise TableError(f"{where}: column {own} is given twice")
        else:
            if own != given:
                receipt.note(name, f"column {shown(given)} is {own}")
            made[own] = _fit(data.column(i), known[own], f"{where}", name, receipt, separator)
    others = [shown(each) for each in dropped if not _INDEX.fullmatch(each)]
    if len(others) < len(dropped):
        receipt.note(name, "the index of the rows left out")
    if others:
        word = "column" if len(others) == 1 else "columns"
        receipt.note(name, f"{word} {some_of(others)} left out")
    needed = [c.name for c in schema.columns if c.required and [c.name] != list(schema.key)]
    for each in needed:
        if each not in made:
            there = some_of([shown(given) for given in data.column_names]) or "none"
            raise TableError(
                f"{where}: column {each} is missing: its columns are {there}: the first line must "
                "name the columns"
            )
    order = [column for column in known if column in made]
    return pa.table({column: made[column] for column in order})


def _keyed(data: pa.Table, schema: Schema, receipt: Receipt, name: str | None = None) -> pa.Table:
    """Return a table whose rows are numbered if the column of their numbers is absent."""
    key = schema.key[0] if len(schema.key) == 1 else None
    if key is None or key in data.column_names:
        return data
    receipt.note(name or schema.name, f"{key}s numbered from 0 by their rows")
    return data.add_column(0, key, pa.array(np.arange(data.num_rows, dtype=np.int64)))


def _alike(parts: Sequence[pa.Table]) -> list[pa.Table]:
    """Return tables in which a column that one part has as text is text in all."""
    texts = {
        name
        for part in parts
        for name in part.column_names
        if pa.types.is_string(part.schema.field(name).type)
    }
    made: list[pa.Table] = []
    for part in parts:
        for i, name in enumerate(part.column_names):
            if name in texts and not pa.types.is_string(part.schema.field(name).type):
                column = part.column(name)
                as_text = files.flattened(column) if files.is_list(column.type) else column
                part = part.set_column(i, name, as_text.cast(pa.string()))
        made.append(part)
    return made


def _fit(
    column: Any, wanted: Column, where: str, name: str, receipt: Receipt, separator: str
) -> Any:
    """Return a column in a type that `Table` reads, with null for no value."""
    column = _plain(column)
    kind = column.type
    if wanted.type in _LISTS and files.is_list(kind):
        return _lists(column, wanted, name, receipt)
    if pa.types.is_floating(kind):
        return _without(pc.is_nan(column), column, wanted, name, receipt, "NaN")
    if not pa.types.is_string(kind):
        return column
    if wanted.required and wanted.type == "text" and not wanted.words:
        return column  # a switch may be called NA
    column = _without(
        pc.is_in(column, pa.array(MISSING)), column, wanted, name, receipt, "NA and the like"
    )
    column = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, column)
    if wanted.type in _LISTS:
        return _list_text(column, wanted, name, receipt)
    if wanted.words:
        return pc.utf8_lower(pc.utf8_trim_whitespace(column))
    if wanted.type != "text":
        column = pc.utf8_trim_whitespace(column)
    if wanted.type == "float64" and separator != ",":
        column = pc.replace_substring(column, ",", ".")
    return column


def _plain(column: Any) -> Any:
    """Return a column without Arrow's encodings: no dictionary, view, decimal or long offsets."""
    kind = column.type
    try:
        if pa.types.is_dictionary(kind):  # Arrow takes no views out of a dictionary (polars)
            value = _list_type(kind.value_type)
            return column.cast(pa.dictionary(kind.index_type, value)).cast(value)
        if pa.types.is_large_string(kind) or getattr(pa.types, "is_string_view", _no)(kind):
            return column.cast(pa.string())
        if pa.types.is_decimal(kind):
            return column.cast(pa.float64())
        if pa.types.is_boolean(kind):
            return column.cast(pa.int8())
        if pa.types.is_null(kind) or not pa.types.is_nested(kind):
            return column
        value = getattr(kind, "value_type", None)
        if value is None:
            return column
        return column.cast(_list_type(kind))
    except (pa.ArrowException, NotImplementedError):
        return column  # `Table` names the type


def _no(_: Any) -> bool:
    return False


def _list_type(kind: Any) -> Any:
    """Return the type with plain lists and texts in place of Arrow's other kinds of these."""
    if getattr(kind, "value_type", None) is not None and not pa.types.is_dictionary(kind):
        return pa.list_(_list_type(kind.value_type))
    if pa.types.is_dictionary(kind):
        return _list_type(kind.value_type)
    if pa.types.is_large_string(kind) or getattr(pa.types, "is_string_view", _no)(kind):
        return pa.string()
    return kind


def _without(bad: Any, column: Any, wanted: Column, name: str, receipt: Receipt, what: str) -> Any:
    """Return a column with null where ``bad`` is true."""
    count = pc.sum(bad).as_py() or 0
    if not count:
        return column
    receipt.note(name, f"{what} in {wanted.name} read as missing ({count:,})")
    return pc.if_else(bad, None, column)


def _lists(column: Any, wanted: Column, name: str, receipt: Receipt) -> Any:
    """Return a column of lists of lists; a list of values is one path, an empty list is none."""
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
    empty = pc.fill_null(pc.equal(pc.list_value_length(whole), 0), False)
    whole = _without(empty, whole, wanted, name, receipt, "empty lists")
    inner = whole.type.value_type
    if wanted.type != "path" and not files.is_list(inner) and not pa.types.is_null(inner):
        receipt.note(name, f"a list in {wanted.name} is one path")
        there = np.asarray(pc.is_valid(whole).to_numpy(zero_copy_only=False))
        offsets = np.concatenate(([0], np.cumsum(there))).astype(np.int32)
        kept = whole.filter(pa.array(there))
        whole = pa.ListArray.from_arrays(pa.array(offsets), kept, mask=pa.array(~there))
    if _holds_names(whole):
        return _list_text(files.flattened(pa.chunked_array([whole])), wanted, name, receipt)
    return pa.chunked_array([whole])


def _holds_names(lists: Any) -> bool:
    """Return True for lists of texts with an arrow, which are names of links."""
    values = lists
    while files.is_list(values.type):
        values = pc.list_flatten(values)
    return pa.types.is_string(values.type) and bool(
        pc.any(pc.match_substring(values, "->")).as_py()
    )


def _list_text(column: Any, wanted: Column, name: str, receipt: Receipt) -> Any:
    """Return a column of texts such as ``1 2|1 3`` from these, or from lists that Python, JSON or
    NumPy wrote: ``[[1, 2], [1, 3]]``."""
    bracketed = pc.fill_null(pc.match_substring_regex(column, r"^\s*[\[(]"), False)
    if pc.any(bracketed).as_py():
        receipt.note(name, f"{wanted.name} read from lists in text")
        text = pc.replace_substring_regex(column, r"array\(|dtype=\w+|\.0\b|[\s'\"]", " ")
        text = pc.replace_substring_regex(text, r"[\])]\s*(,\s*)*\)*\s*[\[(]", "|")
        text = pc.replace_substring_regex(text, r"[\[\](),\s]+", " ")
        column = pc.if_else(bracketed, text, column)
    if wanted.type == "node paths":
        column = pc.replace_substring_regex(column, r"\s*->\s*", " ")
    column = pc.replace_substring_regex(column, r"\s*\|\s*", "|")
    column = pc.replace_substring_regex(column, r"\s+", " ")
    column = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(column, ""), None, column)
