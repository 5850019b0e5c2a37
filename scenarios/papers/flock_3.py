"""Flock's figure 3: one failed link that loses little, uniform and skewed traffic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from scenarios.papers.experiment import Effort, Experiment, Panel, Row, Task, label, together
from scenarios.papers.flock_schemes import schemes, scored
from scenarios.papers.flock_world import FLOWS, SETTING, network, soft_failure

RATES = (0.002, 0.004, 0.006, 0.01, 0.018)
KINDS = ("uniform", "skewed")


def soft(draws: range, rate: float, small: bool) -> list[Row]:
    """Of each draw two traces of one failed link, uniform and skewed; series are method and
    telemetry, x the rate."""
    flows, rows = FLOWS // (100 if small else 1), []
    for draw in draws:
        for name in KINDS:
            seeds = (2 * draw, 2 * draw + 1)
            skewed = name == "skewed"
            traces = (soft_failure(network(small), seed, flows, rate, skewed) for seed in seeds)
            rows += scored(name, schemes(small), traces, draw)
    return [row._replace(series=f"{row.series} ({row.x})", x=label(rate)) for row in rows]


def _tasks(effort: Effort) -> Mapping[str, Task]:
    rates = RATES[-1:] if effort.small else RATES
    return {
        f"{label(rate)}-{draws}": partial(soft, some, rate, effort.small)
        for rate in rates
        for draws, some in together(effort.draws).items()
    }


FIGURE_3 = Experiment(
    "flock-3",
    "Flock, figure 3",
    "recall and f-score by the loss rate of one failed link",
    SETTING + "One failed link; a draw is two traces, the paper has 32 a point. It prints no "
    "figure: above 1 % A2 should find it, above 0.4 % INT and A1+A2+P.",
    seconds=500,
    memory_mb=3500,
    panels=tuple(
        Panel(f"{what}, {kind}", "loss rate of the link", f"{what}, {kind} traffic", log_x=True)
        for kind in KINDS
        for what in ("recall", "f-score")
    ),
    tasks=_tasks,
    quick=False,
)
