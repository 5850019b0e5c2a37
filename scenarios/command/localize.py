# SPDX-License-Identifier: Apache-2.0
"""Diagnoses telemetry from files, and exports runs as such files."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis.evaluation.ranking import COLUMNS, ranking_columns, render_ranking
from analysis.evaluation.report import parameters_line
from analysis.importers.tables import PLACES, fabric_of_telemetry
from analysis.methods.base import Localizer, diagnose_elsewhere
from analysis.methods.canary import Canary
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.mle.mle import CanaryMle
from analysis.methods.partitions import diagnose_canary, diagnose_mle, load_part, observed_segments
from analysis.methods.registry import BuiltMethod
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.parts import holds_parts, write_parts
from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import MissingTelemetry
from analysis.telemetry.writing import write_observations
from scenarios.experiment.observer import Progress
from scenarios.experiment.terminal import line, wide_console
from scenarios.many.cluster import workers_of
from testbed.record.atomic import held
from testbed.record.fabric_file import NumberedFabric, write_fabric
from testbed.record.files import columns_kind, read_file, table_files, write_columns
from testbed.record.foreign import Receipt, table_in
from testbed.record.outputs import need_folder
from testbed.record.run import RunDirectory, RunError
from testbed.record.run_tables import FABRIC
from testbed.record.schema import TableError

RANKING = columns_kind("ranking", "ranking.parquet", COLUMNS)


@dataclass(frozen=True)
class Verdicts:
    """The diagnoses of methods on telemetry from files.

    Attributes:
        numbered: The fabric, with its links numbered as in its file.
        observations: The number of observations of each kind.
        diagnoses: The diagnosis of each method.
        silent: For each method without a diagnosis, the reason in one line.
        receipt: What it took to read tables as other programs write them, a line for each.
    """

    numbered: NumberedFabric
    observations: Mapping[str, int]
    diagnoses: Mapping[str, Diagnosis]
    silent: Sequence[str]
    receipt: Sequence[str] = ()

    def heading(self) -> str:
        """Return one line with the size of the fabric and the number of observations of each
        kind."""
        fabric = self.numbered.fabric
        counts = ", ".join(f"{n:,} {kind}" for kind, n in self.observations.items())
        return (
            f"{fabric.n_links:,} directed links, {fabric.n_switches:,} switches "
            f"({fabric.n_tors:,} of tier 0); observations: {counts}"
        )

    def figures(self) -> dict[str, Any]:
        """Return the verdicts as values that JSON has: blamed links and switches by name."""
        fabric = self.numbered.fabric
        names = fabric.link_names
        return {
            "links": fabric.n_links,
            "switches": fabric.n_switches,
            "observations": dict(self.observations),
            "receipt": list(self.receipt),
            "methods": {
                name: {
                    "native": each.native,
                    "blamed": [names[link] for link in each.flagged.tolist()],
                    "devices": [fabric.switch_names[device] for device in each.devices.tolist()],
                    "ties": [[names[link] for link in tie] for tie in each.ties],
                    "score": {
                        names[link]: float(each.score[link]) for link in each.flagged.tolist()
                    },
                    "remarks": list(each.remarks),
                    "seconds": each.seconds,
                }
                for name, each in self.diagnoses.items()
            },
            "missing": list(self.silent),
        }

    def write(self, path: Path) -> None:
        """Write the rankings of all methods as Parquet or CSV, by the suffix; see
        `analysis.evaluation.ranking`.

        Raises:
            testbed.record.outputs.FolderError: The path holds something else.
            testbed.record.schema.TableError: The file cannot be written, or has another suffix.
        """
        write_columns(path, ranking_columns(self.diagnoses, self.numbered), RANKING)


def print_verdicts(verdicts: Verdicts, origins: Mapping[str, str], written: str) -> None:
    """Print the ranking of each method, and why others have none.

    Args:
        verdicts: The diagnoses.
        origins: Where the parameters of each method come from.
        written: The file of all rankings, in words; empty if there is none.
    """
    console = wide_console()
    console.print(line(verdicts.heading()))
    for each in verdicts.receipt:
        console.print(line(each, "dim"), soft_wrap=True)
    for name, diagnosis in verdicts.diagnoses.items():
        console.print()
        console.print(render_ranking(name, diagnosis, verdicts.numbered))
    console.print()
    console.print(line(parameters_line(origins), "dim"), soft_wrap=True)
    for reason in verdicts.silent:
        console.print()
        console.print(line(reason, "yellow"))
    if written:
        console.print(line(f"ranking: {written}"), soft_wrap=True)


def localize(
    fabric: Path,
    observations: Path,
    methods: Sequence[BuiltMethod],
    progress: Progress,
    cluster: str | None = None,
    *,
    strict: bool = False,
) -> Verdicts:
    """Diagnose telemetry from files with each method, and return the diagnoses.

    Tables are read as other programs write them (`testbed.record.foreign`), or, if ``strict``, only
    as the record's description has them. Either may be the folder that `export` or `canary import`
    wrote. ``observations`` may be a folder of files, which are one table, or a folder of parts of
    segment counts (`analysis.telemetry.parts`). One worker of this machine, or of ``cluster``
    (`scenarios.many.cluster`), reads and holds each such part.

    Raises:
        testbed.record.schema.TableError: A file is wrong (one line).
        analysis.telemetry.telemetry.MissingTelemetry: The files lack what the methods read.
        ValueError: The cluster does not answer.
    """
    progress("reading", 0.0)
    makers = {each.name: each.method for each in methods}
    receipt = None if strict else Receipt()
    fabric, observations = table_in(fabric, "fabric"), table_in(observations, "observations")
    numbered = fabric_of_telemetry(fabric, receipt)
    if observations.is_dir() and holds_parts(observations):
        return _in_parts(numbered, observations, makers, progress, cluster)
    if cluster is not None:
        raise RunError("CLUSTER= is for telemetry in parts: canary export --parts makes them")
    telemetry = read_observations(observations, numbered, receipt)
    diagnoses: dict[str, Diagnosis] = {}
    silent = []
    for done, (name, method) in enumerate(makers.items()):
        progress(name, done / len(makers))
        try:
            diagnoses[name] = diagnose_elsewhere(method, telemetry)
        except MissingTelemetry as error:
            silent.append(str(error))
    if not diagnoses:
        raise MissingTelemetry("; ".join(silent))
    parts = {
        "active": telemetry.probes,
        "passive": telemetry.flows,
        "connection": telemetry.connections,
        "roundtrip": telemetry.roundtrips,
    }
    counts = {kind: len(part) for kind, part in parts.items() if part is not None}
    if telemetry.segments is not None:
        counts["segment"] = int((telemetry.segments.sent > 0).sum())
    return Verdicts(numbered, counts, diagnoses, silent, receipt.lines() if receipt else ())


def _in_parts(
    numbered: NumberedFabric,
    folder: Path,
    makers: Mapping[str, Localizer],
    progress: Progress,
    cluster: str | None,
) -> Verdicts:
    """Diagnose a folder of parts with each method that can read parts."""
    fabric = numbered.fabric
    if (numbered.link_ids != np.arange(fabric.n_links)).any():
        raise RunError("parts need a fabric file with links numbered 0, 1, 2 by their switches")
    silent = [
        f"{name} needs telemetry in one file: canary and canary-mle read parts"
        for name, method in makers.items()
        if not isinstance(method, Canary | CanaryMle)
    ]
    if len(silent) == len(makers):
        raise MissingTelemetry("; ".join(silent))
    files = [file.absolute() for file in table_files(folder)]
    diagnoses: dict[str, Diagnosis] = {}
    with workers_of(cluster, os.cpu_count() or 1) as workers:
        parts = workers.held(partial(load_part, fabric=fabric), files)
        segments = sum(parts.each(observed_segments))
        for done, (name, method) in enumerate(makers.items()):
            progress(name, done / len(makers))
            begin = time.process_time()
            if isinstance(method, Canary):
                diagnosis = diagnose_canary(parts, method, fabric)
            elif isinstance(method, CanaryMle):
                diagnosis = diagnose_mle(parts, method, fabric)
            else:
                continue
            diagnoses[name] = replace(diagnosis, seconds=time.process_time() - begin)
    return Verdicts(numbered, {"segment": segments}, diagnoses, silent)


def export(
    run: Path, folder: Path, suffix: str, trust: bool = False, *, parts: bool = False
) -> tuple[Path, Path]:
    """Write a run's fabric and telemetry as files of the exchange format; return the paths of both.

    Args:
        suffix: ``.parquet`` or ``.csv``.
        parts: Write Canary's segments alone, in a folder of parts (`analysis.telemetry.parts`).
        trust: Whether to continue if the run was changed after it was finished.

    Raises:
        testbed.record.run.RunError: ``run`` is no complete run, or ``folder`` cannot be written.
        testbed.record.outputs.FolderError: Another command is at work in ``folder``, or it holds
            something else.
        testbed.record.schema.TableError: A file cannot be written.
    """
    try:
        need_folder(folder, exported, "export", "folder")
        telemetry = read_telemetry(RunDirectory(run, trust=trust))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from None
    names = f"fabric{suffix}", ("parts" if parts else f"observations{suffix}")
    with held(folder, folder):
        for left in folder.glob(f"{_PARTIAL}*"):  # of one that was killed
            shutil.rmtree(left, ignore_errors=True)
        there = {path.name for path in folder.iterdir()}
        if there - {names[0]}:  # else an export was killed before its second file was there
            for path in (folder / name for name in names if name in there):
                raise RunError(f"{path} exists already: choose another folder or remove it")
        with tempfile.TemporaryDirectory(dir=folder, prefix=_PARTIAL) as work:
            fabric, observations = (Path(work) / name for name in names)
            try:
                write_fabric(fabric, telemetry.topology)
                if parts:
                    write_parts(observations, telemetry.need("segments", "canary export --parts"))
                else:
                    write_observations(observations, telemetry)
            except TableError as error:  # its reader knows only the folder
                raise TableError(str(error).replace(f"{work}/", f"{folder}/")) from None
            for path in (fabric, observations):  # both are complete
                path.rename(folder / path.name)
    return folder / names[0], folder / names[1]


_PARTIAL = ".partial-"


def exported(folder: Path) -> bool:
    """Return True if a folder holds nothing but what `export` or `canary import` writes, its fabric
    among it."""
    known = {f"{name}.{end}" for name in ("fabric", "observations") for end in ("parquet", "csv")}
    there = {path.name for path in folder.iterdir() if not path.name.startswith(_PARTIAL)}
    fabrics = there & {"fabric.parquet", "fabric.csv"}
    try:
        own = all(read_file(folder / name, FABRIC) is not None for name in fabrics)
    except TableError:
        return False
    return own and bool(fabrics or not there) and there <= known | {"parts", PLACES}
