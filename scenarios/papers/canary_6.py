"""Canary's figure 6 and table II: memory and decoding time of the sketches on one link."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label
from scenarios.papers.two_switches import (
    SKETCHES,
    Epoch,
    by_decoding,
    by_formula,
    decode,
    read_meters,
)

__all__ = ["FIGURE_6A", "FIGURE_6B", "TABLE_II"]

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
TABLE_RATES = (1e-3, 1e-2, 1e-1)
TRIES = 100
FORMULA, DECODED = "KB, sized so that 80 % are clean", "KB, sized by decoding"
SECONDS, GROWTH = "seconds", "time at 0.1 / at 0.0001"
RATIO = "Canary / FermatSketch, %"
SWITCHES = {"FlowRadar": 80, "LossRadar": 80, "FermatSketch": 80}
MONITORS = {"Canary (bottom)": 32, "Canary (top+bottom)": 48}
SETTING = (
    "Two switches, 10,000 flows, 833,333 packets of 1,500 bytes in 100 ms. The paper gives no flow "
    "sizes: ours are Pareto's of shape 2, and Canary's flows are drawn at random. Two sizes: the "
    "width at which 80 % of the items have a bucket of their own, which table II fits; and the "
    "least one at which 99 % of the tries decode, with real decoders."
)
SIZES = (
    "The paper's flow sizes are unknown: its cells mean 627, 4,965 and 9,998 flows with losses, "
    "which Pareto's 764, 4,998 and 9,965 miss."
)
SELECTION = (
    "Its cells mean Canary's flows have 12 packets each (394 flows for 4,603 packets), though "
    "833,333 packets of 10,000 flows are 83 a flow: how flows become a width is not said."
)
PEELED = (
    "Peeling needs 1.24 buckets an item for 99 % success (FlowRadar more, for its filter), where "
    "table II has 3.41."
)
REASONS = (
    Reason(SIZES, FORMULA, "FermatSketch", ratio=(0.9, 1.3)),
    *(Reason(PEELED, DECODED, name, ratio=(0.3, 0.6)) for name in SWITCHES),
    *(
        Reason(SELECTION, quantity, name, ratio=(0.1, 1.0))
        for quantity in (FORMULA, DECODED)
        for name in ("Canary", *MONITORS)
    ),
    Reason(f"{SELECTION} {PEELED}", RATIO, ratio=(0.2, 3.0)),
)


def sizes(draw: int, rates: tuple[float, ...], tries: int, flows: int) -> list[Row]:
    """Kilobytes at one switch. FlowRadar's are the same at all rates: found once."""
    rows, of_flow_radar = [], None
    for loss in rates:
        epoch = Epoch.draw(loss, draw, flows, round(83.3333 * flows))
        of_flow_radar = of_flow_radar or by_decoding("FlowRadar", epoch, tries)
        sized = {}
        for name in SKETCHES:
            formula = by_formula(name, epoch)
            sized[name] = of_flow_radar
            if name != "FlowRadar":
                sized[name] = by_decoding(name, epoch, tries)
            rows.append(Row(FORMULA, name, label(loss), draw, formula.kilobytes))
            rows.append(Row(DECODED, name, label(loss), draw, sized[name].kilobytes))
            sized[name, FORMULA] = formula
        for how, key in (("80 % clean", FORMULA), ("by decoding", None)):
            ours, fermat = (
                sized[(name, key) if key else name].kilobytes for name in ("Canary", "FermatSketch")
            )
            rows.append(Row(RATIO, how, label(loss), draw, 100 * ours / fermat))
    return rows


def network_wide(draw: int, tries: int, flows: int) -> list[Row]:
    """The same for all switches of a K=8 fat-tree that have the sketch."""
    rows = []
    for row in sizes(draw, TABLE_RATES, tries, flows):
        if row.quantity == RATIO:
            rows.append(row)
            continue
        many = {row.series: SWITCHES[row.series]} if row.series in SWITCHES else MONITORS
        rows += [row._replace(series=name, value=row.value * n) for name, n in many.items()]
    return rows


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


def _tasks(work, rates: tuple[float, ...] | None, tries: int, effort: Effort) -> Mapping[str, Task]:
    flows, tries = (300, 4) if effort.small else (10_000, tries)
    more = () if rates is None else ((rates[0], rates[-1]) if effort.small else rates,)
    return {
        f"draw-{n}": partial(work, n, *more, tries=tries, flows=flows) for n in range(effort.draws)
    }


def _kilobytes(quantity: str, sizing: str) -> Panel:
    return Panel(quantity, "loss rate of the link", f"KB, {sizing}", log_x=True, log_y=True)


PANELS = (
    _kilobytes(FORMULA, "80 % clean"),
    _kilobytes(DECODED, "99 % decode"),
    Panel(RATIO, "loss rate of the link", "Canary / FermatSketch, %", log_x=True, log_y=True),
)
QUANTITIES = {"KB": (FORMULA, DECODED)}
FIGURE_6A = Experiment(
    "canary-6a",
    "Canary, figure 6 (a)",
    "memory at one switch against the link's loss rate",
    SETTING,
    seconds=300,
    memory_mb=400,
    panels=PANELS,
    tasks=partial(_tasks, sizes, RATES, TRIES),
    series={"Canary / FermatSketch": ("80 % clean", "by decoding")},
    quantities=QUANTITIES,
    reasons=REASONS,
)
TABLE_II = Experiment(
    "canary-table-2",
    "Canary, table II",
    "memory of all switches of a K=8 fat-tree",
    f"{SETTING} One switch's memory, times 80 switches, or Canary's 32 ToRs, or 48 with the cores.",
    seconds=200,
    memory_mb=400,
    panels=PANELS,
    tasks=partial(_tasks, network_wide, None, TRIES),
    series={"Canary / FermatSketch": ("80 % clean", "by decoding")},
    quantities=QUANTITIES,
    reasons=REASONS,
)
FIGURE_6B = Experiment(
    "canary-6b",
    "Canary, figure 6 (b)",
    "decoding time against the link's loss rate",
    f"{SETTING} Processor seconds on one core, compiled; the paper prints no time.",
    seconds=300,
    memory_mb=400,
    panels=(
        Panel(SECONDS, "loss rate of the link", "seconds to decode", log_x=True, log_y=True),
        Panel(GROWTH, "", "time at the highest / at the lowest rate", numeric=False, log_y=True),
    ),
    tasks=partial(_tasks, times, RATES, 25),
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
