# SPDX-License-Identifier: Apache-2.0
"""Methods whose loss ranges are the generator's classes, on rates of laws they were not told.

The five ranges of `canary` and `netbouncer-stage` (Canary, section III-F) are those that faulty
links' rates are drawn from (section IV-D). Here they are also drawn log-uniformly from 1e-4 to 1,
and are 3e-3 throughout. `python -m tests.studies laws`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from rich import box
from rich.console import Console
from rich.table import Table

from analysis.evaluation.metrics import score
from analysis.methods.registry import make_method
from testbed.fabric.fat_tree import FatTree
from tests.analysis.conftest import make_world, paper_rates

Law = Callable[[int, np.random.Generator], npt.NDArray[np.float64]]

LAWS: dict[str, Law] = {
    "usual": paper_rates,
    "log-uniform": lambda n, rng: 10 ** rng.uniform(-4, 0, n),
    "all 3e-3": lambda n, rng: np.full(n, 3e-3),
}
"""Draws the loss rates of n faulty links."""

METHODS = ("canary", "netbouncer-stage", "canary-mle", "netbouncer")
SEEDS = 20


def print_laws(console: Console) -> None:
    """Print F1 on each method's own terms; 10 % of the directed links faulty, 6 epochs of about
    1,000 packets a segment, 100 probes a path and host."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), show_edge=False)
    for name in ("K", "rates", "method"):
        table.add_column(name)
    for name in ("F1", "precision", "recall", "recall from 1e-3"):
        table.add_column(name, justify="right")
    for k in (4, 8):
        for law, draw in LAWS.items():
            figures: dict[str, list[tuple[float, ...]]] = {name: [] for name in METHODS}
            for seed in range(1000, 1000 + SEEDS):
                rng = np.random.default_rng([seed, k])
                fabric = FatTree(k)
                loss = np.zeros(fabric.n_links)
                faulty = rng.choice(fabric.n_links, fabric.n_links // 10, replace=False)
                loss[faulty] = draw(len(faulty), rng)
                world = make_world(k=k, seed=seed, loss=loss, flows=10)
                for name in METHODS:
                    found = make_method(name).localize(world.telemetry)
                    own, high = (
                        score(found.flagged, links, fabric)[found.native]
                        for links in (faulty, np.flatnonzero(loss >= 1e-3))
                    )
                    figures[name].append((own.f1, own.precision, own.recall, high.recall))
            for name, each in figures.items():
                means = np.mean(each, axis=0)
                table.add_row(str(k), law, name, *(f"{mean:.3f}" for mean in means))
    console.print(f"Rates of laws the methods were not told, means of {SEEDS} seeds")
    console.print(table)
