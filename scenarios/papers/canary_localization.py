# SPDX-License-Identifier: Apache-2.0
"""Canary's figures 8 to 10: the links that the methods find in a fat-tree, and their time.

The authors simulated a fat-tree as path segments, without packets, and so does `World`.

Faults drop packets in both directions; each segment counts alpha to 1.5 alpha packets in one epoch;
NetBouncer has one prober for each ToR, which probes each core switch. No other packets are lost.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analysis.evaluation.metrics import Score, score
from analysis.methods.base import Localizer, decide
from analysis.methods.canary import Canary
from analysis.methods.flock.flock import Flock
from analysis.methods.netbouncer import NetBouncer, NetBouncerStage
from analysis.solvers.stages import GROUPS
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import Probes, SegmentCounts, Telemetry
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.request import Scenario
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings
from scenarios.papers.experiment import Effort, Row, Task, by_draw, label
from testbed.arrays import FloatArray, LongArray
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from testbed.faults.plan import Fault, FaultPlan
from testbed.faults.specification import PAPER_RATES, draw_rates
from testbed.record.run import RunDirectory

ALPHAS = (200, 500, 1000)
PROBES = 100
STAGES, LEAST = 5, GROUPS[-1]
FOUND, WRONG, LAST = "links found", "links wrong", "the end"
SHOWN = ("accuracy", "precision", "recall", "F1")
FROM_PROBES: Mapping[str, Localizer] = {
    "NetBouncer": NetBouncer(penalty=1.0),
    "Flock": Flock.canary_table_iii(),
    "NetBouncer-stage": NetBouncerStage(penalty=1.0),
}
"""The methods that read probes, with the parameters of Canary's table III."""


@dataclass(frozen=True)
class World:
    """A fat-tree with faults: the ``loss`` rate of each directed link, float64[n_links], the
    ``faulty`` links, and the telemetry."""

    fabric: FatTree
    loss: FloatArray
    faulty: LongArray
    telemetry: Telemetry

    @classmethod
    def draw(cls, k: int, alpha: int, seed: int, share: float = 0.1) -> World:
        """Draw and return a world in which a ``share`` of the undirected links fails, 0 to 1, with
        loss rates in the proportions of section IV-D.

        Equal seeds give equal faults and probes, whatever ``alpha``.
        """
        rng = np.random.default_rng([seed, k, 8])
        fabric = FatTree(k)
        edges = rng.choice(fabric.n_edges, round(share * fabric.n_edges), replace=False)
        loss = np.zeros(fabric.n_links)
        rates = draw_rates(rng, len(edges), PAPER_RATES)
        loss[2 * edges] = loss[2 * edges + 1] = rates
        bounces = Ecmp(fabric).bounces()
        sent = np.full(len(bounces), PROBES, np.int64)
        probes = Probes(bounces, sent, rng.binomial(sent, _lost_share(bounces, loss)))
        segments = fabric.segments()
        counted = rng.integers(0, 1 << 62, len(segments)) / 2.0**62  # the same draw for all alphas
        packets = (alpha * (1 + 0.5 * counted)).astype(np.int64)[None, :]
        lost = np.random.default_rng([seed, alpha]).binomial(
            packets, _lost_share(segments.paths, loss)
        )
        telemetry = Telemetry(
            fabric, "tor+core", segments=SegmentCounts(segments, packets, lost), probes=probes
        )
        return cls(fabric, loss, np.flatnonzero(loss > 0), telemetry)


def _lost_share(paths: Paths, loss: FloatArray) -> FloatArray:
    """Return the probability that a packet is lost on each path."""
    padded = paths.padded()
    through = np.where(padded >= 0, 1 - loss[padded], 1.0)
    return 1 - through.prod(axis=1)


def even(loss: FloatArray, groups: int) -> Sequence[float]:
    """Return descending edges that divide lossy segments into groups of equal size, by their loss
    rates ``loss``."""
    inner = np.quantile(loss, np.linspace(1, 0, groups + 1)[1:-1])
    return [1.0, *np.clip(inner, 1.01 * LEAST, 0.999), LEAST]


def as_rates(telemetry: Telemetry, packets: int) -> Telemetry:
    """Return telemetry in which each path has the same loss rate, but only ``packets`` probes."""
    probes = telemetry.need("probes", "rates")
    lost = np.round(probes.lost / probes.sent * packets).astype(np.int64)
    return replace(telemetry, probes=Probes(probes.paths, np.full_like(lost, packets), lost))


