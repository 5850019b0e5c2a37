# SPDX-License-Identifier: Apache-2.0
"""The paper's values beside ours as text: Markdown, and tables for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from scenarios.papers.experiment import Experiment
from scenarios.papers.verdicts import Figures, Line, Ours

STYLES = {"agrees": "green", "explained": "yellow", "not explained": "bold red"}
HEAD = ("quantity", "paper", "ours (mean; 95 %; range)", "difference", "verdict", "reason")


def number(value: float) -> str:
    """Return a number with four significant digits, or without decimals from 10,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _paper(line: Line) -> str:
    """Return the paper's value with its kind and section, as text."""
    value = line.paper
    sign = {"above": "> ", "below": "< ", None: ""}[value.side]
    return f"{sign}{number(value.value)} ({value.kind}, {value.section})"


def _ours(figures: Figures | None) -> str:
    """Return our mean, its 95 % interval and the range of the draws, as text."""
    if figures is None:
        return "–"
    mean, values = figures.mean, figures.values
    if len(set(values)) == 1:
        return (
            f"{number(mean.mean)} ({len(values)} equal)" if len(values) > 1 else number(mean.mean)
        )
    inside = f"{number(mean.low)}–{number(mean.high)}"
    return f"{number(mean.mean)}; {inside}; {number(min(values))}–{number(max(values))}"


def _difference(line: Line) -> str:
    """Return the difference between our mean and the paper's value, also in percent, as text."""
    if line.ours is None or line.paper.kind == "bound":
        return "–"
    difference = line.ours.mean.mean - line.paper.value
    share = f" ({100 * difference / line.paper.value:+.1f} %)" if line.paper.value else ""
    return f"{difference:+.4g}{share}"


def cells(line: Line) -> tuple[str, ...]:
    """Return the cells of a line, in the order of `HEAD`."""
    what = f"{line.series}, {line.quantity} at {line.paper.x}"
    reason = line.reason or ("within the draws" if line.verdict == "agrees" else "")
    return what, _paper(line), _ours(line.ours), _difference(line), line.verdict, reason


def summary(lines: Sequence[Line]) -> str:
    """Return how many lines have each verdict, such as ``3 agrees, 1 explained``."""
    count = Counter(line.verdict for line in lines)
    return ", ".join(f"{n} {verdict}" for verdict, n in sorted(count.items())) or "nothing printed"


def markdown_rows(lines: Sequence[Line]) -> list[str]:
    """Return a table of the paper's values beside ours, as lines of Markdown."""
    text = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    return text + [f"| {' | '.join(cell.replace('|', '/') for cell in cells(n))} |" for n in lines]


def markdown(experiment: Experiment, lines: Sequence[Line], ours: Ours) -> str:
    """Return the content of ``table.md``: the paper's values beside ours, then all of our
    values."""
    text = [f"# {experiment.paper}: {experiment.shows}", "", experiment.setting, ""]
    text += markdown_rows(lines)
    text += ["", "All figures of ours:", "", "| quantity | series | x | mean | 95 % | draws |"]
    text += ["| --- | --- | --- | ---: | --- | ---: |"]
    for (quantity, series, x), figures in ours.items():
        mean = figures.mean
        spread = "–" if np.isnan(mean.low) else f"{number(mean.low)}–{number(mean.high)}"
        shown = (quantity, series, x, number(mean.mean), spread, str(len(figures.values)))
        text.append(f"| {' | '.join(shown)} |")
    return "\n".join(text) + "\n"


def verdict_table(experiment: Experiment, lines: Sequence[Line]) -> Table:
    """Return a table of the paper's values beside ours, for the terminal."""
    title = f"{experiment.name}: {experiment.paper}, {experiment.shows} ({summary(lines)})"
    table = new_table("quantity", "paper", "ours", "verdict", title=title)
    for line in lines:
        what, paper, ours, _, verdict, _ = cells(line)
        table.add_row(what, paper, ours, Text(verdict, style=STYLES.get(verdict, "dim")))
    return table


def new_table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table for the terminal; columns with short cells are not wrapped."""
    table = Table(
        title=title, box=box.SIMPLE_HEAD, padding=0, show_edge=False, title_justify="left"
    )
    for column in columns:
        table.add_column(column, no_wrap=column in ("name", "verdict", "time", "memory", "run"))
    return table
