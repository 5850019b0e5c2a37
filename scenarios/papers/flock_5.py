"""Flock's figure 5 (a) and (b): Clos networks that lack links."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from analysis.evaluation.calibration import Case
from scenarios.papers.experiment import Effort, Experiment, Panel, Row, Task, label, together
from scenarios.papers.flock_5c import OF_HIDDEN, lacking
from scenarios.papers.flock_schemes import PRECISION, RECALL, F, Scheme, Way, baselines, scored
from scenarios.papers.flock_world import FLOWS, PARAMETERS, SETTING, World, flock, silent_drops

OMITTED = (0.0, 0.02, 0.05, 0.1)
TRACES = 4


def with_paths(draws: range, omitted: float, small: bool) -> list[Row]:
    """Silent drops, as in figure 2; what is calibrated is so on other networks that lack as many
    links."""
    flows, n = (4_000, 2) if small else (FLOWS, TRACES)

    def made(seed: int) -> tuple[World, Case]:
        ecmp = lacking(omitted, small, np.random.default_rng([seed, 79]))
        return silent_drops(ecmp, seed, flows)

    ways: dict[Scheme, Way] = {
        ("Flock", kinds): (partial(World.telemetry, kinds=kinds), flock(*parameters))
        for kinds, parameters in {**PARAMETERS, "P": OF_HIDDEN}.items()
        if "A1" not in kinds  # its probes are for regular networks (section 7.6)
    }
    ways |= baselines([made(seed) for seed in range(1000, 1000 + n)], ("INT",))
    rows = []
    for draw in draws:
        traces = (made(seed) for seed in range(TRACES * draw, TRACES * draw + n))
        for row in scored("", ways, traces, draw):
            what = row.quantity.removesuffix(", ")
            series = f"{row.series} ({row.x})"
            rows += [Row(what, series, label(100 * omitted), draw, row.value)] * (what != F)
    return rows


def _tasks(effort: Effort) -> Mapping[str, Task]:
    return {
        f"omitted-{label(share)}-{draws}": partial(with_paths, some, share, effort.small)
        for share in (OMITTED[1:2] if effort.small else OMITTED)
        for draws, some in together(effort.draws).items()
    }


FIGURE_5 = Experiment(
    "flock-5",
    "Flock, figure 5 (a) and (b)",
    "precision and recall where links are left out",
    SETTING + "Silent drops with 400,000 flows; NetBouncer and 007 calibrated on 4 traces of "
    "networks that lack as many links, Flock as in the regular one. A draw is 4 traces; "
    "with more links left out ToRs are cut off from one another. Calibration takes the highest "
    "recall at a precision of 98 %, if there is any: of 007 at 2 % that blames next to nothing. "
    "The paper prints no number of it.",
    seconds=500,
    memory_mb=3500,
    panels=(
        Panel(PRECISION, "% of the links left out", PRECISION, limits=(0, 1.05)),
        Panel(RECALL, "% of the links left out", RECALL, limits=(0, 1.05)),
    ),
    tasks=_tasks,
    quick=False,
)
