# SPDX-License-Identifier: Apache-2.0
"""How well every method does on traces of Flock's simulation: `python -m tests.studies traces`.

The settings are those of Flock's sections 6.3 and 7 (`scenarios.papers.flock_network`), the
parameters are `default`, and `paper` what the authors print, or for Flock ship, for each kind of
telemetry.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context

import numpy as np
from rich.console import Console

from analysis.evaluation.calibration import Case, accuracy
from analysis.evaluation.parameter_sets import read_set
from analysis.methods.base import Localizer
from analysis.methods.registry import make_method
from analysis.telemetry.telemetry import Telemetry
from scenarios.papers.flock_network import (
    PARAMETERS,
    World,
    device_failures,
    flock,
    lossy_links,
    network,
    silent_drops,
    trace,
)
from tests.studies.data import write_rows

HEAD = (
    *("telemetry", "method", "parameters", "class", "precision", "recall", "seconds"),
    *("alarms", "traces"),
)

HEALTHY = "healthy"
CLASSES = (
    "1 to 8 links, 100K flows",
    "1 to 8 links, 400K flows",
    "1 or 2 devices, 400K flows",
    "10 % of the links, 400K flows",
    HEALTHY,
)
TRACES = dict(zip(CLASSES, (20, 20, 20, 4, 100), strict=True))
"""The traces of each class; with 10 % of the links one takes two minutes of a processor."""

KINDS = ("A1", "A2", "P", "A1+P", "A1+A2+P", "INT")
Line = tuple[str, str, str]
"""Kind of telemetry, method, parameters."""
Scores = tuple[float, float, float]
"""Precision, recall, seconds of processor time."""


def write_traces(console: Console) -> None:
    """Write `docs/data/traces.csv`: method x kind of telemetry x fault."""
    found: dict[str, dict[Line, list[Scores]]] = {name: {} for name in CLASSES}
    asked = [(name, seed) for name, number in TRACES.items() for seed in range(number)]
    asked.sort(key=lambda each: each[1])
    pool = ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn"))
    try:
        futures = {pool.submit(_scores, *each): each for each in asked}
        for number, future in enumerate(as_completed(futures), 1):
            name, seed = futures[future]
            for line, scores in future.result().items():
                found[name].setdefault(line, []).append(scores)
            console.print(f"{number} of {len(asked)}: {name}, trace {seed}")
    finally:
        pool.shutdown(cancel_futures=True)
        console.print(f"written: {write_rows('traces', HEAD, _means(found))}")


def made(name: str, seed: int) -> tuple[World, Case]:
    """Return a trace with faults of a class; every other eight are skewed."""
    ecmp = network(small=False)
    if name == CLASSES[0]:
        return silent_drops(ecmp, seed, 100_000)
    if name == CLASSES[1]:
        return silent_drops(ecmp, seed, 400_000)
    if name == CLASSES[2]:
        return device_failures(ecmp, seed, 400_000)
    rng = np.random.default_rng([seed, 74 if name == HEALTHY else 75])
    n_links = ecmp.fabric.n_links
    failed = rng.choice(n_links, 0 if name == HEALTHY else n_links // 10, replace=False)
    loss = lossy_links(ecmp.fabric, failed, rng.uniform(1e-3, 1e-2, len(failed)), rng)
    world = trace(ecmp, loss, 400_000, rng, skewed=seed // 8 % 2 == 1)
    return world, Case(world.telemetry("A1"), failed)


@cache
def lines() -> Mapping[Line, Localizer]:
    """Return every method that reads a kind, with each set of parameters."""
    found: dict[Line, Localizer] = {}
    for kind in KINDS:
        by_name = {"flock": "flock", "mle": f"mle:{kind}"}
        if kind == "A1":
            by_name |= {n: n for n in ("netbouncer", "netbouncer-stage", "netscope")}
        if kind == "A2":
            by_name["007"] = "007"
        for name, spelled in by_name.items():
            found[kind, name, "default"] = make_method(spelled, read_set("default"))
            if name == "flock" and kind in PARAMETERS:
                found[kind, name, "paper"] = flock(*PARAMETERS[kind])
            elif name != "mle" and kind in PARAMETERS:
                found[kind, name, "paper"] = make_method(spelled, read_set("paper"))
    return found


def _views(world: World) -> Iterator[tuple[str, bool, Telemetry]]:
    """Yield the kind, whether it is for the methods that are not Flock's or ours, and the
    telemetry."""
    for kind in KINDS:
        yield kind, False, world.telemetry(kind)
    yield "A1", True, world.for_netbouncer("A1")
    yield "A2", True, world.for_vigil()


def _scores(name: str, seed: int) -> dict[Line, Scores]:
    world, case = made(name, seed)
    found = {}
    for kind, other, telemetry in _views(world):
        for line, method in lines().items():
            if line[0] == kind and (line[1] not in ("flock", "mle")) == other:
                begin = time.process_time()
                precision, recall = accuracy(method.localize(telemetry), case)
                found[line] = precision, recall, time.process_time() - begin
    return found


def _means(found: Mapping[str, Mapping[Line, list[Scores]]]) -> Iterator[Sequence[object]]:
    """Yield the rows of ``traces.csv``: mean precision and recall and the median seconds; of
    healthy traces, in how many something was blamed."""
    for line in lines():
        for name in CLASSES:
            scores = found[name].get(line, [])
            if not scores:
                continue
            precision, recall, seconds = np.array(scores).T
            if name == HEALTHY:
                yield *line, name, "", "", "", (precision < 1).sum(), len(scores)
                continue
            means = f"{precision.mean():.3f}", f"{recall.mean():.3f}", f"{np.median(seconds):.2f}"
            yield *line, name, *means, "", ""
