"""The page of a finished run: one HTML file, made from the run's record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analysis.evaluation.budgets import measured_lines, missed_lines
from analysis.evaluation.columns import cells, columns, in_blocks, in_bytes
from analysis.evaluation.report import capture_line, headline, slowdown_lines
from analysis.pages.packet import example_flows
from analysis.pages.ranges import RANGES, in_words
from analysis.pages.run_data import link_data, range_rows, verdicts
from analysis.pages.template import render_page
from analysis.pages.timeline import epochs, over_time
from analysis.telemetry.observations import read_minus_meters
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
            `timeline.OFTEN`.
        progress: Callback that receives the current phase and its progress, from 0 to 1.

    Raises:
        testbed.record.run.RunError: A table is missing or damaged.
    """
    progress("page", 0.0)
    summary, methods = run.summary, verdicts(run)
    data, links = link_data(run, methods)
    drops = run.table("drops") if run.has("drops") else {}
    meters = read_minus_meters(run)
    data["epochs"] = epochs(run, links, drops)
    data["overTime"] = [
        {"name": plain(name), "flagged": flagged}
        for name, flagged in over_time(run, meters, early, progress).items()
    ]
    data["packets"] = example_flows(run, drops, meters)
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
        "method": plain(name),
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
