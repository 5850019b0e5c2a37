# SPDX-License-Identifier: Apache-2.0
"""How well every method does, as a table: `python -m tests.studies comparison`.

What is known of each run stays in `runs/bench-tables`: runs on packets as they are, and what each
method made of each run, by its parameters and its sources. So an interrupted table goes on where it
stopped, and after a change to a method no other is run again. Interrupted, it writes the table of
the runs that there are; first seeds come first, and large fabrics last.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from analysis.evaluation.metrics import score
from analysis.evaluation.parameter_sets import read_set
from analysis.methods.registry import build, make_method
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import MissingTelemetry, Telemetry
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.request import load_scenario
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings
from scenarios.experiment.without_packets import simulate
from testbed.record.atomic import atomic_write
from testbed.record.run import RunDirectory
from tests.studies.data import write_rows

PLACE = Path("runs/bench-tables")
FLOCK = ("flock", "flock+refine+conditional+severe")
READERS: Mapping[str, tuple[str, ...]] = {
    "segments": ("canary", "canary+acquit", "canary-mle"),
    "matrix": ("detector", "mle:detector"),
    "A1": ("netbouncer", "netbouncer-stage", "netscope", *FLOCK, "mle:A1"),
    "A2": ("007", *FLOCK, "mle:A2"),
    "P": (*FLOCK, "mle:P"),
    "A1+P": (*FLOCK, "mle:A1+P"),
    "A1+A2+P": (*FLOCK, "mle:A1+A2+P"),
    "INT": (*FLOCK, "mle:INT"),
    "segments, A1, matrix": ("mle",),
}
"""Who reads what; the exact programs of 007 and Sherlock take up to a minute a run and stay out."""

HIDDEN = ("P", "A1+P")
"""Where no lossy flow's path is known. At K=16 methods take minutes with them, and at K=8 one sees
the same: they are left out there."""

LARGE = "K=16"
"""Runs take minutes there, so that they come last."""

COLUMNS = (
    *("part", "telemetry", "method", "parameters", "column", "f1", "wrong", "seconds"),
    *("runs", "of"),
)

Row = tuple[float, float, float]
"""F1, links wrongly blamed, seconds of processor time."""


@dataclass(frozen=True)
class Cell:
    """A run: the part and the column of the table that it is for, its scenario and settings."""

    part: str
    column: str
    scenario: str
    settings: Mapping[str, Any]

    @property
    def key(self) -> str:
        asked = (self.scenario, sorted(self.settings.items()))
        return hashlib.sha256(repr(asked).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Table:
    """What is run and read: ``sets`` of parameters, ``kinds`` of telemetry."""

    cells: Sequence[Cell]
    sets: Sequence[str]
    kinds: Sequence[str]

    def asked(self) -> Iterator[tuple[str, str, str]]:
        """Kind of telemetry, method and set of parameters of each line of the table."""
        for kind in self.kinds:
            for method in READERS[kind]:
                for chosen in self.sets:
                    yield kind, method, chosen


def write_comparison(console: Console) -> None:
    """Write `docs/data/comparison.csv`: method x parameters x faults x fabric x telemetry.

    Loads are a tenth and a hundredth of those that would fill a second, as a run has ten seconds.
    """
    fabrics = {
        "K=8": {"k": 8, "load": 0.06},
        LARGE: {"k": 16, "load": 0.01},
        "leaf-spine": {"topology": "leaf-spine:32:8", "load": 0.02},
    }
    faults = {
        "Healthy": "none",
        "Few links, 0.1 to 1 %": "1..8links:0.001..0.01",
        "10 % of the links": "10pct",
        "One device": "devices:1",
        "Two devices, a rate for each link": "device-links:2",
    }
    flow = {"backend": "flow", "noise": "0..0.0001"}
    cells = [
        Cell(part, column, "faulty_links", flow | fabric | {"faults": broken, "seed": seed})
        for part, broken in faults.items()
        for column, fabric in fabrics.items()
        for seed in range(1, 3 if column == LARGE else 6)
    ]
    small = {"backend": "flow", "k": 4}
    background = {"Background, 10 % of the links": "10pct:0.002..1", "Background": "none"}
    cells += [
        Cell(part, noise, "faulty_links", small | {"faults": of, "noise": noise, "seed": seed})
        for part, of in background.items()
        for noise in ("0", "1e-06", "1e-05", "0.0001", "0..0.0001", "0..0.001")
        for seed in range(1, 6)
    ]
    packets = {"backend": "virtual", "k": 4, "faults": "3links", "noise": "0"}
    cells += [
        Cell("Black holes", "K=4, packets", "blackhole", packets | {"seed": seed})
        for seed in range(1, 6)
    ]
    _make(Table(cells, ("default", "paper"), list(READERS)), console)


def _make(table: Table, console: Console) -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Row]] = {}
    pool = ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn"))
    try:
        cells = sorted(table.cells, key=lambda cell: (cell.column == LARGE, cell.settings["seed"]))
        futures = {pool.submit(_rows, table, cell): cell for cell in cells}
        for number, future in enumerate(as_completed(futures), 1):
            cell = futures[future]
            rows[cell.key] = future.result()
            console.print(f"{number} of {len(futures)}: {cell.part}, {cell.column}")
    finally:
        pool.shutdown(cancel_futures=True)
        console.print(f"written: {write_rows('comparison', COLUMNS, _means(table, rows))}")
        head = ("part", "telemetry", "column", "difference", "error", "method")
        console.print(f"written: {write_rows('beside_mle', head, _beside_mle(table, rows))}")


def _rows(table: Table, cell: Cell) -> dict[str, Row]:
    """Return the scores of each method on a run, with each set of parameters and kind of
    telemetry."""
    file = PLACE / f"{cell.key}.json"
    rows: dict[str, Row] = json.loads(file.read_text()) if file.exists() else {}
    asked = {_line_key(*line): line for line in table.asked()}
    todo = {key: line for key, line in asked.items() if key not in rows}
    if cell.settings.get("backend") != "flow":  # no path of a packet is recorded
        todo = {key: line for key, line in todo.items() if line[0] != "INT"}
    if cell.column == LARGE:
        todo = {key: line for key, line in todo.items() if line[0] not in HIDDEN}
    if not todo:
        return rows
    kinds = [kind for kind in table.kinds if kind in {line[0] for line in todo.values()}]
    for kind, telemetry, truth in _telemetry(cell, kinds):
        for key, (_, method, chosen) in todo.items():
            if key.startswith(f"{kind} "):
                rows[key] = _row(kind, method, chosen, telemetry, truth)
    with atomic_write(file) as new:
        new.write_text(json.dumps(rows))
    return rows


_warm: set[tuple[str, str]] = set()


def _row(kind: str, name: str, chosen: str, telemetry: Telemetry, truth: np.ndarray) -> Row:
    method = make_method(name, read_set(chosen))
    try:
        if (kind, name) not in _warm:  # what is compiled, or loaded, is no time of the method
            method.localize(telemetry)
            _warm.add((kind, name))
        begin = time.process_time()
        found = method.localize(telemetry)
        seconds = time.process_time() - begin
    except MissingTelemetry:  # no flow that lost packets could be traced, say: it blames nothing
        return float(not len(truth)), 0.0, 0.0
    got = score(found.flagged, truth, telemetry.topology)[found.native]
    return got.f1, got.false_positives, seconds


@cache
def _line_key(kind: str, method: str, chosen: str) -> str:
    """Return a key of a kind, a method's sources and its parameters."""
    of = read_set(chosen)
    source = Path(inspect.getfile(type(make_method(method))))
    packaged = source.parent.name != "methods"
    sources = sorted(source.parent.glob("*.py")) if packaged else [source]
    digest = hashlib.sha256(build(method, of).parameters.encode())
    for each in sources:
        digest.update(each.read_bytes())
    return f"{kind} {method} {digest.hexdigest()[:16]}"


