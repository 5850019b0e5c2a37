# SPDX-License-Identifier: Apache-2.0
"""How few probes show `mle` what Canary's meters cannot see: `python -m tests.studies probes`.

Flows are selected downstream, so a link that loses nearly all is invisible to the meters. Of the
packets that each probed path was sent, ``n`` are taken (how many of the lost are among them is
hypergeometric), on every path of NetBouncer's plan or on those of deTector's matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import matplotlib
import numpy as np
from rich.console import Console

from analysis.evaluation.metrics import score
from analysis.methods.mle.mle import Mle
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import Probes
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.settings import make_settings
from scenarios.experiment.without_packets import simulate
from testbed.fabric.fat_tree import FatTree
from tests.studies.data import FOLDER, write_rows

PLANS = {"A1": "probes", "detector": "detector"}
FAULTS = "10pct:0.95..1"
EACH = (0, 1, 2, 5, 10, 100)
SEEDS = range(1, 21)
HEAD = ("k", "plan", "each", "f1", "worst", "missed", "wrong", "packets")

Row = tuple[float, float, float, float]
"""F1, links missed and wrong, probe packets sent."""


def write_probes(console: Console) -> None:
    """Write F1 over probes a path and what these cost: `docs/data/probes.csv`, and draw it."""
    table: list[Sequence[object]] = []
    curves: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for k in (4, 8):
        links = FatTree(k).n_links
        figures: dict[tuple[str, int], list[Row]] = {}
        for seed in SEEDS:
            console.print(f"K={k}, seed {seed}")
            for key, row in _run(k, seed).items():
                figures.setdefault(key, []).append(row)
        for (plan, each), rows in figures.items():
            f1, missed, wrong, packets = np.mean(rows, axis=0)
            means = f"{missed:.2f}", f"{wrong:.2f}", f"{packets:.0f}"
            table.append((k, plan, each, f"{f1:.4f}", f"{min(rows)[0]:.3f}", *means))
            curves.setdefault((k, plan), []).append((packets / links, f1))
    _draw(curves)
    console.print(f"written: {write_rows('probes', HEAD, table)}")


def _run(k: int, seed: int) -> dict[tuple[str, int], Row]:
    """Return the scores for each plan and number of probes a path."""
    asked = {"k": k, "seed": seed, "backend": "flow", "faults": FAULTS, "noise": "0"}
    settings = make_settings(asked)
    layout = layout_of(settings)
    plan = layout.plan
    telemetry = read_telemetry(simulate(layout), "A1")
    rng = np.random.default_rng(seed)
    found: dict[tuple[str, int], Row] = {}
    for kind, part in PLANS.items():
        probes = getattr(telemetry, part)
        for each in EACH:
            taken = _some(probes, each, rng)
            seen = replace(telemetry, **{part: taken})
            kinds = f"segments+{kind}" if each else "segments"
            got = Mle(kinds=kinds).localize(seen)
            own = score(got.flagged, plan.links, layout.fabric)["directed"]
            missed = len(plan.links) - own.true_positives
            found[kind, each] = own.f1, missed, own.false_positives, int(taken.sent.sum())
    return found


def _some(probes: Probes, each: int, rng: np.random.Generator) -> Probes:
    """Return at most ``each`` of the packets of every path."""
    sent = np.minimum(probes.sent, each)
    lost = rng.hypergeometric(probes.lost, probes.sent - probes.lost, sent)
    return replace(probes, sent=sent, lost=lost)


def _draw(curves: Mapping[tuple[int, str], Sequence[tuple[float, float]]]) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
    for (k, plan), points in curves.items():
        x, y = zip(*points, strict=True)
        name = {"A1": "every host-core path", "detector": "deTector's matrix"}[plan]
        style = ".-" if plan == "A1" else "s--"
        axes.plot(x, y, style, ms=4, color=f"C{k // 4 - 1}", label=f"K={k}, {name}")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel("probe packets per directed link")
    axes.set_ylabel("F1 of directed links")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(FOLDER / "probes.svg", metadata={"Date": None})
    pyplot.close(figure)
