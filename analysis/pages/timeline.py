"""A run epoch by epoch: packets counted and lost, and what methods blame after the first epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.methods.base import Localizer, Method
from analysis.methods.parameters import read_names
from analysis.methods.registry import make_method
from analysis.telemetry.minus_meters import MinusMeter
from analysis.telemetry.observations import read_segment_counts
from analysis.telemetry.telemetry import SegmentCounts, Telemetry
from testbed.record.run import RunDirectory

OFTEN = 1024
"""The most directed links times epochs for which methods are run on the first epochs without being
asked to. At K=4, with 64 links and 10 epochs, that takes a tenth of a second."""


def epochs(
    run: RunDirectory, links: npt.NDArray[np.integer], drops: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the record has of each epoch, for the page's charts.

    Args:
        run: The run's record.
        links: The directed links that have figures of their own.
        drops: The run's table of lost packets, empty if it has none.

    Returns:
        ``n``, the number of epochs; ``ms``, the length of one in milliseconds; ``counted`` and
        ``lost``, the packets on all segments in each epoch; ``rules`` and ``flows``, the rules and
        the flows of Canary's selection in each epoch, if they are recorded; ``drops``, the packets
        that each link truly lost, as (link, epoch, packets); and, in small fabrics, ``segments``,
        the packets counted and lost on the segments over each link in each epoch.
    """
    n = run.epochs
    data: dict[str, Any] = {"n": n, "ms": run.config.get("epoch_ms"), "drops": []}
    if run.has("segments"):
        table = run.table("segments")
        for name, column in (("counted", "sent"), ("lost", "lost")):
            data[name] = np.bincount(table["epoch"], table[column], n).astype(int).tolist()
        if run.fabric.n_links <= OFTEN:
            data["segments"] = _by_link(run, table, links)
    if run.has("rules"):
        rules = run.table("rules")
        data["rules"] = np.bincount(rules["epoch"], minlength=n).tolist()
        keys = [rules[name] for name in ("flow_lo", "flow_hi", "epoch")]
        order = np.lexsort(keys)
        fresh = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
        first = order[np.append(True, fresh)[: len(order)]]
        data["flows"] = np.bincount(rules["epoch"][first], minlength=n).tolist()
    if len(drops) and data["ms"]:
        data["drops"] = _drops(run, drops, links, int(data["ms"]))
    return data


def _by_link(
    run: RunDirectory, table: Mapping[str, Any], links: npt.NDArray[np.integer]
) -> dict[str, Any]:
    """Return ``sent`` and ``lost``: for each of ``links``, the packets counted and lost in each
    epoch, summed over the segments that contain the link."""
    paths = run.segments.paths
    cells = np.zeros((2, run.epochs, len(run.segments)), np.int64)
    for cell, name in zip(cells, ("sent", "lost"), strict=True):
        np.add.at(cell, (table["epoch"], table["segment"]), table[name])
    owner = np.repeat(np.arange(len(paths)), paths.length)
    over = np.zeros((2, run.epochs, run.fabric.n_links), np.int64)
    for epoch in range(run.epochs):
        for kind in range(2):
            np.add.at(over[kind, epoch], paths.links, cells[kind, epoch, owner])
    return {name: over[i][:, links].T.tolist() for i, name in enumerate(("sent", "lost"))}


def _drops(
    run: RunDirectory, table: Mapping[str, Any], links: npt.NDArray[np.integer], ms: int
) -> list[list[int]]:
    own = np.isin(table["link"], links)
    epoch = np.minimum(table["time_ns"][own] // (ms * 1_000_000), run.epochs - 1)
    cell = table["link"][own].astype(np.int64) * run.epochs + epoch.astype(np.int64)
    cells, count = np.unique(cell, return_counts=True)
    return np.stack((cells // run.epochs, cells % run.epochs, count), axis=1).tolist()


def over_time(
    run: RunDirectory,
    meters: list[MinusMeter],
    asked: bool,
    progress: Callable[[str, float], None],
) -> dict[str, list[list[int]]]:
    """Return the directed links that each method blames from the first epoch, from the first two,
    and so on.

    Only methods that read nothing but segments are run, because the record does not say in which
    epoch a probe or a flow was sent. Each method has the parameters that it had in the run.

    Args:
        run: The run's record.
        meters: Its minus meters.
        asked: Whether the user asked for it; otherwise the result is empty where it would take
            long, see `OFTEN`.
        progress: Callback that receives the current phase and its progress, from 0 to 1.
    """
    if not asked and run.fabric.n_links * run.epochs > OFTEN:
        return {}
    methods: dict[str, Localizer] = {}
    for name, entry in run.summary["methods"].items():
        method = _as_it_was(name, entry)
        if isinstance(method, Method) and getattr(method, "reads", "") == "segments":
            methods[name] = method
    if not methods:
        return {}
    counts = read_segment_counts(run, meters)
    telemetry = Telemetry(
        run.fabric, run.config["monitors"], canary_bytes=run.network["canary_bytes"]
    )
    found: dict[str, list[list[int]]] = {name: [] for name in methods}
    for n in range(1, run.epochs + 1):
        first = SegmentCounts(counts.segments, counts.sent[:n], counts.lost[:n])
        for name, method in methods.items():
            progress(f"first {n} epochs: {name}", (n - 1) / run.epochs)
            verdict = method.localize(replace(telemetry, segments=first))
            found[name].append(verdict.flagged.tolist())
    return found


def _as_it_was(name: str, entry: Mapping[str, Any]) -> Localizer | None:
    """Return the method with the parameters that the summary's ``entry`` records; None if no such
    method is installed."""
    said = entry.get("parameters", "")
    try:
        return make_method(f"{read_names(name)[0].name}:{said}" if said else name)
    except ValueError:
        return None
