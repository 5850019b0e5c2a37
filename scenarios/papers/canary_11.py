"""Canary's figure 11: the largest flows, by its DSM and small HashPipe, and by a HashPipe alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from analysis.sketches.meters import DSM_BUCKET_BITS
from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label
from scenarios.papers.heavy_hitters import (
    ROWS,
    SMALL_ENTRIES,
    SMALL_STAGES,
    STAGES,
    Trace,
    by_canary,
    by_hashpipe,
    f1,
)

SIZES = ((64, 56), (128, 96), (192, 136), (256, 176))
"""DSM buckets a row and the original HashPipe's entries a stage; section IV-F has the ends."""
TOPS, BUDGET_TOPS = (10, 25, 50, 75, 100), (25, 50, 75)
TRACES = {"bursts": 6, "steady": 0}
CAPTURED = "captured"
F1, BUDGET, BYTES, GAP = "F1 of the top k", "F1 against memory", "bytes", "F1, Canary - HashPipe"
OURS, OTHER = "Canary", "HashPipe, 6 stages"


def one_draw(
    draw: int, flows: int, sizes: tuple[tuple[int, int], ...], capture: Path | None
) -> list[Row]:
    rows = []
    for kind, bursts in TRACES.items() if capture is None else ((CAPTURED, 0),):
        trace = Trace.captured(capture, draw) if capture else Trace.draw(draw, flows, bursts)
        for number, (width, entries) in enumerate(sizes):
            known = {OURS: by_canary(trace, width), OTHER: by_hashpipe(trace, entries)}
            found = {
                (name, k): f1(each, trace.size, k) for name, each in known.items() for k in TOPS
            }
            at, kilobytes = f"{entries} entries", label(round(STAGES * entries * 17e-3, 1))
            for (name, k), value in found.items():
                if not number:
                    rows.append(Row(F1, f"{name}, {kind}", label(k), draw, value))
                if k == TOPS[-2]:
                    rows.append(Row(BUDGET, f"{name}, {kind}", kilobytes, draw, value))
            for k in BUDGET_TOPS:
                gap = found[OURS, k] - found[OTHER, k]
                rows.append(Row(GAP, kind, f"top {k}, {at}", draw, gap))
    for width, entries in sizes:
        small = SMALL_STAGES * SMALL_ENTRIES * 17
        ours = small + ROWS * width * DSM_BUCKET_BITS / 8
        rows.append(Row(BYTES, OURS, f"{entries} entries", draw, ours))
        rows.append(Row(BYTES, OTHER, f"{entries} entries", draw, STAGES * entries * 17.0))
    return rows


def _tasks(effort: Effort) -> Mapping[str, Task]:
    flows, sizes = (3_000, SIZES[:1]) if effort.small else (150_000, SIZES)
    return {
        f"draw-{n}": partial(one_draw, n, flows, sizes, effort.trace) for n in range(effort.draws)
    }


STEADY = (
    "With flows that are short and steady the DSM watches the 20 that came first, and the largest "
    "come later: the paper's reason, flows that pause and are evicted, needs flows that pause."
)
OWN = "It is another capture than the paper's, which is not named, and may be a smaller one."
FIGURE_11 = Experiment(
    "canary-11",
    "Canary, figure 11",
    "F1 of the largest flows",
    "Two switches, 300 epochs of 100 ms. The paper replays a MAWI trace that it does not name; "
    "here 150,000 flows of Pareto sizes (shape 1.1, 2 to 20,000 packets), 2 million packets, two "
    "kinds: flows that last and send in 6 bursts, and flows that send evenly for some seconds. "
    "α = 1000, β = δ = 20, η = 16; no HashPipe is ever cleared, and rules stay. The paper has no "
    "F1.",
    seconds=50,
    memory_mb=530,
    panels=(
        Panel(F1, "k, with 5.7 KB", "F1 of the k largest flows", limits=(0, 1.02)),
        Panel(BUDGET, "KB", "F1 of the 75 largest flows", limits=(0, 1.02)),
        Panel(GAP, "", "F1, Canary less HashPipe", numeric=False),
        Panel(BYTES, "", "bytes", numeric=False),
    ),
    tasks=_tasks,
    series={"Canary less HashPipe": (*TRACES, CAPTURED)},
    reasons=(
        Reason(STEADY, GAP, "steady", ratio=(-math.inf, math.inf), paper=0.0),
        Reason(OWN, GAP, CAPTURED, ratio=(-math.inf, math.inf), paper=0.0),
    ),
    traffic=True,
)
