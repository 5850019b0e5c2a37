# SPDX-License-Identifier: Apache-2.0
"""Implements ``canary compare``: one comparison, or one for each value of a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.evaluation.parameter_sets import choose_methods
from analysis.evaluation.report import capture_line
from analysis.methods.parameters import Parameters
from analysis.methods.registry import REFERENCE, BuiltMethod, build
from scenarios.command.arguments import parse_seeds
from scenarios.command.compilers import need_compiler
from scenarios.command.gates import Gate
from scenarios.command.options import GivenOptions
from scenarios.command.results import Output
from scenarios.command.show import (
    comparison_figures,
    offer_page,
    print_comparison,
    print_sweep,
    show_comparison_screen,
    sweep_figures,
)
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.observer import Progress
from scenarios.experiment.pace import at_this_pace
from scenarios.experiment.request import make_request
from scenarios.experiment.run import check
from scenarios.experiment.settings import Settings, SettingsError
from scenarios.experiment.terminal import line, progress_bar, wide_console
from scenarios.extras import NO_PICTURE, can_draw
from scenarios.many.compare import compare, default_folder, read_comparison
from scenarios.many.sweep import parse_sweep, read_sweep, run_sweep, sweep_folder
from scenarios.process.namespace import enter
from scenarios.process.signals import exit_on_signals
from testbed.cores import usable_cores
from testbed.fabric.names import plain


@dataclass(frozen=True)
class _Runs:
    """The part of a command that all its comparisons share."""

    name: str
    seeds: list[int]
    methods: Sequence[BuiltMethod]
    parameters: Parameters
    cluster: str | None


def compare_seeds(
    given: GivenOptions,
    *,
    scenario: str | None,
    config: Path | None,
    seeds: str,
    methods: str,
    out: Path | None,
    parameters: str,
    fault_rate: float | None,
    cluster: str | None,
    sweep: str | None,
    sudo: bool,
    output: Output,
    gate: Gate,
) -> bool:
    """Run and print the comparisons that the options of ``canary compare`` ask for; return True if
    a seed failed or a method does not pass the gate. ``fault_rate`` is the loss rate from which on
    a link is called faulty, and ``output`` what is printed."""
    if "seed" in given.settings:
        raise SettingsError("SEED is for one run: use SEEDS=1-20, or a list")
    every = parse_seeds(seeds)
    need_compiler()
    named, chosen = choose_methods(methods, parameters, fault_rate)
    if all(each.name != REFERENCE for each in named):
        named.append(build(REFERENCE, chosen))
    gate.need_methods(each.name for each in named)

    def settings(more: Mapping[str, str]) -> Settings:
        """Return the requested settings changed by ``more``, at the pace of all runs. If a run
        has a network of real packets, the command is started again where it can have one."""
        request = make_request(scenario, dict(given.settings) | dict(more), config)
        made = request.settings()
        enter(made.network, sudo, from_environment=given.environment)
        layout = layout_of(made, request.scenario, request.name)
        check(layout)
        # All runs of a comparison have the same pace, even if some are made on another day.
        return at_this_pace(made, layout, request.named, usable_cores())

    name = make_request(scenario, {}, config).name
    runs = _Runs(name, every, named, chosen, cluster)
    if sweep is None:
        with output.working():
            one = settings({})
            given.print_environment()
        return _one(runs, output, gate, one, out or default_folder(name, one, named, chosen))
    setting, values = parse_sweep(sweep)
    if setting in given.settings:
        raise SettingsError(f"{setting.upper()} is swept: leave out {setting.upper()}=")
    with output.working():
        by_value = {value: settings({setting: value}) for value in values}
        given.print_environment()
    first = by_value[values[0]]
    folder = out or sweep_folder(name, setting, first, named, chosen)
    return _swept(runs, output, gate, setting, by_value, folder)


def _one(runs: _Runs, output: Output, gate: Gate, settings: Settings, folder: Path) -> bool:
    """Run and print one comparison; return True if a seed failed or a method is under its bar."""
    with output.working(), progress_bar() as progress:
        result = compare(
            runs.name,
            settings,
            runs.seeds,
            runs.methods,
            folder,
            progress,
            runs.parameters,
            runs.cluster,
        )
    exit_on_signals(plain(f"the figures are in {folder}"))
    offered, found = offer_page(folder), read_comparison(folder)

    def show() -> None:
        """Print the comparison for a reader."""
        console = wide_console()
        if result.capture is not None and output.verbose:
            console.print(line(capture_line(result.capture)), soft_wrap=True)
        if output.verbose:
            print_comparison(result.rows, console)
        for seed, reason in result.failures.items():
            console.print(line(f"seed {seed} failed: {reason}", "red"))
        drawn = can_draw()
        if not drawn:
            console.print(line(NO_PICTURE, "yellow"), soft_wrap=True)
        if output.verbose:
            places = f"{folder}/results.parquet" + f", {folder}/f1.png" * drawn
            console.print(line(places), soft_wrap=True)
            console.print(line(offered), soft_wrap=True)
        else:
            show_comparison_screen(found, offered, console)

    output.show(folder, lambda: comparison_figures(found), show)
    passed = gate.passes(str(folder), comparison_figures(found))
    return bool(result.failures) or not passed


def _swept(
    runs: _Runs,
    output: Output,
    gate: Gate,
    setting: str,
    by_value: Mapping[str, Settings],
    folder: Path,
) -> bool:
    """Run and print a comparison for each value of a setting; return True if a seed failed or a
    method is under its bar."""

    def compare_at(value: str, place: Path, progress: Progress) -> Mapping[int, str]:
        """Run the comparison of a value in the folder ``place``; return why seeds failed, by number
        of the seed."""
        return compare(
            runs.name,
            by_value[value],
            runs.seeds,
            runs.methods,
            place,
            progress,
            runs.parameters,
            runs.cluster,
        ).failures

    with output.working(), progress_bar() as progress:
        failures = run_sweep(setting, list(by_value), folder, compare_at, progress)
    exit_on_signals(plain(f"the figures are in {folder}"))
    offered, found = offer_page(folder), read_sweep(folder)

    def show() -> None:
        """Print the sweep for a reader."""
        console = wide_console()
        print_sweep(found, console)
        for (value, seed), reason in failures.items():
            console.print(line(f"{setting.upper()}={value}, seed {seed} failed: {reason}", "red"))
        text = f"{folder}: a comparison for each {setting.upper()}"
        console.print(line(text), soft_wrap=True)
        console.print(line(offered), soft_wrap=True)

    output.show(folder, lambda: sweep_figures(found), show)
    passed = gate.passes(str(folder), sweep_figures(found))
    return bool(failures) or not passed
