# SPDX-License-Identifier: Apache-2.0
"""Runs experiments part by part, keeps each part, then draws and compares the results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from analysis.evaluation.pictures import files_of, new_files
from analysis.pages.template import write_page
from scenarios.experiment.estimate import available_bytes
from scenarios.experiment.observer import Progress
from scenarios.extras import can_draw
from scenarios.many.cluster import workers_of
from scenarios.many.compare import code_digest
from scenarios.many.work import Outcome, Workers, complete, hold_folder, is_of, write_key
from scenarios.papers.experiment import Effort, Experiment, Row
from scenarios.papers.pages import Reproduction, experiment_page
from scenarios.papers.registry import EXPERIMENTS
from scenarios.papers.tables import markdown
from scenarios.papers.verdicts import Line, figures_of, verdicts
from testbed.record.atomic import FolderError, atomic_write
from testbed.record.bounded import read_json
from testbed.record.files import read_columns, write_columns
from testbed.record.manifest import PAGE
from testbed.record.outputs import need_folder
from testbed.record.run import RunError
from testbed.record.schema import TableError

OUT = Path("runs/reproduce")
MARK = "setting.json"
_DAMAGED = "{} is damaged or unfinished: run it again"
PARTS, TOOK, COMMIT = "parts", "took.json", "commit.txt"


def was_run(experiment: Experiment, out: Path = OUT) -> bool:
    """Return True if there is a figure of the experiment, made by whatever version of the code."""
    return (out / experiment.name / "table.md").exists()


def reproduce(
    experiment: Experiment,
    progress: Progress,
    out: Path = OUT,
    effort: Effort = Effort(),
    cluster: str | None = None,
    workers: Workers | None = None,
) -> list[Line]:
    """Run the parts that ``out / name`` lacks, write figure, table, page and results there, and
    return a line with the verdict for each value of the paper.

    Parts of another version of the code are computed again; with more draws, only the new ones are
    computed. Parts run on all processors, as far as the memory allows, or on the workers of
    ``cluster``, see `scenarios.many.work`.

    Args:
        workers: Workers that compute the parts instead.

    Raises:
        RunError: The folder holds something else, another command uses it, or parts failed.
        KeyboardInterrupt: Finished parts are kept; a note on the exception says how to continue.
    """
    folder = out / experiment.name
    key = _key(experiment, effort)
    with hold_folder(folder, MARK, "reproduction", _is_key) as file:
        if not is_of(file, key):
            shutil.rmtree(folder / PARTS, ignore_errors=True)
            write_key(file, key)
        if not (folder / PARTS).exists():
            (folder / PARTS).mkdir()
            (folder / PARTS / COMMIT).write_text(_commit())
        rows = _run(experiment, effort, folder / PARTS, progress, cluster, workers)
        write_columns(folder / "results.parquet", rows)
        return _show(_reproduction(experiment, rows, folder), folder)


def _is_key(content: Mapping[str, Any]) -> bool:
    """Return True if this is the content of the file `MARK` of some experiment; see `_key`."""
    return {"experiment", "paper", "setting", "small", "code_sha256"} <= content.keys()


def need_out(out: Path) -> None:
    """Check, before anything is computed, that experiments may be written into ``out``.

    Other things may be in it: each experiment has a folder of its own, which `reproduce` checks.

    Raises:
        FolderError: It is a link or no folder (one line).
        OSError: It cannot be read.
    """
    need_folder(out, lambda folder: True, option="OUT")


def _commit() -> str:
    """Return the commit of the sources, with a + if they differ from it; an empty text outside of a
    clone."""
    how = ("git", "describe", "--always", "--abbrev=7", "--exclude=*", "--dirty=+")
    try:
        done = subprocess.run(how, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _key(experiment: Experiment, effort: Effort) -> dict[str, Any]:
    """Return everything that determines the rows of an experiment, with a hash of the code."""
    key = {
        "experiment": experiment.name,
        "paper": experiment.paper,
        "setting": experiment.setting,
        "small": effort.small,
        "code_sha256": code_digest(),
    }
    if effort.trace is not None:
        key |= {"trace": effort.trace.name, "trace_bytes": effort.trace.stat().st_size}
    return key


def _run(
    experiment: Experiment,
    effort: Effort,
    folder: Path,
    progress: Progress,
    cluster: str | None,
    workers: Workers | None,
) -> dict[str, list[Any]]:
    """Compute the parts that are not kept yet, and return the columns of all rows."""
    names = list(experiment.tasks(effort))
    pieces = {
        name: partial(_rows, experiment, effort, name)
        for name in names
        if not _is_kept(folder / f"{name}.parquet")
    }
    if pieces:
        processes = available_bytes() // (experiment.memory_mb * 1_000_000)
        processes = max(1, min(os.cpu_count() or 1, processes, len(pieces)))
        chosen = workers_of(cluster, processes) if workers is None else nullcontext(workers)
        with chosen as those:
            those.check(_key(experiment, effort), partial(_key, experiment, effort))
            n_before, kind = len(names) - len(pieces), f"parts of {experiment.name}"
            took = partial(_note_seconds, folder / TOOK)
            failures = complete(pieces, n_before, folder, those, kind, progress, took)
        if failures:
            name, reason = min(failures.items())
            raise RunError(
                f"{len(failures)} of {len(names)} {kind} failed, {name}: {reason} "
                f"({folder / name}-failure.txt); the same command runs the rest again"
            )
    progress(f"{experiment.name}: drawing", 1.0)
    parts = [read_columns(folder / f"{name}.parquet") for name in names]
    columns = {field: [value for part in parts for value in part[field]] for field in Row._fields}
    rows = [Row(*row) for row in zip(*columns.values(), strict=True)]
    more = experiment.over_all(rows)
    return {field: columns[field] + [row[n] for row in more] for n, field in enumerate(Row._fields)}


def _note_seconds(file: Path, name: str, outcome: Outcome) -> None:
    """Add the processor seconds of a part to the file that has those of the other parts."""
    seconds = read_json(file) if file.exists() else {}
    seconds[name] = round(outcome.seconds, 3)
    with atomic_write(file) as new:
        new.write_text(json.dumps(seconds))


def _rows(experiment: Experiment, effort: Effort, name: str, place: Path) -> bytes:
    """Return the content of a Parquet file with a task's rows."""
    rows = list(experiment.tasks(effort)[name]())
    columns = {field: [row[n] for row in rows] for n, field in enumerate(Row._fields)}
    write_columns(place / "rows.parquet", columns)
    return (place / "rows.parquet").read_bytes()


