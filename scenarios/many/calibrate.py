# SPDX-License-Identifier: Apache-2.0
"""Calibration: chooses a method's parameters on training runs, by the same rule for every method.

Training runs are simulated from a list of settings, or are run directories. The defaults were
chosen on the list ``training.yaml``. Each run is simulated once, and seen through each kind of
telemetry that the list names; a method that reads only one part of the telemetry sees each run
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from analysis.evaluation.calibration import GRIDS, RULES, Case, Grid, search
from analysis.evaluation.parameter_sets import Calibrated, Entry, Trained, write_set
from analysis.methods.parameters import NamedMethod, own_values, read_names
from analysis.methods.registry import constructor_of, find_methods
from analysis.methods.variants import split
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import MissingTelemetry
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.observer import Progress
from scenarios.experiment.request import make_request, need_library
from scenarios.experiment.settings import make_settings
from scenarios.experiment.without_packets import simulate
from testbed.errors import UserError
from testbed.fabric.names import nearest
from testbed.record.run import RunDirectory
from testbed.record.truth import failed_devices
from testbed.record.yaml_file import read_yaml

TRAINING = Path(__file__).parents[1] / "training.yaml"
_PARTS = ("segments", "probes", "connections", "detector")
_CLOSED = ConfigDict(extra="forbid")


class TrainingEntry(BaseModel):
    """Training runs that differ only in their seeds; fields that are not listed here are settings.

    Attributes:
        seeds: A seed for each run.
        views: Kinds of telemetry (values of the setting TELEMETRY) through which each run is seen.
        scenario: The name of a scenario in the library.
    """

    model_config = ConfigDict(extra="allow")
    seeds: list[int] = Field(min_length=1)
    views: list[str] = Field(min_length=1)
    scenario: str | None = None


class TrainingList(BaseModel):
    """The content of a training list.

    Attributes:
        common: Settings of all runs; the settings of an entry win over them.
        runs: The entries, each with one or more runs.
    """

    model_config = _CLOSED
    common: dict[str, Any] = Field(default_factory=dict)
    runs: list[TrainingEntry] = Field(min_length=1)


@dataclass(frozen=True)
class TrainingRuns:
    """Training runs: their settings in ``known``, and in ``cases`` a list for each run with a case
    for each kind of telemetry."""

    known: Mapping[str, Any]
    cases: Sequence[Sequence[Case]]


def calibrate(
    methods: str, train: Sequence[Path], out: Path, progress: Progress, rule: str = "f1"
) -> Calibrated:
    """Choose parameters of methods on training runs, write them to a file, and return its content.

    Args:
        methods: Names in the grammar of `analysis.methods.parameters`; a parameter in a name is not
            changed. ``all`` stands for the methods of `GRIDS`.
        train: Training lists, and run directories.
        out: The file that is written. Equal arguments and code give equal bytes.
        rule: The rule that chooses the best setting, see `analysis.evaluation.calibration`.

    Raises:
        ValueError: A method has nothing to calibrate, there is no such rule, or the training runs
            are wrong (one line).
    """
    if rule not in RULES:
        raise UserError(f"RULE={rule!r} is unknown: {nearest(rule, RULES)}")
    chosen = [_method(named) for named in _named(methods)]
    runs = [run for path in train for run in read_training(path, progress)]
    entries = {}
    for number, (name, held) in enumerate(chosen):

        def report_progress(share: float, name: str = name, number: int = number) -> None:
            """Report the share of all methods' work that is done, 0 to 1, from that of this
            method."""
            progress(f"calibrating {name}", (number + share) / len(chosen))

        entries[name] = _entry(name, held, runs, rule, report_progress)
    trained = Trained(rule=rule, runs=[dict(run.known) for run in runs])
    content = Calibrated(methods=entries, trained=trained)
    write_set(out, content)
    return content


def _named(methods: str) -> list[NamedMethod]:
    """Return the methods to calibrate, with the parameters in their names."""
    if methods.strip() == "all":
        return [NamedMethod(name, ()) for name in GRIDS]
    return [named for built in find_methods(methods) for named in read_names(built.name)]


def _method(named: NamedMethod) -> tuple[str, Mapping[str, Any]]:
    """Return a method's name, and the values of parameters that its name fixes."""
    if not _grid(named.name):
        there = nearest(named.name, GRIDS)
        raise UserError(f"{named.name} has no parameters to calibrate: {there}")
    return named.name, own_values(named, constructor_of(named.name))