def stages(
    name: str, method: Localizer, telemetry: Telemetry, faulty: LongArray, draw: int
) -> list[Row]:
    """Return the scores of a method after each of five stages, and the links found and wrong at the
    end. Links are undirected for methods that read probes, and directed for those that read
    segments."""
    verdict = decide(method, telemetry)
    flagged = verdict.stages or (verdict.flagged,) * STAGES
    after = [score(links, faulty, telemetry.topology)[verdict.native] for links in flagged]
    rows = [
        Row(quantity, name, label(stage), draw, value)
        for stage, each in enumerate(after, 1)
        for quantity in SHOWN
        if not math.isnan(value := _figure(each, quantity))  # precision without a blamed link
    ]
    rows.append(Row(FOUND, name, LAST, draw, after[-1].true_positives))
    rows.append(Row(WRONG, name, LAST, draw, after[-1].false_positives))
    return rows


def _figure(score: Score, quantity: str) -> float:
    """Return the accuracy, precision, recall or F1 of a score, by its name."""
    return {
        "accuracy": score.accuracy,
        "precision": score.precision,
        "recall": score.recall,
        "F1": score.f1,
    }[quantity]


FEWER = 20
FEW = f"Flock, rates as of {FEWER} packets"

FROM_SEGMENTS: Mapping[str, Localizer] = {
    "Canary α={}": Canary(),
    "Canary α={}, linear": Canary(mapping="linear"),
}


