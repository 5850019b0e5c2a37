"""Flock's figure 2: F by telemetry, with few failed links or devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from analysis.evaluation.calibration import Case, accuracy, calibrate, choose
from analysis.methods.base import Localizer
from analysis.methods.netbouncer import NetBouncer
from analysis.methods.vigil.vigil import Vigil
from analysis.telemetry.telemetry import Telemetry
from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task
from scenarios.papers.flock_world import (
    FLOWS,
    PARAMETERS,
    SETTING,
    World,
    device_failures,
    flock,
    network,
    silent_drops,
)

__all__ = ["FIGURE_2", "scored"]

TRACES = 8
DROPS_100K, DROPS_400K, DEVICES = (
    "silent drops, 100K flows",
    "silent drops, 400K flows",
    "device failures, 400K flows",
)
F, PRECISION, RECALL = "f-score", "precision", "recall"
Scheme = tuple[str, str]
Way = tuple[Callable[[World], Telemetry], Localizer]


@cache
def schemes(small: bool) -> Mapping[Scheme, Way]:
    """Flock with the parameters of its authors' code; NetBouncer and 007 calibrated on 8 other
    traces (section 5.2)."""
    flows, seeds = (4_000, (4, 5)) if small else (FLOWS, range(4, 12))
    train = [silent_drops(network(small), 1000 + seed, flows) for seed in seeds]
    limits = {"link_threshold": (0.997, 0.998, 0.9985, 0.999, 0.9993), "penalty": (0.01, 1.0)}
    shares = {"threshold": (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)}
    ways: dict[Scheme, Way] = {
        ("Flock", kinds): (partial(World.telemetry, kinds=kinds), flock(*parameters))
        for kinds, parameters in PARAMETERS.items()
    }
    for kinds in ("INT", "A1"):
        view = partial(World.for_netbouncer, kinds=kinds)
        ways["NetBouncer", kinds] = view, retuned(train, view, NetBouncer, limits)
    ways["007", "A2"] = World.for_vigil, retuned(train, World.for_vigil, Vigil, shares)
    return ways


def retuned(
    cases: Sequence[tuple[World, Case]],
    view: Callable[[World], Telemetry],
    make: Callable[..., Localizer],
    grid: Mapping[str, Sequence[Any]],
) -> Localizer:
    known = [Case(view(world), case.links, case.devices) for world, case in cases]
    return make(**choose(calibrate(make, grid, known)).parameters)


def scored(name: str, cases: Sequence[tuple[World, Case]], draw: int, small: bool) -> list[Row]:
    """F of the mean precision and recall, by method and telemetry."""
    rows = []
    for (method, kinds), (view, localizer) in schemes(small).items():
        each = [accuracy(localizer.localize(view(world)), case) for world, case in cases]
        precision, recall = np.mean(each, axis=0).tolist()
        f1 = 2 * precision * recall / max(precision + recall, 1e-9)
        for what, value in ((F, f1), (PRECISION, precision), (RECALL, recall)):
            rows.append(Row(f"{what}, {name}", method, kinds, draw, value))
    return rows


def few_faults(draw: int, name: str, small: bool) -> list[Row]:
    """Eight traces: 1 to 8 failed links, or one or two devices."""
    flows = (FLOWS if name != DROPS_100K else FLOWS // 4) // (100 if small else 1)
    make = device_failures if name == DEVICES else silent_drops
    seeds = range(TRACES * draw, TRACES * draw + (2 if small else TRACES))
    return scored(name, [make(network(small), seed, flows) for seed in seeds], draw, small)


def _tasks(effort: Effort) -> Mapping[str, Task]:
    return {
        f"{number}-draw-{n}": partial(few_faults, n, name, effort.small)
        for number, name in enumerate((DROPS_100K, DROPS_400K, DEVICES))
        for n in range(effort.draws)
    }


LEVEL = (
    "Flow level has no congestion and no retransmission, so losses say more; and what is "
    "calibrated is so on our own traces, of which there are few."
)
FIGURE_2 = Experiment(
    "flock-2",
    "Flock, figure 2",
    "f-score by telemetry: silent drops and failed devices",
    SETTING + "A draw is 8 traces; the paper has 63 and draws curves, its text names the points.",
    seconds=1500,
    memory_mb=3500,
    panels=(
        *(Panel(f"{F}, {n}", "", f"{F}, {n}", False) for n in (DROPS_100K, DROPS_400K, DEVICES)),
        Panel(f"{RECALL}, {DEVICES}", "", f"{RECALL}, {DEVICES}", False),
    ),
    tasks=_tasks,
    reasons=tuple(
        Reason(LEVEL, f"{what}, {name}", ratio=(0.6, 2.5))
        for what in (F, RECALL)
        for name in (DROPS_100K, DROPS_400K, DEVICES)
    ),
    quick=False,
)
