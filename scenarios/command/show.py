# SPDX-License-Identifier: Apache-2.0
"""Shows runs and comparisons: as tables in the terminal, and as a page each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from analysis.evaluation.comparison import (
    COLUMNS,
    MEANS,
    bench_in,
    chosen,
    comparison_cells,
    comparison_table,
    defined,
    degraded_lines,
    degraded_seeds,
    good_seeds,
    in_short,
    mean_of,
    method_names,
    origins,
)
from analysis.evaluation.intervals import interval
from analysis.evaluation.report import parameters_line, render
from analysis.evaluation.sweep import sweep_tables
from analysis.methods.registry import METHODS, REFERENCE
from analysis.pages.comparison_page import comparison_page, sweep_page
from analysis.pages.run_page import run_page
from analysis.pages.template import write_page
from scenarios.command.arguments import in_ranges
from scenarios.experiment.errors import message_of
from scenarios.experiment.observer import Progress
from scenarios.experiment.request import load_scenario, scenario_names
from scenarios.experiment.settings import described, make_settings
from scenarios.experiment.terminal import line, wide_console
from scenarios.many.compare import Compared, is_comparison, read_comparison
from scenarios.many.sweep import Sweep, is_sweep, read_sweep
from testbed.errors import UserError
from testbed.fabric.names import command, plain
from testbed.record.atomic import need_no_links
from testbed.record.manifest import PAGE
from testbed.record.run import RunDirectory
from testbed.traffic.demand import capture_file
from testbed.traffic.summary import describe

REPRODUCED = "setting.json"
"""The file that marks the folder of an experiment, see `scenarios.papers.reproduce`."""


def make_page(
    directory: Path,
    trust: bool = False,
    over_time: bool = False,
    progress: Progress = lambda what, share: None,
) -> Path:
    """Write the page of a run or a comparison into its directory, and return the page's path.

    Args:
        trust: Whether to read the run even if its files were changed after it ended.
        over_time: Whether to show the diagnosis after each epoch, even if that takes a while.

    Raises:
        ValueError: There is no such run or comparison, it is damaged, or has a link in it (one
            line).
        OSError: The page cannot be written.
    """
    need_no_links(directory)
    if (directory / REPRODUCED).is_file():
        from scenarios.papers.reproduce import page_again  # importing it takes a second

        return page_again(directory)
    if is_sweep(directory):
        write_page(directory / PAGE, _page_of_sweep(read_sweep(directory)))
        return directory / PAGE
    if is_comparison(directory):
        found = read_comparison(directory)
        text = comparison_page(found.rows, found.key, again_all(found), directory)
        write_page(directory / PAGE, text)
        return directory / PAGE
    run = RunDirectory(directory, not directory.name.endswith(".partial"), trust)
    text = run_page(run, again(run.config, run.summary["methods"]), over_time, progress)
    write_page(directory / PAGE, text)
    return directory / PAGE


def figures_of(directory: Path, trust: bool = False) -> Mapping[str, Any]:
    """Return the content of a run's ``summary.json``, or the figures of a comparison or sweep.

    Raises:
        ValueError: There is no such run or comparison, or it is damaged (one line).
    """
    if is_sweep(directory):
        return sweep_figures(read_sweep(directory))
    if is_comparison(directory):
        return comparison_figures(read_comparison(directory))
    return RunDirectory(directory, trust=trust).summary


def show_figures(directory: Path, trust: bool = False) -> None:
    """Print the table of a run, comparison or sweep. Raises as `figures_of`."""
    if is_sweep(directory):
        print_sweep(read_sweep(directory), wide_console())
    elif is_comparison(directory):
        print_comparison(read_comparison(directory).rows, wide_console())
    else:
        render(figures_of(directory, trust), Console())


def offer_page(directory: Path) -> str:
    """Write the page of what has just ended; return one line with its path or the reason why there
    is none."""
    try:
        return f"page: {make_page(directory, trust=True)}"
    except (UserError, OSError) as error:  # the run itself is complete without its page
        return f"no page: {message_of(error)}"


def traffic_of(directory: Path) -> str:
    """Return one line on the sizes of the flows of a run that has just ended."""
    try:
        run = RunDirectory(directory, trust=True)
        traffic = str(dict(run.config)["traffic"])
        capture = capture_file(traffic) is not None
        sent = run.table("flows")["sent"] if capture else np.zeros(0, np.int64)
        return describe(traffic, sent)
    except (UserError, OSError) as error:
        return message_of(error)


def again(config: Mapping[str, Any], methods: Mapping[str, Any]) -> str:
    """Return the command that makes a run again, with the settings that differ from the defaults.

    Args:
        methods: The entry ``methods`` of the run's summary.
    """
    had = {
        name: (entry.get("parameters", ""), entry.get("parameters_from", "default"))
        for name, entry in methods.items()
    }
    words = [*_settings(config), f"SEED={config['seed']}", *_methods(had)]
    return command("make", "scenario", *words)


def _page_of_sweep(sweep: Sweep) -> str:
    """Return the page of a sweep; also write the pages of its comparisons, which it links to."""
    for part in sweep.parts:
        make_page(part.folder)
    parts = [(part.rows, part.key, part.folder.name) for part in sweep.parts]
    again = again_all(sweep.parts[0], (sweep.setting, sweep.values))
    return sweep_page(sweep.setting.upper(), sweep.values, parts, again, sweep.folder)


def again_all(found: Compared, swept: tuple[str, Sequence[str]] = ("", ())) -> str:
    """Return the command that makes a comparison again, with its seeds; for a sweep with the
    setting and its values."""
    had = {name: (e["values"], e["from"]) for name, e in found.key["parameters"].items()}
    had.pop(REFERENCE, None)  # every comparison includes it
    setting, values = swept
    own = f"{setting.upper()}="
    words = [word for word in _settings(found.key) if not setting or not word.startswith(own)]
    if setting:
        between = ";" if any("," in value for value in values) else ","
        words.append(f"SWEEP={own}{between.join(values)}")
    words += [f"SEEDS={in_ranges(found.seeds)}", *_methods(had)]
    return command("make", "compare", *words)


def _settings(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings but the seed, as words for make."""
    name = config["scenario"]
    known = name in scenario_names()
    own = load_scenario(name).defaults if known else {}
    had = {s.name: config[s.name] for s in described() if s.name in config}
    idle = make_settings({}, had).ignored
    yield f"SCENARIO={name if known else name + '.py'}"
    for setting in described():
        if setting.name not in config or setting.name in idle or setting.name == "seed":
            continue
        value = config[setting.name]
        usual = setting.on.get(config["backend"], setting.default)
        if value != usual or setting.name in own or setting.name in ("k", "backend"):
            yield f"{setting.name.upper()}={value}"