def figure_8(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 8, one for each draw."""
    k, alphas = (4, (1000,)) if effort.small else (8, ALPHAS)
    return by_draw(effort, on_segments, k, alphas)


def on_segments(draw: int, k: int, alphas: tuple[int, ...]) -> list[Row]:
    """Return the scores of all methods on one set of faults; links are undirected for methods that
    read probes, and directed for Canary."""
    rows, worlds = [], {alpha: World.draw(k, alpha, draw) for alpha in alphas}
    for alpha, world in worlds.items():
        methods = {name.format(alpha): method for name, method in FROM_SEGMENTS.items()}
        if alpha == alphas[0]:
            methods = {**FROM_PROBES, **methods}
        for name, method in methods.items():
            rows += stages(name, method, world.telemetry, world.faulty, draw)
    world = worlds[alphas[0]]
    rates = as_rates(world.telemetry, FEWER)
    return rows + stages(FEW, FROM_PROBES["Flock"], rates, world.faulty, draw)


ALPHA, GROUP_COUNTS = 1000, (1, 2, 3, 4, 5)
BY_GROUPS, LOSS = "F1 by groups", "F1, segments less packets"
SETTINGS = {"backend": "virtual", "epochs": 10, "epoch_ms": 100, "load": 0.6, "noise": "0"}


def figure_8_packets(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 8 on packets, one for each draw."""
    return by_draw(effort, on_packets, 4 if effort.small else 8)


def emulated(world: World, k: int, seed: int) -> Telemetry:
    """Emulate a world's faults with packets; return telemetry with the probes of each ToR's first
    host only."""
    faults = tuple(Fault(int(link), float(world.loss[link])) for link in world.faulty)
    scenario = Scenario(make_faults=lambda fabric, settings: FaultPlan(faults))
    settings = make_settings({"k": k, "seed": seed, "alpha": ALPHA, **SETTINGS})
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        run_experiment(layout_of(settings, scenario, "both_ways"), place, [])
        record = RunDirectory(place)
        telemetry, counts = read_telemetry(record, "A1"), record.table("probe_counts")
        paths = record.table("probe_paths")["path"]
    bouncing = counts["src_host"] == counts["dst_host"]
    rows = np.flatnonzero(bouncing & (counts["src_host"] % (k // 2) == 0))
    path, sent, lost = (counts[name][rows] for name in ("path", "sent", "lost"))
    return replace(telemetry, probes=Probes(paths.take(path), sent, lost))


def on_packets(draw: int, k: int) -> list[Row]:
    """Return the scores on the same faults, with packets and with segments."""
    world, rows, ends = World.draw(k, ALPHA, draw), [], {}
    methods = {
        **FROM_PROBES,
        f"Canary α={ALPHA}": Canary(),
        f"Canary α={ALPHA}, linear": Canary(mapping="linear"),
    }
    for how, telemetry in (("packets", emulated(world, k, draw)), ("segments", world.telemetry)):
        for name, method in methods.items():
            series = name if how == "packets" else f"{name}, {how}"
            found = stages(series, method, telemetry, world.faulty, draw)
            rows += found
            ends[name, how] = [row.value for row in found if row.quantity == "F1"][-1]
        if how == "packets":
            rates = as_rates(telemetry, FEWER)
            rows += stages(FEW, FROM_PROBES["Flock"], rates, world.faulty, draw)
        counts = telemetry.need("segments", "canary")
        sent, lost = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
        share = lost[lost > 0] / sent[lost > 0]
        for groups in GROUP_COUNTS:
            series = "Canary" if how == "packets" else f"Canary, {how}"
            method = Canary(groups=even(share, groups), threads=1)
            found = stages(series, method, telemetry, world.faulty, draw)
            f1 = [row.value for row in found if row.quantity == "F1"][-1]
            rows.append(Row(BY_GROUPS, series, label(groups), draw, f1))
    for name in methods:
        rows.append(Row(LOSS, name, "F1", draw, ends[name, "segments"] - ends[name, "packets"]))
    return rows


F1, MILLISECONDS, SLOWER = "F1", "milliseconds", "time with 5 groups / with 1"
EQUAL, RANGES, LINEAR = "equal numbers, eq. 4", "equal log ranges, eq. 4", "equal numbers, linear"


def figure_9(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 9, one for each draw."""
    return by_draw(effort, by_groups, *((4, 1) if effort.small else (8, 5)))


def edges(loss: np.ndarray, groups: int, equal_numbers: bool) -> Sequence[float]:
    """Return descending loss rates that divide lossy segments into groups, of equal size or of
    equal logarithmic range."""
    return even(loss, groups) if equal_numbers else np.geomspace(1.0, LEAST, groups + 1).tolist()


def by_groups(draw: int, k: int, tries: int) -> list[Row]:
    """Return F1 and the shortest of ``tries`` times for each number of groups, in one thread."""
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
                flagged = decide(method, world.telemetry).flagged
                seconds.append(time.process_time() - begin)
            found = score(flagged, world.faulty, world.fabric)["directed"]
            took[name, groups] = min(seconds)
            rows.append(Row(F1, name, label(groups), draw, found.f1))
            rows.append(Row(MILLISECONDS, name, label(groups), draw, 1e3 * min(seconds)))
    slower = took[EQUAL, GROUP_COUNTS[-1]] / max(took[EQUAL, 1], 1e-9)
    return [*rows, Row(SLOWER, "Canary", "5 / 1", draw, slower)]


GROWTH = "growth of Canary's time / of theirs"


def figure_10(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 10, one for each draw."""
    return by_draw(effort, by_size, *(((4, 6), 1) if effort.small else ((6, 8, 10, 12), 3)))


def by_size(draw: int, sizes: tuple[int, ...], tries: int) -> list[Row]:
    """Return F1 and the shortest of ``tries`` times, in ms, for each size of the fat-tree, in one
    thread. Canary's time is that of one of its sub-problems."""
    rows, took = [], {}
    for k in sizes:
        world = World.draw(k, ALPHA, draw)
        counts = world.telemetry.need("segments", "canary")
        loss = counts.lost.sum(axis=0) / counts.sent.sum(axis=0)
        methods: dict[str, Localizer] = {n: FROM_PROBES[n] for n in ("NetBouncer", "Flock")}
        for groups in (3, 5):
            cuts = even(loss[loss > 0], groups)
            methods[f"Canary, {groups} groups"] = Canary(groups=cuts, threads=1)
        for name, method in methods.items():
            verdict, seconds = decide(method, world.telemetry), []
            for _ in range(tries):
                begin = time.process_time()
                decide(method, world.telemetry)
                seconds.append(time.process_time() - begin)
            found = score(verdict.flagged, world.faulty, world.fabric)[verdict.native]
            # The time of one of the K sub-problems, which the paper solves in parallel.
            took[name, k] = min(seconds) / (k if name.startswith("Canary") else 1)
            rows.append(Row(F1, name, label(k), draw, found.f1))
            rows.append(Row(MILLISECONDS, name, label(k), draw, 1e3 * took[name, k]))
    first, last = sizes[0], sizes[-1]
    growth = {name: took[name, last] / max(took[name, first], 1e-9) for name, _ in took}
    for other in ("NetBouncer", "Flock"):
        for groups in (3, 5):
            share = growth[f"Canary, {groups} groups"] / max(growth[other], 1e-9)
            rows.append(Row(GROWTH, f"Canary, {groups} groups", f"over {other}", draw, share))
    return rows
