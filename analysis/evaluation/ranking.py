# SPDX-License-Identifier: Apache-2.0
"""Diagnoses as rankings of links and devices: as a table for the terminal and as columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.evaluation.columns import shown_name
from analysis.methods.diagnosis import Diagnosis
from testbed.arrays import LongArray
from testbed.fabric.names import plain
from testbed.record.fabric_file import NumberedFabric

ROWS_SHOWN = 20
COLUMNS = (
    "method",
    "rank",
    "kind",
    "link",
    "name",
    "blamed",
    "state",
    "score",
    "success",
    "class",
)


def ranking_columns(
    diagnoses: Mapping[str, Diagnosis], numbered: NumberedFabric
) -> dict[str, list[Any]]:
    """Return a table of each method's blamed devices, followed by all links from the most
    suspicious on.

    The columns are: method; rank, from 1; kind (link or device); link (its number in the fabric
    file, None for a device); name; blamed; state (`analysis.methods.diagnosis.STATES`); score and
    success (None if the method has none); class (the lowest number of the links that no observation
    tells apart from this one; they are blamed together and have one score).
    """
    fabric = numbered.fabric
    rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for method, diagnosis in diagnoses.items():
        devices, order = diagnosis.devices.tolist(), _order(diagnosis)
        n = len(devices) + len(order)
        rows["method"] += [method] * n
        rows["rank"] += [*range(1, len(devices) + 1), *range(1, len(order) + 1)]
        rows["kind"] += ["device"] * len(devices) + ["link"] * len(order)
        rows["link"] += [None] * len(devices) + numbered.link_ids[order].tolist()
        rows["name"] += [fabric.switch_names[d] for d in devices]
        rows["name"] += [fabric.link_names[link] for link in order.tolist()]
        blamed = np.isin(order, diagnosis.flagged).tolist()
        rows["blamed"] += [True] * len(devices) + blamed
        state = diagnosis.state
        rows["state"] += ["faulty"] * len(devices) + [state[link] for link in order.tolist()]
        rows["score"] += [None] * len(devices) + diagnosis.score[order].tolist()
        success = diagnosis.success[order]
        rows["success"] += [None] * len(devices)
        rows["success"] += [None if np.isnan(s) else s for s in success.tolist()]
        same = diagnosis.equivalent
        rows["class"] += [None] * len(devices)
        own = order if same is None else same[order]
        rows["class"] += numbered.link_ids[own].tolist()
    return rows


def render_ranking(method: str, diagnosis: Diagnosis, numbered: NumberedFabric) -> RenderableType:
    """Return a method's blamed devices and links for the terminal, the most suspicious first."""
    fabric = numbered.fabric
    undirected = diagnosis.native == "undirected"
    order = _order(diagnosis)
    blamed = order[np.isin(order, diagnosis.flagged)]
    if undirected:  # both directions are listed: one row for the two
        edge, first = np.unique(blamed >> 1, return_index=True)
        blamed = 2 * edge[np.argsort(first)]
    devices = diagnosis.devices.tolist()
    ties = diagnosis.ties
    later, alike = {each for tie in ties for each in tie[1:]}, {tie[0]: len(tie) for tie in ties}
    classes = len(blamed) - len(later)
    parts: list[RenderableType] = [_headline(method, len(blamed), classes, len(devices), diagnosis)]
    if len(blamed) or devices:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), show_edge=False)
        for name, side in (("rank", "right"), ("blamed", "left"), ("link", "right")):
            table.add_column(name, justify=side, no_wrap=True)  # pyright: ignore[reportArgumentType]
        estimated = not np.isnan(diagnosis.success[blamed]).all()
        for name in ("score", "loss" if estimated else ""):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("")
        for device in devices:
            table.add_row(
                "", Text(plain(fabric.switch_names[device]), "bold red"), "", "", "", "device"
            )
        rank = 0
        for link in blamed[:ROWS_SHOWN].tolist():
            rank += link not in later
            name = plain(fabric.link_names[link])
            loss = 1 - float(diagnosis.success[link])
            number = str(numbered.link_ids[link])
            table.add_row(
                "" if link in later else str(rank),
                Text(name.replace("->", " -- ") if undirected else name, _colour(loss)),
                f"{number}, {numbered.link_ids[link ^ 1]}" if undirected else number,
                f"{diagnosis.score[link]:.4g}",
                "" if np.isnan(loss) else f"{100 * loss:.3g} %",
                f"one of {alike[link]} that nothing tells apart"
                if link in alike
                else "or this one" * (link in later),
            )
        parts.append(table)
    more = len(blamed) - ROWS_SHOWN
    if more > 0:
        parts.append(Text(f"and {more} more links", style="dim"))
    parts += [Text(plain(remark), style="yellow") for remark in diagnosis.remarks]
    return Group(*parts)


def _headline(method: str, links: int, classes: int, devices: int, diagnosis: Diagnosis) -> Text:
    kind = "undirected " if diagnosis.native == "undirected" else ""
    counts = [_count(links, f"{kind}link")] + ([_count(devices, "device")] if devices else [])
    if classes < links:
        counts[0] += f" in {_count(classes, 'class', 'classes')}"
    found = " and ".join(counts) if links or devices else "nothing"
    own_name = diagnosis.method if method.partition(":")[0].endswith(".py") else None
    return Text.assemble(
        (shown_name(method, own_name), "bold"),
        " blames ",
        (found, "bold red" if links or devices else "bold green"),
        (f"  {diagnosis.seconds:.2f} s", "dim"),
    )


def _count(n: int, what: str, plural: str = "") -> str:
    return f"{n:,} {what if n == 1 else plural or what + 's'}"


def _order(diagnosis: Diagnosis) -> LongArray:
    """Return the ids of all links, blamed ones first, by descending score; links of a class are
    adjacent: int64[n_links]."""
    links = np.arange(len(diagnosis.score))
    blamed = np.isin(links, diagnosis.flagged)
    classes = links if diagnosis.equivalent is None else diagnosis.equivalent
    return np.lexsort((links, classes, -diagnosis.score, ~blamed))


def _colour(loss: float) -> str:
    """Return the colour of a blamed link by its estimated loss rate, which may be nan."""
    return "red" if np.isnan(loss) or loss >= 0.1 else "yellow" if loss >= 0.01 else ""
