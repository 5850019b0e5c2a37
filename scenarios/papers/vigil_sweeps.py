"""Sweeps of 007's simulation: a quantity a panel over settings, all methods on the same epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from analysis.methods.base import Localizer
from analysis.methods.vigil.set_cover import IntegerProgram, MaxCoverage
from analysis.methods.vigil.vigil import Vigil
from scenarios.papers.experiment import Effort, Panel, Row, Task, label
from scenarios.papers.vigil_network import Count, Setting, Shape, paper_network, simulate
from testbed.fabric.ecmp import Ecmp

EPOCHS = 3
AS_PRINTED, PROGRAM = "007, algorithm 1 as printed", "integer program"
METHODS: Mapping[str, Localizer] = {
    "007": Vigil(),
    AS_PRINTED: Vigil(threshold=0.01, chance=np.inf, false_alarm=np.inf),
    PROGRAM: IntegerProgram(time_limit=20.0),
    "greedy": MaxCoverage(),
}
LESS = "007 less integer program"
SETTING = (
    "4,160 links in 2 pods of 20 ToRs, 40 hosts a ToR with 60 connections of up to 100 packets an "
    "epoch, healthy links lose up to 10⁻⁶; how hosts and tiers make 4,160 links is our reading. "
    "A draw is three epochs. Accuracy is over flows that 007 does not put down to noise, of all "
    "methods alike. 007 with the testbed's threshold and tests of noise, and as printed (1 % of "
    "the votes); the integer program is HiGHS's, in 20 s. "
)
SMALL = Shape(tors=4, aggs=2, cores=2, hosts=8)


@dataclass(frozen=True)
class Sweep:
    """``settings`` by x; ``shown`` quantities become ``<name>: accuracy, %`` and so on."""

    name: str
    x: str
    settings: Mapping[float | str, Setting]
    shown: tuple[str, ...] = ("accuracy, %",)
    numeric: bool = True
    log_x: bool = False


def panels(sweeps: Sequence[Sweep]) -> tuple[Panel, ...]:
    return tuple(
        Panel(f"{of.name}: {what}", of.x, f"{of.name}: {what}", of.numeric, log_x=of.log_x)
        for of in sweeps
        for what in of.shown
    )


@cache
def network(pods: int, shape: Shape = Shape()) -> Ecmp:
    return Ecmp(paper_network(pods, shape))


def one_draw(draw: int, sweep: Sweep, shape: Shape) -> list[Row]:
    rows = []
    for x, setting in sweep.settings.items():
        counts = {name: Count() for name in METHODS}
        for n in range(EPOCHS):
            epoch = simulate(network(setting.pods, shape), setting, EPOCHS * draw + n, shape)
            found = {name: each.localize(epoch.telemetry) for name, each in METHODS.items()}
            cause = found["007"].connection_cause
            assert cause is not None
            for name, diagnosis in found.items():
                counts[name].add(epoch, diagnosis, cause >= 0)
        for what in sweep.shown:
            figures = {name: count.figures()[what] for name, count in counts.items()}
            figures[LESS] = figures["007"] - figures[PROGRAM]
            quantity = f"{sweep.name}: {what}"
            for name, figure in figures.items():
                at = quantity if name != LESS else f"{quantity}, difference"
                rows += [Row(at, name, label(x), draw, figure)] * bool(np.isfinite(figure))
    return rows


def sweep_tasks(sweeps: Sequence[Sweep], effort: Effort) -> Mapping[str, Task]:
    """A task a sweep and draw; small, three points of each sweep in a network of 8 ToRs."""
    tasks: dict[str, Task] = {}
    for number, sweep in enumerate(sweeps):
        shape = Shape()
        if effort.small:
            shape, every = SMALL, sweep.settings
            xs = list(every)
            ends = dict.fromkeys((xs[0], xs[len(xs) // 2], xs[-1]))
            sweep = Sweep(sweep.name, sweep.x, {x: _less(every[x]) for x in ends}, sweep.shown)
        for draw in range(effort.draws):
            tasks[f"{number}-draw-{draw}"] = partial(one_draw, draw, sweep, shape)
    return tasks


def _less(of: Setting) -> Setting:
    """As a network of 8 ToRs can have it, and losing enough to be seen there."""
    return Setting(min(of.failed, 2), (0.05, 0.1), hot=min(of.hot, 2), skew=of.skew, pods=of.pods)
