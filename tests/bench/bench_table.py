"""Every method x parameters x faults x fabric x telemetry: `analysis/COMPARISON.md`.

`python -m tests.bench table`. The rows of each run are kept in `runs/bench-table`: an interrupted
table goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from analysis.evaluation.metrics import score
from analysis.evaluation.parameter_sets import read_set
from analysis.methods.registry import make_method
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import Telemetry
from scenarios.experiment import run_experiment
from scenarios.flow import simulate
from scenarios.scenario import load_scenario
from scenarios.settings import Settings, make_settings
from testbed.fabric.topologies import make_fabric
from testbed.faults.specification import parse_faults
from testbed.record.places import whole
from testbed.record.run import RunDirectory

__all__ = ["bench_table"]

SEEDS = range(1, 6)
FABRICS: Mapping[str, Mapping[str, Any]] = {
    "K=8": {"k": 8},
    "K=16": {"k": 16, "load": 0.2},
    "leaf-spine": {"topology": "leaf-spine:32:8"},
}
FAULTS = {
    "healthy": "none",
    "few links, 0.1-1 %": "1..8links:0.001..0.01",
    "10 % of the links": "10pct",
    "one device": "devices:1",
    "two devices": "devices:2",
}
BACKGROUND = "0..0.0001"
"""Of healthy links, as in Flock's simulations (its section 6.3)."""

READERS: Mapping[str, tuple[str, ...]] = {
    "segments": ("canary", "canary-mle"),
    "matrix": ("detector",),
    "A1": ("netbouncer", "netbouncer-stage", "netscope", "flock", "mle:A1"),
    "A2": ("007", "flock", "mle:A2"),
    "P": ("flock", "mle:P"),
    "A1+P": ("flock", "mle:A1+P"),
    "A1+A2+P": ("flock", "mle:A1+A2+P"),
    "INT": ("flock", "mle:INT"),
}
"""Who reads what; the exact programs of 007 and Sherlock take up to a minute a run and stay out."""

BLACK_HOLES = "black holes"
ROOT = Path(__file__).parents[2]
SETS = {
    "default": "default",
    "paper": "paper",
    "calibrated": str(ROOT / "scenarios/calibrated.yaml"),
}
PLACE = Path("runs/bench-table")
OUT = ROOT / "analysis/COMPARISON.md"


Row = tuple[str, str, str, float, float, float]
"""Telemetry, method, parameters; F1, links wrongly blamed, seconds."""


def bench_table(console: Console) -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    cells = list(product(FABRICS, FAULTS, SEEDS))
    cells += [("K=4, packets", BLACK_HOLES, seed) for seed in SEEDS]
    todo = [cell for cell in cells if not _file(cell).exists()]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_run, *cell): cell for cell in todo}
        for number, future in enumerate(as_completed(futures), 1):
            cell = futures[future]
            with whole(_file(cell)) as new:
                new.write_text(json.dumps(future.result()))
            console.print(f"{number} of {len(todo)}: {', '.join(map(str, cell))}")
    OUT.write_text(_table({cell: json.loads(_file(cell).read_text()) for cell in cells}))
    console.print(f"written: {OUT}")


def _file(cell: tuple[str, str, int]) -> Path:
    name = hashlib.sha256(repr((cell, FABRICS, FAULTS, READERS, *SETS)).encode()).hexdigest()[:16]
    return PLACE / f"{name}.json"


def _run(fabric: str, faults: str, seed: int) -> list[Row]:
    """What each method says of a run, with each set of parameters and kind of telemetry."""
    rows: list[Row] = []
    for kind, telemetry, truth in _telemetry(fabric, faults, seed):
        for method, chosen in product(READERS[kind], SETS):
            found = make_method(method, read_set(SETS[chosen])).localize(telemetry)
            got = score(found.flagged, truth, telemetry.topology)[found.native]
            name = method.partition(":")[0]
            rows.append((kind, name, chosen, got.f1, got.false_positives, found.seconds))
    return rows


def _telemetry(fabric: str, faults: str, seed: int) -> Iterator[tuple[str, Telemetry, np.ndarray]]:
    """Kind, telemetry and the faulty links of a run."""
    if faults == BLACK_HOLES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            settings = Settings(k=4, seed=seed, faults="3links")
            run_experiment(
                "blackhole",
                load_scenario("blackhole"),
                settings,
                path,
                lambda what, share: None,
                [],
            )
            record = RunDirectory(path)
            truth = np.flatnonzero(record.table("links")["faulty"])
            for kind in READERS:
                if kind != "INT":
                    yield kind, read_telemetry(record, _kinds(kind)), truth
        return
    settings = make_settings(
        {
            **FABRICS[fabric],
            "backend": "flow",
            "seed": seed,
            "noise": BACKGROUND,
            "faults": FAULTS[faults],
        }
    )
    made = make_fabric(settings.topology, settings.k, seed)
    plan = parse_faults(settings.faults, made, seed)
    run = simulate(settings, plan, made)
    for kind in READERS:
        yield kind, run.telemetry(_kinds(kind)), plan.links


def _kinds(kind: str) -> str:
    return "A1" if kind in ("segments", "matrix") else kind


def _table(found: Mapping[tuple[str, str, int], Sequence[Row]]) -> str:
    """The means over the seeds, as Markdown."""
    text = [
        "# How well every method does",
        "",
        f"Made by `python -m tests.bench table`: seeds {SEEDS[0]} to {SEEDS[-1]}, healthy links",
        f"lose {BACKGROUND} (black holes: packets, and healthy links lose nothing). Each cell has",
        "the mean F1, the links that were blamed wrongly, and the seconds of the diagnosis.",
    ]
    for faults in dict.fromkeys(faults for _, faults, _ in found):
        fabrics = list(dict.fromkeys(fabric for fabric, broken, _ in found if broken == faults))
        figures: dict[tuple[str, ...], dict[str, list[tuple[float, ...]]]] = {}
        for (fabric, broken, _), rows in found.items():
            for *key, f1, wrong, seconds in rows if broken == faults else ():
                of_method = figures.setdefault(tuple(map(str, key)), {})
                of_method.setdefault(fabric, []).append((f1, wrong, seconds))
        head = ["telemetry", "method", "parameters", *fabrics]
        text += ["", f"## {faults}", "", _line(head), _line(["---"] * len(head))]
        for key, by_fabric in figures.items():
            text.append(_line([*key, *(_cell(by_fabric.get(fabric)) for fabric in fabrics)]))
    return "\n".join(text) + "\n"


def _cell(figures: Sequence[tuple[float, ...]] | None) -> str:
    if not figures:
        return ""
    f1, wrong, seconds = np.mean(figures, axis=0)
    return f"{f1:.3f}, {wrong:.1f}, {seconds:.2f} s"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
