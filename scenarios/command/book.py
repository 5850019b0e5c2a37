# SPDX-License-Identifier: Apache-2.0
"""Runs as a laboratory book: ``canary runs`` lists them, ``canary diff`` compares two of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.text import Text

from analysis.evaluation.screen import figures_table, print_screen
from scenarios.command.show import kind_of
from scenarios.experiment.settings import described
from testbed.errors import UserError
from testbed.fabric.names import nearest, plain, some_of
from testbed.record.run import RunDirectory

_FILTER = re.compile(r"([A-Za-z][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_WIDE = 120  # columns without a terminal, so that no column is left out
_UNKNOWN = "–"


def parse_filters(words: Sequence[str]) -> dict[str, str]:
    """Return settings by name of words such as ``K=4``.

    Raises:
        UserError: A word is none, or names no setting (one line).
    """
    known = ["SCENARIO", *(setting.name.upper() for setting in described())]
    found = {}
    for word in words:
        named = _FILTER.fullmatch(word)
        if named is None:
            raise UserError(f"{word!r} is no setting: filter runs by words such as K=4")
        if (name := named[1].upper().replace("-", "_")) not in known:
            raise UserError(f"there is no setting {named[1]}: {nearest(name, known)}")
        found[name.lower()] = named[2]
    return found


def list_runs(folder: Path, filters: Mapping[str, str]) -> tuple[list[RunDirectory], list[str]]:
    """Return the finished runs directly in a folder that have these settings, the newest first, and
    a line for each that cannot be read.

    Args:
        folder: The folder, usually ``runs``.
        filters: Values of settings, as text.

    Raises:
        UserError: There is no such folder (one line).
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: canary run makes the first run in runs")
    found, damaged = [], []
    for path in folder.iterdir():
        if path.is_symlink() or kind_of(path) != "run":
            continue
        try:
            run = RunDirectory(path, trust=True)
            config, _ = run.config, run.summary
        except (UserError, OSError) as error:
            damaged.append(str(error))
            continue
        if all(_same(config.get(name), value) for name, value in filters.items()):
            found.append(run)
    ended = {run.path: (run.path / "summary.json").stat().st_mtime for run in found}
    return sorted(found, key=lambda run: (-ended[run.path], run.path.name)), sorted(damaged)


def _same(value: Any, text: str) -> bool:
    """Return whether a setting has the value that a text stands for."""
    if isinstance(value, int | float):
        try:
            return float(text) == value
        except ValueError:
            return False
    return str(value) == text


def run_figures(run: RunDirectory) -> dict[str, Any]:
    """Return what the list has of a run, for programs."""
    config, summary = run.config, run.summary
    scores = {name: _f1(entry) for name, entry in summary["methods"].items()}
    names = [setting.name for setting in described() if setting.name in config]
    return {
        "path": str(run.path),
        "scenario": config["scenario"],
        "settings": {name: config[name] for name in names},
        "faulty_links": len(summary["faulty_links"]),
        "degraded": bool(summary["degraded"]),
        "f1": scores,
    }


def _f1(entry: Mapping[str, Any]) -> float | None:
    return entry[entry["native"]]["f1"]


RUN_TITLES = ("scenario", "K", "seed", "backend", "faults", "broken", "canary", "best")
"""What lists show of a run, besides its name: F1 of ``canary`` and of the best method last."""


def run_cells(run: RunDirectory) -> list[str]:
    """Return what lists show of a run, in the order of `RUN_TITLES`."""
    config, summary = run.config, run.summary
    f1 = {name: value for name, entry in summary["methods"].items() if (value := _f1(entry))}
    best = max(f1, key=lambda name: f1[name], default="")
    own = (
        str(config["scenario"]),
        str(config["k"]),
        str(config["seed"]),
        str(config["backend"]),
        str(config.get("faults", _UNKNOWN))[:16],
        f"{len(summary['faulty_links']):,}",
        f"{f1['canary']:.3f}" if "canary" in f1 else _UNKNOWN,
        f"{f1[best]:.3f} {best}" if best else _UNKNOWN,
    )
    return [plain(cell) for cell in own]