def _grid(name: str) -> Grid:
    """Return the values to try for each parameter of a method, or of a variant of one."""
    return GRIDS.get(name) or GRIDS.get(split(name)[0], {})


def _entry(
    name: str,
    held: Mapping[str, Any],
    runs: Sequence[TrainingRuns],
    rule: str,
    report_progress: Any,
) -> Entry:
    """Return the best parameters of one method, with its scores on the training cases."""
    make = partial(constructor_of(name), **held)
    cases = _readable(name, held, runs)
    grid = {p: values for p, values in _grid(name).items() if p not in held}
    settings = search(make, grid, cases, report_progress, rule=RULES[rule])
    best = RULES[rule](settings)
    return Entry(
        parameters=dict(held) | {p: _plain(value) for p, value in best.parameters.items()},
        precision=round(best.precision, 4),
        recall=round(best.recall, 4),
        f1=round(best.mean_f1, 4),
        cases=len(cases),
        tried=len(settings),
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _readable(name: str, held: Mapping[str, Any], runs: Sequence[TrainingRuns]) -> list[Case]:
    """Return the cases that a method can read: all kinds of telemetry, or, if it reads one part
    only, each run once."""
    part = getattr(constructor_of(name)(**held), "reads", None)
    found: list[Case] = []
    for views in (views for group in runs for views in group.cases):
        if part in _PARTS:
            found += [case for case in views if getattr(case.telemetry, part) is not None][:1]
        else:
            found += views
    if not found:
        raise MissingTelemetry(f"no training run has the part {part!r}, which {name} reads")
    return found


def read_training(path: Path, progress: Progress) -> list[TrainingRuns]:
    """Return the training runs of a list, which are simulated, or the run in a directory.

    Raises:
        ValueError: ``path`` is neither (one line).
    """
    if path.is_dir():
        run = RunDirectory(path)
        devices = [*failed_devices(run).values()]
        faulty = np.flatnonzero(run.table("links")["faulty"])
        case = Case(read_telemetry(run), faulty, np.array(devices, np.int32))
        settings = ("scenario", "k", "topology", "seed", "faults", "noise", "load", "backend")
        config = cast(Mapping[str, Any], run.config)
        known = {name: config[name] for name in settings if name in config}
        return [TrainingRuns(known | {"views": [run.config["telemetry"]]}, [[case]])]
    absent = f"no training list {path}: give a YAML file or a run's folder"
    content = read_yaml(path, absent, "it has no list named runs").valid(TrainingList)
    runs = []
    for number, entry in enumerate(content.runs):
        progress("training runs", number / len(content.runs))
        try:
            cases = [_simulated(entry, seed, content.common) for seed in entry.seeds]
        except ValueError as error:
            raise UserError(f"{path}: runs[{number}]: {error}") from None
        known = dict(content.common) | entry.model_dump(exclude_none=True)
        runs.append(TrainingRuns(known, cases))
    return runs


def _simulated(entry: TrainingEntry, seed: int, common: Mapping[str, Any]) -> list[Case]:
    """Return the cases of one simulated run, one for each kind of telemetry."""
    given = dict(common) | (entry.model_extra or {}) | {"seed": seed}
    if entry.scenario is not None:
        need_library(entry.scenario)
    request = make_request(entry.scenario, given)
    settings = request.settings("flow")
    for view in entry.views:
        make_settings({}, settings.as_dict() | {"telemetry": view})  # checks the kind
    layout = layout_of(settings, request.scenario, request.name)
    run = simulate(layout)
    devices = np.array(layout.plan.devices, np.int32)
    return [Case(read_telemetry(run, view), layout.plan.links, devices) for view in entry.views]
