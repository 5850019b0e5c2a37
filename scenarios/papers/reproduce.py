"""Running experiments: piece by piece, each kept when it is done, then drawn and compared."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from analysis.pages.template import write_page
from scenarios.compare import code_digest
from scenarios.experiment import Progress
from scenarios.kept import alone, is_of
from scenarios.papers.experiment import Effort, Experiment, Row, Task
from scenarios.papers.figure import draw
from scenarios.papers.html import Of, Ours, experiment_page, overview_page
from scenarios.papers.pages import markdown
from scenarios.papers.registry import EXPERIMENTS
from scenarios.papers.values import Printed, printed_values
from scenarios.papers.verdicts import Line, figures_of, verdicts
from testbed.record.columns import read_columns, write_columns
from testbed.record.manifest import PAGE
from testbed.record.places import whole
from testbed.record.run import RunError
from testbed.record.schema import TableError

__all__ = ["OUT", "Kept", "kept", "page_again", "reproduce", "was_run", "write_overview"]

OUT = Path("runs/reproduce")
MARK = "setting.json"
PARTS, TOOK = "parts", "took.json"


class Kept(NamedTuple):
    """The paper's values beside ours, of so many draws that took so many seconds of a processor;
    of which code, and of which capture."""

    lines: list[Line]
    draws: int
    seconds: float
    code: str
    trace: str | None


def was_run(experiment: Experiment, out: Path = OUT) -> bool:
    """Whether there is a figure of it, of whatever code."""
    return (out / experiment.name / "figure.png").exists()


def reproduce(
    experiment: Experiment,
    progress: Progress,
    out: Path = OUT,
    effort: Effort = Effort(),
    printed: Sequence[Printed] | None = None,
) -> list[Line]:
    """Run what ``out / name`` does not hold yet, and write figure, table, page and results there.

    What other code left there is begun anew; more draws are added to those of before.

    Args:
        printed: The paper's values; default: those of ``values.yaml``.

    Raises:
        RunError: The folder is another's, or another command is at work there.
        KeyboardInterrupt: What was finished is kept; a note on the exception says how to go on.
    """
    folder = out / experiment.name
    key = {
        "experiment": experiment.name,
        "paper": experiment.paper,
        "setting": experiment.setting,
        "small": effort.small,
        "code_sha256": code_digest(),
    }
    if effort.trace is not None:
        key |= {"trace": effort.trace.name, "trace_bytes": effort.trace.stat().st_size}
    values = printed_values().get(experiment.name, []) if printed is None else printed
    with alone(folder, MARK, "reproduction") as settings:
        if not is_of(settings, key):
            shutil.rmtree(folder / PARTS, ignore_errors=True)
            settings.write_text(json.dumps(key, indent=2) + "\n")
        rows = _run(experiment, effort, folder, progress)
        write_columns(folder / "results.parquet", rows)
        return _show(experiment, rows, list(values), folder)


def _run(
    experiment: Experiment, effort: Effort, folder: Path, progress: Progress
) -> dict[str, list[Any]]:
    tasks = experiment.tasks(effort)
    (folder / PARTS).mkdir(exist_ok=True)
    parts = []
    for number, (name, task) in enumerate(tasks.items()):
        progress(f"{experiment.name}: {name}", number / len(tasks))
        try:
            parts.append(_part(folder / PARTS / f"{name}.parquet", task, folder / PARTS / TOOK))
        except KeyboardInterrupt as stop:
            stop.add_note(
                f"{number} of {len(tasks)} parts of {experiment.name} are kept in {folder}: the "
                "same command goes on from there"
            )
            raise
    progress(f"{experiment.name}: drawing", 1.0)
    return {name: [value for part in parts for value in part[name]] for name in Row._fields}


def _part(path: Path, task: Task, took: Path) -> dict[str, list[Any]]:
    """The rows of a task, kept or computed now; ``took`` gets its processor seconds."""
    if path.exists():
        try:
            kept = read_columns(path)
            return {name: list(kept[name]) for name in Row._fields}
        except (TableError, KeyError):
            path.unlink()
    begin = time.process_time()
    rows = list(task())
    columns = {name: [row[n] for row in rows] for n, name in enumerate(Row._fields)}
    write_columns(path, columns)
    seconds = json.loads(took.read_text()) if took.exists() else {}
    with whole(took) as new:
        seconds[path.stem] = round(time.process_time() - begin, 3)
        new.write_text(json.dumps(seconds))
    return columns


def kept(experiment: Experiment, out: Path = OUT) -> Kept | None:
    """What `reproduce` left of an experiment, held against ``values.yaml`` as that is now."""
    folder = out / experiment.name
    if not was_run(experiment, out):
        return None
    rows = read_columns(folder / "results.parquet")
    setting = json.loads((folder / MARK).read_text())
    seconds = json.loads((folder / PARTS / TOOK).read_text())
    ours = figures_of(rows)
    lines = verdicts(experiment, ours, printed_values().get(experiment.name, []))
    draws = int(max(rows["draw"])) + 1
    return Kept(lines, draws, sum(seconds.values()), setting["code_sha256"], setting.get("trace"))


def _show(
    experiment: Experiment, rows: dict[str, list[Any]], values: list[Printed], folder: Path
) -> list[Line]:
    ours = figures_of(rows)
    lines = verdicts(experiment, ours, values)
    with whole(folder / "figure.png") as png, whole(folder / "figure.svg") as svg:
        draw(experiment, ours, values, (png, svg))
    with whole(folder / "table.md") as path:
        path.write_text(markdown(experiment, lines, ours), encoding="utf-8")
    write_page(folder / PAGE, experiment_page(_of(experiment, lines, ours, folder), folder))
    return lines


def _of(experiment: Experiment, lines: list[Line], ours: Ours, folder: Path) -> Of:
    setting = json.loads((folder / MARK).read_text())
    seconds = json.loads((folder / PARTS / TOOK).read_text())
    draws = max((len(figures.values) for figures in ours.values()), default=0)
    return Of(experiment, lines, ours, draws, sum(seconds.values()), setting)


def page_again(folder: Path) -> Path:
    """The page of an experiment that was run, and that of all beside it, as they are drawn now.

    Raises:
        RunError: What it left is damaged (one line).
    """
    try:
        experiment = EXPERIMENTS[json.loads((folder / MARK).read_text())["experiment"]]
        ours = figures_of(read_columns(folder / "results.parquet"))
        lines = verdicts(experiment, ours, printed_values().get(experiment.name, []))
        of = _of(experiment, lines, ours, folder)
    except (KeyError, TypeError, OSError, ValueError):
        raise RunError(f"{folder} is damaged, or was not run to its end: run it again") from None
    write_page(folder / PAGE, experiment_page(of, folder))
    write_overview(folder.parent)
    return folder / PAGE


def write_overview(out: Path = OUT) -> None:
    """``index.html`` of all that was run in ``out``; what is damaged there is left out."""
    there: list[Of] = []
    for experiment in EXPERIMENTS.values():
        if not was_run(experiment, out):
            continue
        folder = out / experiment.name
        with suppress(ValueError, KeyError, OSError):
            ours = figures_of(read_columns(folder / "results.parquet"))
            lines = verdicts(experiment, ours, printed_values().get(experiment.name, []))
            there.append(_of(experiment, lines, ours, folder))
    write_page(out / PAGE, overview_page(there, list(EXPERIMENTS), out))
