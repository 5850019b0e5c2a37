# SPDX-License-Identifier: Apache-2.0
"""The page of a finished run: one HTML file, made from the run's record. It shows the run epoch by
epoch, too: packets counted and lost, and what methods blame after the first epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from analysis.evaluation.budgets import measured_lines, missed_lines
from analysis.evaluation.columns import cells, columns, in_blocks, in_bytes, shown_name
from analysis.evaluation.report import capture_line, headline, slowdown_lines
from analysis.methods.base import Localizer, Method
from analysis.methods.parameters import read_names
from analysis.methods.registry import make_method
from analysis.pages.packet import example_flows
from analysis.pages.ranges import RANGES, in_words
from analysis.pages.run_data import link_data, range_rows, verdicts
from analysis.pages.template import render_page
from analysis.telemetry.telemetry import SegmentCounts, Telemetry
from analysis.telemetry.views.segments import FlowCounts, read_flow_counts, segment_counts
from testbed.fabric.names import plain
from testbed.record.manifest import PAGE
from testbed.record.run import RunDirectory

_SCRIPTS = (
    "page.js",
    "layout.js",
    "fabric.js",
    "panel.js",
    "pods.js",
    "charts.js",
    "packet.js",
    "run.js",
)


def _silent(what: str, share: float) -> None:
    """Ignore the progress; the default of `run_page`."""


def run_page(
    run: RunDirectory,
    command: str,
    early: bool = False,
    progress: Callable[[str, float], None] = _silent,
) -> str:
    """Return the page of a finished run.

    Args:
        run: The run's record.
        command: The shell command that repeats the run, shown on the page.
        early: Show what methods blame after each epoch even where that takes long to compute, see
            `OFTEN`.
        progress: Callback that receives the current phase and its progress, from 0 to 1.

    Raises:
        testbed.record.run.RunError: A table is missing or damaged.
    """
    progress("page", 0.0)
    summary, methods = run.summary, verdicts(run)
    data, links = link_data(run, methods)
    drops = run.table("drops") if run.has("drops") else {}
    metered = read_flow_counts(run)
    data["epochs"] = epochs(run, links, drops)
    data["overTime"] = [
        {"name": shown_name(name, summary["methods"][name].get("own_name")), "flagged": flagged}
        for name, flagged in over_time(run, metered, early, progress).items()
    ]
    data["packets"] = example_flows(run, drops, metered)
    return render_page(
        "run.html",
        ("page.css", "run.css"),
        _SCRIPTS,
        data,
        title=f"{plain(summary['scenario'])} – {plain(summary['topology'])}",
        summary=summary,
        headline=headline(summary),
        capture=capture_line(summary["capture"]) if "capture" in summary else "",
        slowed=slowdown_lines(summary),
        columns=columns(summary),
        blocks=cells(summary),
        ranges=[in_words(*bounds) for bounds in RANGES],
        range_blocks=range_rows(methods, run.table("links")),
        costs=_costs(summary),
        measurements=measured_lines(summary),
        missed=missed_lines(summary),
        starved=[
            f"{name}: {remark}"
            for name, entry in summary["methods"].items()
            if entry.get("starved")
            for remark in entry.get("remarks", ())[-1:]
        ],
        setup=settings_in_words(run.config),
        command=command,
        files=files(run.path),
        early=bool(data["overTime"]),
        why_not_early=_why_not_early(run, early),
        packets=bool(data["packets"]),
        summary_epochs=run.epochs,
    )


def _costs(summary: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    """Return each method's costs and parameters as text, under the heading of its block."""
    return in_blocks(
        (entry.get("bench"), _cost(name, entry)) for name, entry in summary["methods"].items()
    )


def _cost(name: str, entry: Mapping[str, Any]) -> dict[str, str]:
    return {
        "method": shown_name(name, entry.get("own_name")),
        "seconds": f"{entry['seconds']:.4g}",
        "data": in_bytes(entry["telemetry_bytes"]),
        "bytes": f"{entry['telemetry_bytes']:.0f}",
        "probes": f"{entry['probe_packets']:,}",
        "parameters": plain(entry.get("parameters", "")),
        "origin": plain(entry.get("parameters_from", "")),
        "remarks": plain("; ".join(entry.get("remarks", ()))),
    }


