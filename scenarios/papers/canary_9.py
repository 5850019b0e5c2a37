"""Canary's figure 9: F1 and time of its inference with 1 to 5 groups of segments."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from analysis.evaluation.metrics import score
from analysis.methods.canary.multistage import Canary
from analysis.solvers.stages import GROUPS
from scenarios.papers.experiment import Effort, Experiment, Panel, Row, Task, label
from scenarios.papers.segment_level import World, even

ALPHA, LEAST = 1000, GROUPS[-1]
GROUP_COUNTS = (1, 2, 3, 4, 5)
F1, MILLISECONDS, SLOWER = "F1", "milliseconds", "time with 5 groups / with 1"
EQUAL, RANGES, LINEAR = "equal numbers, eq. 4", "equal log ranges, eq. 4", "equal numbers, linear"


def edges(loss: np.ndarray, groups: int, equal_numbers: bool) -> Sequence[float]:
    """Descending loss-rate edges that divide lossy segments (their ``loss``) evenly."""
    return even(loss, groups) if equal_numbers else np.geomspace(1.0, LEAST, groups + 1).tolist()


def one_draw(draw: int, k: int, tries: int) -> list[Row]:
    """The same world for all numbers of groups; the best time of some, in one thread."""
    world = World.draw(k, ALPHA, draw)
    counts = world.telemetry.need("segments", "canary")
    share = counts.lost.sum(axis=0) / counts.sent.sum(axis=0)
    rows, took = [], {}
    for groups in GROUP_COUNTS:
        for name, equal in ((EQUAL, True), (RANGES, False), (LINEAR, True)):
            mapping = "linear" if name == LINEAR else "logarithmic"
            cuts = edges(share[share > 0], groups, equal)
            method = Canary(groups=cuts, mapping=mapping, threads=1)
            flagged, seconds = world.faulty, []
            for _ in range(tries):
                begin = time.process_time()
                flagged = method.localize(world.telemetry).flagged
                seconds.append(time.process_time() - begin)
            found = score(flagged, world.faulty, world.fabric)["directed"]
            took[name, groups] = min(seconds)
            rows.append(Row(F1, name, label(groups), draw, found.f1))
            rows.append(Row(MILLISECONDS, name, label(groups), draw, 1e3 * min(seconds)))
    slower = took[EQUAL, GROUP_COUNTS[-1]] / max(took[EQUAL, 1], 1e-9)
    return [*rows, Row(SLOWER, "Canary", "5 / 1", draw, slower)]


def _tasks(effort: Effort) -> Mapping[str, Task]:
    k, tries = (4, 1) if effort.small else (8, 5)
    return {f"draw-{n}": partial(one_draw, n, k, tries) for n in range(effort.draws)}


FIGURE_9 = Experiment(
    "canary-9",
    "Canary, figure 9",
    "F1 and time of the inference with 1 to 5 groups",
    "As figure 8, with α = 1000. The paper divides lossy segments evenly and does not say how: in "
    "groups of equal numbers, or of equal ranges of the logarithm of the loss. Time is of one "
    "thread of compiled code; the authors' is Python.",
    seconds=15,
    memory_mb=360,
    panels=(
        Panel(F1, "groups", "F1", limits=(0.8, 1.01)),
        Panel(MILLISECONDS, "groups", "milliseconds, one thread"),
    ),
    tasks=_tasks,
    series={"Canary": (EQUAL, RANGES, LINEAR), "time": ("Canary",)},
)
