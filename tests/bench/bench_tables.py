"""How well every method does, as tables: `python -m tests.bench comparison` and `... background`.

The rows of each run are kept in `runs/bench-tables`: an interrupted table goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
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
from testbed.record.places import whole
from testbed.record.run import RunDirectory

__all__ = ["bench_background", "bench_comparison"]

ROOT = Path(__file__).parents[2]
PLACE = Path("runs/bench-tables")
SETS = {
    "default": "default",
    "paper": "paper",
    "calibrated": str(ROOT / "scenarios/calibrated.yaml"),
}
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

Row = tuple[str, str, str, float, float, float]
"""Telemetry, method, parameters; F1, links wrongly blamed, seconds."""


@dataclass(frozen=True)
class Cell:
    """A run: the part and the column of the table that it is for, its scenario and settings."""

    part: str
    column: str
    scenario: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """What is run, read and said: ``sets`` of parameters, ``kinds`` of telemetry.

    ``name`` is the bench's, and in capitals that of the file in `analysis`.
    """

    name: str
    says: str
    cells: Sequence[Cell]
    sets: Sequence[str]
    kinds: Sequence[str]


def bench_comparison(console: Console) -> None:
    """Method x parameters x faults x fabric x telemetry: `analysis/COMPARISON.md`."""
    fabrics = {
        "K=8": {"k": 8},
        "K=16": {"k": 16, "load": 0.1},
        "leaf-spine": {"topology": "leaf-spine:32:8", "load": 0.2},
    }
    faults = {
        "Healthy": "none",
        "Few links, 0.1 to 1 %": "1..8links:0.001..0.01",
        "10 % of the links": "10pct",
        "One device": "devices:1",
        "Two devices": "devices:2",
    }
    flow = {"backend": "flow", "noise": "0..0.0001"}
    cells = [
        Cell(part, column, "faulty_links", flow | fabric | {"faults": broken, "seed": seed})
        for part, broken in faults.items()
        for column, fabric in fabrics.items()
        for seed in range(1, 6)
    ]
    packets = {"k": 4, "faults": "3links"}
    cells += [
        Cell("Black holes", "K=4, packets", "blackhole", packets | {"seed": seed})
        for seed in range(1, 6)
    ]
    says = (
        "Five seeds each. Healthy links lose up to 1e-4, drawn for each (black holes: nothing).\n"
        "A cell has the mean F1, the links that were blamed wrongly, and seconds of the diagnosis."
    )
    _make(Table("comparison", says, cells, list(SETS), list(READERS)), console)


def bench_background(console: Console) -> None:
    """Healthy links that lose packets, too: `analysis/BACKGROUND.md`."""
    faults = {"10 % of the links, 0.2 to 100 %": "10pct:0.002..1", "Healthy": "none"}
    noises = ("0", "1e-06", "1e-05", "0.0001", "0..0.0001", "0..0.001")
    cells = [
        Cell(
            f"{part}; K={k}, {how}",
            noise,
            "faulty_links",
            {"k": k, "noise": noise, "faults": broken, "seed": seed} | settings,
        )
        for part, broken in faults.items()
        for how, seeds, settings in (
            ("flow level", 20, {"backend": "flow"}),
            ("packets", 5, {}),
        )
        for k in (4, 6, 8)
        for noise in noises
        for seed in range(1, seeds + 1)
    ]
    says = (
        "Columns: the loss of healthy links. Twenty seeds at flow level, five of packets. A cell\n"
        "has the mean F1, the links that were blamed wrongly, and seconds of the diagnosis."
    )
    kinds = ["segments", "matrix", "A1", "A2", "A1+A2+P", "INT"]
    _make(Table("background", says, cells, ["default"], kinds), console)


def _make(table: Table, console: Console) -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    files = [_file(table, cell) for cell in table.cells]
    todo = [(c, f) for c, f in zip(table.cells, files, strict=True) if not f.exists()]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_run, table, cell): (cell, file) for cell, file in todo}
        for number, future in enumerate(as_completed(futures), 1):
            cell, file = futures[future]
            with whole(file) as new:
                new.write_text(json.dumps(future.result()))
            console.print(f"{number} of {len(todo)}: {cell.part}, {cell.column}")
    out = ROOT / "analysis" / f"{table.name.upper()}.md"
    out.write_text(_text(table, [json.loads(file.read_text()) for file in files]))
    console.print(f"written: {out}")


def _file(table: Table, cell: Cell) -> Path:
    asked = (cell.scenario, sorted(cell.settings.items()), table.sets, table.kinds, READERS)
    return PLACE / f"{hashlib.sha256(repr(asked).encode()).hexdigest()[:16]}.json"


def _run(table: Table, cell: Cell) -> list[Row]:
    """What each method says of a run, with each set of parameters and kind of telemetry."""
    rows: list[Row] = []
    for kind, telemetry, truth in _telemetry(table, cell):
        for method in READERS[kind]:
            for chosen in table.sets:
                found = make_method(method, read_set(SETS[chosen])).localize(telemetry)
                got = score(found.flagged, truth, telemetry.topology)[found.native]
                name = method.partition(":")[0]
                rows.append((kind, name, chosen, got.f1, got.false_positives, found.seconds))
    return rows


def _telemetry(table: Table, cell: Cell) -> Iterator[tuple[str, Telemetry, np.ndarray]]:
    """Kind, telemetry and the faulty links of a run."""
    scenario = load_scenario(cell.scenario)
    settings = make_settings({**scenario.defaults, **cell.settings})
    asked = {kind: "A1" if kind in ("segments", "matrix") else kind for kind in table.kinds}
    if settings.backend == "flow":
        fabric = make_fabric(settings.topology, settings.k, settings.seed)
        plan = scenario.faults(fabric, settings)
        run = simulate(settings, plan, fabric)
        for kind, kinds in asked.items():
            yield kind, run.telemetry(kinds), plan.links
        return
    with tempfile.TemporaryDirectory() as folder:
        record = _emulated(cell.scenario, settings, Path(folder) / "run")
        truth = np.flatnonzero(record.table("links")["faulty"])
        for kind, kinds in asked.items():
            if kind != "INT":  # no path of a packet is recorded
                yield kind, read_telemetry(record, kinds), truth


def _emulated(name: str, settings: Settings, path: Path) -> RunDirectory:
    run_experiment(name, load_scenario(name), settings, path, lambda what, share: None, [])
    return RunDirectory(path)


def _text(table: Table, found: Sequence[Sequence[Row]]) -> str:
    """The means over the seeds, as Markdown."""
    text = [
        f"# {table.name.capitalize()}",
        "",
        f"Made by `python -m tests.bench {table.name}`.",
        table.says,
    ]
    figures: dict[str, dict[tuple[str, ...], dict[str, list[Sequence[float]]]]] = {}
    for cell, rows in zip(table.cells, found, strict=True):
        for kind, method, chosen, *three in rows:
            of_part = figures.setdefault(cell.part, {})
            of_method = of_part.setdefault((kind, method, chosen), {})
            of_method.setdefault(cell.column, []).append(three)
    for part, of_part in figures.items():
        columns = list(dict.fromkeys(cell.column for cell in table.cells if cell.part == part))
        head = ["telemetry", "method", "parameters", *columns]
        text += ["", f"## {part}", "", _line(head), _line(["---"] * len(head))]
        for key, by_column in of_part.items():
            text.append(_line([*key, *(_cell(by_column.get(column)) for column in columns)]))
    return "\n".join(text) + "\n"


def _cell(figures: Sequence[Sequence[float]] | None) -> str:
    if not figures:
        return ""
    f1, wrong, seconds = np.mean(figures, axis=0)
    return f"{f1:.3f}, {wrong:.1f}, {seconds:.2f} s"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
