"""What `canary reproduce` prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from scenarios.papers.experiment import Experiment
from scenarios.papers.pages import cells, summary
from scenarios.papers.registry import EXPERIMENTS, LEFT_OUT
from scenarios.papers.reproduce import was_run
from scenarios.papers.verdicts import Line

STYLES = {"agrees": "green", "explained": "yellow", "not explained": "bold red"}


def listed(out: Path) -> Table:
    """Every experiment: what it shows, what it takes, whether it was run; then what is left out."""
    table = _table("name", "shows", "time", "memory", "run")
    for each in EXPERIMENTS.values():
        time = f"{each.seconds} s" if each.seconds < 90 else f"{round(each.seconds / 60)} min"
        run = "yes" if was_run(each, out) else ""
        table.add_row(each.name, f"{each.paper}: {each.shows}", time, f"{each.memory_mb} MB", run)
    for what, why in LEFT_OUT.items():
        table.add_row(Text("–", style="dim"), Text(f"{what}: {why}", style="dim"), "", "", "")
    return table


def verdict_table(experiment: Experiment, lines: Sequence[Line]) -> Table:
    """The paper's values beside ours."""
    title = f"{experiment.name}: {experiment.paper}, {experiment.shows} ({summary(lines)})"
    table = _table("quantity", "paper", "ours", "verdict", title=title)
    for line in lines:
        what, paper, ours, _, verdict, _ = cells(line)
        table.add_row(what, paper, ours, Text(verdict, style=STYLES.get(verdict, "dim")))
    return table


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(
        title=title, box=box.SIMPLE_HEAD, padding=0, show_edge=False, title_justify="left"
    )
    for column in columns:
        table.add_column(column, no_wrap=column in ("name", "verdict", "time", "memory", "run"))
    return table
