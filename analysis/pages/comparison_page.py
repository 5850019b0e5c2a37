"""The page of a comparison: many seeds of one scenario, every method on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from analysis.evaluation.columns import BENCHES, in_blocks, in_bytes
from analysis.evaluation.comparison import (
    MEANS,
    bench_in,
    chosen,
    comparison_cells,
    defined,
    in_short,
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

_SEEDS_SHOWN = 2000


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
        seeds=[_seed(rows, methods, seed) for seed in seeds[:_SEEDS_SHOWN]],
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
    method that did not run with this seed."""
    at = np.flatnonzero(np.asarray(rows["seed"]) == seed)
    f1 = [
        method["f1"][method["seeds"].index(seed)] if seed in method["seeds"] else None
        for method in methods
    ]
    return seed, int(np.asarray(rows["faulty"])[at].max()), f1


def _cost(rows: Mapping[str, Any], name: str) -> dict[str, str]:
    own = chosen(rows, name)
    data, probes = np.mean(own["telemetry_bytes"]), np.mean(own["probe_packets"])
    return {
        "method": plain(name),
        "seconds": f"{np.mean(own['seconds']):.4g}",
        "data": in_bytes(float(data)),
        "bytes": f"{data:.0f}",
        "probes": f"{probes:,.0f}",
        "parameters": plain(own["parameters"][0]),
        "origin": plain(own["parameters_from"][0]),
        "remarks": "",
    }
