"""What a reader gets beside the figure: the table as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from scenarios.papers.experiment import Experiment
from scenarios.papers.verdicts import Figures, Line

HEAD = ("quantity", "paper", "ours (mean; 95 %; range)", "difference", "verdict", "reason")


def number(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _paper(line: Line) -> str:
    value = line.paper
    sign = {"above": "> ", "below": "< ", None: ""}[value.side]
    return f"{sign}{number(value.value)} ({value.kind}, {value.section})"


def _ours(figures: Figures | None) -> str:
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
    if line.ours is None or line.paper.kind == "bound":
        return "–"
    difference = line.ours.mean.mean - line.paper.value
    share = f" ({100 * difference / line.paper.value:+.1f} %)" if line.paper.value else ""
    return f"{difference:+.4g}{share}"


def cells(line: Line) -> tuple[str, ...]:
    what = f"{line.series}, {line.quantity} at {line.paper.x}"
    reason = line.reason or ("within the draws" if line.verdict == "agrees" else "")
    return what, _paper(line), _ours(line.ours), _difference(line), line.verdict, reason


def summary(lines: Sequence[Line]) -> str:
    """``3 agree, 1 explained`` and so on."""
    count = Counter(line.verdict for line in lines)
    return ", ".join(f"{n} {verdict}" for verdict, n in sorted(count.items())) or "nothing printed"


def beside(lines: Sequence[Line]) -> list[str]:
    """The paper's values beside ours, as lines of Markdown."""
    text = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    return text + [f"| {' | '.join(cell.replace('|', '/') for cell in cells(n))} |" for n in lines]


def markdown(
    experiment: Experiment, lines: Sequence[Line], ours: Mapping[tuple[str, str, str], Figures]
) -> str:
    """``table.md``: the paper's values beside ours, then all of ours."""
    text = [f"# {experiment.paper}: {experiment.shows}", "", experiment.setting, "", *beside(lines)]
    text += ["", "All figures of ours:", "", "| quantity | series | x | mean | 95 % | draws |"]
    text += ["| --- | --- | --- | ---: | --- | ---: |"]
    for (quantity, series, x), figures in ours.items():
        mean = figures.mean
        spread = "–" if np.isnan(mean.low) else f"{number(mean.low)}–{number(mean.high)}"
        shown = (quantity, series, x, number(mean.mean), spread, str(len(figures.values)))
        text.append(f"| {' | '.join(shown)} |")
    return "\n".join(text) + "\n"
