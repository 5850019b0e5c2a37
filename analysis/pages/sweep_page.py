"""The page of a sweep: comparisons that differ in one setting, every method over its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from analysis.evaluation.columns import BENCHES, Cell
from analysis.evaluation.comparison import (
    MEANS,
    bench_in,
    chosen,
    comparison_cells,
    defined,
    degraded_lines,
    good_seeds,
    interval,
    label,
    mean_curve,
    method_names,
    origins,
)
from analysis.evaluation.report import parameters_line
from analysis.pages.run_data import numbers
from analysis.pages.run_page import files, settings_in_words
from analysis.pages.template import render_page
from testbed.fabric.names import plain

_FIGURES = ("f1", "precision", "recall")


def sweep_page(
    setting: str,
    values: Sequence[str],
    parts: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], str]],
    command: str,
    folder: Path,
) -> str:
    """Return the page of a sweep.

    Args:
        setting: The name of the setting that varies, as a user writes it: ``K``.
        values: Its values, ascending if they are numbers.
        parts: For each value, the columns of its comparison (`comparison.COLUMNS`), the content of
            its ``comparison.json``, and the name of its folder.
        command: The shell command that repeats the sweep, shown on the page.
        folder: The sweep's folder; the page links to its files.
    """
    benches = {name: bench_in(rows, name) for rows, _, _ in parts for name in method_names(rows)}
    names = sorted(benches, key=lambda name: list(BENCHES).index(benches[name]))
    labels = [next(label(r, n) for r, _, _ in parts if n in r["method"]) for n in names]
    points = [[_point(rows, name) for name in names] for rows, _, _ in parts]
    address = [f"./{quote(name)}/index.html" for _, _, name in parts]
    runs = [len(good_seeds(rows)) for rows, _, _ in parts]
    first = parts[0]
    return render_page(
        "sweep.html",
        ("page.css", "comparison.css"),
        ("page.js", "series.js", "curves.js", "panels.js", "sweep.js"),
        {
            "setting": plain(setting),
            "values": [plain(value) for value in values],
            "labels": labels,
            "benches": [BENCHES[benches[name]] for name in names],
            "points": points,
            "address": address,
            "runs": runs,
        },
        title=f"{plain(first[1]['scenario'])} over {plain(setting)}",
        scenario=plain(first[1]["scenario"]),
        setting=plain(setting),
        values=[plain(value) for value in values],
        runs=runs,
        degraded=[
            f"{plain(setting)}={plain(value)}, {text}"
            for value, (rows, _, _) in zip(values, parts, strict=True)
            for text in degraded_lines(rows)
        ],
        parameters=plain(parameters_line(origins(first[0]))),
        columns=MEANS[1:],
        blocks=_blocks(values, address, [rows for rows, _, _ in parts]),
        setup=[
            pair
            for pair in settings_in_words(first[1])
            if pair[0] not in ("seed", "methods", setting.lower().replace("_", " "))
        ],
        command=command,
        files=files(folder),
    )


def _blocks(
    values: Sequence[str], address: Sequence[str], parts: Sequence[Mapping[str, Any]]
) -> dict[str, list[tuple[str, str, list[Cell]]]]:
    """Return the table rows under the heading of their block; each is a value of the setting, the
    URL of its comparison's page, and a method's cells."""
    found: dict[str, list[tuple[str, str, list[Cell]]]] = {h: [] for h in BENCHES.values()}
    for value, where, rows in zip(values, address, parts, strict=True):
        for heading, block in comparison_cells(rows).items():
            found[heading] += [(plain(value), where, row) for row in block]
    return {heading: rows for heading, rows in found.items() if rows}


def _point(rows: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return a method's figures at one value of the setting: mean, low and high of each of
    `_FIGURES`, and the mean curve. None if the method did not run there."""
    if name not in rows["method"]:
        return None
    own = chosen(rows, name)
    curve = [numbers(figure, 3) for figure in mean_curve(own["found_at"])]
    figures = {
        figure: numbers(np.array(astuple(interval(defined(own[figure])))), 4) for figure in _FIGURES
    }
    return figures | {"curve": curve}
