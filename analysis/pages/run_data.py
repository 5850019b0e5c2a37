# SPDX-License-Identifier: Apache-2.0
"""The data that the page of a run draws: the fabric, its faults and each method's verdict, as JSON.

The browser draws the fabric from the switches' tiers and pods and the ends of the links, as lines
or, if there are many, as matrices by pod. In a large fabric only links that are faulty or blamed
have figures of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.evaluation.columns import BENCHES, in_blocks, shown_name
from analysis.methods.diagnosis import UNSEEN
from analysis.pages.ranges import RANGES, Share, by_range
from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric
from testbed.fabric.monitors import monitor_switches
from testbed.fabric.names import plain
from testbed.record.run import RunDirectory

DRAWN_WHOLE = 300
"""The most directed links that are drawn at once (a fat-tree of K=6 has 216, of K=8 512)."""
_LISTED = 5000
"""The most directed links that all have figures of their own (a fat-tree of K=16 has 4,096)."""

Verdict = Mapping[str, Any]


def numbers(values: npt.NDArray[Any], digits: int = 5) -> list[float | int | None]:
    """Return numbers rounded to ``digits`` significant digits, in a form that is short in JSON;
    None stands for nan."""
    if values.dtype.kind in "iub":
        return [int(value) for value in values]
    return [
        None if value != value else 0 if value == 0 else float(f"{value:.{digits}g}")
        for value in values.tolist()
    ]


def verdicts(run: RunDirectory) -> dict[str, Verdict]:
    """Return the recorded diagnosis of each method by name: the columns of its table, and the
    entries ``native``, ``bench`` and ``own_name`` of the run's summary."""
    return {
        name: run.table(f"diagnoses/{name}")
        | {"native": entry["native"], "bench": entry.get("bench", "other")}
        | {"own_name": entry.get("own_name", "")}
        for name, entry in run.summary["methods"].items()
    }


def link_data(
    run: RunDirectory, methods: Mapping[str, Verdict]
) -> tuple[dict[str, Any], npt.NDArray[np.integer]]:
    """Return the data for the drawing (fabric, links, verdicts), and the ids of the directed links
    that have figures of their own, ascending: int[]."""
    fabric, truth = run.whole, run.table("links")
    monitor = monitor_switches(run.fabric, run.config["monitors"], run.config["seed"])
    monitor, of_hosts = np.split(monitor, [run.fabric.n_switches])
    if fabric is not run.fabric and not len(of_hosts):
        of_hosts = np.zeros(run.fabric.n_hosts, np.bool_)
    listed = np.ones(fabric.n_links, np.bool_)
    if fabric.n_links > _LISTED:
        listed = np.array(truth["faulty"])
        for verdict in methods.values():
            listed |= verdict["flagged"]
        listed |= listed[np.arange(fabric.n_links) ^ 1]  # a verdict may be of both directions
    links = np.flatnonzero(listed)
    emulator = np.zeros(fabric.n_links, np.int64)
    if run.has("emulator_drops"):
        drops = run.table("emulator_drops")
        known = drops["link"] >= 0
        np.add.at(emulator, drops["link"][known], drops["packets"][known])
    data = {
        "whole": fabric.n_links <= DRAWN_WHOLE,
        "fabric": fabric_data(fabric, np.append(of_hosts, monitor)),  # hosts come first
        "links": {
            "id": [] if listed.all() else links.tolist(),
            "faulty": np.flatnonzero(truth["faulty"]).tolist(),
            "rate": numbers(truth["rate"][links]),
            **{
                name: numbers(truth[name][links])
                for name in ("packets", "fault_drops", "queue_drops")
            },
            "emulator_drops": numbers(emulator[links]) if run.has("emulator_drops") else [],
        },
        "methods": [_method(name, verdict, links) for name, verdict in methods.items()],
        "ranges": [list(bounds) for bounds in RANGES],
    }
    return data, links


def fabric_data(fabric: Fabric, monitor: BoolArray) -> dict[str, Any]:
    """Return the switches, which of them host meters, and the ends of links, for the drawing."""
    return {
        "monitors": np.flatnonzero(monitor).tolist(),
        "names": [plain(name) for name in fabric.switch_names],
        "tier": fabric.tier.tolist(),
        "pod": fabric.pod.tolist(),
        "lower": fabric.link_src[::2].tolist(),
        "upper": fabric.link_dst[::2].tolist(),
    }


def _method(name: str, verdict: Verdict, links: npt.NDArray[np.integer]) -> dict[str, Any]:
    return {
        "name": shown_name(name, verdict["own_name"]),
        "bench": BENCHES[verdict["bench"]],
        "undirected": verdict["native"] == "undirected",
        "flagged": np.flatnonzero(verdict["flagged"]).tolist(),
        "unobserved": [
            link for link, state in enumerate(verdict.get("state", ())) if state == UNSEEN
        ],
        "ties": _ties(verdict),
        "rate": numbers(1 - verdict["success"][links], 4),
    }


def _ties(verdict: Verdict) -> list[list[int]]:
    """Return the blamed classes of several links that no observation tells apart, as lists of
    directed link ids."""
    flagged = np.flatnonzero(verdict["flagged"])
    if "class" not in verdict:
        return []
    classes = np.asarray(verdict["class"])[flagged]
    shift = verdict["native"] == "undirected"
    found = (flagged[classes == each] for each in np.unique(classes).tolist())
    return [own.tolist() for own in found if len(np.unique(own >> shift)) > 1]


def range_rows(
    methods: Mapping[str, Verdict], truth: Mapping[str, Any]
) -> dict[str, list[tuple[str, Sequence[tuple[Share, Share]]]]]:
    """Return the rows of the table of precision and recall by loss rate, under the heading of their
    block: each method's name and its shares in each of `ranges.RANGES`, over directed or undirected
    links as the method tells them apart."""
    rows = []
    for name, verdict in methods.items():
        columns = [verdict["flagged"], np.asarray(truth["faulty"]), truth["rate"]]
        columns.append(1 - verdict["success"])
        if verdict["native"] == "undirected":
            flagged, faulty, rate, estimate = columns
            columns = [flagged[::2] | flagged[1::2], faulty[::2] | faulty[1::2]]
            columns.append(np.maximum(*np.where(faulty, rate, 0.0).reshape(-1, 2).T))
            columns.append(np.fmax(estimate[::2], estimate[1::2]))
        shown = shown_name(name, verdict["own_name"])
        rows.append((verdict["bench"], (shown, by_range(*columns))))
    return in_blocks(rows)
