"""Healthy links blamed where nothing is faulty: published methods, and what varies them.

`python -m tests.bench healthy`. A variant that blames more than its method is marked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from analysis.evaluation.metrics import score
from analysis.methods.changes import split
from analysis.methods.registry import METHODS, make_method
from tests.bench.bench_changes import changes, observed

__all__ = ["FABRICS", "bench_healthy"]

FABRICS: Mapping[str, tuple[dict[str, Any], Sequence[int]]] = {
    "K=4": ({"k": 4}, range(1, 21)),
    "K=8": ({"k": 8}, range(1, 9)),
    "K=16": ({"k": 16}, range(1, 3)),
    "leaf-spine 8x4": ({"topology": "leaf-spine:8:4"}, range(1, 21)),
}
"""The settings of each fabric besides the noise, and the seeds that are averaged."""

NOISES = ("0", "0.00001", "0.0001")


def bench_healthy(console: Console) -> None:
    names = list(dict.fromkeys(n for name, c in changes() for n in (name, f"{name}+{c.name}")))
    names += [name for name in METHODS if name not in names]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("links blamed in a run")
    found: dict[str, list[float]] = {name: [] for name in names}
    for title, (settings, seeds) in FABRICS.items():
        for noise in NOISES:
            table.add_column(f"{title}, {noise}", justify="right")
            seen = [observed(faults="none", noise=noise, seed=n, **settings)[0] for n in seeds]
            for name in names:
                verdicts = [(make_method(name).localize(one), one.topology) for one in seen]
                blamed = [
                    score(v.flagged, np.zeros(0, np.int32), fabric)[v.native].false_positives
                    for v, fabric in verdicts
                ]
                found[name].append(float(np.mean(blamed)))
            console.print(f"{title}, noise {noise}: {len(seeds)} seeds")
    for name, figures in found.items():
        published = found[split(name)[0]]
        more = [own > of + 1e-9 for own, of in zip(figures, published, strict=True)]
        cells = [f"{own:.2f}{' +' if m else ''}" for own, m in zip(figures, more, strict=True)]
        table.add_row(name, *cells)
    console.print(table)
