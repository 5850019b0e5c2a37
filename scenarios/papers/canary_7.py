"""Canary's figure 7: what the meters count an epoch, as its controller selects flows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label
from scenarios.papers.heavy_hitters import Trace
from scenarios.papers.two_monitors import watch

ETAS, ALPHA, VARIED_ETAS = (0, 8, 16, 32), 1000, (0, 32)
GENERATED, CAPTURED = "generated", "captured"
KINDS = (GENERATED, CAPTURED)
PERCENTILES = (1, 5, 10, 20, 40, 60, 80, 90, 95, 99)
PACKETS, ACTIVE, INSTALLED = "packets counted", "active flows", "flows with new rules"
FEW, MEAN, QUIET = "epochs below 1,000 packets, %", "active flows, mean", "epochs without rules, %"
FEWER = "rules at η=32 / at η=0"

FLOWS, SHAPE, LASTING_S = 300_000, 1.1, (5.4, 30.0)
VARIED_DRAWS = 3
BY_FLOWS, BY_LASTING = "active flows by the trace's flows", "active flows by how long flows last"
BY_SHAPE, BY_BURSTS = "active flows by the skew of sizes", "active flows by bursts"
Varied = tuple[str, str, Callable[[int], Trace]]
VARIED: tuple[Varied, ...] = (
    *(
        (BY_FLOWS, str(flows), partial(Trace.draw, flows=flows, lasting_s=LASTING_S))
        for flows in (75_000, 150_000, 450_000)
    ),
    *(
        (BY_LASTING, label(least), partial(Trace.draw, flows=FLOWS, lasting_s=(least, most)))
        for least, most in ((0.9, 9.0), (18.0, 30.0))
    ),
    *(
        (BY_SHAPE, label(shape), partial(Trace.draw, flows=FLOWS, shape=shape, lasting_s=LASTING_S))
        for shape in (1.0, 1.2)
    ),
    (BY_BURSTS, "6", partial(Trace.draw, flows=FLOWS, bursts=6)),
)
"""Traces that differ from figure 7's in one property: the panel, its x, and the trace of a draw."""
UNVARIED = {
    BY_FLOWS: str(FLOWS),
    BY_LASTING: label(LASTING_S[0]),
    BY_SHAPE: label(SHAPE),
    BY_BURSTS: "0",
}


def one_draw(draw: int, flows: int, etas: tuple[int, ...], capture: Path | None) -> list[Row]:
    """The figures of a draw of the generated trace; a capture is what it is."""
    if capture is not None:
        return _rows(Trace.captured(capture, draw), CAPTURED, draw, etas)
    return _rows(Trace.draw(draw, flows, lasting_s=LASTING_S), GENERATED, draw, etas)


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
        if kind == GENERATED and draw < VARIED_DRAWS and eta in VARIED_ETAS:
            mean = float(seen.active.mean())
            rows += [Row(panel, f"η={eta}", x, draw, mean) for panel, x in UNVARIED.items()]
    rows.append(Row(FEWER, kind, "all", draw, rules[etas[-1]] / max(rules[etas[0]], 1)))
    return rows


def one_variation(draw: int, varied: Varied) -> list[Row]:
    """The active flows of a draw of a trace that differs in one property."""
    panel, x, trace = varied
    seen = {eta: watch(trace(draw), eta, ALPHA, draw) for eta in VARIED_ETAS}
    return [Row(panel, f"η={eta}", x, draw, float(of.active.mean())) for eta, of in seen.items()]


def _tasks(effort: Effort) -> Mapping[str, Task]:
    flows, etas = (2_000, (0,)) if effort.small else (FLOWS, ETAS)
    tasks: dict[str, Task] = {
        f"draw-{n}": partial(one_draw, n, flows, etas, effort.trace) for n in range(effort.draws)
    }
    if effort.trace is None and not effort.small:
        for draw in range(min(effort.draws, VARIED_DRAWS)):
            for number, varied in enumerate(VARIED):
                tasks[f"varied-{number}-{draw}"] = partial(one_variation, draw, varied)
    return tasks


BY_TIME = (
    "The paper's MAWI trace is not named (TRACE= takes one's own). With η = 0 a trace of long or "
    "small flows needs more of them for α: the panels have 25 active flows where flows last 0.9 to "
    "9 s and 55 where they last 18 to 30 s, and 26 to 54 by the skew of their sizes."
)
BY_NUMBER = (
    "The paper's MAWI trace is not named (TRACE= takes one's own). With η = 32 active flows are "
    "those with so many packets an epoch: the panels have 10 active flows of 75,000 in 30 s and 24 "
    "of 450,000, and 27 to 15 by the skew of their sizes."
)
OWN = "It is another capture than the paper's, which is not named."
FIGURE_7 = Experiment(
    "canary-7",
    "Canary, figure 7",
    "packets counted, flows active and rules installed an epoch",
    "Runs with TOPOLOGY=two-switch, what their record says of each epoch: rules "
    "of flows that fall silent are removed, which the paper does not say. 300 epochs of 100 ms, "
    "α = 1000, β = δ = 20. The paper replays a MAWI trace that it does not name, of 8.9 million "
    "flows; here 300,000 flows of Pareto sizes (shape 1.1, 2 to 20,000 packets), 15,000 packets an "
    "epoch, each flow sends evenly for 5.4 to 30 s; or TRACE=. The last four panels have three "
    "draws.",
    seconds=990,
    memory_mb=1200,
    panels=(
        Panel(PACKETS, "% of the epochs", "packets counted, at most"),
        Panel(ACTIVE, "% of the epochs", "active flows, at most"),
        Panel(INSTALLED, "% of the epochs", "flows with new rules, at most"),
        Panel(FEW, "", FEW, numeric=False),
        Panel(MEAN, "", MEAN, numeric=False),
        Panel(QUIET, "", QUIET, numeric=False),
        Panel(BY_FLOWS, "flows in 30 s", MEAN),
        Panel(BY_LASTING, "least seconds that a flow lasts", MEAN),
        Panel(BY_SHAPE, "shape of the Pareto sizes", MEAN),
        Panel(BY_BURSTS, "bursts of a large flow; 0: evenly", MEAN, numeric=False),
    ),
    tasks=_tasks,
    series={
        "every η": tuple(f"η={eta}, {kind}" for kind in KINDS for eta in ETAS),
        **{f"η={eta}": tuple(f"η={eta}, {kind}" for kind in KINDS) for eta in ETAS},
        "Canary": KINDS,
    },
    reasons=(
        Reason(BY_TIME, MEAN, f"η=0, {GENERATED}", ratio=(0.5, 1.2)),
        Reason(BY_NUMBER, MEAN, f"η=32, {GENERATED}", ratio=(0.75, 1.25)),
        *(
            Reason(OWN, each, f"η={eta}, {CAPTURED}", ratio=(0.15, 8.0))
            for each in (FEW, MEAN, QUIET)
            for eta in ETAS
        ),
    ),
    quick=False,
    traffic=True,
)
