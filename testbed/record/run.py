"""The run directory: the seam between what happened and what a method says about it.

    config.json            resolved configuration, seed and versions
    truth.yaml             the faults that were injected
    switches.parquet       name, 48-bit ID, pathBF mask, address, monitor or not
    links.parquet          per directed fabric link: faulty, packets, fault and queue drops
    registers/epoch-000.parquet ...   non-empty buckets of every monitor switch's meters
    rules.parquet          flows monitored in each epoch, with their segment
    flows.parquet          5-tuple, hosts, packets sent and lost, as the end hosts see them
    probes.parquet         NetBouncer's probes: host, core, sent, lost
    detector.parquet       deTector's probes: path, hosts, sent, lost, a row a pair of hosts
    network.json           packet-hops, conservation, rules installed, switches that were not read
    connections.parquet    007: connections with loss and the links traceroute found
    drops.parquet          the network's own record of every packet lost
    segments.parquet       packets sent and lost on each segment and epoch
    diagnoses/*.parquet    per method: flagged links, estimated rates, ranking
    summary.json           the figures

A run without packets (BACKEND=flow) has no switches, registers, rules and drops. Its probes are
over the paths of `testbed.fabric.ecmp.Ecmp.bounces`, by each host of a ToR, deTector's by no host
in particular; its flows have their path instead of a 5-tuple and host, and its connections refer to
them; its segments are measured.

A run is written beside its final place and moved there when it is complete, so a directory without
the suffix ``.partial`` is a finished run. A run in real time writes its tables after every epoch:
if it is interrupted, its ``.partial`` directory holds the epochs it finished and can be diagnosed
(`network.json` says how many). Tables are Parquet, link and segment columns are indices of
`testbed.fabric.fat_tree`; equal runs give equal bytes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from testbed.fabric.paths import Paths

__all__ = ["REQUIRED", "RunDirectory", "RunError", "RunWriter"]

REQUIRED = (
    "config.json",
    "truth.yaml",
    "links.parquet",
    "flows.parquet",
    "probes.parquet",
    "detector.parquet",
    "connections.parquet",
    "network.json",
)
OF_PACKETS = ("switches.parquet", "rules.parquet")
OF_FLOWS = ("segments.parquet",)

Columns = Mapping[str, "npt.NDArray[Any] | list[str] | Paths"]


class RunError(ValueError):
    """A run directory cannot be written, or is no complete run."""


def _to_arrow(column: npt.NDArray[Any] | list[str] | Paths) -> pa.Array:
    if isinstance(column, Paths):
        offsets = pa.array(column.ptr.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array(column.links))
    return pa.array(column)


def write_table(path: Path, columns: Columns) -> None:
    """Write equally long columns as Parquet; `Paths` become lists of link ids."""
    table = pa.table({name: _to_arrow(column) for name, column in columns.items()})
    pq.write_table(table, path, compression="zstd")


def read_table(path: Path) -> dict[str, Any]:
    """Read a table of `write_table`: arrays by column name, lists as `Paths`.

    Raises:
        RunError: The file is missing or is not Parquet.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else "is not readable Parquet"
        raise RunError(f"{path} {reason}: make the run again") from None
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        if pa.types.is_list(column.type):
            links = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.int32)
            lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False))
            ptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
            columns[name] = Paths(ptr, links)
        elif pa.types.is_string(column.type):
            columns[name] = column.to_pylist()
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return columns


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
        """Write ``name`` (without suffix, may hold a folder) as Parquet."""
        with self._replacing(f"{name}.parquet") as new:
            write_table(new, columns)

    def text(self, name: str, content: str) -> None:
        with self._replacing(name) as new:
            new.write_text(content)

    @contextmanager
    def _replacing(self, name: str) -> Iterator[Path]:
        """A file is there whole or not at all, also when it is written once more."""
        try:
            new = self.partial / f"{name}.new"
            yield new
            new.replace(self.partial / name)
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror or error}") from None

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
        epochs: How many epochs were measured.

    Raises:
        RunError: ``path`` is not a complete run directory.
    """

    def __init__(self, path: Path, finished: bool = True) -> None:
        self.path = path
        if not path.is_dir():
            raise RunError(f"{path} is not a directory: give the directory of a finished run")
        if finished and path.name.endswith(".partial"):
            raise RunError(f"{path} is a run that did not finish: make it again, or analyze it")
        required = (*REQUIRED, "summary.json") if finished else REQUIRED
        self._need(required)
        self.config: dict[str, Any] = self.json("config.json")
        self.epochs = int(self.json("network.json").get("epochs", -1))
        packets = self.config.get("backend") != "flow"
        self._need(OF_PACKETS if packets else OF_FLOWS)
        lacking = [e for e in range(self.epochs) if packets and not self._registers(e).is_file()]
        if self.epochs < 1 or lacking:
            raise RunError(f"{path} is not a complete run, it lacks registers of its epochs")

    def _need(self, names: Sequence[str]) -> None:
        missing = [name for name in names if not (self.path / name).is_file()]
        if missing:
            raise RunError(f"{self.path} is not a complete run, it lacks {', '.join(missing)}")

    def _registers(self, epoch: int) -> Path:
        return self.path / "registers" / f"epoch-{epoch:03d}.parquet"

    def table(self, name: str) -> dict[str, Any]:
        return read_table(self.path / f"{name}.parquet")

    def registers(self, epoch: int) -> dict[str, Any]:
        """The register dump of an epoch, columns as `control.collection.RegisterDump`."""
        return read_table(self._registers(epoch))

    def json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            raise RunError(f"{self.path / name} is not readable JSON: make the run again") from None
