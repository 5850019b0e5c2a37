"""Flock's figure 8: how sensitive it is to its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from analysis.evaluation.calibration import accuracy
from scenarios.papers.experiment import Effort, Experiment, Panel, Row, Task, label
from scenarios.papers.flock_schemes import PRECISION, RECALL
from scenarios.papers.flock_world import (
    FLOWS,
    PARAMETERS,
    SETTING,
    flock,
    network,
    silent_drops,
)

TRACES = 4
KINDS = "A1+A2+P"
P_GOOD = (1e-4, 2e-4, 3e-4, 5e-4, 7e-4)
P_BAD = (1e-3, 2e-3, 4e-3, 8e-3)
PRIORS = (0.0, -2.0, -5.0, -10.0, -15.0, -25.0)
OF_PRIOR = " by prior"
BOTH, LIMITS = (PRECISION, RECALL), (0.0, 1.05)


def swept(draw: int, small: bool) -> list[Row]:
    """Four traces of silent drops through every setting."""
    n, flows = (2, 4_000) if small else (TRACES, FLOWS)
    ecmp = network(small)
    made = [silent_drops(ecmp, seed, flows) for seed in range(n * draw, n * (draw + 1))]
    cases = [(world.telemetry(KINDS), case) for world, case in made]
    p_bad, p_good, prior = PARAMETERS[KINDS]
    settings = [("", f"p_b = {b:g}", g, (b, g, prior)) for b in P_BAD for g in P_GOOD if g < b]
    settings += [(OF_PRIOR, "Flock", p, (p_bad, p_good, p)) for p in PRIORS]
    rows = []
    for by, series, x, parameters in settings:
        method = flock(*parameters)
        each = [accuracy(method.localize(telemetry), case) for telemetry, case in cases]
        for what, value in zip((PRECISION, RECALL), np.mean(each, axis=0).tolist(), strict=True):
            rows.append(Row(what + by, series, label(x), draw, value))
    return rows


def _tasks(effort: Effort) -> Mapping[str, Task]:
    return {f"draw-{n}": partial(swept, n, effort.small) for n in range(effort.draws)}


FIGURE_8 = Experiment(
    "flock-8",
    "Flock, figure 8",
    "precision and recall by p_g, p_b and the prior",
    SETTING + "A1+A2+P, silent drops; a draw is 4 traces. The paper prints no figure: precision "
    "should rise with p_g or p_b, recall fall, and priors should cut false positives.",
    seconds=150,
    memory_mb=3500,
    panels=(
        *(Panel(what, "p_g", what, log_x=True, limits=LIMITS) for what in BOTH),
        *(Panel(what + OF_PRIOR, "log prior", what, limits=LIMITS) for what in BOTH),
    ),
    tasks=_tasks,
    quick=False,
)