def _telemetry(cell: Cell, kinds: Sequence[str]) -> Iterator[tuple[str, Telemetry, np.ndarray]]:
    """Yield kind, telemetry and the faulty links of a run."""
    scenario = load_scenario(cell.scenario)
    settings = make_settings({**scenario.defaults, **cell.settings})
    probing = ("segments", "matrix", "segments, A1, matrix")
    asked = {kind: "A1" if kind in probing else kind for kind in kinds}
    if settings.backend == "flow":
        layout = layout_of(settings, scenario)
        run = simulate(layout)
        for kind, of in asked.items():
            yield kind, read_telemetry(run, of), layout.plan.links
        return
    record = _emulated(cell)
    truth = np.flatnonzero(record.table("links")["faulty"])
    for kind, of in asked.items():
        yield kind, read_telemetry(record, of), truth


def _emulated(cell: Cell) -> RunDirectory:
    """Return a run on packets; it is emulated unless it is there already."""
    path = PLACE / f"run-{cell.key}"
    if not path.exists():
        scenario = load_scenario(cell.scenario)
        settings = make_settings({**scenario.defaults, **cell.settings})
        new = path.with_suffix(f".{os.getpid()}")
        run_experiment(layout_of(settings, scenario, cell.scenario), new, [])
        new.rename(path)
    return RunDirectory(path)


