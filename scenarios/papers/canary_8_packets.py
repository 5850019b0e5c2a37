"""Canary's figures 8 and 9 on packets, beside the segment level: what real traffic costs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from analysis.methods.canary.multistage import Canary
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import Probes, Telemetry
from scenarios.experiment.run import run_experiment
from scenarios.experiment.scenario import Scenario
from scenarios.experiment.settings import make_settings
from scenarios.papers.canary_8 import FEW, FEWER, FIGURE_8
from scenarios.papers.experiment import Effort, Experiment, Panel, Row, Task, label
from scenarios.papers.segment_level import (
    FOUND,
    FROM_PROBES,
    SHOWN,
    WRONG,
    World,
    as_rates,
    even,
    stages,
)
from testbed.faults.plan import Fault, FaultPlan
from testbed.record.run import RunDirectory

ALPHA, GROUPS = 1000, (1, 2, 3, 4, 5)
BY_GROUPS, LOSS = "F1 by groups", "F1, segments less packets"
SETTINGS = {"backend": "virtual", "epochs": 10, "epoch_ms": 100, "load": 0.6, "noise": "0"}
METHODS = {name: FROM_PROBES[name] for name in ("NetBouncer", "Flock", "NetBouncer-stage")}


def emulated(world: World, k: int, seed: int) -> Telemetry:
    """What a run on packets sees of a world's faults: probes of each ToR's first host alone."""
    faults = tuple(Fault(int(link), float(world.loss[link])) for link in world.faulty)
    scenario = Scenario(make_faults=lambda fabric, settings: FaultPlan(faults))
    settings = make_settings({"k": k, "seed": seed, "alpha": ALPHA, **SETTINGS})
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        run_experiment("both_ways", scenario, settings, place, [])
        record = RunDirectory(place)
        seen, counts = read_telemetry(record, "A1"), record.table("probe_counts")
        bouncing = counts["src_host"] == counts["dst_host"]
        first = counts["src_host"][bouncing] % (k // 2) == 0
    rows = np.flatnonzero(first)
    assert seen.probes is not None and len(first) == len(seen.probes.paths)
    every = seen.probes
    return replace(seen, probes=Probes(every.paths.take(rows), every.sent[rows], every.lost[rows]))


def one_draw(draw: int, k: int) -> list[Row]:
    """The same faults on packets and on segments."""
    world, rows, ends = World.draw(k, ALPHA, draw), [], {}
    methods = {**METHODS, f"Canary α={ALPHA}": Canary(), f"Canary α={ALPHA}, linear": LINEAR}
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
        for groups in GROUPS:
            series = "Canary" if how == "packets" else f"Canary, {how}"
            method = Canary(groups=even(share, groups), threads=1)
            found = stages(series, method, telemetry, world.faulty, draw)
            f1 = [row.value for row in found if row.quantity == "F1"][-1]
            rows.append(Row(BY_GROUPS, series, label(groups), draw, f1))
    for name in methods:
        rows.append(Row(LOSS, name, "F1", draw, ends[name, "segments"] - ends[name, "packets"]))
    return rows


def _tasks(effort: Effort) -> Mapping[str, Task]:
    k = 4 if effort.small else 8
    return {f"draw-{n}": partial(one_draw, n, k) for n in range(effort.draws)}


LINEAR = Canary(mapping="linear")
FOUND_ON_SEGMENTS = (
    f"That rates stand for {FEWER} packets was found on segments (8 other draws: 18.1 links); "
    "there 20 draws find 18.75, 17 to 21. On packets the same faults and the same number of "
    "packets a path are drawn anew, and few draws differ by a link."
)
FIGURE_8_PACKETS = Experiment(
    "canary-8-packets",
    "Canary, figures 8 and 9",
    "the same on packets, beside the segment level",
    "The faults of canary-8, emulated: every packet crosses the P4 program of K=8's 80 switches "
    "for 10 epochs, the controller selects flows, α = 1000; probes are those of one host a ToR. "
    "'segments' is the segment level. Canary reads 10 epochs, the paper's simulator one.",
    seconds=260,
    memory_mb=700,
    panels=(
        *(Panel(each, "stage", each) for each in SHOWN),
        Panel(FOUND, "", "links found, of 26 or of 52", numeric=False),
        Panel(WRONG, "", "healthy links blamed", numeric=False),
        Panel(BY_GROUPS, "groups", "F1 of Canary at the end"),
        Panel(LOSS, "", LOSS, numeric=False),
    ),
    tasks=_tasks,
    series={"Flock": ("Flock", FEW)},
    tried={FEW: FOUND_ON_SEGMENTS},
    reasons=FIGURE_8.reasons,
    quick=False,
)
