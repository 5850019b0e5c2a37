# SPDX-License-Identifier: Apache-2.0
"""Makes one run, from its settings to its summary: traffic, emulation, diagnosis and record."""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.evaluation.budgets import measured
from analysis.evaluation.metrics import lossy_links
from analysis.evaluation.report import diagnosis_columns, figures, run_methods
from analysis.methods.base import views_of
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.domain import World
from analysis.methods.registry import METHODS, BuiltMethod, find_methods
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import MissingTelemetry, SegmentCounts
from scenarios.experiment.backends import need_network
from scenarios.experiment.by_epoch import EpochVerdicts
from scenarios.experiment.estimate import Estimate, estimate, need_memory
from scenarios.experiment.inputs import Layout, inputs_of
from scenarios.experiment.loop import emulate
from scenarios.experiment.observer import Observer, Observers, Progress
from scenarios.experiment.without_packets import simulate
from testbed.dataplane import source_digests
from testbed.errors import UserError
from testbed.fabric.names import command, some_of
from testbed.fabric.packet_fabric import PacketFabric
from testbed.faults.plan import noise_range
from testbed.measurements.measurement import Measurement
from testbed.measurements.programs import switch_program
from testbed.measurements.registry import STANDARD, chosen
from testbed.measurements.without_packets import write_run
from testbed.record.documents import Metered, Summary
from testbed.record.files import free_buffers
from testbed.record.run import RunDirectory, RunWriter, segment_columns
from testbed.record.run_tables import registers
from testbed.record.truth import failed_devices, links_with_matches
from testbed.signals import signals_blocked
from testbed.traffic.demand import make_traffic, traffic_file
from testbed.traffic.summary import describe


def default_directory(scenario: str) -> Path:
    """Return the path ``runs/<time>-<scenario>``, the time to the second; `RunWriter` numbers runs
    that begin in the same second."""
    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{Path(scenario).stem}"


@contextmanager
def new_run(path: Path, numbered: bool) -> Iterator[RunWriter]:
    """Return a context manager that gives its block the writer of a new run; if the run is neither
    finished nor left as partial, its files are removed. If it is finished, a note on the exception
    that ends the block says so."""
    writer = None
    try:
        try:
            with signals_blocked():
                writer = RunWriter(path, numbered)
            yield writer
        except BaseException as error:
            if writer is not None and writer.finished and not hasattr(error, "__notes__"):
                error.add_note(f"the run is in {writer.path}")
            raise
        finally:
            _abandon(writer)
    finally:  # an interrupt may have come before the inner block was entered
        _abandon(writer)


def _abandon(writer: RunWriter | None) -> None:
    """Remove the files of a run, unless it was finished or left as partial."""
    if writer is not None:
        with signals_blocked():
            writer.abandon()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Return a context manager that makes cyclic garbage collections rare in its block: a run has
    many objects, most of which live long."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 1_000_000) if before[0] else 0, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def check(layout: Layout) -> None:
    """Check that this machine can make a run, before anything is measured or brought up for it.

    Raises:
        ValueError: It cannot, or the traffic is wrong (one line).
    """
    need_network(layout.network, layout.tcp > 0)
    path = traffic_file(layout.demand.traffic)
    if path is not None and not path.exists() and isinstance(layout.fabric, PacketFabric):
        make_traffic(layout.demand, layout.fabric)  # raises the error of the run


@rare_collections()
def run_experiment(
    layout: Layout,
    place: Path | RunWriter,
    methods: Sequence[BuiltMethod] | None = None,
    observer: Observer = Observer(),
) -> Summary:
    """Make a run, and diagnose it with each method; the run directory appears when all is
    done.

    A run that ends early leaves no files, except in real time: then its finished epochs stay in a
    directory with the suffix ``.partial``, and a note on the exception says so.

    Args:
        layout: What the run consists of.
        place: The path of the run directory, or the run's writer, which knows the final path.
        methods: The methods that diagnose the run; by default those of the testbed.
        observer: Receives the events of the run while it goes on.

    Returns:
        The content of ``summary.json``.

    Raises:
        ValueError: The traffic or the path are wrong, or there is too little memory
            (one line).
        canary_softswitch.SoftSwitchError: There is no C compiler.
    """
    begin = time.perf_counter()
    methods = _own_methods() if methods is None else methods
    writer = place if isinstance(place, RunWriter) else RunWriter(place)
    try:
        need_network(layout.network, layout.tcp > 0)
        flock = any(method.name.startswith("flock") for method in methods)
        measurements = chosen(views_of(each.method for each in methods), layout.measure)
        expected = expected_of(layout, flock, measurements)
        need_memory(expected)
        observer.estimated(expected)
        config = run_config(layout.config, measurements)
        writer.config(config)
        verdicts = EpochVerdicts(methods, config, layout)
        seen = Observers(observer, verdicts) if layout.window else observer
        _measure(layout, measurements, writer, seen)
        if layout.window:
            writer.table("verdicts", verdicts.columns)
        run = RunDirectory(writer.partial, finished=False)
        summary = _diagnose(run, writer, observer.progressed, methods)
        for method, found in verdicts.figures().items():
            summary["methods"][method]["by_epoch"] = found
        with suppress(UserError, OSError):  # the file of the traffic may be gone by now
            summary["flow_sizes"] = describe(layout.demand.traffic, run.table("flows")["sent"])
        summary["wall_seconds"] = round(time.perf_counter() - begin, 3)
        writer.json("summary.json", summary)
        with signals_blocked():
            writer.finish()
    except BaseException as error:
        if writer.finished:
            error.add_note(f"the run is in {writer.path}")
        elif layout.network.real_time and writer.kept:
            error.add_note(
                f"{writer.kept} of {layout.epochs.number} epochs were finished: diagnose them with "
                + command("make", "analyze", f"RUN={writer.partial}")
            )
            writer.leave()
        else:
            writer.abandon()
        raise
    return summary


