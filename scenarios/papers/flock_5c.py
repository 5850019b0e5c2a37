"""Flock's figure 5 (c): passive flows of hidden path alone, in Clos networks that lack links."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from analysis.evaluation.calibration import accuracy
from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label
from scenarios.papers.flock_schemes import PRECISION, RECALL
from scenarios.papers.flock_world import FLOWS, SETTING, flock, network, soft_failure
from testbed.fabric.clos import TopologyError
from testbed.fabric.ecmp import Ecmp

OMITTED = (0.0, 0.01, 0.02, 0.05)
OF_HIDDEN = (0.006, 2e-4, -25.0)
"""Flock's (p_b, p_g, log prior) on flows of hidden path alone."""


def lacking(omitted: float, small: bool, rng: np.random.Generator) -> Ecmp:
    """Flock's network without a share of its links; drawn again where that cuts ToRs off."""
    regular = network(small).fabric
    count = round(omitted * regular.n_edges)
    for _ in range(100 if count else 0):
        with suppress(TopologyError):
            return Ecmp(regular.without(rng.choice(regular.n_edges, count, replace=False)))
    if count:
        raise TopologyError(f"{regular.title} falls apart without {100 * omitted:g} % of its links")
    return network(small)


def irregular(draw: int, omitted: float, small: bool) -> list[Row]:
    """One failed link, flows of hidden path alone: what is blamed is a class of links that these
    cannot tell apart, and no precision is above the inverse of its size."""
    rng = np.random.default_rng([draw, 76])
    ecmp = lacking(omitted, small, rng)
    rate = float(rng.uniform(4e-3, 1e-2))
    world, case = soft_failure(ecmp, draw, FLOWS // (100 if small else 1), rate, False)
    verdict = flock(*OF_HIDDEN).localize(world.telemetry("P"))
    classes = verdict.equivalent
    assert classes is not None
    blamed = np.flatnonzero(np.isin(classes, classes[verdict.flagged])).astype(np.int32)
    found = accuracy(replace(verdict, flagged=blamed), case)
    best = 1 / int((classes == classes[case.links[0]]).sum())
    x, ours = label(100 * omitted), "Flock (P)"
    return [
        Row(PRECISION, ours, x, draw, found[0]),
        Row(RECALL, ours, x, draw, found[1]),
        Row(PRECISION, "at most", x, draw, best),
    ]


def _tasks(effort: Effort) -> Mapping[str, Task]:
    omitted = OMITTED[:2] if effort.small else OMITTED
    return {
        f"omitted-{label(share)}-draw-{n}": partial(irregular, n, share, effort.small)
        for share in omitted
        for n in range(effort.draws)
    }


FIGURE_5C = Experiment(
    "flock-5c",
    "Flock, figure 5 (c)",
    "passive flows alone, some links left out",
    SETTING + "One failed link of 0.4 to 1 %; flows of hidden path are all there is. Blamed is the "
    "whole class of links that these cannot tell apart; 'at most' is the precision of naming the "
    "failed link's class and no other.",
    seconds=70,
    memory_mb=3500,
    panels=(
        Panel(PRECISION, "% of the links left out", PRECISION, limits=(0, 1.05)),
        Panel(RECALL, "% of the links left out", RECALL, limits=(0, 1.05)),
    ),
    tasks=_tasks,
    reasons=(
        Reason(
            "In a regular Clos the uplinks of a ToR are equal to flows of hidden path; few links "
            "left out leave most of them so.",
            PRECISION,
            ratio=(0.2, 1.0),
        ),
    ),
    quick=False,
)
