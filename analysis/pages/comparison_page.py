# SPDX-License-Identifier: Apache-2.0
"""The pages of a comparison, many seeds of one scenario with every method on each, and of a sweep,
comparisons that differ in one setting with every method over its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from analysis.evaluation.columns import BENCHES, Cell, in_blocks, in_bytes, shown_name
from analysis.evaluation.comparison import (
    bench_in,
    chosen,
    defined,
    degraded_seeds,
    good_seeds,
    mean_curve,
    method_names,
    origins,
)
from analysis.evaluation.comparison_table import (
    MEANS,
    comparison_cells,
    degraded_lines,
    in_short,
    label,
)
from analysis.evaluation.intervals import interval
from analysis.evaluation.report import parameters_line
from analysis.pages.run_data import numbers
from analysis.pages.run_page import files, settings_in_words
from analysis.pages.template import render_page
from testbed.fabric.names import plain

_SEEDS_SHOWN = 2000
_COSTS = ("seconds", "telemetry_bytes", "probe_packets")


def comparison_page(
    rows: Mapping[str, Any], settings: Mapping[str, Any], command: str, folder: Path
) -> str:
    """Return the page of a comparison that ended.

    Args:
        rows: The columns of `analysis.evaluation.comparison.COLUMNS`.
        settings: The content of ``comparison.json``.
        command: The shell command that repeats the comparison, shown on the page.
        folder: The comparison's folder; the page links to its files.
    """
    names = method_names(rows)
    methods = [_method(rows, name) for name in names]
    heads = in_blocks((bench_in(rows, name), label(rows, name)) for name in names)
    seeds = sorted(set(np.asarray(rows["seed"]).tolist()))
    degraded = set(degraded_seeds(rows))
    return render_page(
        "comparison.html",
        ("page.css", "comparison.css"),
        ("page.js", "series.js", "curves.js", "comparison.js"),
        {"methods": methods},
        title=f"{plain(settings['scenario'])} – {len(seeds)} runs",
        scenario=plain(settings["scenario"]),
        note=in_short(rows),
        parameters=plain(parameters_line(origins(rows))),
        columns=MEANS,
        blocks=comparison_cells(rows),
        heads=heads,
        seeds=[(*_seed(rows, methods, seed), seed in degraded) for seed in seeds[:_SEEDS_SHOWN]],
        hidden=max(0, len(seeds) - _SEEDS_SHOWN),
        costs=in_blocks((bench_in(rows, name), _cost(rows, name)) for name in names),
        setup=[pair for pair in settings_in_words(settings) if pair[0] not in ("seed", "methods")],
        command=command,
        files=files(folder),
    )


def _method(rows: Mapping[str, Any], name: str) -> dict[str, Any]:
    own = chosen(rows, name)
    mean = interval(defined(own["f1"]))
    curve = [numbers(figure, 4) for figure in mean_curve(own["found_at"])]
    figures: dict[str, Any] = {
        figure: numbers(np.asarray(own[figure])) for figure in ("f1", "precision", "recall")
    }
    figures |= dict(zip(("mean", "low", "high"), numbers(np.array(astuple(mean))), strict=True))
    seeds = [int(seed) for seed in own["seed"]]
    bench = BENCHES[bench_in(rows, name)]
    return {"label": label(rows, name), "bench": bench, "seeds": seeds, "curve": curve} | figures


def _seed(
    rows: Mapping[str, Any], methods: list[dict[str, Any]], seed: int
) -> tuple[int, int, list[float | None]]:
    """Return a seed, how many links were faulty in its run, and the F1 of each method, None for a
    method that has no good run with this seed."""
    at = np.flatnonzero(np.asarray(rows["seed"]) == seed)
    f1 = [
        method["f1"][method["seeds"].index(seed)] if seed in method["seeds"] else None
        for method in methods
    ]
    return seed, int(np.asarray(rows["faulty"])[at].max()), f1


def _cost(rows: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the mean costs of a method, in degraded runs too, and its parameters as text."""
    every = [at for at, method in enumerate(rows["method"]) if method == name]
    own = {figure: np.asarray(rows[figure])[every] for figure in _COSTS}
    data, probes = (float(own[figure].mean()) for figure in _COSTS[1:])
    return {
        "method": shown_name(name, rows["own_name"][every[0]]),
        "seconds": f"{own['seconds'].mean():.4g}",
        "data": in_bytes(data),
        "bytes": f"{data:.0f}",
        "probes": f"{probes:,.0f}",
        "parameters": plain(rows["parameters"][every[0]]),
        "origin": plain(rows["parameters_from"][every[0]]),
        "remarks": "",
    }


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