def _own_methods() -> list[BuiltMethod]:
    """Return the methods of the testbed with their default parameters."""
    return find_methods(",".join(METHODS))


def expected_of(
    layout: Layout, flock: bool = True, measurements: Sequence[Measurement] = STANDARD
) -> Estimate:
    """Return the estimated time and memory of a run.

    Args:
        layout: What the run consists of.
        flock: Whether Flock is among the methods.
        measurements: What is measured.
    """
    plans = [each for one in measurements for each in one.budgets if each.option == "probes"]
    probes = sum(each.probes_each(layout.fabric, 1, layout.limits.probes) for each in plans)
    traced = any(each.view == "connections" for each in measurements)
    traced = traced and "A2" in layout.config["telemetry"].split("+")
    return estimate(layout, probes, flock, traced)


def _measure(
    layout: Layout, measurements: Sequence[Measurement], writer: RunWriter, observer: Observer
) -> None:
    """Make a run with packets or without, and write its record."""
    progress, fabric = observer.progressed, layout.fabric
    if not layout.network.sends_packets:
        write_run(simulate(layout, measurements, progress=progress), writer)
        return
    assert isinstance(fabric, PacketFabric)  # its settings have checked this
    for one in measurements:
        one.need(fabric)
    observer.planned(layout)
    progress("traffic", 0.0)
    traffic, account = make_traffic(layout.demand, fabric, lambda share: progress("traffic", share))
    if account is not None:
        writer.json("capture.json", account.as_dict())
    emulate(inputs_of(layout, traffic, measurements), writer, writer.partial / "logs", observer)


def analyze(
    path: Path,
    progress: Progress,
    trust: bool = False,
    methods: Sequence[BuiltMethod] | None = None,
) -> Summary:
    """Diagnose a run again, replace its diagnoses and its summary, and return the summary.

    For the ``.partial`` directory of an interrupted run, its finished epochs are diagnosed.

    Args:
        trust: Whether to continue if the run was changed after it was finished. The manifest still
            reports these changes afterwards.
        methods: The methods that diagnose the run; by default those of the testbed.

    Raises:
        testbed.record.run.RunError: ``path`` is no complete run, or cannot be written.
    """
    run = RunDirectory.or_interrupted(path, trust, diagnosed=False)
    with RunWriter.again(run) as writer:
        chosen = _own_methods() if methods is None else methods
        summary = _diagnose(run, writer, progress, chosen)
        if (path / "summary.json").is_file():
            summary["wall_seconds"] = run.summary["wall_seconds"]
            for name, entry in run.summary["methods"].items():
                if name in summary["methods"] and (found := entry.get("by_epoch")) is not None:
                    summary["methods"][name]["by_epoch"] = found
            if (sizes := run.summary.get("flow_sizes")) is not None:
                summary["flow_sizes"] = sizes
        writer.json("summary.json", summary)
    return summary


