"""The run directory: the seam between what happened and what a method says about it.

    config.json            version of the record, resolved configuration, seed and versions
    truth.yaml             the faults that were injected
    network.json           the fabric's title, epochs, packet-hops, conservation, what was not read
    NAME.parquet           the tables of `testbed.record.schema`
    summary.json           the figures

A run is written beside its final place and moved there when it is complete, so a directory without
the suffix ``.partial`` is a finished run. A run in real time writes its tables after every epoch:
if it is interrupted, its ``.partial`` directory holds the epochs it finished and can be diagnosed
(`network.json` says how many). Equal runs give equal bytes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.segments import Segments, segments
from testbed.record.fabric_file import read_fabric
from testbed.record.schema import TABLES, VERSION, TableError, of, registers
from testbed.record.tables import Columns, read_table, write_table

__all__ = ["Record", "RunDirectory", "RunError", "RunWriter", "segment_columns"]

Counts = npt.NDArray[np.integer]

REQUIRED = (
    "config.json",
    "truth.yaml",
    "network.json",
    *(f"{table.name}.parquet" for table in TABLES if table.required),
)
OF_REGISTERS = ("rules.parquet", "switches.parquet")
OF_NO_REGISTERS = ("segments.parquet",)


class RunError(ValueError):
    """A run directory cannot be written, or is no complete run."""


class Record(Protocol):
    """What was recorded of a run, whoever ran it: `RunDirectory`, or a run still in memory.

    ``config`` and ``network`` are the content of ``config.json`` and ``network.json``; ``segments``
    the path segments between monitors, numbered as the tables number them.
    """

    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def network(self) -> Mapping[str, Any]: ...
    @property
    def fabric(self) -> Fabric: ...
    @property
    def segments(self) -> Segments: ...
    def has(self, name: str) -> bool: ...
    def table(self, name: str) -> Mapping[str, Any]: ...


def segment_columns(sent: Counts, lost: Counts) -> Columns:
    """The table of segments of their counts, int[E, S]: the observed (epoch, segment) pairs."""
    epoch, segment = np.nonzero(sent)
    counts = {"sent": sent[epoch, segment], "lost": lost[epoch, segment]}
    return {"epoch": epoch, "segment": segment, **counts}


class RunWriter:
    """Writes a run; nothing appears at ``path`` before `finish`.

    Raises:
        RunError: ``path`` exists and is not empty, holds finished epochs of an interrupted run, or
            cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunError(f"{path} exists already: choose another RUN or remove it")
        if self.kept:
            raise RunError(
                f"{self.partial} holds {self.kept} finished epochs of an interrupted run: diagnose "
                f"them (make analyze RUN={self.partial}) and move or remove it, or choose another "
                "RUN"
            )
        try:
            if self.partial.exists():
                shutil.rmtree(self.partial)
            (self.partial / "registers").mkdir(parents=True)
            (self.partial / "diagnoses").mkdir()
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror}; choose another RUN") from None

    @classmethod
    @contextmanager
    def again(cls, run: RunDirectory) -> Iterator[RunWriter]:
        """Rewrite parts of a finished run: they replace the old ones when the block ends well."""
        writer = cls.__new__(cls)
        writer.path = run.path
        try:
            writer.partial = Path(tempfile.mkdtemp(dir=run.path, prefix=".partial-"))
            (writer.partial / "diagnoses").mkdir()
        except OSError as error:
            raise RunError(f"cannot write {run.path}: {error.strerror}") from None
        try:
            yield writer
            for new in sorted(writer.partial.rglob("*")):
                if new.is_file():
                    new.replace(run.path / new.relative_to(writer.partial))
        finally:
            writer.abandon()

    def table(self, name: str, columns: Columns) -> None:
        """Write a table of `testbed.record.schema` (``name`` without suffix, with its folder).

        Raises:
            RunError: It cannot be written, or the columns are not the schema's.
        """
        try:
            write_table(self.partial / f"{name}.parquet", of(name), columns)
        except TableError as error:
            raise RunError(str(error)) from None

    def text(self, name: str, content: str) -> None:
        """Write a file; it is there whole or not at all, also when it is written once more."""
        try:
            new = self.partial / f"{name}.new"
            new.write_text(content)
            new.replace(self.partial / name)
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror or error}") from None

    def config(self, content: Mapping[str, Any]) -> None:
        """Write ``config.json``, with the version of the record."""
        self.json("config.json", {"record_version": VERSION} | dict(content))

    def json(self, name: str, content: Any) -> None:
        self.text(name, json.dumps(content, indent=2) + "\n")

    @property
    def kept(self) -> int:
        """How many finished epochs could be diagnosed if the run ended here."""
        try:
            return int(RunDirectory(self.partial, finished=False).epochs)
        except RunError:
            return 0

    def finish(self) -> None:
        """Move the run to its place."""
        try:
            if self.path.exists():
                self.path.rmdir()
            self.partial.rename(self.path)
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror or error}") from None

    def abandon(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.partial, ignore_errors=True)


