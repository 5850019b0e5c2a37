# SPDX-License-Identifier: Apache-2.0
"""What methods find of sprayed packets: `python -m tests.studies spraying`, in Markdown.

The first table has ECMP and spraying on the same traffic, faults and seeds. A faulty link that a
method does not observe counts as missed, unlike in the table of a run. The second has training
traffic over 64 spines: in how many of ten seeds a method names one link of 1.5 %, and nothing else,
after some iterations.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from canary import run
from testbed.record.run import RunDirectory

METHODS = "canary,netbouncer,flock,007,detector,netscope,flock+links,canary-mle,mle"
SEEDS = {"leaf-spine:8:4": 10}
FAULTS = {
    "10pct": "10 % of the links",
    "1links:0.015": "one of 1.5 %",
    "1links:0.005": "one of .5 %",
}

TRAINING: dict[str, Any] = {
    "topology": "leaf-spine:16:64:0.0625",
    "traffic": "ring-allreduce:mb=16",
    "load": 0.25,
    "epoch_ms": 1100,
}
"""64 ranks, a sixteenth of a host for each uplink: an iteration takes an epoch."""
ITERATIONS = (1, 2, 4)


def scored(folder: Path, **settings: Any) -> dict[str, tuple[float, int, int]]:
    """Return F1, wrong links and missed ones of each method of a run."""
    run(path=folder / "run", **settings)
    found = {}
    for name, entry in RunDirectory(folder / "run").summary["methods"].items():
        own: Any = entry[entry["native"]]
        right, wrong = own["true_positives"], own["false_positives"]
        missed = own["false_negatives"] + len(own["unobserved"])
        found[name] = 2 * right / max(2 * right + wrong + missed, 1), wrong, missed
    return found


def print_spraying(console: Console) -> None:
    """Print F1 with flows hashed and sprayed, and the seeds in which training shows the link."""
    for topology, seeds in SEEDS.items():
        console.print(f"\n{topology}, seeds 1 to {seeds}: F1 (wrong links a run)\n")
        _print_routings(console, topology, seeds)
    console.print("\nTraining: of ten seeds, those whose verdict is the faulty link alone\n")
    _print_training(console)


def _print_routings(console: Console, topology: str, seeds: int) -> None:
    head = [f"{words}, `{way}`" for words in FAULTS.values() for way in ("ecmp", "spray")]
    cells: dict[str, list[str]] = {}
    for faults in FAULTS:
        for routing in ("ecmp", "spray"):
            methods = METHODS + (",spray-check" if routing == "spray" else "")
            rows: dict[str, list[tuple[float, int, int]]] = {}
            for seed in range(1, seeds + 1):
                with tempfile.TemporaryDirectory() as folder:
                    found = scored(
                        Path(folder),
                        methods=methods,
                        topology=topology,
                        faults=faults,
                        routing=routing,
                        seed=seed,
                    )
                for name, row in found.items():
                    rows.setdefault(name, []).append(row)
            for name in (METHODS + ",spray-check").split(","):
                if name not in rows:
                    cells.setdefault(name, []).append("–")
                    continue
                f1, wrong, _ = np.mean(rows[name], axis=0)
                cells.setdefault(name, []).append(f"{f1:.2f} ({wrong:.1f})")
    console.print("| method |", " | ".join(head), "|", soft_wrap=True)
    console.print("| --- |" + " --- |" * len(head))
    for name, each in cells.items():
        console.print(f"| `{name}` |", " | ".join(each), "|", soft_wrap=True)


def _print_training(console: Console) -> None:
    methods = "spray-check,mle,flock,detector"
    console.print("| method |", " | ".join(f"{n} iterations" for n in ITERATIONS), "|")
    console.print("| --- |" + " --- |" * len(ITERATIONS))
    right: dict[str, list[int]] = {name: [] for name in methods.split(",")}
    for epochs in ITERATIONS:
        whole = dict.fromkeys(right, 0)
        for seed in range(1, 11):
            with tempfile.TemporaryDirectory() as folder:
                found = scored(
                    Path(folder),
                    methods=methods,
                    faults="1links:0.015",
                    routing="spray",
                    seed=seed,
                    epochs=epochs,
                    **TRAINING,
                )
            for name, (f1, _, _) in found.items():
                whole[name] += f1 == 1
        for name, n in whole.items():
            right[name].append(n)
    for name, each in right.items():
        console.print(f"| `{name}` |", " | ".join(map(str, each)), "|")