# Long: the summary has many fields, which need the results of all steps.
def _diagnose(
    run: RunDirectory,
    writer: RunWriter,
    progress: Progress,
    methods: Sequence[BuiltMethod],
) -> Summary:
    """Diagnose a run with each method, write the diagnoses, and return the summary."""
    config, network = run.config, run.network
    telemetry = read_telemetry(run)
    free_buffers()
    if telemetry.segments is not None and run.has(registers(0)):
        counts = telemetry.segments
        writer.table("segments", segment_columns(counts.sent, counts.lost))
    done = 0

    def report_progress(method: str) -> None:
        """Report that the next method, ``method``, begins."""
        nonlocal done
        progress(f"diagnosis: {method}", done / len(methods))
        done += 1

    diagnoses: dict[str, Diagnosis] = {}
    missing = []
    for method in methods:
        try:
            diagnoses |= run_methods(telemetry, [method], report_progress)
        except MissingTelemetry as error:
            missing.append(str(error))
    _write(diagnoses, run, writer)
    use, links = measured(run, telemetry), run.table("links")
    truth, lost = np.flatnonzero(links["faulty"]), _lossy(run, links)
    unmet = _unmet(run, links)
    world = World(
        links=telemetry.topology.n_links,
        faulty=len(truth),
        healthy_loss=noise_range(str(config["noise"]))[1] if "noise" in config else None,
        devices=len(failed_devices(run)),
        routing=str(config.get("routing", "ecmp")),
    )
    summary: Summary = {
        "scenario": config["scenario"],
        "k": config["k"],
        "seed": config["seed"],
        "topology": telemetry.topology.title,
        "backend": config["backend"],
        "links": telemetry.topology.n_links,
        "faulty_links": [links["name"][link] for link in truth],
        "rates": {links["name"][link]: float(links["rate"][link]) for link in truth},
        "failed_devices": _failed_devices(run, links),
        "wall_seconds": 0.0,
        "degraded": network["degraded"] + _early(run),
        "collection_seconds": network["collection_seconds"],
        "packet_hops": network["packet_hops"],
        "conservation": network["conservation"],
        "epochs": network["epochs"],
        "missing": missing + _unmet_messages([links["name"][link] for link in unmet]),
        "measured": {name: part for name, part in use.items()},
        "methods": figures(diagnoses, methods, telemetry, truth, lost, use, unmet, world),
    }
    if matched := links_with_matches(run):
        summary["matched_links"] = matched
    if lost is not None:
        summary["lost_links"] = [links["name"][link] for link in lost]
    if (counts := telemetry.segments) is not None:
        summary["metered"] = _metered(counts)
    if (slowdown := network.get("slowdown", 1.0)) > 1:
        summary["slowdown"] = slowdown
    if events := network.get("events"):
        summary["events"] = events
    if run.capture is not None:
        summary["capture"] = run.capture
    return summary


def _write(diagnoses: Mapping[str, Diagnosis], run: RunDirectory, writer: RunWriter) -> None:
    """Write a table for each diagnosis, and one for 007's causes of connections' losses."""
    for name, diagnosis in diagnoses.items():
        writer.table(f"diagnoses/{name}", diagnosis_columns(diagnosis, run.whole))
        if diagnosis.connection_cause is not None:
            cause = {"flow": run.table("connections")["flow"], "cause": diagnosis.connection_cause}
            writer.table(f"diagnoses/{name}-connections", cause)


def _lossy(run: RunDirectory, links: Mapping[str, Any]) -> npt.NDArray[np.integer] | None:
    """Return the links that really lost packets, int[n], or None if the emulator drops none
    itself."""
    if not run.has("emulator_drops"):
        return None
    own = run.table("emulator_drops")["link"]
    return lossy_links(links["faulty"], links["fault_drops"], own[own >= 0])


def _unmet(run: RunDirectory, links: Mapping[str, Any]) -> npt.NDArray[np.integer]:
    """Return the faulty links that no packet crossed, or no packet that their faults match."""
    matched = np.isin(np.array(links["name"], object), links_with_matches(run))
    met = (links["packets"] > 0) & ~(matched & (links["fault_drops"] == 0))
    return np.flatnonzero(links["faulty"] & ~met)


def _unmet_messages(names: Sequence[str]) -> list[str]:
    """Return the message about faults that no packet met, or an empty list if there are none."""
    if not names:
        return []
    return [
        f"no packet was hit by the fault of {some_of(names)}, so it cannot be observed: use a "
        "wider match in FAULTS or more LOAD, unless another link on the way loses all packets"
    ]


def _failed_devices(run: RunDirectory, links: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return, for each failed switch, the lowest and the highest loss rate of its faulty links."""
    found = {}
    for name, device in failed_devices(run).items():
        own = run.fabric.links_of(device)
        rates = links["rate"][own[links["faulty"][own]]]
        if len(rates):
            found[name] = float(rates.min()), float(rates.max())
    return found


def _metered(counts: SegmentCounts) -> Metered:
    """Return the packets that the meters counted and that were lost, and the number of measured
    segments."""
    return {
        "packets": int(counts.sent.sum()),
        "lost": int(counts.lost.sum()),
        "segments": int((counts.sent > 0).any(axis=0).sum()),
    }


def _early(run: RunDirectory) -> list[str]:
    """Return a message if the run ended before its last epoch, else an empty list."""
    asked = run.config["epochs"]
    return [f"it ended after {run.epochs} of {asked} epochs"] if run.epochs < asked else []


def run_config(
    settings: Mapping[str, Any], measurements: Sequence[Measurement] = STANDARD
) -> dict[str, Any]:
    """Return the content of ``config.json``: ``settings`` by name with the scenario, what is
    measured, and versions of the software."""
    config = dict(settings)
    config["measurements"] = [each.name for each in measurements]
    del config["threads"]  # it changes no result: equal runs have equal records
    packages = ("canary-testbed", "numpy", "pyarrow")
    config["versions"] = {"python": platform.python_version()}
    config["versions"] |= {package: version(package) for package in packages}
    program = switch_program(measurements, settings["routing"])
    config["p4_sources_sha256"] = source_digests(program)
    return config
