"""How well every method does on traces of Flock's simulation: `python -m tests.studies traces`.

The settings are those of Flock's sections 6.3 and 7 (`scenarios.papers.flock_network`), the
parameters are `default`, and `paper` what the authors print, or for Flock ship, for each kind of
telemetry.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path

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

OUT = Path(__file__).parents[2] / "docs" / "papers" / "traces.md"
TRACES = 20
HEALTHY_TRACES = 100
HEALTHY = "healthy"
CLASSES = (
    "1 to 8 links, 100K flows",
    "1 to 8 links, 400K flows",
    "1 or 2 devices, 400K flows",
    "10 % of the links, 400K flows",
    HEALTHY,
)
KINDS = ("A1", "A2", "P", "A1+P", "A1+A2+P", "INT")
Line = tuple[str, str, str]
"""Kind of telemetry, method, parameters."""
Scores = tuple[float, float, float]
"""Precision, recall, seconds of processor time."""


def write_traces(console: Console) -> None:
    """Write `docs/papers/traces.md`: method x kind of telemetry x fault."""
    found: dict[str, dict[Line, list[Scores]]] = {name: {} for name in CLASSES}
    asked = [(name, seed) for seed in range(TRACES) for name in CLASSES]
    asked += [(HEALTHY, seed) for seed in range(TRACES, HEALTHY_TRACES)]
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
        OUT.write_text(_text(found))
        console.print(f"written: {OUT}")


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


def _text(found: Mapping[str, Mapping[Line, list[Scores]]]) -> str:
    text = [
        "# Traces of Flock's simulation",
        "",
        f"Made by `python -m tests.studies traces`: {TRACES} traces of each class (healthy:",
        f"{HEALTHY_TRACES}), made as Flock's sections 6.3, 7.1 and 7.2 say, at flow level where",
        "the paper has NS3: a Clos of 2,500 directed links with those of the hosts, three times",
        "oversubscribed; healthy links lose up to 1e-4, failed ones 0.1 to 1 %; half of the traces",
        "skewed. Failed devices have 25 to 100 % of their links failed. `default` is one setting",
        "for all fabrics and kinds, `paper` what the authors print, or for Flock what they ship.",
        "",
        "A cell has F1 of the mean precision and recall as Flock's appendix A.1 defines them, the",
        "two, and the median processor seconds of the diagnosis; `healthy` in how many traces a",
        "link or device was blamed.",
        "",
        f"| telemetry | method | parameters | {' | '.join(CLASSES)} |",
        f"|{' --- |' * (3 + len(CLASSES))}",
    ]
    for line in lines():
        cells = [_cell(name, found[name].get(line, [])) for name in CLASSES]
        text.append(f"| {' | '.join((*line, *cells))} |")
    return "\n".join(text) + "\n"


def _cell(name: str, scores: list[Scores]) -> str:
    if not scores:
        return ""
    precision, recall, seconds = np.array(scores).T
    if name == HEALTHY:
        return f"{(precision < 1).sum()} of {len(scores)}"
    p, r = precision.mean(), recall.mean()
    f1 = 2 * p * r / (p + r) if p + r else 0.0
    return f"{f1:.3f} ({p:.3f}, {r:.3f}), {np.median(seconds):.2f} s"
