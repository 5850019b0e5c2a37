"""What a reader gets beside the figure: the table as Markdown, and plain pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from scenarios.papers.experiment import Experiment
from scenarios.papers.verdicts import Figures, Line

__all__ = ["beside", "cells", "markdown", "overview", "page", "summary"]

HEAD = ("quantity", "paper", "ours (mean; 95 %; range)", "difference", "verdict", "reason")
STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
    "img{max-width:100%}table{border-collapse:collapse;font-size:.9rem}"
    "td,th{border:1px solid #ccc;padding:.2rem .5rem;text-align:left;vertical-align:top}"
)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e4 and value == round(value) else f"{value:.4g}"


def _paper(line: Line) -> str:
    value = line.paper
    sign = {"above": "> ", "below": "< ", None: ""}[value.side]
    return f"{sign}{_number(value.value)} ({value.kind}, {value.section})"


def _ours(figures: Figures | None) -> str:
    if figures is None:
        return "–"
    mean, values = figures.mean, figures.values
    if len(set(values)) == 1:
        return (
            f"{_number(mean.mean)} ({len(values)} equal)" if len(values) > 1 else _number(mean.mean)
        )
    inside = f"{_number(mean.low)}–{_number(mean.high)}"
    return f"{_number(mean.mean)}; {inside}; {_number(min(values))}–{_number(max(values))}"


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
        spread = "–" if np.isnan(mean.low) else f"{_number(mean.low)}–{_number(mean.high)}"
        shown = (quantity, series, x, _number(mean.mean), spread, str(len(figures.values)))
        text.append(f"| {' | '.join(shown)} |")
    return "\n".join(text) + "\n"


def page(experiment: Experiment, lines: Sequence[Line]) -> str:
    """``index.html`` of an experiment."""
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells(line))}</tr>" for line in lines
    )
    head = "".join(f"<th>{escape(cell)}</th>" for cell in HEAD)
    quotes = "".join(
        f"<li>{escape(line.paper.series)} at {escape(line.paper.x)}: “{escape(line.paper.quote)}” "
        f"({escape(line.paper.section)}){escape(' ' + line.paper.arithmetic).rstrip()}</li>"
        for line in lines
    )
    title = escape(f"{experiment.paper}: {experiment.shows}")
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
        f"<p><a href='../index.html'>all</a></p><h1>{title}</h1><p>{escape(experiment.setting)}</p>"
        f"<img src=figure.svg alt='{title}'><table><tr>{head}</tr>{rows}</table>"
        "<p><a href=table.md>table.md</a>, <a href=results.parquet>results.parquet</a>, "
        "<a href=setting.json>setting.json</a>, <a href=figure.png>figure.png</a></p>"
        f"<h2>What the paper says</h2><ul>{quotes}</ul>\n"
    )


def overview(folders: Sequence[tuple[Path, Experiment]]) -> str:
    """``index.html`` of all that was run."""
    parts = "".join(
        f"<h2><a href='{folder.name}/index.html'>{escape(each.name)}</a></h2>"
        f"<p>{escape(f'{each.paper}: {each.shows}')}</p>"
        f"<a href='{folder.name}/index.html'><img src='{folder.name}/figure.svg' alt=''></a>"
        for folder, each in folders
    )
    return (
        "<!doctype html><meta charset=utf-8><title>Reproduction</title>"
        f"<style>{STYLE}</style><h1>The papers' figures, reproduced</h1>{parts}\n"
    )
