# SPDX-License-Identifier: Apache-2.0
"""The run directory, which records a run's measurements, ground truth and diagnoses.

    config.json            version of the record, resolved configuration, what is measured, versions
    truth.yaml             the faults that were injected
    network.json           the fabric's title, epochs, packet-hops, conservation, what was not read
    NAME.parquet           the tables of `testbed.record.run_tables`
    capture.json           what became of the frames of a capture, if one was replayed
    summary.json           the figures
    manifest.json          size and hash of every other file, written last

The JSON files are declared in `testbed.record.documents`. All files are checked against the schema.
Changes of a finished run are detected by its manifest (`testbed.record.manifest`), unless it is
read with ``trust`` or did not finish.

A run is written beside its final place and moved there when it is complete, so a directory without
the suffix ``.partial`` is a finished run. A run in real time writes its tables after every epoch:
if it is interrupted, its ``.partial`` directory holds the epochs it finished and can be diagnosed
(`network.json` says how many). Equal runs give equal files, except for the times in the summary
and the summary's hash in the manifest.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

import numpy as np
import numpy.typing as npt

from testbed.errors import UserError
from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.host_links import with_hosts
from testbed.fabric.monitors import monitor_switches
from testbed.fabric.names import command, plain, shortened
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.segments import Segments, segments
from testbed.record import trial
from testbed.record.atomic import MARK, FolderError, PendingRun, atomic_write, held, need_no_links
from testbed.record.bounded import read_json
from testbed.record.checks import check_references
from testbed.record.documents import Capture, Config, Network, Summary
from testbed.record.fabric_file import read_fabric
from testbed.record.files import count_rows, free_buffers
from testbed.record.json_files import DocumentError, read_document, write_document
from testbed.record.manifest import ManifestError, check, replace, seal
from testbed.record.messages import shown
from testbed.record.run_tables import TABLES, of, registers
from testbed.record.schema import VERSION, Numbered, Schema, TableError
from testbed.record.tables import Columns, read_table, write_table

Counts = npt.NDArray[np.integer]

REQUIRED = (
    "config.json",
    "truth.yaml",
    "network.json",
    *(f"{table.name}.parquet" for table in TABLES if table.required),
)
OF_REGISTERS = ("rules.parquet", "switches.parquet")
OF_NO_REGISTERS = ("segments.parquet",)

_OWN = re.compile(r"a K=\d+ fat-tree|a network of two switches")
"""The titles of fabrics that have addresses of their own."""


class RunError(UserError):
    """A run directory cannot be written, or does not contain a complete run."""


class Record(Protocol):
    """The interface of a recorded run: a `RunDirectory`, or a run that is still in memory."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Return the content of ``config.json``."""
        ...

    @property
    def network(self) -> Mapping[str, Any]:
        """Return the content of ``network.json``."""
        ...

    @property
    def fabric(self) -> Fabric:
        """Return the fabric, whose links are numbered as in the tables."""
        ...

    @property
    def segments(self) -> Segments:
        """Return the path segments between monitors, numbered as in the tables."""
        ...

    def has(self, name: str) -> bool:
        """Return True if a table of `testbed.record.run_tables` was recorded."""
        ...

    def table(self, name: str) -> Mapping[str, Any]:
        """Return the columns of a table by name: arrays, lists of strings, and `Paths`."""
        ...


def whole_fabric(record: Record) -> Fabric:
    """Return the fabric of a record, with its hosts if a link of a host was faulty: then links of
    hosts are in the tables ``links`` and ``diagnosis``, too."""
    return with_hosts(record.fabric) if record.network.get("host_links") else record.fabric


def segment_columns(sent: Counts, lost: Counts) -> Columns:
    """Return the columns of the table of segments: a row for each observed (epoch, segment) pair.

    Args:
        sent, lost: Packets counted and lost on each segment in each epoch, int[E, S].
    """
    epoch, segment = np.nonzero(sent)
    counts = {"sent": sent[epoch, segment], "lost": lost[epoch, segment]}
    return {"epoch": epoch, "segment": segment, **counts}


