# SPDX-License-Identifier: Apache-2.0
"""The page of a run in progress; it has no counts until the server sends events."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.evaluation.columns import BENCHES
from analysis.methods.registry import build
from analysis.pages.ranges import RANGES, in_words
from analysis.pages.run_data import fabric_data
from analysis.pages.template import render_page
from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric
from testbed.fabric.names import plain

DRAWN = 5000
"""The most directed links that are drawn (a fat-tree of K=16 has 4,096)."""
_SCRIPTS = ("page.js", "layout.js", "fabric.js", "charts.js", "live_link.js", "live.js")


def live_page(
    fabric: Fabric,
    monitor: BoolArray,
    title: str,
    faults: Sequence[tuple[int, float]],
    epochs: int,
    method: str = "",
) -> str:
    """Return the page that ``scenarios.live.server`` sends before its events.

    Args:
        fabric: The network to draw.
        monitor: Which switches host meters, bool[n_switches].
        title: Title of the page.
        faults: Faulty directed links with their loss rates, as far as they are known now.
        epochs: Number of epochs of the run; 0 if it is unknown.
        method: Name of the method that diagnoses after each epoch; empty if none does.
    """
    rate = [0.0] * fabric.n_links
    for link, lost in faults:
        rate[link] = max(rate[link], float(lost))
    data = {
        "whole": fabric.n_links <= DRAWN,
        "fabric": fabric_data(fabric, monitor),
        "links": {"id": [], "faulty": sorted({link for link, _ in faults}), "rate": rate},
        "methods": [
            {
                "name": method,
                "bench": BENCHES[build(method).bench],
                "undirected": False,
                "flagged": [],
                "rate": [],
            }
        ]
        if method
        else [],
        "overTime": [],
        "epochs": {"n": epochs},
        "ranges": [list(bounds) for bounds in RANGES],
    }
    return render_page(
        "live.html",
        ("page.css", "run.css", "live.css"),
        _SCRIPTS,
        data,
        title=plain(title),
        ranges=[in_words(*bounds) for bounds in RANGES],
        drawn=data["whole"],
        method=method,
    )