def settings_in_words(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the settings, the seed and the versions of a run or comparison as pairs of name and
    value; other mappings in ``config`` are left out."""
    shown = []
    for name, value in config.items():
        if isinstance(value, Mapping):
            if name == "versions":
                shown += [(plain(f"version of {n}"), plain(str(v))) for n, v in value.items()]
            continue
        shown.append((plain(name.replace("_", " ")), plain(str(value))))
    return shown


def files(folder: Path) -> list[tuple[str, str]]:
    """Return the name and the relative URL of each file and folder in ``folder``, files first;
    hidden ones and the page itself are left out."""
    found = []
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if path.name.startswith(".") or path.name == PAGE:
            continue
        name = path.name + ("/" if path.is_dir() else "")
        found.append((plain(name), "./" + quote(name.encode("utf-8", "surrogateescape"))))
    return found


OFTEN = 1024
"""The most directed links times epochs for which methods are run on the first epochs without being
asked to. At K=4, with 64 links and 10 epochs, that takes a tenth of a second."""


def epochs(
    run: RunDirectory, links: npt.NDArray[np.integer], drops: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the record has of each epoch, for the page's charts.

    Args:
        run: The run's record.
        links: The directed links that have figures of their own.
        drops: The run's table of lost packets, empty if it has none.

    Returns:
        ``n``, the number of epochs; ``ms``, the length of one in milliseconds; ``counted`` and
        ``lost``, the packets on all segments in each epoch; ``rules`` and ``flows``, the rules and
        the flows of Canary's selection in each epoch, if they are recorded; ``drops``, the packets
        that each link truly lost, as (link, epoch, packets); and, in small fabrics, ``segments``,
        the packets counted and lost on the segments over each link in each epoch.
    """
    n = run.epochs
    data: dict[str, Any] = {"n": n, "ms": run.config.get("epoch_ms"), "drops": []}
    if run.has("segments"):
        table = run.table("segments")
        for name, column in (("counted", "sent"), ("lost", "lost")):
            data[name] = np.bincount(table["epoch"], table[column], n).astype(int).tolist()
        if run.fabric.n_links <= OFTEN:
            data["segments"] = _by_link(run, table, links)
    if run.has("rules"):
        rules = run.table("rules")
        data["rules"] = np.bincount(rules["epoch"], minlength=n).tolist()
        keys = [rules[name] for name in ("flow_lo", "flow_hi", "epoch")]
        order = np.lexsort(keys)
        is_new = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
        first = order[np.append(True, is_new)[: len(order)]]
        data["flows"] = np.bincount(rules["epoch"][first], minlength=n).tolist()
    if len(drops) and data["ms"]:
        data["drops"] = _drops(run, drops, links, int(data["ms"]))
    return data


def _why_not_early(run: RunDirectory, asked: bool) -> str:
    """Return why a page may lack what methods blame after fewer epochs."""
    if not asked and _takes_long(run):
        return (
            "what methods blame after fewer epochs takes a while to work out at this size; "
            "canary page --over-time makes this page with it"
        )
    return (
        "no method here reads segments alone, and the record does not know in which epoch a probe "
        "or a flow was sent"
    )


def _takes_long(run: RunDirectory) -> bool:
    return run.fabric.n_links * run.epochs > OFTEN


def _by_link(
    run: RunDirectory, table: Mapping[str, Any], links: npt.NDArray[np.integer]
) -> dict[str, Any]:
    """Return ``sent`` and ``lost``: for each of ``links``, the packets counted and lost in each
    epoch, summed over the segments that contain the link."""
    paths = run.segments.paths
    cells = np.zeros((2, run.epochs, len(run.segments)), np.int64)
    for cell, name in zip(cells, ("sent", "lost"), strict=True):
        np.add.at(cell, (table["epoch"], table["segment"]), table[name])
    owner = np.repeat(np.arange(len(paths)), paths.length)
    over = np.zeros((2, run.epochs, run.whole.n_links), np.int64)
    for epoch in range(run.epochs):
        for kind in range(2):
            np.add.at(over[kind, epoch], paths.links, cells[kind, epoch, owner])
    return {name: over[i][:, links].T.tolist() for i, name in enumerate(("sent", "lost"))}


def _drops(
    run: RunDirectory, table: Mapping[str, Any], links: npt.NDArray[np.integer], ms: int
) -> list[list[int]]:
    own = np.isin(table["link"], links)
    epoch = np.minimum(table["time_ns"][own] // (ms * 1_000_000), run.epochs - 1)
    cell = table["link"][own].astype(np.int64) * run.epochs + epoch.astype(np.int64)
    cells, count = np.unique(cell, return_counts=True)
    return np.stack((cells // run.epochs, cells % run.epochs, count), axis=1).tolist()


def over_time(
    run: RunDirectory,
    metered: FlowCounts | None,
    asked: bool,
    progress: Callable[[str, float], None],
) -> dict[str, list[list[int]]]:
    """Return the directed links that each method blames from the first epoch, from the first two,
    and so on.

    Only methods that read nothing but segments are run, because the record does not say in which
    epoch a probe or a flow was sent. Each method has the parameters that it had in the run.

    Args:
        run: The run's record.
        metered: What its meters counted of flows; None if the registers were not recorded.
        asked: Whether the user asked for it; otherwise the result is empty where it would take
            long, see `OFTEN`.
        progress: Callback that receives the current phase and its progress, from 0 to 1.
    """
    if not asked and _takes_long(run):
        return {}
    methods: dict[str, Localizer] = {}
    for name, entry in run.summary["methods"].items():
        method = _as_it_was(name, entry)
        if isinstance(method, Method) and getattr(method, "reads", "") == "segments":
            methods[name] = method
    if not methods:
        return {}
    counts = segment_counts(run, metered)
    telemetry = Telemetry(
        run.fabric, run.config["monitors"], canary_bytes=run.network["canary_bytes"]
    )
    found: dict[str, list[list[int]]] = {name: [] for name in methods}
    for n in range(1, run.epochs + 1):
        first = SegmentCounts(counts.segments, counts.sent[:n], counts.lost[:n])
        for name, method in methods.items():
            progress(f"first {n} epochs: {name}", (n - 1) / run.epochs)
            verdict = method.localize(replace(telemetry, segments=first))
            found[name].append(verdict.flagged.tolist())
    return found


def _as_it_was(name: str, entry: Mapping[str, Any]) -> Localizer | None:
    """Return the method with the parameters that the summary's ``entry`` records; None if no such
    method is installed."""
    parameters = entry.get("parameters", "")
    try:
        return make_method(f"{read_names(name)[0].name}:{parameters}" if parameters else name)
    except ValueError:
        return None