def _is_kept(path: Path) -> bool:
    """Return True if a part's file can be read; a damaged file is removed."""
    if path.exists():
        try:
            if set(read_columns(path)) == set(Row._fields):
                return True
        except TableError:
            pass
        path.unlink()
    return False


def read_reproduction(experiment: Experiment, out: Path = OUT) -> Reproduction | None:
    """Return the results of an experiment, compared with the present ``values.yaml``; None if it
    was not run to its end.

    Raises:
        OSError, ValueError, KeyError: The files of the experiment are damaged.
    """
    if not was_run(experiment, out):
        return None
    folder = out / experiment.name
    return _reproduction(experiment, read_columns(folder / "results.parquet"), folder)


def _reproduction(experiment: Experiment, rows: Mapping[str, Any], folder: Path) -> Reproduction:
    """Return an experiment's rows compared with the paper, and what else its folder has."""
    ours = figures_of(rows)
    setting = read_json(folder / MARK)
    seconds = read_json(folder / PARTS / TOOK)
    commit = folder / PARTS / COMMIT
    return Reproduction(
        experiment,
        verdicts(experiment, ours),
        ours,
        max((len(figures.values) for figures in ours.values()), default=0),
        sum(seconds.values()),
        setting,
        commit.read_text() if commit.exists() else "",
    )


def _show(reproduction: Reproduction, folder: Path) -> list[Line]:
    """Write figure, table and page into ``folder``, and return the verdicts. Without Matplotlib, a
    figure of before is removed."""
    experiment = reproduction.experiment
    if can_draw():
        from scenarios.papers.plot import draw

        with new_files(folder / "figure") as drawn:
            draw(experiment, reproduction.ours, drawn)
    else:
        for figure in files_of(folder / "figure").values():
            figure.unlink(missing_ok=True)
    with atomic_write(folder / "table.md") as path:
        path.write_text(
            markdown(experiment, reproduction.lines, reproduction.ours), encoding="utf-8"
        )
    write_page(folder / PAGE, experiment_page(reproduction, folder))
    return reproduction.lines


def reproduction_in(folder: Path) -> Reproduction:
    """Return the results of an experiment from its folder, computed by whatever version of the
    code, and compared with the present ``values.yaml``.

    Raises:
        RunError: The files of the experiment are damaged (one line).
    """
    try:
        experiment = EXPERIMENTS[read_json(folder / MARK)["experiment"]]
        return _reproduction(experiment, read_columns(folder / "results.parquet"), folder)
    except (KeyError, TypeError, OSError, ValueError):
        raise RunError(_DAMAGED.format(folder)) from None


def page_again(folder: Path) -> Path:
    """Write figure, table and page of an experiment again from its rows, see `reproduction_in`.

    Returns:
        The path of the page.

    Raises:
        RunError: The files of the experiment are damaged (one line).
        FolderError: Its page is not ours.
    """
    try:
        _show(reproduction_in(folder), folder)
    except (RunError, FolderError):
        raise
    except (KeyError, TypeError, OSError, ValueError):
        raise RunError(_DAMAGED.format(folder)) from None
    return folder / PAGE
