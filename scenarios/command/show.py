# SPDX-License-Identifier: Apache-2.0
"""Shows runs and comparisons: as tables in the terminal, and as a page each."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group

from analysis.evaluation.comparison import (
    COLUMNS,
    bench_in,
    chosen,
    defined,
    degraded_seeds,
    good_seeds,
    mean_of,
    method_names,
    origins,
)
from analysis.evaluation.comparison_screen import comparison_screen
from analysis.evaluation.comparison_table import (
    MEANS,
    comparison_cells,
    comparison_table,
    degraded_lines,
    in_short,
)
from analysis.evaluation.intervals import interval
from analysis.evaluation.report import parameters_line, render
from analysis.evaluation.screen import (
    LINE_WIDTH,
    Places,
    broken_links,
    print_screen,
    print_trimmed,
    screen,
    shown_methods,
    without_variants,
)
from analysis.evaluation.sweep import sweep_tables
from analysis.methods.registry import METHODS, REFERENCE
from analysis.pages.comparison_page import comparison_page, sweep_page
from analysis.pages.run_page import run_page
from analysis.pages.template import write_page
from scenarios.command.arguments import in_ranges
from scenarios.experiment.errors import message_of
from scenarios.experiment.observer import Progress
from scenarios.experiment.request import SCENARIO, load_scenario, scenario_names
from scenarios.experiment.settings import described, make_settings
from scenarios.experiment.terminal import line, wide_console
from scenarios.many.compare import Compared, is_comparison, read_comparison
from scenarios.many.sweep import Sweep, is_sweep, read_sweep
from testbed.errors import UserError
from testbed.fabric.names import command, plain
from testbed.record.atomic import need_no_links
from testbed.record.manifest import PAGE
from testbed.record.run import RunDirectory

REPRODUCED = "setting.json"
"""The file that marks the folder of an experiment, see `scenarios.papers.reproduce`."""


def kind_of(directory: Path) -> str:
    """Return what a directory holds: a ``run`` that was diagnosed, a ``comparison``, a ``sweep`` or
    a ``reproduction``; an empty text for anything else."""
    marks = {
        "reproduction": (directory / REPRODUCED).is_file(),
        "sweep": is_sweep(directory),
        "comparison": is_comparison(directory),
        "run": (directory / "summary.json").is_file(),
    }
    return next((kind for kind, there in marks.items() if there), "")


def make_page(
    directory: Path,
    trust: bool = False,
    over_time: bool = False,
    progress: Progress = lambda what, share: None,
) -> Path:
    """Write the page of a run or a comparison into its directory, and return the page's path. With
    a sweep's page those of its comparisons are written, and with a reproduction's its figure.

    Args:
        trust: Whether to read the run even if its files were changed after it ended.
        over_time: Whether to show the diagnosis after each epoch, even if that takes a while.

    Raises:
        ValueError: There is no such run or comparison, it is damaged, or has a link in it (one
            line).
        OSError: The page cannot be written.
    """
    need_no_links(directory)
    kind = kind_of(directory)
    if kind == "reproduction":
        from scenarios.papers.reproduce import page_again  # importing it takes a second

        return page_again(directory)
    if kind == "sweep":
        for part in read_sweep(directory).parts:
            make_page(part.folder)
    write_page(directory / PAGE, page_text(directory, trust, over_time, progress))
    return directory / PAGE


def page_text(
    directory: Path,
    trust: bool = False,
    over_time: bool = False,
    progress: Progress = lambda what, share: None,
) -> str:
    """Return the page of a run, comparison, sweep or reproduction as HTML; nothing is written.

    The arguments are those of `make_page`.

    Raises:
        ValueError: There is no such thing, or it is damaged (one line).
    """
    match kind_of(directory):
        case "reproduction":
            from scenarios.papers.pages import experiment_page
            from scenarios.papers.reproduce import reproduction_in

            return experiment_page(reproduction_in(directory), directory)
        case "sweep":
            sweep = read_sweep(directory)
            parts = [(part.rows, part.key, part.folder.name) for part in sweep.parts]
            once_more = again_all(sweep.parts[0], (sweep.setting, sweep.values))
            return sweep_page(sweep.setting.upper(), sweep.values, parts, once_more, sweep.folder)
        case "comparison":
            found = read_comparison(directory)
            return comparison_page(found.rows, found.key, again_all(found), directory)
        case _:
            run = RunDirectory.or_interrupted(directory, trust)
            return run_page(run, again(run.config, run.summary["methods"]), over_time, progress)


def figures_of(directory: Path, trust: bool = False) -> Mapping[str, Any]:
    """Return the content of a run's ``summary.json``, or the figures of a comparison or sweep.

    Raises:
        ValueError: There is no such run or comparison, or it is damaged (one line).
    """
    match kind_of(directory):
        case "sweep":
            return sweep_figures(read_sweep(directory))
        case "comparison":
            return comparison_figures(read_comparison(directory))
        case _:
            return RunDirectory.or_interrupted(directory, trust).summary


def show_figures(directory: Path, trust: bool = False, verbose: bool = False) -> None:
    """Print the result of a run, comparison or sweep; ``verbose`` with every column. Raises as
    `figures_of`."""
    console, page = wide_console(), directory / PAGE
    offered = f"page: {page}" * page.is_file()
    match kind_of(directory):
        case "sweep":
            print_sweep(read_sweep(directory), console)
        case "comparison":
            found = read_comparison(directory)
            if verbose:
                print_comparison(found.rows, console)
            else:
                show_comparison_screen(found, offered, console)
        case _:
            show_run(directory, offered, verbose, trust)


def show_run(directory: Path, offered: str, verbose: bool = False, trust: bool = True) -> None:
    """Print the first screen of a run, or everything that is known of it.

    Args:
        directory: The run's directory.
        offered: The line about its page, see `offer_page`; empty if there is none.
        verbose: Print all broken links and methods, all columns, budgets and blamed links.
        trust: Whether to read the run even if its files were changed after it ended.

    Raises:
        ValueError: There is no such run, or it is damaged (one line).
    """
    run = RunDirectory.or_interrupted(directory, trust)
    summary, console = run.summary, Console()
    heading, _, where = offered.partition(": ")
    places: Places = {heading: (where, "")} if offered else {}
    width = console.width if console.is_terminal else LINE_WIDTH
    if not verbose:
        variants = _variants(shown_methods(summary)[1])
        more = command(own_name(), "show", "-v", str(directory))
        places |= {"more": (more, f"{variants}columns, budgets, blamed links")}
        places |= {"again": _once_more(run.config, summary["methods"], width)}
        print_screen(screen(summary, width), places, console)
        return
    render(summary, console)
    if summary["faulty_links"]:
        console.print()
        wide = console.width if console.is_terminal else 120
        everything = broken_links(summary, list(summary["methods"]), wide, 1 << 30)
        print_trimmed(everything, console, wide)
    places = {**places, "run": (str(directory), "")}
    places |= {"again": _once_more(run.config, summary["methods"], width)}
    print_screen(Group(), places, console)


def own_name() -> str:
    """Return how the user calls this program: ``canary`` if the shell would find it, else its path,
    from the current folder if it is below."""
    program, found = Path(sys.executable).parent / "canary", shutil.which("canary")
    if not program.is_file() or (found and Path(found).resolve() == program.resolve()):
        return "canary"
    here = Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)


def _variants(left_out: Sequence[str]) -> str:
    """Return how many variants a screen leaves out, as the beginning of a list; "" for none."""
    return f"{len(left_out)} variant{'s' * (len(left_out) != 1)}, " if left_out else ""


def _once_more(
    config: Mapping[str, Any], methods: Mapping[str, Any], width: int
) -> tuple[str, str]:
    """Return the command that makes a run again and, as a remark, the one of the next seed."""
    same = again(config, methods, short=True)
    seed = config["seed"] + 1
    following = f"   next: {again({**config, 'seed': seed}, methods, short=True)}"
    fits = len(same) + len(following) + 11 <= width
    return same, following if fits else f"   next: SEED={seed}"


def show_comparison_screen(found: Compared, offered: str, console: Console) -> None:
    """Print the first screen of a comparison.

    Args:
        found: The comparison.
        offered: The line about its page, see `offer_page`; empty if there is none.
        console: The console.
    """
    heading, _, where = offered.partition(": ")
    more = command(own_name(), "show", "-v", str(found.folder))
    variants = _variants(without_variants(method_names(found.rows))[1])
    places: Places = {heading: (where, "")} if offered else {}
    places |= {
        "data": (
            str(found.folder / "results.parquet"),
            "beside it f1.png, .svg, .pdf" * (found.folder / "f1.png").exists(),
        ),
        "more": (more, f"{variants}precision, recall, limits"),
        "again": (again_all(found, short=True), ""),
    }
    width = console.width if console.is_terminal else LINE_WIDTH
    print_screen(comparison_screen(found.rows, title_of(found), width), places, console)


def title_of(found: Compared) -> str:
    """Return a comparison's scenario, the settings that differ from the defaults, and its seeds."""
    words = [*_settings(found.key, short=True), f"seeds {in_ranges(found.seeds)}"]
    if words[0].startswith("SCENARIO="):
        words = words[1:]
    return ", ".join([found.key["scenario"], *words])


