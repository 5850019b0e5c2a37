# SPDX-License-Identifier: Apache-2.0
"""The list of all experiments for the terminal, and the results of those that were run as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from scenarios.papers.pages import Reproduction
from scenarios.papers.registry import EXPERIMENTS, LEFT_OUT
from scenarios.papers.reproduce import OUT, read_reproduction, was_run
from scenarios.papers.tables import cells, new_table
from testbed.errors import UserError
from testbed.record.atomic import output_file
from testbed.record.outputs import Kind


def experiment_table(out: Path) -> Table:
    """Return the list for the terminal: for each experiment what it shows, its time and memory, and
    whether it was run; then the figures that are left out."""
    table = new_table("name", "shows", "time", "memory", "run")
    for each in EXPERIMENTS.values():
        time = f"{each.seconds} s" if each.seconds < 90 else f"{round(each.seconds / 60)} min"
        run = "yes" if was_run(each, out) else ""
        table.add_row(each.name, f"{each.paper}: {each.shows}", time, f"{each.memory_mb} MB", run)
    for what, why in LEFT_OUT.items():
        table.add_row(Text("–", style="dim"), Text(f"{what}: {why}", style="dim"), "", "", "")
    return table


def experiment_figures(out: Path) -> dict[str, Any]:
    """Return the list for programs, as `experiment_table` has it: experiments by name, and why the
    left-out figures are left out."""
    return {
        "experiments": {
            each.name: {
                "paper": each.paper,
                "shows": each.shows,
                "seconds": each.seconds,
                "memory_mb": each.memory_mb,
                "run": was_run(each, out),
            }
            for each in EXPERIMENTS.values()
        },
        "left_out": dict(LEFT_OUT),
    }


def _has_results(path: Path) -> bool:
    """Return True if a file was written by `write_results`."""
    if path.stat().st_size > _MOST_BYTES:
        return False
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return (
        isinstance(content, dict)
        and bool(content)
        and all(
            name in EXPERIMENTS and isinstance(entry, dict) and entry.keys() == _ENTRY
            for name, entry in content.items()
        )
    )


_ENTRY = {"draws", "seconds", "code", "trace", "reasons", "lines"}
_MOST_BYTES = 2**26
RESULTS = Kind("file of results", "results.json", _has_results)


def write_results(path: Path, out: Path = OUT) -> None:
    """Write the results of the experiments that were run in ``out`` as JSON, for the documentation.

    By experiment it has the number of draws, the seconds of one processor, the code's commit and
    hash, the capture if one was given, and a line for each value that the paper prints: the cells
    of `scenarios.papers.tables.HEAD`, with the number of its reason in ``reasons`` (-1: none).

    Raises:
        UserError: No experiment was run to its end in ``out``, or the file holds something else.
        OSError: The file cannot be written.
    """
    results = {}
    for name, experiment in EXPERIMENTS.items():
        reproduction = read_reproduction(experiment, out)
        if reproduction is not None:
            results[name] = results_of(reproduction)
    if not results:
        raise UserError(f"{out} has no results to write: run make reproduce FIG=quick first")
    with output_file(path, RESULTS, "RESULTS=") as new:
        new.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def results_of(reproduction: Reproduction) -> dict[str, Any]:
    """Return the results of one experiment as `write_results` describes them."""
    lines = [cells(line) for line in reproduction.lines]
    reasons = list(dict.fromkeys(line[-1] for line in lines if line[-1]))
    return {
        "draws": reproduction.draws,
        "seconds": round(reproduction.seconds),
        "code": f"{reproduction.commit} {reproduction.setting['code_sha256'][:8]}".strip(),
        "trace": reproduction.setting.get("trace", ""),
        "reasons": reasons,
        "lines": [[*line[:-1], reasons.index(line[-1]) if line[-1] else -1] for line in lines],
    }
