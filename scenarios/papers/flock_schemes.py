"""The schemes of Flock's evaluation: what each reads of a trace, with which parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from analysis.evaluation.calibration import Case, accuracy, calibrate, choose
from analysis.methods.base import Localizer
from analysis.methods.netbouncer import NetBouncer
from analysis.methods.vigil.vigil import Vigil
from analysis.telemetry.telemetry import Telemetry
from scenarios.papers.experiment import Row
from scenarios.papers.flock_world import FLOWS, PARAMETERS, World, flock, network, silent_drops

F, PRECISION, RECALL = "f-score", "precision", "recall"
Scheme = tuple[str, str]
"""Method and kind of telemetry."""
Way = tuple[Callable[[World], Telemetry], Localizer]
Traces = Sequence[tuple[World, Case]]


@cache
def schemes(small: bool) -> Mapping[Scheme, Way]:
    """Flock with the parameters of its authors' code; NetBouncer and 007 calibrated on 8 other
    traces (section 5.2)."""
    flows, seeds = (4_000, (4, 5)) if small else (FLOWS, range(4, 12))
    train = [silent_drops(network(small), 1000 + seed, flows) for seed in seeds]
    ways: dict[Scheme, Way] = {
        ("Flock", kinds): (partial(World.telemetry, kinds=kinds), flock(*parameters))
        for kinds, parameters in PARAMETERS.items()
    }
    return ways | baselines(train, ("INT", "A1"))


def baselines(train: Traces, netbouncer: Sequence[str]) -> dict[Scheme, Way]:
    """NetBouncer on some kinds of telemetry, and 007, calibrated on ``train``."""
    limits = {"link_threshold": (0.997, 0.998, 0.9985, 0.999, 0.9993), "penalty": (0.01, 1.0)}
    shares = {"threshold": (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)}
    ways: dict[Scheme, Way] = {}
    for kinds in netbouncer:
        view = partial(World.for_netbouncer, kinds=kinds)
        ways["NetBouncer", kinds] = view, retuned(train, view, NetBouncer, limits)
    ways["007", "A2"] = World.for_vigil, retuned(train, World.for_vigil, Vigil, shares)
    return ways


def retuned(
    traces: Traces,
    view: Callable[[World], Telemetry],
    make: Callable[..., Localizer],
    grid: Mapping[str, Sequence[Any]],
) -> Localizer:
    """A method with the parameters that section 5.2's rule picks of a grid."""
    known = [Case(view(world), case.links, case.devices) for world, case in traces]
    return make(**choose(calibrate(make, grid, known)).parameters)


def scored(
    name: str, ways: Mapping[Scheme, Way], traces: Iterable[tuple[World, Case]], draw: int
) -> list[Row]:
    """F of the mean precision and recall, and the two, by method and telemetry."""
    found: dict[Scheme, list[tuple[float, float]]] = {scheme: [] for scheme in ways}
    for world, case in traces:
        for scheme, (view, localizer) in ways.items():
            found[scheme].append(accuracy(localizer.localize(view(world)), case))
    rows = []
    for (method, kinds), each in found.items():
        precision, recall = np.mean(each, axis=0).tolist()
        f1 = 2 * precision * recall / max(precision + recall, 1e-9)
        for what, value in ((F, f1), (PRECISION, precision), (RECALL, recall)):
            rows.append(Row(f"{what}, {name}", method, kinds, draw, value))
    return rows
