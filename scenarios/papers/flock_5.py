"""Flock's figure 5 (a) and (b): Clos networks that lack links."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from analysis.evaluation.calibration import accuracy
from scenarios.papers.experiment import Effort, Experiment, Panel, Row, Task, label
from scenarios.papers.flock_5c import OF_HIDDEN, lacking
from scenarios.papers.flock_schemes import PRECISION, RECALL, Way, baselines
from scenarios.papers.flock_world import FLOWS, PARAMETERS, SETTING, World, flock, silent_drops

__all__ = ["FIGURE_5"]

OMITTED = (0.0, 0.05, 0.1, 0.2)
TRACES = 4


def with_paths(draw: int, omitted: float, small: bool) -> list[Row]:
    """Silent drops, as in figure 2; what is calibrated is so on other networks that lack as many
    links."""
    flows, train = (4_000, 2) if small else (FLOWS, TRACES)
    made = [
        silent_drops(lacking(omitted, small, np.random.default_rng([seed, 79])), seed, flows)
        for seed in (*range(1000, 1000 + train), *range(TRACES * draw, TRACES * draw + train))
    ]
    ways: dict[tuple[str, str], Way] = {
        ("Flock", kinds): (partial(World.telemetry, kinds=kinds), flock(*parameters))
        for kinds, parameters in {**PARAMETERS, "P": OF_HIDDEN}.items()
        if "A1" not in kinds  # its probes are for regular networks (section 7.6)
    }
    ways |= baselines(made[:train], ("INT",))
    rows = []
    for (method, kinds), (view, localizer) in ways.items():
        each = [accuracy(localizer.localize(view(world)), case) for world, case in made[train:]]
        for what, value in zip((PRECISION, RECALL), np.mean(each, axis=0).tolist(), strict=True):
            rows.append(Row(what, f"{method} ({kinds})", label(100 * omitted), draw, value))
    return rows


def _tasks(effort: Effort) -> Mapping[str, Task]:
    return {
        f"omitted-{label(share)}-draw-{n}": partial(with_paths, n, share, effort.small)
        for share in (OMITTED[1:2] if effort.small else OMITTED)
        for n in range(effort.draws)
    }


FIGURE_5 = Experiment(
    "flock-5",
    "Flock, figure 5 (a) and (b)",
    "precision and recall where links are left out",
    SETTING + "Silent drops with 400,000 flows; NetBouncer and 007 calibrated on 4 traces of "
    "networks that lack as many links, Flock as in the regular one. A draw is 4 traces. The paper "
    "prints no figure.",
    seconds=3600,
    memory_mb=3500,
    panels=(
        Panel(PRECISION, "% of the links left out", PRECISION, limits=(0, 1.05)),
        Panel(RECALL, "% of the links left out", RECALL, limits=(0, 1.05)),
    ),
    tasks=_tasks,
    quick=False,
)
