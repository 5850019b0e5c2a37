# SPDX-License-Identifier: Apache-2.0
"""The HTML page of an experiment that was run, and its entry in a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.pages.run_data import numbers
from analysis.pages.run_page import files, settings_in_words
from analysis.pages.template import render_page
from scenarios.papers.experiment import Experiment, Panel, Printed
from scenarios.papers.tables import HEAD, cells, number, summary
from scenarios.papers.verdicts import Figures, Line, Ours
from testbed.fabric.names import command, plain

SIGNS = {"agrees": "✓", "explained": "≈", "not explained": "✗", "cannot be compared": "–"}
_STYLES = {"agrees": "agrees", "not explained": "not"}
_USUAL_DRAWS = 20
_SCRIPTS = ("page.js", "series.js", "panels.js")
_CSS = ("page.css", "comparison.css", "reproduction.css")


@dataclass(frozen=True)
class Reproduction:
    """An experiment that was run.

    Attributes:
        experiment: The declaration of the experiment.
        lines: The paper's values beside ours, with verdicts.
        ours: All of our values.
        draws: The number of draws.
        seconds: Processor seconds of all parts.
        setting: The content of ``setting.json``.
        commit: The commit of the code; empty if it is not known.
    """

    experiment: Experiment
    lines: list[Line]
    ours: Ours
    draws: int
    seconds: float
    setting: Mapping[str, Any]
    commit: str = ""


def _names_of(reproduction: Reproduction) -> list[str]:
    """Return the names of our series that are drawn, in the order of the rows."""
    drawn = {panel.quantity for panel in reproduction.experiment.panels}
    return list(dict.fromkeys(plain(at[1]) for at in reproduction.ours if at[0] in drawn))


def _panel_data(reproduction: Reproduction, panel: Panel, names: Sequence[str]) -> dict[str, Any]:
    """Return the data of a panel for the script of the page."""
    points = []
    for (quantity, series, x), figures in reproduction.ours.items():
        if quantity == panel.quantity:
            mean, low, high = _numbers(figures)
            own = {"series": names.index(plain(series)), "x": x, "draws": len(figures.values)}
            points.append(own | {"mean": mean, "low": low, "high": high})
    printed = []
    for value in _values(reproduction.lines):
        at = reproduction.experiment.ours(value.quantity, value.series)
        series = [name for quantity, name in at if quantity == panel.quantity]
        if series:
            known = plain(series[0]) in names
            own = {"series": names.index(plain(series[0])) if known else None}
            own |= {"x": value.x, "value": value.value, "kind": value.kind, "side": value.side}
            printed.append(own | {"name": value.series})
    return {
        "x": panel.x,
        "y": panel.y_axis,
        "numeric": panel.numeric,
        "logX": panel.log_x,
        "logY": panel.log_y,
        "limits": None if panel.limits is None else list(panel.limits),
        "points": points,
        "printed": printed,
    }


def _numbers(figures: Figures) -> list[float | int | None]:
    """Return the mean and the interval as numbers for JSON, with six digits."""
    mean = figures.mean
    return numbers(np.array([mean.mean, mean.low, mean.high]), 6)


def _values(lines: Sequence[Line]) -> list[Printed]:
    """Return the paper's values, each once: some are compared with several of our series."""
    return list(dict.fromkeys(line.paper for line in lines))


def experiment_page(reproduction: Reproduction, folder: Path) -> str:
    """Return the page ``index.html`` of an experiment whose files are in ``folder``."""
    experiment = reproduction.experiment
    names = _names_of(reproduction)
    setup = {name: value for name, value in reproduction.setting.items() if name != "setting"}
    setup |= {"draws": reproduction.draws, "seconds of a processor": round(reproduction.seconds)}
    return render_page(
        "reproduction.html",
        _CSS,
        (*_SCRIPTS, "reproduction.js"),
        {
            "names": names,
            "panels": [_panel_data(reproduction, panel, names) for panel in experiment.panels],
        },
        title=plain(f"{experiment.paper}: {experiment.shows}"),
        paper=experiment.paper,
        shows=experiment.shows,
        setting=experiment.setting,
        summary=summary(reproduction.lines),
        picture="figure" in experiment.paper,
        head=HEAD,
        lines=[_row(line) for line in reproduction.lines],
        all=[_figures(at, figures) for at, figures in reproduction.ours.items()],
        quotes=[_quote(value) for value in _values(reproduction.lines)],
        setup=settings_in_words(setup),
        command=_command(reproduction, folder),
        files=files(folder),
    )


def _row(line: Line) -> dict[str, Any]:
    """Return the row of a line in the table of the page."""
    ours = line.ours.mean.mean if line.ours else None
    far = None if ours is None or line.paper.kind == "bound" else ours - line.paper.value
    return {
        "cells": cells(line),
        "paper": line.paper.value,
        "ours": "" if ours is None else ours,
        "difference": "" if far is None else far,
        "sign": SIGNS[line.verdict],
        "style": _STYLES.get(line.verdict, ""),
    }


def _figures(at: tuple[str, str, str], figures: Figures) -> tuple[str, ...]:
    """Return the cells of one of our values: mean, interval and number of draws."""
    mean = figures.mean
    bounds = ("–", "–") if mean.low != mean.low else (number(mean.low), number(mean.high))
    return (*at, number(mean.mean), *bounds, str(len(figures.values)))


def _quote(paper: Printed) -> str:
    """Return a quote from the paper with its section and arithmetic."""
    quote = f"{paper.series} at {paper.x}: “{paper.quote}” ({paper.section})"
    return f"{quote} {paper.arithmetic}".rstrip()


def _command(reproduction: Reproduction, folder: Path) -> str:
    """Return the command that makes the experiment again."""
    words = [f"FIG={reproduction.experiment.name}"]
    if reproduction.draws > 1 and reproduction.draws != _USUAL_DRAWS:
        words.append(f"DRAWS={reproduction.draws}")
    if "trace" in reproduction.setting:
        words.append(f"TRACE={reproduction.setting['trace']}")
    return command("make", "reproduce", *words, *_of_out(folder.parent))


def _of_out(out: Path) -> list[str]:
    """Return the word ``OUT=`` of a command, or no word for the usual folder."""
    return [] if out == Path("runs/reproduce") else [f"OUT={out}"]


def overview(reproduction: Reproduction, address: str) -> dict[str, Any]:
    """Return the entry of an experiment in a list: its name, what it shows, how many values of the
    paper have each verdict of `SIGNS`, and its first panel; ``address`` is that of its page."""
    count = Counter(line.verdict for line in reproduction.lines)
    names = _names_of(reproduction)
    panels = [_panel_data(reproduction, each, names) for each in reproduction.experiment.panels[:1]]
    return {
        "name": reproduction.experiment.name,
        "address": address,
        "paper": reproduction.experiment.paper,
        "shows": reproduction.experiment.shows,
        "counts": [count[verdict] for verdict in SIGNS],
        "draws": reproduction.draws,
        "seconds": round(reproduction.seconds),
        "figure": {"names": names, "panel": panels[0]} if panels else None,
    }
