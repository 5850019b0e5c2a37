"""The page of all experiments that were run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.pages.template import render_page
from scenarios.papers.html import of_out
from scenarios.papers.page_data import CSS, SCRIPTS, SIGNS, Of, names_of, panel_data
from scenarios.papers.pages import summary
from testbed.fabric.names import command


def overview_page(there: Sequence[Of], every: Sequence[str], out: Path) -> str:
    """``index.html`` of all that was run in ``out``, of the experiments that there are."""
    names = [of.experiment.name for of in there]
    figures = []
    for of in there:
        own = names_of(of)
        panels = [panel_data(of, panel, own) for panel in of.experiment.panels[:1]]
        figures.append({"names": own, "panel": panels[0]} if panels else None)
    return render_page(
        "reproductions.html",
        CSS,
        (*SCRIPTS, "reproductions.js"),
        {"figures": figures},
        title="The papers' figures, reproduced",
        summary=summary([line for of in there for line in of.lines]),
        missing=[name for name in every if name not in names],
        signs=[(sign, verdict) for verdict, sign in SIGNS.items()],
        experiments=[_entry(of) for of in there],
        command=command("make", "reproduce", "FIG=all", *of_out(out)),
    )


def _entry(of: Of) -> dict[str, Any]:
    count = Counter(line.verdict for line in of.lines)
    return {
        "name": of.experiment.name,
        "paper": of.experiment.paper,
        "shows": of.experiment.shows,
        "counts": [count[verdict] for verdict in SIGNS],
        "draws": of.draws,
        "seconds": round(of.seconds),
    }
