"""Telemetry files in, verdicts out; and runs as telemetry files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.evaluation.ranking import ranking_columns
from analysis.methods.base import Diagnosis
from analysis.methods.parameters import DEFAULTS, Parameters
from analysis.methods.registry import make_method
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import MissingTelemetry, Telemetry
from analysis.telemetry.writing import write_observations
from scenarios.experiment import Progress
from testbed.record.columns import write_columns
from testbed.record.fabric_file import NumberedFabric, read_fabric, write_fabric
from testbed.record.places import held
from testbed.record.run import RunDirectory, RunError

__all__ = ["Verdicts", "export", "localize"]


@dataclass(frozen=True)
class Verdicts:
    """What each method says, and why some say nothing."""

    numbered: NumberedFabric
    telemetry: Telemetry
    diagnoses: Mapping[str, Diagnosis]
    silent: Sequence[str]

    def heading(self) -> str:
        """What was read, in a line."""
        t, fabric = self.telemetry, self.numbered.fabric
        parts = {
            "active": t.probes,
            "passive": t.flows,
            "connection": t.connections,
        }
        counts = [f"{len(part):,} {kind}" for kind, part in parts.items() if part is not None]
        if t.segments is not None:
            counts.append(f"{int((t.segments.sent > 0).sum()):,} segment")
        return (
            f"{fabric.n_links:,} directed links, {fabric.n_switches:,} switches "
            f"({fabric.n_tors:,} of tier 0); observations: {', '.join(counts)}"
        )

    def write(self, path: Path) -> None:
        """Write the rankings of all methods as Parquet, see `analysis.evaluation.ranking`.

        Raises:
            testbed.record.schema.TableError: The file cannot be written.
        """
        write_columns(path, ranking_columns(self.diagnoses, self.numbered))


def localize(
    fabric: Path,
    observations: Path,
    methods: Sequence[str],
    progress: Progress,
    parameters: Parameters = DEFAULTS,
) -> Verdicts:
    """Diagnose telemetry from files with each method.

    Methods are named in the grammar of `analysis.methods.parameters`; ``parameters`` are what they
    are made with where that leaves it open.

    Raises:
        testbed.record.schema.TableError: A file is wrong (one line).
        analysis.telemetry.telemetry.MissingTelemetry: No method finds in the files what it needs.
        ValueError: A method does not load.
    """
    progress("reading", 0.0)
    makers = {name: make_method(name, parameters) for name in methods}
    numbered = read_fabric(fabric)
    telemetry = read_observations(observations, numbered)
    diagnoses: dict[str, Diagnosis] = {}
    silent = []
    for done, (name, method) in enumerate(makers.items()):
        progress(name, done / len(makers))
        try:
            diagnoses[name] = method.localize(telemetry)
        except MissingTelemetry as error:
            silent.append(str(error))
    if not diagnoses:
        raise MissingTelemetry("; ".join(silent))
    return Verdicts(numbered, telemetry, diagnoses, silent)


def export(run: Path, folder: Path, suffix: str, trust: bool = False) -> tuple[Path, Path]:
    """Write a run's fabric and telemetry as files of the exchange format.

    Args:
        suffix: ``.parquet`` or ``.csv``.
        trust: Whether to go on if the run was changed after it was finished.

    Raises:
        testbed.record.run.RunError: ``run`` is no complete run, or ``folder`` cannot be written.
        testbed.record.places.PlaceError: Another command is at work in ``folder``.
        testbed.record.schema.TableError: A file cannot be written.
    """
    telemetry = read_telemetry(RunDirectory(run, trust=trust))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from None
    paths = folder / f"fabric{suffix}", folder / f"observations{suffix}"
    with held(folder, folder):
        for path in paths:
            if path.exists():
                raise RunError(f"{path} exists already: choose another folder or remove it")
        try:
            write_fabric(paths[0], telemetry.topology)
            write_observations(paths[1], telemetry)
        except BaseException:  # one without the other is no export
            for path in paths:
                path.unlink(missing_ok=True)
            raise
    return paths