class RunDirectory:
    """A finished run.

    Args:
        path: The directory.
        finished: False to read a run that is still being written, or was interrupted.

    Attributes:
        config: What is in ``config.json``.
        network: What is in ``network.json``.
        epochs: How many epochs were measured.

    Raises:
        RunError: ``path`` is not a complete run directory, or is of another version of the record.
    """

    def __init__(self, path: Path, finished: bool = True) -> None:
        self.path = path
        if not path.is_dir():
            raise RunError(f"{path} is not a directory: give the directory of a finished run")
        if finished and path.name.endswith(".partial"):
            raise RunError(f"{path} is a run that did not finish: make it again, or analyze it")
        self._need(("config.json",))
        self.config: dict[str, Any] = self.json("config.json")
        _check_version(path, self.config.get("record_version"))
        self._need((*REQUIRED, "summary.json") if finished else REQUIRED)
        self.network: dict[str, Any] = self.json("network.json")
        self.epochs = int(self.network.get("epochs", -1))
        if self.epochs < 1:
            raise RunError(f"{path} is not a complete run, it has no finished epoch")
        there = [self.has(registers(epoch)) for epoch in range(self.epochs)]
        self._need(OF_REGISTERS if any(there) else OF_NO_REGISTERS)
        if any(there) and not all(there):
            raise RunError(f"{path} is not a complete run, it lacks registers of its epochs")

    def _need(self, names: Sequence[str]) -> None:
        missing = [name for name in names if not (self.path / name).is_file()]
        if missing:
            raise RunError(f"{self.path} is not a complete run, it lacks {', '.join(missing)}")

    @property
    def fabric(self) -> Fabric:
        """The fabric, its links numbered as in all tables."""
        return self._fabric

    @property
    def segments(self) -> Segments:
        """The path segments between monitors, numbered as in all tables."""
        return self._segments

    @cached_property
    def _fabric(self) -> Fabric:
        path = self.path / "fabric.parquet"
        try:
            numbered = read_fabric(path)
        except TableError as error:
            raise RunError(f"{error}: make the run again") from None
        if (numbered.link_ids != np.arange(numbered.fabric.n_links)).any():
            raise RunError(f"{path}: the links are not in order: make the run again")
        numbered.fabric.title = self.network["fabric"]
        return numbered.fabric

    @cached_property
    def _segments(self) -> Segments:
        return segments(Ecmp(self.fabric), self.config["monitors"])

    def has(self, name: str) -> bool:
        """Whether a table of `testbed.record.schema` was recorded."""
        return (self.path / f"{name}.parquet").is_file()

    def table(self, name: str) -> dict[str, Any]:
        """A table's columns: arrays, lists of texts, and `Paths`.

        Raises:
            RunError: The file is missing, damaged or not of the schema (one line).
        """
        try:
            return read_table(self.path / f"{name}.parquet", of(name)).values()
        except TableError as error:
            raise RunError(f"{error}: make the run again") from None

    def json(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            content = None
        if not isinstance(content, dict):
            raise RunError(f"{self.path / name} is not readable JSON: make the run again")
        return content


def _check_version(path: Path, found: object) -> None:
    if found == VERSION:
        return
    newer = isinstance(found, int) and found > VERSION
    said = "of before records had a version" if found is None else f"of version {found!r}"
    what = "use the newer version of this software" if newer else "make the run again"
    raise RunError(f"{path} holds a record {said}: version {VERSION} is read here: {what}")
