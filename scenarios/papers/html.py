"""The page of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.pages.run_page import files, settings_in_words
from analysis.pages.template import render_page
from scenarios.papers.page_data import CSS, SCRIPTS, SIGNS, Of, names_of, once, panel_data
from scenarios.papers.pages import HEAD, cells, number, summary
from scenarios.papers.verdicts import Figures, Line
from testbed.fabric.names import command, plain

_STYLES = {"agrees": "agrees", "not explained": "not"}
_USUAL_DRAWS = 20


def experiment_page(of: Of, folder: Path) -> str:
    """``index.html`` of an experiment."""
    experiment = of.experiment
    names = names_of(of)
    setup = {name: value for name, value in of.setting.items() if name != "setting"}
    setup |= {"draws": of.draws, "seconds of a processor": round(of.seconds)}
    return render_page(
        "reproduction.html",
        CSS,
        (*SCRIPTS, "reproduction.js"),
        {"names": names, "panels": [panel_data(of, panel, names) for panel in experiment.panels]},
        title=plain(f"{experiment.paper}: {experiment.shows}"),
        paper=experiment.paper,
        shows=experiment.shows,
        setting=experiment.setting,
        summary=summary(of.lines),
        picture="figure" in experiment.paper,
        head=HEAD,
        lines=[_row(line) for line in of.lines],
        all=[_figures(at, figures) for at, figures in of.ours.items()],
        quotes=[_quote(line) for line in once(of.lines)],
        setup=settings_in_words(setup),
        command=_command(of, folder),
        files=files(folder),
    )


def _row(line: Line) -> dict[str, Any]:
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
    mean = figures.mean
    bounds = ("–", "–") if mean.low != mean.low else (number(mean.low), number(mean.high))
    return (*at, number(mean.mean), *bounds, str(len(figures.values)))


def _quote(line: Line) -> str:
    paper = line.paper
    said = f"{paper.series} at {paper.x}: “{paper.quote}” ({paper.section})"
    return f"{said} {paper.arithmetic}".rstrip()


def _command(of: Of, folder: Path) -> str:
    words = [f"FIG={of.experiment.name}"]
    if of.draws > 1 and of.draws != _USUAL_DRAWS:
        words.append(f"DRAWS={of.draws}")
    if "trace" in of.setting:
        words.append(f"TRACE={of.setting['trace']}")
    return command("make", "reproduce", *words, *of_out(folder.parent))


def of_out(out: Path) -> list[str]:
    """``OUT=`` of a command, if it is not the usual folder."""
    return [] if out == Path("runs/reproduce") else [f"OUT={out}"]
