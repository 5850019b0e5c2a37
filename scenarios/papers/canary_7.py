"""Canary's figure 7: what the meters count an epoch, as its controller selects flows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task
from scenarios.papers.heavy_hitters import Trace
from scenarios.papers.two_monitors import watch

__all__ = ["FIGURE_7"]

ETAS, ALPHA = (0, 8, 16, 32), 1000
TRACES = {"steady": 0, "bursts": 6}
CAPTURED = "captured"
KINDS = (*TRACES, CAPTURED)
PERCENTILES = (1, 5, 10, 20, 40, 60, 80, 90, 95, 99)
PACKETS, ACTIVE, INSTALLED = "packets counted", "active flows", "flows with new rules"
FEW, MEAN, QUIET = "epochs below 1,000 packets, %", "active flows, mean", "epochs without rules, %"
FEWER = "rules at η=32 / at η=0"


def one_draw(draw: int, flows: int, etas: tuple[int, ...], capture: Path | None) -> list[Row]:
    """Of generated traffic both kinds; a capture is what it is."""
    if capture is not None:
        return _rows(Trace.captured(capture, draw), CAPTURED, draw, etas)
    kinds = [(kind, Trace.draw(draw, flows, bursts)) for kind, bursts in TRACES.items()]
    return [row for kind, trace in kinds for row in _rows(trace, kind, draw, etas)]


def _rows(trace: Trace, kind: str, draw: int, etas: tuple[int, ...]) -> list[Row]:
    rows, rules = [], {}
    for eta in etas:
        seen = watch(trace, eta, ALPHA, draw)
        name = f"η={eta}, {kind}"
        for quantity, values in (
            (PACKETS, seen.packets),
            (ACTIVE, seen.active),
            (INSTALLED, seen.installed),
        ):
            at = np.percentile(values, PERCENTILES)
            points = zip(PERCENTILES, at.tolist(), strict=True)
            rows += [Row(quantity, name, str(p), draw, value) for p, value in points]
        rules[eta] = int(seen.installed.sum())
        rows.append(Row(FEW, name, "all", draw, 100 * float((seen.packets < ALPHA).mean())))
        rows.append(Row(MEAN, name, "all", draw, float(seen.active.mean())))
        rows.append(Row(QUIET, name, "all", draw, 100 * float((seen.installed == 0).mean())))
    rows.append(Row(FEWER, kind, "all", draw, rules[etas[-1]] / max(rules[etas[0]], 1)))
    return rows


def _tasks(effort: Effort) -> Mapping[str, Task]:
    flows, etas = (2_000, (0,)) if effort.small else (150_000, ETAS)
    return {
        f"draw-{n}": partial(one_draw, n, flows, etas, effort.trace) for n in range(effort.draws)
    }


UNKNOWN = (
    "The paper's MAWI trace is not named (TRACE= takes one's own). Ours has 7,000 packets an "
    "epoch. How many flows have η packets in an epoch, and how many fall silent so that new rules "
    "are wanted, are of the trace: our two kinds of flows differ as much from each other."
)
FIGURE_7 = Experiment(
    "canary-7",
    "Canary, figure 7",
    "packets counted, flows active and rules installed an epoch",
    "Runs with TOPOLOGY=two-switch, what their record says of each epoch: rules "
    "of flows that fall silent are removed, which the paper does not say. 300 epochs of 100 ms, "
    "α = 1000, β = δ = 20. The paper replays a MAWI trace that it does not name, of 8.9 million "
    "flows; here 150,000 flows of Pareto sizes, 2 million packets: flows that send evenly for some "
    "seconds, and flows that last and send in 6 bursts; or TRACE=.",
    seconds=550,
    memory_mb=700,
    panels=(
        Panel(PACKETS, "% of the epochs", "packets counted, at most"),
        Panel(ACTIVE, "% of the epochs", "active flows, at most"),
        Panel(INSTALLED, "% of the epochs", "flows with new rules, at most"),
        Panel(FEW, "", FEW, numeric=False),
        Panel(MEAN, "", MEAN, numeric=False),
        Panel(QUIET, "", QUIET, numeric=False),
    ),
    tasks=_tasks,
    series={
        "every η": tuple(f"η={eta}, {kind}" for kind in KINDS for eta in ETAS),
        **{f"η={eta}": tuple(f"η={eta}, {kind}" for kind in KINDS) for eta in ETAS},
        "Canary": KINDS,
    },
    reasons=tuple(Reason(UNKNOWN, each, ratio=(0.15, 8.0)) for each in (FEW, MEAN, QUIET)),
    quick=False,
    traffic=True,
)
