# SPDX-License-Identifier: Apache-2.0
"""How near a run is to Canary's steady state: `python -m tests.studies steady`.

Canary selects flows until a segment counts α packets and β flows in an epoch (section III-C). In a
steady state the segments between pods reach both, and most segments need no new rule.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from analysis.methods.registry import find_methods
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.request import make_request
from scenarios.experiment.run import run_experiment
from testbed.record.run import RunDirectory
from tests.present import present

SEEDS = range(1, 11)
ETAS = (16, 32)
METHODS = ("canary", "canary-mle", "netbouncer", "flock+links", "007", "detector")


def print_steady(console: Console) -> None:
    """Print a row for each K and η: means of the default run with 10 % of the links faulty."""
    names = [f"`{name}` F1" for name in METHODS]
    head = ["K, η", "α", "β", "both", "no new rule", "rules", "packets", "packet-hops", *names]
    console.print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for k in (4, 8):
        for eta in ETAS:
            each = [_figures(k=k, eta=eta, seed=seed) for seed in SEEDS]
            *shares, rules, packets, hops = np.mean([counts for counts, _ in each], axis=0)
            cells = [f"{100 * share:.1f} %" for share in shares]
            cells += [f"{rules:,.0f}", f"{packets / 1e6:.2f} M", f"{hops / 1e6:.1f} M"]
            cells += [f"{f1:.3f}" for f1 in np.mean([scores for _, scores in each], axis=0)]
            console.print(f"| {k}, {eta} | {' | '.join(cells)} |")


def _figures(**given: int) -> tuple[Sequence[float], Sequence[float]]:
    """Make a run. Return first the shares of epochs and segments between pods that reached α, β and
    both, and of all segments that got no new rule, then rules, packets and packet-hops; second, F1
    of each of `METHODS`."""
    request = make_request(None, {"backend": "virtual", "faults": "10pct", **given})
    settings = request.settings()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "run")
        layout = layout_of(settings, request.scenario)
        summary = run_experiment(layout, place, find_methods(",".join(METHODS)))
        run = RunDirectory(place)
        parts, chosen = run.segments, run.table("selection")
    got = {}
    for name in ("packets", "flows", "installed"):
        got[name] = np.zeros((settings.epochs, len(parts)), np.int64)
        got[name][chosen["epoch"], chosen["segment"]] = chosen[name]
    tier = run.fabric.tier
    apart = np.maximum(tier[parts.upstream], tier[parts.downstream]) > 0  # ends at a core switch
    alpha = got["packets"][1:, apart] >= settings.alpha
    beta = got["flows"][1:, apart] >= settings.beta
    unchanged = got["installed"][2:] == 0
    shares = [each.mean() for each in (alpha, beta, alpha & beta, unchanged)]
    counts = [got["installed"].sum(), summary["conservation"]["sent"], summary["packet_hops"]]
    entries = [summary["methods"][name] for name in METHODS]
    return [*shares, *counts], [present(entry[entry["native"]]["f1"]) for entry in entries]
