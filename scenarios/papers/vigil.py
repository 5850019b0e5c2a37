# SPDX-License-Identifier: Apache-2.0
"""007's figures: accuracy, precision and recall in its simulation (figures 3 to 12 and section
6.7), and votes in a cluster of 10 ToRs (section 7 and figure 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from analysis.methods.base import Localizer, decide
from analysis.methods.vigil.set_cover import IntegerProgram, MaxCoverage
from analysis.methods.vigil.vigil import Vigil, ballot
from scenarios.papers.experiment import Effort, Row, Task, label
from scenarios.papers.vigil_network import Count, Epoch, Setting, Shape, paper_network, simulate
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.ecmp_probabilities import EcmpProbabilities

EPOCHS = 3
AS_PRINTED, PROGRAM = "007, algorithm 1 as printed", "integer program"
METHODS: Mapping[str, Localizer] = {
    "007": Vigil(threshold=0.01),
    AS_PRINTED: Vigil(threshold=0.01, chance=np.inf, false_alarm=np.inf),
    PROGRAM: IntegerProgram(time_limit=20.0),
    "greedy": MaxCoverage(),
}
LESS = "007 less integer program"
SMALL = Shape(tors=4, aggs=2, cores=2, hosts=8)
EVERY = ("accuracy, %", "precision, %", "recall, %")
RATES = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01)
FAILED = (2, 6, 10, 14)
OPTIMAL_RATES = (0.0005, 0.01)


@dataclass(frozen=True)
class Sweep:
    """Settings by x; each of the ``shown`` quantities is named ``<name>: accuracy, %`` and so
    on."""

    name: str
    settings: Mapping[float | str, Setting]
    shown: Sequence[str] = ("accuracy, %",)


def at(rate: float, **changed) -> Setting:
    """Return a setting in which failed links have the loss rate ``rate``."""
    return Setting(rates=(rate, rate), **changed)


NOISES = (1e-6, 5e-6, 1e-5, 5e-5)
PLACES = {"ToR up": (2, 0), "ToR down": (2, 1), "T1 up": (3, 0), "T1 down": (3, 1)}
SWEEPS = {
    "3": (Sweep("fig. 3, 4", {n: Setting(n, OPTIMAL_RATES) for n in (1, *FAILED)}, EVERY),),
    "5": (
        Sweep("fig. 5a", {rate: at(rate) for rate in RATES}),
        Sweep("fig. 5b", {n: Setting(n) for n in FAILED}),
        Sweep("fig. 6a", {n: Setting(noise=n) for n in NOISES}),
        Sweep("fig. 6b", {n: Setting(5, noise=n) for n in NOISES}),
        Sweep("fig. 7a", {rate: at(rate, flows=(10, 60)) for rate in RATES}),
        Sweep("fig. 7b", {n: Setting(n, flows=(10, 60)) for n in FAILED}),
    ),
    "8": (
        Sweep("fig. 8a", {rate: at(rate, hot=10, skew=0.8) for rate in RATES}),
        Sweep("fig. 8b", {n: Setting(n, hot=10, skew=0.8) for n in FAILED}),
        *(
            Sweep(
                f"fig. 9, {n} failed",
                {share: Setting(n, hot=1, skew=share) for share in (0.1, 0.3, 0.5, 0.7)},
            )
            for n in (1, 5, 10)
        ),
    ),
    "10": (
        Sweep("fig. 10", {rate: at(rate) for rate in RATES}, EVERY[1:]),
        Sweep("fig. 11", {name: at(0.001, kind=kind) for name, kind in PLACES.items()}, EVERY[1:]),
        Sweep(
            "fig. 12", {n: Setting(n, (0.0001, 0.001), (0.1, 1.0)) for n in (1, 3, 5, 7, 9)}, EVERY
        ),
    ),
    "6.7": (
        Sweep("6.7", {n: Setting(pods=n) for n in range(1, 8)}, EVERY),
        Sweep("6.7, failed", {30: Setting(30)}),
    ),
}
"""The sweeps, by the number of their first figure or of their section."""


@cache
def network(pods: int, shape: Shape = Shape()) -> Ecmp:
    """Return the network of section 6.1, whose number of pods is ``pods``; it is made once."""
    return Ecmp(paper_network(pods, shape))


def sweeps(figure: str, effort: Effort) -> Mapping[str, Task]:
    """Return a task for each sweep and draw; with a small effort, three points of each sweep in a
    network of 8 ToRs."""
    tasks: dict[str, Task] = {}
    for number, sweep in enumerate(SWEEPS[figure]):
        shape = Shape()
        if effort.small:
            shape, every = SMALL, sweep.settings
            xs = list(every)
            ends = dict.fromkeys((xs[0], xs[len(xs) // 2], xs[-1]))
            sweep = Sweep(sweep.name, {x: _less(every[x]) for x in ends}, sweep.shown)
        for draw in range(effort.draws):
            tasks[f"{number}-draw-{draw}"] = partial(swept, draw, sweep, shape)
    return tasks


def swept(draw: int, sweep: Sweep, shape: Shape) -> list[Row]:
    """Return the accuracy, precision and recall of each method over `EPOCHS` epochs, for each x of
    a sweep."""
    rows = []
    for x, setting in sweep.settings.items():
        counts = {name: Count() for name in METHODS}
        for n in range(EPOCHS):
            epoch = simulate(network(setting.pods, shape), setting, EPOCHS * draw + n, shape)
            found = {name: decide(each, epoch.telemetry) for name, each in METHODS.items()}
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


def _less(setting: Setting) -> Setting:
    """Return a similar setting that fits a network of 8 ToRs, with loss rates that are visible
    there."""
    return Setting(
        min(setting.failed, 2),
        (0.05, 0.1),
        hot=min(setting.hot, 2),
        skew=setting.skew,
        pods=setting.pods,
    )


CLUSTER = Shape(tors=10, aggs=4, cores=1, hosts=5)
TOP, GAP = "bad link has the most votes, %", "votes, bad link less best good one"
MARKED, TWO = "links marked, integer program / 007", "place of the second link, %"
RIGHT = "flows blamed on the right link, %"
CLUSTER_RATES = (0.01, 0.001, 0.0005)
DOWN = (2, 1)


def epochs(draw: int, n: int, setting: Setting) -> list[Epoch]:
    """Return ``n`` simulated epochs of a draw in the cluster of 10 ToRs."""
    seeds = range(n * draw, n * (draw + 1))
    return [simulate(network(1, CLUSTER), setting, seed, CLUSTER) for seed in seeds]


def votes(epoch: Epoch) -> np.ndarray:
    """Return 007's votes for each directed link, float64[n_links]."""
    fabric = network(1, CLUSTER).fabric
    connections = epoch.telemetry.need("connections", "007")
    return ballot(connections, EcmpProbabilities(fabric)).tally(fabric.n_links)


