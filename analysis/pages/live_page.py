"""The page of a run that goes on: it is empty until the server sends events."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.evaluation.columns import BENCHES
from analysis.methods.registry import build
from analysis.pages.ranges import RANGES, in_words
from analysis.pages.run_data import DRAWN_WHOLE, fabric_data
from analysis.pages.template import render_page
from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric
from testbed.fabric.names import plain

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
        monitor: Which switches host meters, bool[n_switches].
        faults: Directed links and their loss rates, as far as they are known now.
        epochs: How many there will be; 0 where nobody knows.
        method: Whose verdict comes after each epoch.
    """
    rate = [0.0] * fabric.n_links
    for link, lost in faults:
        rate[link] = max(rate[link], float(lost))
    data = {
        "whole": fabric.n_links <= DRAWN_WHOLE,
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