class RunWriter:
    """Writes a run; nothing appears at ``path`` before `finish`, and no other run can begin there.

    Args:
        path: Where the run will be.
        numbered: Use ``path-2``, ``path-3`` ... if ``path`` is taken.

    Attributes:
        path: Where the run will be; after `finish` where it is.
        partial: Where it is written.

    Raises:
        RunError: ``path`` exists and is not empty, another command is at work there, it holds
            finished epochs of an interrupted run, or cannot be written.
    """

    def __init__(self, path: Path, numbered: bool = False) -> None:
        try:
            self._pending = PendingRun(path, numbered)
        except FolderError as error:
            raise RunError(str(error)) from None
        self.path, self.partial = self._pending.path, self._pending.partial
        if self.kept:
            self.leave()
            raise RunError(
                f"{self.partial} holds {self.kept} finished epochs of an interrupted run: "
                f"{command('make', 'analyze', f'RUN={self.partial}')} diagnoses them, "
                f"{command('rm', '-r', str(self.partial))} removes them; or choose another RUN"
            )
        try:
            self._pending.clear()
            (self.partial / "registers").mkdir()
            (self.partial / "diagnoses").mkdir()
        except OSError as error:
            self.abandon()
            raise RunError(f"cannot write {path}: {error.strerror}; choose another RUN") from None
        except BaseException:
            self.abandon()
            raise

    @classmethod
    @contextmanager
    def again(cls, run: RunDirectory) -> Iterator[RunWriter]:
        """Yield a writer for parts of a run, which replace the old ones when the block succeeds.

        Raises:
            RunError: Another command is at work there, or it cannot be written.
        """
        mark = run.path / MARK
        try:
            with held(mark if mark.exists() else run.path / "config.json", run.path):
                need_no_links(run.path)
                for left in run.path.glob(".partial-*"):  # of one that was killed
                    shutil.rmtree(left, ignore_errors=True)
                yield from cls._again(run)
        except FolderError as error:
            raise RunError(str(error)) from None

    @classmethod
    def _again(cls, run: RunDirectory) -> Iterator[RunWriter]:
        writer = cls.__new__(cls)
        writer.path = run.path
        try:
            writer.partial = Path(tempfile.mkdtemp(dir=run.path, prefix=".partial-"))
            (writer.partial / "diagnoses").mkdir()
        except OSError as error:
            raise RunError(f"cannot write {run.path}: {error.strerror}") from None
        try:
            yield writer
            writer._replace(run)
        finally:
            shutil.rmtree(writer.partial, ignore_errors=True)

    def _replace(self, run: RunDirectory) -> None:
        try:
            replace(run.path, self.partial)
            if not run.finished:
                seal(run.path)
        except OSError as error:
            raise RunError(f"cannot write {run.path}: {error.strerror or error}") from None

    def table(self, name: str, columns: Columns) -> None:
        """Write a table of `testbed.record.run_tables` (``name`` without suffix, with its folder).

        Raises:
            RunError: It cannot be written, or the columns are not the schema's.
        """
        try:
            write_table(self.partial / f"{name}.parquet", of(name), columns)
        except TableError as error:
            raise RunError(str(error)) from None

    def text(self, name: str, content: str) -> None:
        """Write a text file atomically, replacing an earlier version."""
        try:
            with atomic_write(self.partial / name) as new:
                new.write_text(content)
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror or error}") from None

    def config(self, content: Mapping[str, Any]) -> None:
        """Write ``config.json``, with the version of the record."""
        self.json("config.json", {"record_version": VERSION} | dict(content))

    def json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file of `testbed.record.documents` atomically; raise RunError if that fails."""
        try:
            write_document(self.partial / name, content)
        except DocumentError as error:
            raise RunError(f"cannot write {error}") from None
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror or error}") from None

    @property
    def kept(self) -> int:
        """Return how many finished epochs could be diagnosed if the run ended now."""
        try:
            return int(RunDirectory(self.partial, finished=False).epochs)
        except RunError:
            return 0

    def finish(self) -> None:
        """Write the manifest and move the run to `path`, or to ``path-2`` ... if that is taken."""
        try:
            seal(self.partial)
            self._pending.finish()
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror or error}") from None
        self.path = self._pending.path

    @property
    def finished(self) -> bool:
        """Return True if the run was moved to its final place."""
        return self._pending.finished

    def leave(self) -> None:
        """Release the folder with what was written so far, for other processes."""
        self._pending.leave()

    def abandon(self) -> None:
        """Remove everything written of a run that is not finished."""
        self._pending.abandon()


class RunDirectory:
    """A finished run.

    Args:
        path: The directory.
        finished: False to read a run that is still being written, or was interrupted.
        trust: Whether to read a run even if it was changed after it was finished.

    Attributes:
        config: The content of ``config.json``.
        network: The content of ``network.json``.
        epochs: The number of epochs that were measured.

    `summary` is the content of ``summary.json``.

    Raises:
        RunError: ``path`` is not a complete run directory, is of another version of the record, or
            was changed after the run.
    """

    def __init__(self, path: Path, finished: bool = True, trust: bool = False) -> None:
        self.path = path
        self.finished = finished
        self._harmless: set[str] = set()  # the kinds of tables that were read in a child
        if not path.is_dir():
            raise RunError(f"{path} is not a directory: give the directory of a finished run")
        if finished and path.name.endswith(".partial"):
            raise RunError(f"{path} is an unfinished run: make it again or analyze it")
        self._need(("config.json",))
        _check_version(path)
        self._need((*REQUIRED, "summary.json") if finished else REQUIRED)
        if finished and not trust:
            _check_manifest(path)
        self.config = cast(Config, self._document("config.json"))
        self.network = cast(Network, self._document("network.json"))
        self.epochs = self.network["epochs"]
        if self.epochs > self.config["epochs"]:
            self._wrong("network.json", f"epochs is {self.epochs}, more than requested")
        for name in ("unread", "restarted", "rerouted"):
            if (last := max(dict(self.network.get(name, ())), default=0)) >= self.epochs:
                self._wrong("network.json", f"{name} names epoch {last} of {self.epochs}")
        there = [self.has(registers(epoch)) for epoch in range(self.epochs)]
        if any(there):
            self._need(OF_REGISTERS)
        elif "rules_installed" in self.network:  # its meters counted
            self._need(OF_NO_REGISTERS)
        if any(there) and "unread" not in self.network:
            self._wrong("network.json", "unread is missing")
        if any(there) and not all(there):
            raise RunError(f"{path} is not a complete run, it lacks registers of its epochs")

    @classmethod
    def or_interrupted(
        cls, path: Path, trust: bool = False, *, diagnosed: bool = True
    ) -> RunDirectory:
        """Return a finished run, or the epochs that an interrupted one finished.

        Args:
            path: The directory; that of an interrupted run ends in ``.partial``.
            trust: Whether to read a run even if it was changed after it was finished.
            diagnosed: Whether an interrupted run must have been diagnosed.

        Raises:
            RunError: As the constructor.
        """
        interrupted = path.name.endswith(".partial")
        if interrupted and diagnosed:
            interrupted = (path / "summary.json").is_file()
        return cls(path, not interrupted, trust)

    def _need(self, names: Sequence[str]) -> None:
        missing = [name for name in names if not (self.path / name).is_file()]
        if missing:
            raise RunError(f"{self.path} is not a complete run, it lacks {', '.join(missing)}")

    @property
    def fabric(self) -> Fabric:
        """Return the fabric, whose links are numbered as in the tables."""
        return self._fabric

    @property
    def whole(self) -> Fabric:
        """Return the fabric of the links that have a verdict, see `whole_fabric`."""
        return whole_fabric(self)

    @property
    def segments(self) -> Segments:
        """Return the path segments between monitors, numbered as in the tables."""
        return self._segments

    @cached_property
    def _fabric(self) -> Fabric:
        path = self.path / "fabric.parquet"
        try:
            numbered = read_fabric(path)
        except TableError as error:
            raise RunError(f"{error}: make the run again") from None
        fabric, title = numbered.fabric, self.network["fabric"]
        if (numbered.link_ids != np.arange(fabric.n_links)).any():
            self._wrong("fabric.parquet", "the links are not in order")
        if not isinstance(fabric, PacketFabric) or fabric.title != title:
            if _OWN.fullmatch(title):
                what = f"is {fabric.title}, network.json says {shown(title)}"
                self._wrong("fabric.parquet", what)
            # A Clos with other hosts or addresses may have a fat-tree's switches and links.
            ends = fabric.link_src[::2], fabric.link_dst[::2]
            hosts = self.network.get("hosts_per_tor", 1)
            fabric = Fabric(fabric.switch_names, fabric.tier, *ends, hosts_per_tor=hosts)
        fabric.title = title
        if not self.has(registers(0)) or isinstance(fabric, PacketFabric):
            return fabric
        try:
            return PacketFabric.of(fabric)
        except TopologyError as error:
            self._wrong("fabric.parquet", shortened(plain(str(error))))

    @cached_property
    def _segments(self) -> Segments:
        monitors, seed = self.config["monitors"], self.config["seed"]
        try:
            return segments(Ecmp(self.fabric), monitor_switches(self.fabric, monitors, seed))
        except TopologyError as error:
            self._wrong("config.json", shortened(plain(str(error))))

    def has(self, name: str) -> bool:
        """Return True if a table of `testbed.record.run_tables` was recorded."""
        return (self.path / f"{name}.parquet").is_file()

    def table(self, name: str) -> dict[str, Any]:
        """Return the columns of a table by name: arrays, lists of strings, and `Paths`.

        Raises:
            RunError: The file is missing, damaged or not of the schema (one line).
        """
        schema = of(name)
        self._need_harmless(name)
        try:
            table = read_table(self.path / f"{name}.parquet", schema)
            values = table.columns()
            if not self.finished:
                values = self._of_finished_epochs(schema, values)
            check_references(table, schema, values, self.fabric, self.whole, self._count)
        except TableError as error:
            raise RunError(f"{error}: make the run again") from None
        del table
        free_buffers()
        return values

    def _need_harmless(self, name: str) -> None:
        """Try to read the table and those that are read with it, in one child for all of them.

        Raises:
            RunError: One of them takes too much memory or time.
        """
        diagnoses = name.startswith("diagnoses/")  # those who read them read the rest, too
        if self._harmless >= {"diagnoses" if diagnoses else "tables"}:
            return
        paths = [*self.path.glob("*.parquet"), *self.path.glob("registers/*.parquet")]
        if diagnoses:
            paths += self.path.glob("diagnoses/*.parquet")
        if (harm := trial.harm(paths)) is not None:
            raise RunError(f"{harm}: make the run again")
        self._harmless |= {"tables", "diagnoses"} if diagnoses else {"tables"}

    def _of_finished_epochs(self, schema: Schema, values: dict[str, Any]) -> dict[str, Any]:
        """Return the columns without the rows of an epoch that was interrupted."""
        for column in schema.columns:
            if column.numbers == "epochs" and column.name in values:
                kept = values[column.name] < self.epochs
                values = {name: value[kept] for name, value in values.items()}
        return values

    def _count(self, what: Numbered) -> int | None:
        """Return how many links, switches and so on the run has; None if that is not known."""
        fabric = self.fabric
        match what:
            case "links":
                return fabric.n_links
            case "every link":
                return self.whole.n_links
            case "switches":
                return fabric.n_switches
            case "tors":
                return fabric.n_tors
            case "hosts":  # a fabric file lists no hosts of other fabrics
                known = isinstance(fabric, PacketFabric) or self.network.get("host_links")
                return fabric.n_hosts if known else None
            case "segments":
                return len(self.segments)
            case "epochs":
                return self.epochs
            case _:
                return count_rows(self.path / f"{what}.parquet")

    @cached_property
    def summary(self) -> Summary:
        """Return the scores and costs of all methods; RunError if ``summary.json`` is invalid."""
        summary = cast(Summary, self._document("summary.json"))
        for name in summary["methods"]:  # each names the files of its diagnosis
            if "/" in name or name.startswith(".") or not name.isprintable():
                self._wrong("summary.json", f"methods: {shown(name)} is no name of a method")
        return summary

    @cached_property
    def capture(self) -> Capture | None:
        """Return the content of ``capture.json``; None if no capture was replayed.

        Raises:
            RunError: ``capture.json`` is damaged or not as declared (one line).
        """
        if not (self.path / "capture.json").is_file():
            return None
        return cast(Capture, self._document("capture.json"))

    def _document(self, name: str) -> dict[str, Any]:
        try:
            return read_document(self.path / name)
        except DocumentError as error:
            raise RunError(f"{error}: make the run again") from None

    def _wrong(self, name: str, what: str) -> NoReturn:
        raise RunError(f"{self.path / name}: {what}: make the run again")


def _check_manifest(path: Path) -> None:
    try:
        check(path)
    except ManifestError as error:
        raise RunError(f"{error}: make the run again, or read it as it is with --trust") from None


def _check_version(path: Path) -> None:
    """Raise RunError if the record has another version; this is checked first."""
    try:
        config = read_json(path / "config.json")
    except (OSError, ValueError):
        config = None
    if not isinstance(config, dict):
        raise RunError(f"{path / 'config.json'} is not readable JSON: make the run again")
    found = config.get("record_version")
    if found is not True and found == VERSION:
        return
    newer = isinstance(found, int) and found > VERSION
    origin = "from before records had versions" if found is None else f"of version {shown(found)}"
    what = "use the newer version of this software" if newer else "make the run again"
    raise RunError(f"{path} holds a record {origin}: version {VERSION} is read here: {what}")
