# SPDX-License-Identifier: Apache-2.0
"""The files of an import as lines, JSON values or rows of CSV, within bounds, with the place of
each for messages."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed.errors import UserError
from testbed.fabric.names import plain
from testbed.record.bounded import MIB, read_bounded
from testbed.record.messages import first_line, shown, why

MOST_BYTES = 256 * MIB
"""The most bytes of a file, also when it is unpacked."""
_MOST_JSON, _MOST_YAML = 64 * MIB, 4 * MIB


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

    def text(self, path: Path) -> str:
        """Return the content of a file, which may be compressed by gzip.

        Raises:
            ImportFileError: It cannot be read, is too large, or no text.
        """
        self.file, self.place = path, ""
        try:
            data = read_bounded(path, MOST_BYTES)
            if data.startswith(b"\x1f\x8b"):
                with gzip.open(io.BytesIO(data)) as file:
                    data = file.read(MOST_BYTES + 1)
                if len(data) > MOST_BYTES:
                    raise ImportFileError(f"{path} unpacks to more than {MOST_BYTES // MIB} MiB")
            return data.decode("utf-8-sig")
        except OSError as error:
            raise ImportFileError(f"{path}: {error.strerror or why(error)}") from None
        except (EOFError, zlib.error):
            raise ImportFileError(f"{path} is no readable gzip file: cut off or damaged?") from None
        except UnicodeDecodeError:
            raise ImportFileError(f"{path} is not a text file in UTF-8") from None

    def lines(self) -> Iterator[str]:
        """Yield the lines of all files that have something in them, without comments (``#``)."""
        for path in self.files:
            for number, line in enumerate(self.text(path).splitlines(), 1):
                if kept := line.partition("#")[0].strip():
                    self.file, self.place = path, f"line {number}"
                    yield kept

    def values(self) -> Iterator[Any]:
        """Yield the JSON values of all files: of a document, or of each line."""
        for path in self.files:
            text = self.text(path)
            yield from self._values(path, text)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the records of all files: JSON objects, also of a list or of lines, or rows of CSV
        by the names in their first line."""
        for path in self.files:
            text = self.text(path)
            if text.lstrip()[:1] in ("[", "{"):
                found = self._flat(path, self._values(path, text))
            else:
                found = self._rows(path, text)
            for number, record in enumerate(found, 1):
                self.file, self.place = path, f"record {number}"
                if not isinstance(record, dict):
                    raise ImportFileError(f"{self.where()} is {shown(record)}: an object is needed")
                yield record

    def yaml(self) -> Iterator[Any]:
        """Yield the YAML document of each file."""
        for path in self.files:
            text = self.text(path)
            if len(text) > _MOST_YAML or re.search(r"(?m)^[^#'\"]*[\s:][&*][A-Za-z_]", text):
                raise ImportFileError(f"{path} is too large, or has anchors: write them out")
            try:
                yield yaml.safe_load(text)
            except (yaml.YAMLError, RecursionError, ValueError) as error:
                raise ImportFileError(f"{path} is no YAML: {first_line(error)}") from None

    def _flat(self, path: Path, values: Iterator[Any]) -> Iterator[Any]:
        for value in values:
            if isinstance(value, list):
                yield from value
            else:
                yield value

    def _values(self, path: Path, text: str) -> Iterator[Any]:
        try:
            if len(text) <= _MOST_JSON:
                try:
                    yield json.loads(text)
                    return
                except json.JSONDecodeError as error:
                    if "Extra data" not in error.msg:
                        raise
            for number, line in enumerate(text.splitlines(), 1):
                if line.strip():
                    self.file, self.place = path, f"line {number}"
                    yield json.loads(line)
        except RecursionError:
            raise ImportFileError(f"{path} is nested too deeply") from None
        except ValueError as error:
            raise ImportFileError(f"{self.where()} is no JSON: {first_line(error)}") from None

    def _rows(self, path: Path, text: str) -> Iterator[Any]:
        head = text.lstrip("\n").partition("\n")[0]
        mark = max(",;\t", key=head.count)
        try:
            for row in csv.DictReader(io.StringIO(text), delimiter=mark, skipinitialspace=True):
                if None in row or None in row.values():
                    if len([cell for cell in row.values() if cell]) < 3:
                        return  # what some tools write below the table
                    raise ImportFileError(f"{path}: a row has other columns than the first line")
                yield {str(key).strip(): value for key, value in row.items()}
        except csv.Error as error:
            raise ImportFileError(f"{path} is no CSV: {first_line(error)}") from None


def count(value: Any) -> int:
    """Return a number of packets, which may be text or a whole float; raise ValueError for others.

    >>> count("12"), count(3.0)
    (12, 3)
    """
    number = float(value) if not isinstance(value, int) else value
    if number != int(number) or abs(number) > 2**53:
        raise ValueError(f"{shown(value)} is no whole number")
    return int(value) if isinstance(value, int) else int(number)