def _means(table: Table, found: Mapping[str, Mapping[str, Row]]) -> Iterator[Sequence[object]]:
    """Yield the rows of ``comparison.csv``: the means over the seeds of each line of the table."""
    for part, column, cells in _columns(table):
        seen: set[str] = set()
        for kind, method, chosen in table.asked():
            key = _line_key(kind, method, chosen)
            rows = [found[c.key][key] for c in cells if key in found.get(c.key, {})]
            if key not in seen and rows:
                seen.add(key)
                name = method.partition(":")[0]
                f1, wrong, seconds = np.mean(rows, axis=0)
                of = (len(rows), len(cells)) if len(rows) < len(cells) else ("", "")
                means = f"{f1:.3f}", f"{wrong:.1f}", f"{seconds:.2f}"
                yield part, kind, name, chosen, column, *means, *of


def _columns(table: Table) -> Iterator[tuple[str, str, list[Cell]]]:
    """Yield each part and column of the table with its runs."""
    for part, column in dict.fromkeys((cell.part, cell.column) for cell in table.cells):
        yield part, column, [c for c in table.cells if (c.part, c.column) == (part, column)]


def _beside_mle(table: Table, found: Mapping[str, Mapping[str, Row]]) -> Iterator[Sequence[object]]:
    """Yield the rows of ``beside_mle.csv``: for each kind of telemetry that others read, too, F1 of
    `mle` less that of the best of them, on the same runs, and the standard error of that."""
    for part, column, cells in _columns(table):
        runs = [found.get(cell.key, {}) for cell in cells]
        for kind in table.kinds:
            best = _less_best(table, kind, runs) if len(READERS[kind]) > 1 else None
            if best is not None:
                yield part, kind, column, *best


def _less_best(
    table: Table, kind: str, runs: Sequence[Mapping[str, Row]]
) -> tuple[str, str, str] | None:
    own = READERS[kind][-1]
    mine = _f1s(kind, own, table.sets[0], runs)
    compared: list[tuple[float, np.ndarray, str]] = []
    for method in READERS[kind][:-1]:
        for chosen in table.sets:
            less = mine - _f1s(kind, method, chosen, runs)
            less = less[~np.isnan(less)]
            if len(less) > 1:
                compared.append((float(less.mean()), less, method))
    if not compared:
        return None
    mean, less, method = min(compared, key=lambda each: each[0])
    return f"{mean:+.3f}", f"{less.std(ddof=1) / np.sqrt(len(less)):.3f}", method


def _f1s(kind: str, method: str, chosen: str, runs: Sequence[Mapping[str, Row]]) -> np.ndarray:
    """Return F1 of each run, NaN where it is not known."""
    key = _line_key(kind, method, chosen)
    return np.array([rows[key][0] if key in rows else np.nan for rows in runs])
