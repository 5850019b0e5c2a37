"""Canary's figure 6 (b): the time to decode the sketches that detect the losses of one link."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from scenarios.papers.canary_6a import RATES, SETTING
from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label
from scenarios.papers.two_switches import SKETCHES, Epoch, by_decoding, decode, read_meters

TRIES = 25
SECONDS, GROWTH = "seconds", "time at 0.1 / at 0.0001"


def times(draw: int, rates: tuple[float, ...], tries: int, flows: int) -> list[Row]:
    """Seconds of the processor to decode what 99 % success takes: the best of five."""
    rows, found = [], {}
    for loss in rates:
        epoch = Epoch.draw(loss, draw, flows, round(83.3333 * flows))
        for name in SKETCHES:
            sized = by_decoding(name, epoch, tries)
            one = partial(read_meters, epoch, sized) if name == "Canary" else None
            one = one or partial(decode, name, epoch, sized.width)
            found[name, loss] = min(one(seed)[1] for seed in range(5))
            rows.append(Row(SECONDS, name, label(loss), draw, found[name, loss]))
    first, last = rates[0], rates[-1]
    for name in SKETCHES:
        growth = found[name, last] / max(found[name, first], 1e-9)
        rows.append(Row(GROWTH, name, "growth", draw, growth))
    return rows


def _tasks(effort: Effort) -> Mapping[str, Task]:
    flows, tries = (3_000, 4) if effort.small else (10_000, TRIES)
    rates = (RATES[0], RATES[-1]) if effort.small else RATES
    return {f"draw-{n}": partial(times, n, rates, tries, flows) for n in range(effort.draws)}


FIGURE_6B = Experiment(
    "canary-6b",
    "Canary, figure 6 (b)",
    "decoding time against the link's loss rate",
    f"{SETTING} Processor seconds on one core, compiled; the paper prints no time.",
    seconds=130,
    memory_mb=380,
    panels=(
        Panel(SECONDS, "loss rate of the link", "seconds to decode", log_x=True, log_y=True),
        Panel(GROWTH, "", "time at the highest / at the lowest rate", numeric=False, log_y=True),
    ),
    tasks=_tasks,
    reasons=(
        Reason(
            "FlowRadar holds all flows whatever the link loses: nothing in its decoding grows, "
            "as figure 6 (a)'s constant memory says, too.",
            GROWTH,
            "FlowRadar",
            ratio=(0.5, 1.0),
        ),
    ),
)
