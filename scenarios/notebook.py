# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows of a run: a drawing of the fabric, a table, and plots."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.evaluation.columns import shown_name
from analysis.evaluation.screen import in_units, shown_methods
from scenarios.extras import need_matplotlib
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.names import nearest, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_WIDTH, _ROW = 720, 80  # pixels: the drawing, and from tier to tier
_DRAWN = 1500
"""The most undirected links that are drawn; of a larger fabric only the broken ones are."""
_BROKEN, _WHOLE = "#c0392b", "#9aa5b1"


def positions(fabric: Fabric) -> np.ndarray:
    """Return where each switch is drawn: float64[n_switches, 2], x from 0 to 1, y the tier."""
    place = np.zeros((fabric.n_switches, 2))
    for tier in np.unique(fabric.tier):
        own = np.flatnonzero(fabric.tier == tier)
        place[own, 0] = (np.arange(len(own)) + 0.5) / len(own)
        place[own, 1] = tier
    return place


def drawing(fabric: Fabric, rates: Mapping[str, float]) -> str:
    """Return the fabric as SVG, the broken links in red and thicker; ``rates`` are their loss
    rates, 0 to 1, by name."""
    place, top = positions(fabric), int(fabric.tier.max())
    x, y = _WIDTH * place[:, 0], 20 + _ROW * (top - place[:, 1])
    broken = {fabric.link(name) >> 1: (name, rate) for name, rate in rates.items()}
    edges = range(fabric.n_edges) if fabric.n_edges <= _DRAWN else ()
    lines = []
    for edge in [*(each for each in edges if each not in broken), *broken]:
        a, b = int(fabric.link_src[2 * edge]), int(fabric.link_dst[2 * edge])
        name, rate = broken.get(edge, ("", 0.0))
        title = f"<title>{escape(plain(name))}: {100 * rate:.2g} %</title>" if name else ""
        style = f'stroke="{_BROKEN}" stroke-width="2.5"' if name else f'stroke="{_WHOLE}"'
        ends = f'x1="{x[a]:.0f}" y1="{y[a]:.0f}" x2="{x[b]:.0f}" y2="{y[b]:.0f}"'
        lines.append(f"<line {ends} {style}>{title}</line>")
    dots = [
        f'<circle cx="{x[i]:.0f}" cy="{y[i]:.0f}" r="4" fill="{_WHOLE}">'
        f"<title>{escape(plain(name))}</title></circle>"
        for i, name in enumerate(fabric.switch_names)
    ]
    height = 40 + _ROW * top
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" style="max-width:{_WIDTH}px" role="img" '
        f'aria-label="the fabric; broken links are red">{"".join(lines)}{"".join(dots)}</svg>'
    )


def as_html(fabric: Fabric, summary: Mapping[str, Any]) -> str:
    """Return a run as HTML without scripts: the drawing, and the table of methods."""
    rows = []
    for name in shown_methods(summary)[0]:
        entry = summary["methods"][name]
        own = entry[entry["native"]]
        cells = (
            shown_name(name, entry.get("own_name")) + " *" * (entry["native"] == "undirected"),
            f"{own['true_positives']:,}",
            f"{own['false_negatives']:,}",
            f"{own['false_positives']:,}",
            "–" if own["f1"] is None else f"{own['f1']:.3f}",
            in_units(entry["telemetry_bytes"]),
            f"{entry['probe_packets']:,}",
        )
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    titles = ("method", "found", "missed", "wrong", "F1", "collected", "probes")
    head = "".join(f"<th>{title}</th>" for title in titles)
    what = f"{plain(summary.get('topology', ''))}, seed {summary['seed']}"
    rates = summary.get("rates") or dict.fromkeys(summary["faulty_links"], 0.0)
    return (
        f"<p>{len(summary['faulty_links'])} directed links drop packets "
        f"({escape(what.removeprefix('a '))}).</p>{drawing(fabric, rates)}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


class Plots:
    """Draws a run with Matplotlib; each method returns a figure, which a notebook shows.

    Args:
        fabric: The fabric of the run.
        links: The frame of its links (`scenarios.frames.links_frame`).
        verdicts: The frame of its verdicts (`scenarios.frames.verdicts_frame`).
    """

    def __init__(self, fabric: Fabric, links: DataFrame, verdicts: DataFrame) -> None:
        self._fabric, self._links, self._verdicts = fabric, links, verdicts

    def fabric(self) -> Figure:
        """Return a figure of the fabric, whose broken links are red."""
        need_matplotlib()
        from matplotlib.collections import LineCollection
        from matplotlib.figure import Figure

        fabric, place = self._fabric, positions(self._fabric)
        figure = Figure(figsize=(8, 3), layout="constrained")
        axes = figure.subplots()
        ends = np.stack([place[fabric.link_src[::2]], place[fabric.link_dst[::2]]], axis=1)
        broken = self._links["faulty"].to_numpy().reshape(-1, 2).any(axis=1)
        axes.add_collection(LineCollection(list(ends[~broken]), colors=_WHOLE, linewidths=0.6))
        axes.add_collection(LineCollection(list(ends[broken]), colors=_BROKEN, linewidths=2))
        axes.scatter(place[:, 0], place[:, 1], s=14, color="#34495e", zorder=3)
        axes.set_axis_off()
        return figure

    def rates(self, method: str | None = None) -> Figure:
        """Return a figure of the loss rates that a method estimates over the true ones.

        Args:
            method: Its name; None for ``canary-mle``, or if the run lacks that, the first method
                that estimates loss rates.

        Raises:
            ValueError: The run has no verdict of that method, or it estimates no loss rates.
        """
        need_matplotlib()
        from matplotlib.figure import Figure

        verdicts = self._verdicts
        known = verdicts["method"].unique().tolist()
        able = verdicts.loc[verdicts["success"].notna(), "method"].unique().tolist()
        if method is None and able:
            method = "canary-mle" if "canary-mle" in able else able[0]
        if method is not None and method not in known:
            raise UserError(f"the run has no verdict of {method!r}: {nearest(method, known)}")
        if method not in able:
            others = f"choose from {', '.join(able)}" if able else "no method of this run does"
            raise UserError(f"{method or 'a method'} estimates no loss rates: {others}")
        of = (self._verdicts["method"] == method).to_numpy()
        blames = self._verdicts["blamed"].to_numpy()[of]
        true = self._links["rate"].to_numpy()
        loss = 1 - self._verdicts["success"].to_numpy()[of]
        figure = Figure(figsize=(5, 4), layout="constrained")
        axes = figure.subplots()
        for blamed, colour, label in ((True, _BROKEN, "blamed"), (False, _WHOLE, "not blamed")):
            here = (blames == blamed) & (true > 0)
            axes.scatter(true[here], loss[here], s=16, color=colour, label=label)
        axes.plot([1e-4, 1], [1e-4, 1], color="0.7", lw=0.8)
        axes.set_xscale("symlog", linthresh=1e-3)
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.set_xlabel("true loss rate")
        axes.set_ylabel(f"loss rate by {method}")
        axes.legend(frameon=False)
        return figure