def offer_page(directory: Path) -> str:
    """Write the page of what has just ended; return one line with its path or the reason why there
    is none."""
    try:
        return f"page: {make_page(directory, trust=True)}"
    except (UserError, OSError) as error:  # the run itself is complete without its page
        return f"no page: {message_of(error)}"


def again(config: Mapping[str, Any], methods: Mapping[str, Any], short: bool = False) -> str:
    """Return the command that makes a run again, with the settings that differ from the defaults.

    Args:
        methods: The entry ``methods`` of the run's summary.
        short: Leave out the scenario and K, too, if they are the defaults.
    """
    had = {
        name: (entry.get("parameters", ""), entry.get("parameters_from", "default"))
        for name, entry in methods.items()
    }
    words = [*_settings(config, short), f"SEED={config['seed']}", *_methods(had)]
    return command("make", "scenario", *words)


def again_all(
    found: Compared, swept: tuple[str, Sequence[str]] = ("", ()), short: bool = False
) -> str:
    """Return the command that makes a comparison again, with its seeds; for a sweep with the
    setting and its values."""
    had = {name: (e["values"], e["from"]) for name, e in found.key["parameters"].items()}
    had.pop(REFERENCE, None)  # every comparison includes it
    setting, values = swept
    own = f"{setting.upper()}="
    words = [
        word for word in _settings(found.key, short) if not setting or not word.startswith(own)
    ]
    if setting:
        between = ";" if any("," in value for value in values) else ","
        words.append(f"SWEEP={own}{between.join(values)}")
    words += [f"SEEDS={in_ranges(found.seeds)}", *_methods(had)]
    return command("make", "compare", *words)


def _settings(config: Mapping[str, Any], short: bool = False) -> Iterator[str]:
    """Yield the settings but the seed, as words for make; ``short`` without the scenario and K if
    they are the defaults."""
    name = config["scenario"]
    known = name in scenario_names()
    own = load_scenario(name).defaults if known else {}
    had = {s.name: config[s.name] for s in described() if s.name in config}
    idle = make_settings({}, had).ignored
    always = ("backend",) if short else ("k", "backend")
    if not (short and name == SCENARIO):
        yield f"SCENARIO={name if known else name + '.py'}"
    for setting in described():
        if setting.name not in config or setting.name in idle or setting.name == "seed":
            continue
        value = config[setting.name]
        usual = setting.on.get(config["backend"], setting.default)
        if value != usual or setting.name in own or setting.name in always:
            yield f"{setting.name.upper()}={_typed(value)}"


def _typed(value: Any) -> str:
    """Return a setting's value as a user types it: 500, and not 500.0."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


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
            "F1f": _number(mean_of(chosen(found.rows, name)["fabric_f1"])),
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
