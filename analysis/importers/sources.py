# SPDX-License-Identifier: Apache-2.0
"""The files of an import as lines, JSON values or rows of CSV, within bounds, with the place of
each for messages."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError, iterparse

from testbed.errors import UserError
from testbed.fabric.names import plain
from testbed.record.bounded import MIB, MOST_YAML, read_bounded
from testbed.record.messages import first_line, shown, why
from testbed.record.yaml_file import load_yaml

MOST_BYTES = 256 * MIB
"""The most bytes of a file, also when it is unpacked."""
_FEW_UNPACKED, _MOST_TIMES = 64 * MIB, 200
"""A compressed file may unpack to ``_FEW_UNPACKED`` bytes or to ``_MOST_TIMES`` its size."""
_MOST_LINE = 4 * MIB
_MOST_JSON, _MOST_VALUES = 64 * MIB, 2_500_000
"""The most bytes and values of a JSON document; each line of JSON lines is one."""
_MOST_XML = 16 * MIB
_HEAD = 2**16


class ImportFileError(UserError):
    """A file is not of the format that was named. One line: the file, the place, the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(plain(message))


@dataclass
class Source:
    """The files of an import.

    Attributes:
        files: Their paths.
        file, place: Where the last thing that was read is, for messages.
    """

    files: Sequence[Path]
    file: Path | None = None
    place: str = ""

    def where(self) -> str:
        """Return the place of the last thing that was read: ``FILE: line 7``."""
        at = f"{self.file}" if self.file else "no file"
        return f"{at}: {self.place}" if self.place else at

    def head(self, path: Path) -> str:
        """Return how a file begins, without leading space, by which readers tell its form.

        Raises:
            ImportFileError: It cannot be read, or is too large.
        """
        return self._data(path)[:_HEAD].decode("utf-8-sig", errors="replace").lstrip()

    def lines(self) -> Iterator[str]:
        """Yield the lines of all files that have something in them, without comments (``#``)."""
        for path in self.files:
            for number, line in self._lines(path, self._data(path)):
                if kept := line.partition("#")[0].strip():
                    self.file, self.place = path, f"line {number}"
                    yield kept

    def values(self) -> Iterator[Any]:
        """Yield the JSON values of all files: of a document, or of each line."""
        for path in self.files:
            yield from self._values(path, self._data(path))

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the records of all files: JSON objects, also of a list or of lines, or rows of CSV
        by the names in their first line."""
        for path in self.files:
            data = self._data(path)
            if data[:_HEAD].removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"[", b"{"):
                found = self._flat(path, self._values(path, data))
            else:
                found = self._rows(path, data)
            for number, record in enumerate(found, 1):
                self.file, self.place = path, f"record {number}"
                if not isinstance(record, dict):
                    raise ImportFileError(f"{self.where()} is {shown(record)}: an object is needed")
                yield record

    def yaml(self) -> Iterator[Any]:
        """Yield the YAML document of each file."""
        for path in self.files:
            text = _decoded(path, self._data(path))
            if len(text) > MOST_YAML:
                raise ImportFileError(f"{path} is larger than {MOST_YAML // MIB} MiB")
            try:
                yield load_yaml(text)
            except Exception as error:  # PyYAML has many kinds
                reason = getattr(error, "problem", None) or first_line(error)
                raise ImportFileError(f"{path} is no YAML: {reason}") from None

    def elements(self, names: Collection[str]) -> Iterator[Element]:
        """Yield the XML elements of these names, without namespaces, each when it ends.

        A document type, which may define entities, is refused.
        """
        for path in self.files:
            data = self._data(path)
            if len(data) > _MOST_XML or b"<!DOCTYPE" in data:
                raise ImportFileError(
                    f"{path} is larger than {_MOST_XML // MIB} MiB, or has a DOCTYPE: leave it out"
                )
            try:
                for _, element in iterparse(io.BytesIO(data)):
                    element.tag = element.tag.rpartition("}")[2]
                    if element.tag in names:
                        yield element
            except ParseError as error:
                raise ImportFileError(f"{path} is no XML: {first_line(error)}") from None

    def _data(self, path: Path) -> bytes:
        """Return the content of a file, which may be compressed by gzip."""
        self.file, self.place = path, ""
        try:
            data = read_bounded(path, MOST_BYTES)
            if data.startswith(b"\x1f\x8b"):
                most = min(MOST_BYTES, max(_FEW_UNPACKED, _MOST_TIMES * len(data)))
                with gzip.open(io.BytesIO(data)) as file:
                    data = file.read(most + 1)
                if len(data) > most:
                    raise ImportFileError(f"{path} unpacks to more than {most // MIB} MiB")
        except OSError as error:
            raise ImportFileError(f"{path}: {error.strerror or why(error)}") from None
        except (EOFError, zlib.error):
            raise ImportFileError(f"{path} is no readable gzip file: cut off or damaged?") from None
        return data

    def _lines(self, path: Path, data: bytes) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line."""
        file, number = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig"), 0
        try:
            while line := file.readline(_MOST_LINE + 1):
                number += 1
                if len(line) > _MOST_LINE:
                    most = f"{_MOST_LINE // MIB} Mi characters"
                    raise ImportFileError(f"{path}: line {number} is longer than {most}")
                yield number, line
        except UnicodeDecodeError:
            raise ImportFileError(_no_text(path)) from None

    def _flat(self, path: Path, values: Iterator[Any]) -> Iterator[Any]:
        for value in values:
            if isinstance(value, list):
                yield from value
            else:
                yield value

    def _values(self, path: Path, data: bytes) -> Iterator[Any]:
        whole = len(data) <= _MOST_JSON and sum(map(data.count, b",[{")) <= _MOST_VALUES
        try:
            if whole:
                try:
                    yield json.loads(_decoded(path, data))
                    return
                except json.JSONDecodeError as error:
                    if "Extra data" not in error.msg:
                        raise
            for number, line in self._lines(path, data):
                if line.strip():
                    self.file, self.place = path, f"line {number}"
                    yield json.loads(line)
        except RecursionError:
            raise ImportFileError(f"{path} is nested too deeply") from None
        except ValueError as error:
            if not whole and self.place in ("", "line 1"):
                raise ImportFileError(
                    f"{path} is larger than {_MOST_JSON // MIB} MiB or {_MOST_VALUES:,} values: "
                    "make several files of it, or one with a JSON value in each line"
                ) from None
            if isinstance(error, ImportFileError):
                raise
            raise ImportFileError(f"{self.where()} is no JSON: {first_line(error)}") from None

    def _rows(self, path: Path, data: bytes) -> Iterator[Any]:
        head = data[:_HEAD].decode("utf-8-sig", errors="replace").lstrip("\n").partition("\n")[0]
        mark = max(",;\t", key=head.count)
        lines = (line for _, line in self._lines(path, data))
        try:
            for row in csv.DictReader(lines, delimiter=mark, skipinitialspace=True):
                if None in row or None in row.values():
                    if len([cell for cell in row.values() if cell]) < 3:
                        return  # what some tools write below the table
                    raise ImportFileError(f"{path}: a row has other columns than the first line")
                yield {str(key).strip(): value for key, value in row.items()}
        except csv.Error as error:
            raise ImportFileError(f"{path} is no CSV: {first_line(error)}") from None


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ImportFileError(_no_text(path)) from None


def _no_text(path: Path) -> str:
    return f"{path} is not a text file in UTF-8"


def count(value: Any) -> int:
    """Return a number of packets, which may be text or a whole float; raise ValueError for others.

    >>> count("12"), count(3.0)
    (12, 3)
    """
    number = float(value) if not isinstance(value, int) else value
    if number != int(number) or abs(number) > 2**53:
        raise ValueError(f"{shown(value)} is no whole number")
    return int(value) if isinstance(value, int) else int(number)