def _methods(had: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield the word METHODS for make, unless the methods are those of the testbed with their
    defaults.

    Args:
        had: For each method, by the name that was given, its parameters and their origin.
    """
    named = [
        name
        if not values or origin in ("default", "default, as named")
        else f"{name.partition(':')[0]}:{values}"
        for name, (values, origin) in had.items()
    ]
    if named and named != list(METHODS):
        yield f"METHODS={','.join(named)}"


def print_comparison(rows: Mapping[str, Any], console: Console) -> None:
    """Print the table of a comparison, its setting, and the parameters of the methods."""
    console.print(comparison_table(rows), width=min(console.width, 80))
    for text in (*in_short(rows).split("\n"), parameters_line(origins(rows))):
        console.print(line(text, "dim"), soft_wrap=True)


def comparison_figures(found: Compared) -> dict[str, Any]:
    """Return the figures of a comparison for programs: the means by method, the degraded seeds that
    no mean has, and a row for each seed and method."""
    names = [name for name in COLUMNS if name != "found_at"]
    columns = [np.asarray(found.rows[name]).tolist() for name in names]
    columns = [[None if v != v else v for v in column] for column in columns]
    blaming = {
        plain(name): len(defined(chosen(found.rows, name)["precision"]))
        for name in method_names(found.rows)
    }
    limits = {
        plain(name): {
            "AP": _number(mean_of(chosen(found.rows, name)["average_precision"])),
            "F1 of classes": _number(mean_of(chosen(found.rows, name)["class_f1"])),
            "faulty links not observed": int(np.sum(chosen(found.rows, name)["unobserved"])),
        }
        for name in method_names(found.rows)
    }
    return {
        "settings": dict(found.key),
        "means": {
            row[0].value: {
                column.title: cell.value for column, cell in zip(MEANS[1:], row[1:], strict=True)
            }
            | {"runs with precision": blaming[str(row[0].value)]}
            | limits[str(row[0].value)]
            for block in comparison_cells(found.rows).values()
            for row in block
        },
        "degraded": degraded_seeds(found.rows),
        "rows": [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)],
    }


def _number(value: float) -> float | None:
    """Return a figure, or None for nan, which JSON lacks."""
    return None if value != value else value


def print_sweep(sweep: Sweep, console: Console) -> None:
    """Print F1 by method and value of the setting, and the parameters of the methods."""
    tables = sweep_tables(sweep.setting.upper(), sweep.values, [p.rows for p in sweep.parts])
    for table in tables:
        console.print(table, width=min(console.width, 80))
    rows = sweep.parts[0].rows
    seeds = sorted({len(good_seeds(part.rows)) for part in sweep.parts})
    runs = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    console.print(line(f"F1: {in_short(rows, runs).partition(chr(10))[0]}", "dim"), soft_wrap=True)
    for value, part in zip(sweep.values, sweep.parts, strict=True):
        for text in degraded_lines(part.rows):
            heading = f"{sweep.setting.upper()}={plain(value)}, {text}"
            console.print(line(heading, "yellow"), soft_wrap=True)
    console.print(line(parameters_line(origins(rows)), "dim"), soft_wrap=True)


def sweep_figures(sweep: Sweep) -> dict[str, Any]:
    """Return the figures of a sweep for programs: F1 with its interval for each value and
    method."""

    def figures() -> Iterator[dict[str, Any]]:
        """Yield the figures of each value and method: F1, 0 to 1, its interval, and the number of
        runs."""
        for value, part in zip(sweep.values, sweep.parts, strict=True):
            for method in method_names(part.rows):
                own = chosen(part.rows, method)["f1"]
                f1 = interval(defined(own))
                bounds = None if f1.low != f1.low else [f1.low, f1.high]
                yield {
                    "value": value,
                    "method": method,
                    "bench": bench_in(part.rows, method),
                    "runs": len(own),
                    "degraded": len(degraded_seeds(part.rows)),
                    "f1": _number(f1.mean),
                    "interval": bounds,
                }

    settings = {name: v for name, v in sweep.parts[0].key.items() if name != sweep.setting}
    return {"setting": sweep.setting, "settings": settings, "rows": list(figures())}
