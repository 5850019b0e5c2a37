"""One run from settings to summary: make the traffic, emulate, diagnose, write it all down."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from analysis.evaluation.report import diagnosis_columns, figures, run_methods
from analysis.methods.base import Diagnosis
from analysis.methods.registry import METHODS
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import MissingTelemetry
from scenarios.backends import open_backend
from scenarios.epochs.loop import run as run_epochs
from scenarios.epochs.setup import set_up
from scenarios.flow import simulate, write_run
from scenarios.scenario import Scenario
from scenarios.settings import Settings
from scenarios.traffic import make_traffic
from testbed.dataplane import source_digests
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.topologies import make_fabric
from testbed.faults.plan import FaultPlan
from testbed.record.run import RunDirectory, RunWriter, segment_columns
from testbed.record.schema import registers

__all__ = ["Progress", "analyze", "default_directory", "run_config", "run_experiment"]


class Progress(Protocol):
    """Hears what a run is doing and how far it is."""

    def __call__(self, what: str, share: float) -> None: ...


def default_directory(scenario: str) -> Path:
    """``runs/<time>-<scenario>``."""
    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{Path(scenario).stem}"


def run_experiment(
    name: str,
    scenario: Scenario,
    settings: Settings,
    path: Path,
    progress: Progress,
    methods: Sequence[str] = tuple(METHODS),
) -> dict[str, Any]:
    """Emulate, diagnose with each method; the run directory appears at ``path`` when all is done.

    A run that ends early leaves nothing, unless it took real time: then its finished epochs stay in
    ``path`` with the suffix ``.partial``, and a note on the exception says so.

    Returns:
        The content of ``summary.json``.

    Raises:
        ValueError: Faults, traffic, or the place of the run are wrong (one line).
        testbed.softswitch.SoftSwitchError: There is no C compiler.
    """
    begin = time.perf_counter()
    topology = make_fabric(settings.topology, settings.k, settings.seed)
    plan = scenario.make_faults(topology, settings)
    writer = RunWriter(path)
    try:
        writer.config(run_config(name, settings))
        if settings.backend == "flow":
            write_run(simulate(settings, plan, topology, progress=progress), writer)
        else:
            _emulate(scenario, settings, plan, writer, progress)
        run = RunDirectory(writer.partial, finished=False)
        summary = _diagnose(run, writer, progress, methods)
        summary["wall_seconds"] = round(time.perf_counter() - begin, 3)
        writer.json("summary.json", summary)
        writer.finish()
    except BaseException as error:
        if settings.real_time and writer.kept:
            error.add_note(
                f"{writer.kept} of {settings.epochs} epochs were finished: diagnose them with "
                f"make analyze RUN={writer.partial}"
            )
        else:
            writer.abandon()
        raise
    return summary


def _emulate(
    scenario: Scenario, settings: Settings, plan: FaultPlan, writer: RunWriter, progress: Progress
) -> None:
    progress("traffic", 0.0)
    traffic = make_traffic(settings, FatTree(settings.k))
    progress("switches", 0.0)
    with open_backend(settings, scenario.links, writer.partial / "logs") as backend:
        emulation = set_up(settings, plan, traffic, backend)
        run_epochs(emulation, writer, lambda share: progress("emulation", share))


def analyze(path: Path, progress: Progress) -> dict[str, Any]:
    """Diagnose a run again and replace its diagnoses and summary.

    Of an interrupted run that left its ``.partial`` directory the finished epochs are diagnosed.

    Raises:
        testbed.record.run.RunError: ``path`` is no complete run, or cannot be written.
    """
    run = RunDirectory(path, finished=not path.name.endswith(".partial"))
    with RunWriter.again(run) as writer:
        summary = _diagnose(run, writer, progress, tuple(METHODS))
        if (path / "summary.json").is_file():
            summary["wall_seconds"] = run.json("summary.json")["wall_seconds"]
        writer.json("summary.json", summary)
    return summary


def _diagnose(
    run: RunDirectory, writer: RunWriter, progress: Progress, methods: Sequence[str]
) -> dict[str, Any]:
    config, network = run.config, run.network
    telemetry = read_telemetry(run)
    if telemetry.segments is not None and run.has(registers(0)):
        counts = telemetry.segments
        writer.table("segments", segment_columns(counts.sent, counts.lost))
    done = 0

    def tell(method: str) -> None:
        nonlocal done
        progress(f"diagnosis: {method}", done / len(methods))
        done += 1

    diagnoses: dict[str, Diagnosis] = {}
    missing = []
    for name in methods:
        try:
            diagnoses |= run_methods(telemetry, [name], tell)
        except MissingTelemetry as error:
            missing.append(str(error))
    for name, diagnosis in diagnoses.items():
        columns = diagnosis_columns(diagnosis, telemetry.topology)
        writer.table(f"diagnoses/{name}", columns)
        if diagnosis.connection_cause is not None:
            cause = {"flow": run.table("connections")["flow"], "cause": diagnosis.connection_cause}
            writer.table(f"diagnoses/{name}-connections", cause)
    links = run.table("links")
    truth = np.flatnonzero(links["faulty"])
    return {
        "scenario": config["scenario"],
        "k": config["k"],
        "seed": config["seed"],
        "topology": telemetry.topology.title,
        "backend": config["backend"],
        "faulty_links": [links["name"][link] for link in truth],
        "wall_seconds": 0.0,
        "degraded": network["degraded"] + _early(run),
        "collection_seconds": network["collection_seconds"],
        "packet_hops": network["packet_hops"],
        "conservation": network["conservation"],
        "missing": missing,
        "methods": figures(diagnoses, telemetry, truth),
    }


def _early(run: RunDirectory) -> list[str]:
    asked = run.config["epochs"]
    return [f"it ended after {run.epochs} of {asked} epochs"] if run.epochs < asked else []


def run_config(name: str, settings: Settings) -> dict[str, Any]:
    """The content of ``config.json``: settings, scenario and versions."""
    config = settings.as_dict() | {"scenario": Path(name).stem}
    packages = ("canary-testbed", "numpy", "numba", "pyarrow")
    config["versions"] = {"python": platform.python_version()}
    config["versions"] |= {package: version(package) for package in packages}
    config["p4_sources_sha256"] = source_digests()
    return config
