"""The page of a run: one HTML file, drawn from its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analysis.evaluation.budgets import measured_lines, missed_lines
from analysis.evaluation.columns import cells, columns, in_blocks, in_bytes
from analysis.evaluation.report import capture_line, headline
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
    """Do nothing: a page that is made at once has no progress to show."""


def run_page(
    run: RunDirectory,
    command: str,
    early: bool = False,
    progress: Callable[[str, float], None] = _silent,
) -> str:
    """Return the page of a finished run.

    Args:
        command: What makes the run again.
        early: Also say what methods blame after each epoch where that takes long, see
            `timeline.OFTEN`.

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
    """Return what each method spent, and what it was run with, by the heading of its block."""
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
    """Return settings, seed and versions: name and value."""
    shown = []
    for name, value in config.items():
        if isinstance(value, Mapping):
            if name == "versions":
                shown += [(plain(f"version of {n}"), plain(str(v))) for n, v in value.items()]
            continue
        shown.append((plain(name.replace("_", " ")), plain(str(value))))
    return shown


def files(folder: Path) -> list[tuple[str, str]]:
    """Return name and address of each file and folder but the page itself."""
    found = []
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if path.name.startswith(".") or path.name == PAGE:
            continue
        name = path.name + ("/" if path.is_dir() else "")
        found.append((plain(name), "./" + quote(name.encode("utf-8", "surrogateescape"))))
    return found
