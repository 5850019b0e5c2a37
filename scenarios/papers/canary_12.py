"""Canary's figure 12, of the soft switch: what the program costs a packet in software."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

import numpy as np

from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label
from scenarios.papers.two_monitors import Pair, frames_of
from testbed.dataplane import DSM, USM

FLOWS = (0, 20, 400, 1000)
RATE, SHARE = "packet-hops/s of one core", "monitor / plain forwarding"
BATCH = 4096


def one_draw(draw: int, turns: int) -> list[Row]:
    """The best of some turns, with so many of 4,096 flows monitored on both switches."""
    frames, ids = frames_of(BATCH, draw)
    now, rows = np.zeros(BATCH, np.uint64), []

    def rate(pair: Pair) -> float:
        seconds = []
        for _ in range(turns):
            begin = time.process_time()
            assert pair.send(frames, now) == BATCH
            seconds.append(time.process_time() - begin)
        return 2 * BATCH / max(min(seconds), 1e-9)

    plain, monitor = Pair.make(monitor=False), Pair.make()
    forwards = rate(plain)
    rows.append(Row(RATE, "plain forwarding", label(0), draw, forwards))
    path_bf = int(monitor.decoder.path_bf[0])
    for before, flows in zip((0, *FLOWS), FLOWS, strict=False):
        for each in ids[before:flows]:
            monitor.upper.table(DSM.rules).add([each, path_bf], DSM.monitor)
            monitor.lower.table(USM.rules).add([each], USM.monitor)
        found = rate(monitor)
        rows.append(Row(RATE, "monitor switches", label(flows), draw, found))
        rows.append(Row(SHARE, "the soft switch", label(flows), draw, found / forwards))
    return rows


def _tasks(effort: Effort) -> Mapping[str, Task]:
    turns = 2 if effort.small else 20
    return {f"draw-{n}": partial(one_draw, n, turns) for n in range(effort.draws)}


FIGURE_12 = Experiment(
    "canary-12",
    "Canary, figure 12",
    "cost of the pipeline in software (no line rate of a chip)",
    "Two soft switches with a link between them, 4,096 flows, packets of 46 bytes, one core: the "
    "program with its meters and so many flows monitored, and the same program where the switches "
    "are no monitors. The paper has two Tofinos, 40 GbE and 4 TCP flows.",
    seconds=25,
    memory_mb=500,
    panels=(
        Panel(RATE, "flows monitored", RATE),
        Panel(SHARE, "flows monitored", SHARE, limits=(0, 1.1)),
    ),
    tasks=_tasks,
    series={"Tofino": ("the soft switch",)},
    reasons=(
        Reason(
            "A chip's pipeline has all its stages at work at once, a processor does one after the "
            "other. Whether a chip keeps its rate is a question of what fits its stages: "
            "canary-table-4.",
            SHARE,
            cannot=True,
        ),
    ),
)