def one_failure(draw: int, n: int) -> list[Row]:
    """Return, for each loss rate of one failed link, how often it has the most votes, and its lead
    in votes."""
    rows = []
    for rate in CLUSTER_RATES:
        setting = Setting(rates=(rate, rate), pods=1, kind=DOWN)
        first, gaps, ours, theirs = [], [], 0, 0
        for epoch in epochs(draw, n, setting):
            tally = votes(epoch)
            bad = tally[epoch.failed[0]]
            tally[epoch.failed] = 0
            first.append(bad > tally.max())
            gaps.append(bad - tally.max())
            ours += len(decide(Vigil(threshold=0.01), epoch.telemetry).flagged)
            theirs += len(decide(IntegerProgram(), epoch.telemetry).flagged)
        rows.append(Row(TOP, "007", label(rate), draw, 100 * float(np.mean(first))))
        rows.append(Row(GAP, "007", label(rate), draw, float(np.mean(gaps))))
        if ours:
            rows.append(Row(MARKED, "integer program / 007", label(rate), draw, theirs / ours))
    return rows


def two_failures(draw: int, n: int) -> list[Row]:
    """Return how often the worse of two failed links has the most votes, the place of the other
    one, and how often a flow's loss is blamed on the right link."""
    worse, place = [], []
    right: dict[str, list[bool]] = {"0.2 and 0.1 %": [], "0.2 and 0.05 %": []}
    for causes, low in zip(right.values(), (0.001, 0.0005), strict=True):
        setting = Setting(2, (low, low), (0.002, 0.002), pods=1, kind=DOWN)
        for epoch in epochs(draw, n, setting):
            cause = decide(Vigil(threshold=0.01), epoch.telemetry).connection_cause
            assert cause is not None
            own = np.isin(epoch.cause, epoch.failed) & (cause >= 0)
            causes += (cause == epoch.cause)[own].tolist()
            if low == 0.001:
                tally = votes(epoch)
                by_lost = [int((epoch.cause == link).sum()) for link in epoch.failed]
                bad = epoch.failed[np.argsort(by_lost)[::-1]]
                worse.append(tally[bad[0]] >= tally.max())
                place.append(1 + int((np.delete(tally, bad[1]) > tally[bad[1]]).sum()))
    at = np.array(place)
    shares = {"first link first": np.mean(worse), "second": np.mean(at <= 2)}
    shares |= {"third": np.mean(at == 3), "of three": np.mean(at <= 3), "of five": np.mean(at <= 5)}
    rows = [Row(TWO, "007", name, draw, 100 * float(share)) for name, share in shares.items()]
    means = {name: 100 * float(np.mean(causes)) for name, causes in right.items() if causes}
    return rows + [Row(RIGHT, "007", name, draw, mean) for name, mean in means.items()]


def figure_13(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 13 and section 7, for one and for two failed links."""
    n = 4 if effort.small else 50
    both = {"one": one_failure, "two": two_failures}
    return {
        f"{panel}-{m}": partial(do, m, n) for panel, do in both.items() for m in range(effort.draws)
    }