def show_runs(runs: Sequence[RunDirectory], damaged: Sequence[str], console: Console) -> None:
    """Print a row for each run: its main settings, its broken links, and F1 of ``canary`` and of
    the best method."""
    width = console.width if console.is_terminal else _WIDE
    names = [Text(plain(str(run.path)) + " !" * bool(run.summary["degraded"])) for run in runs]
    rows = [[Text(cell) for cell in run_cells(run)] for run in runs]
    table = figures_table(names, RUN_TITLES, rows, width, first="run")
    parts: list[RenderableType] = [table if runs else Text("no run has these settings")]
    parts += [Text(plain(f"cannot be read: {why}"), "yellow") for why in damaged]
    print_screen(Group(*parts), {}, console, width)


def difference(one: RunDirectory, other: RunDirectory) -> dict[str, Any]:
    """Return what differs between two runs: settings, faulty links, F1 by method, and the links
    whose verdict a method changed.

    Verdicts are compared link by link only if both runs have the same links; ``same_links`` says
    whether they do.
    """
    settings = {}
    for name in ["scenario", *(setting.name for setting in described())]:
        pair = [one.config.get(name), other.config.get(name)]
        if pair[0] != pair[1]:
            settings[name] = pair
    faulty = [set(run.summary["faulty_links"]) for run in (one, other)]
    links = [run.table("links")["name"] for run in (one, other)]
    methods = [run.summary["methods"] for run in (one, other)]
    shared = [name for name in methods[0] if name in methods[1]]
    same = list(links[0]) == list(links[1])
    return {
        "runs": [str(one.path), str(other.path)],
        "settings": settings,
        "faulty_only_in": [sorted(faulty[0] - faulty[1]), sorted(faulty[1] - faulty[0])],
        "same_links": same,
        "f1": {name: [_f1(own[name]) if name in own else None for own in methods]
               for name in dict.fromkeys([*methods[0], *methods[1]])},
        "verdicts": {name: changed for name in shared
                     if (changed := _changed(one, other, name, links[0]))} if same else {},
    }  # fmt: skip


def _changed(
    one: RunDirectory, other: RunDirectory, method: str, links: Sequence[str]
) -> dict[str, list[str]]:
    """Return the links that only the first run's diagnosis blames, and those that only the other's
    does; empty if there are none."""
    a, b = (np.asarray(run.table(f"diagnoses/{method}")["flagged"]) for run in (one, other))
    found = {
        "only_first": [links[link] for link in np.flatnonzero(a & ~b).tolist()],
        "only_second": [links[link] for link in np.flatnonzero(b & ~a).tolist()],
    }
    return found if any(found.values()) else {}


def show_difference(found: Mapping[str, Any], console: Console) -> None:
    """Print the result of `difference`."""
    width = console.width if console.is_terminal else _WIDE
    print_screen(Group(*_difference_lines(found, width)), {}, console, width)


def _difference_lines(found: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    first, second = (plain(path) for path in found["runs"])
    yield Text(f"A  {first}\nB  {second}")
    yield Text()
    for name, (a, b) in found["settings"].items():
        yield Text(plain(f"{name.upper():<12} {a} -> {b}"))
    if not found["settings"]:
        yield Text("the settings are the same")
    for which, links in zip("AB", found["faulty_only_in"], strict=True):
        if links:
            yield Text(plain(f"broken only in {which}: {some_of(links)}"))
    yield Text()
    names, rows = [], []
    for name, pair in found["f1"].items():
        a, b = pair
        apart = "" if a is None or b is None else f"{b - a:+.3f}" if b != a else "same"
        verdicts = found["verdicts"].get(name, {})
        counts = [len(verdicts.get(which, ())) for which in ("only_first", "only_second")]
        names.append(Text(plain(name)))
        cells = (*(_UNKNOWN if v is None else f"{v:.3f}" for v in pair), apart or _UNKNOWN)
        blamed = counts if found["same_links"] and None not in pair else [_UNKNOWN] * 2
        rows.append([Text(str(cell)) for cell in (*cells, *blamed)])
    titles = ["F1 of A", "F1 of B", "change", "only A", "only B"]
    yield figures_table(names, titles, rows, width)
    if found["same_links"]:
        yield Text("only A, only B: the links that only the diagnosis of that run blames", "dim")
    else:
        yield Text("the runs have other links: their verdicts are not compared link by link")
    yield Text()
    for name, verdicts in found["verdicts"].items():
        parts = [
            f"{which} alone blames {some_of(verdicts[key])}"
            for which, key in (("A", "only_first"), ("B", "only_second"))
            if verdicts[key]
        ]
        yield Text(plain(f"{name}: {'; '.join(parts)}"))
