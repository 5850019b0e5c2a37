"""Canary's figure 6 (a): memory of the sketches that detect the losses of one link."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label
from scenarios.papers.two_switches import SKETCHES, Epoch, by_decoding, by_formula

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
TRIES = 100
FORMULA, DECODED = "KB, sized so that 80 % are clean", "KB, sized by decoding"
RATIO = "Canary / FermatSketch, %"
BASELINES = ("FlowRadar", "LossRadar", "FermatSketch")
CANARY = ("Canary", "Canary (bottom)", "Canary (top+bottom)")
SETTING = (
    "Two switches, 10,000 flows, 833,333 packets of 1,500 bytes in 100 ms. The paper gives no flow "
    "sizes: ours are Pareto's of shape 2, and Canary's flows are drawn at random. Two sizes: the "
    "width at which 80 % of the items have a bucket of their own, which table II fits; and the "
    "least one at which 99 % of the tries decode, with real decoders."
)
SIZES = (
    "The paper's flow sizes are unknown: its cells mean 627, 4,966 and 9,998 flows with losses, "
    "which Pareto's 764, 4,998 and 9,965 miss."
)
SELECTION = (
    "Its cells mean that 799, 90 and 15 flows are monitored, for 4,603, 458 and 44 packets of "
    "which one is lost in 99 % of all cases, 5.8, 5.1 and 2.9 of a flow, though 833,333 packets of "
    "10,000 flows are 83: how the flows are chosen is not said. Ours are random ones until they "
    "have so many packets."
)
PEELED = (
    "Peeling needs 1.24 buckets an item for 99 % success (FlowRadar more, for its filter), where "
    "table II has 3.41."
)
REASONS = (
    Reason(SIZES, FORMULA, "FermatSketch", ratio=(0.9, 1.3)),
    *(Reason(PEELED, DECODED, name, ratio=(0.3, 0.6)) for name in BASELINES),
    *(
        Reason(SELECTION, quantity, name, ratio=(0.05, 1.0))
        for quantity in (FORMULA, DECODED)
        for name in CANARY
    ),
    Reason(f"{SELECTION} {PEELED}", RATIO, ratio=(0.1, 1.0)),
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


def _tasks(effort: Effort) -> Mapping[str, Task]:
    flows, tries = (3_000, 4) if effort.small else (10_000, TRIES)
    rates = (RATES[0], RATES[-1]) if effort.small else RATES
    return {f"draw-{n}": partial(sizes, n, rates, tries, flows) for n in range(effort.draws)}


def _kilobytes(quantity: str, sizing: str) -> Panel:
    return Panel(quantity, "loss rate of the link", f"KB, {sizing}", log_x=True, log_y=True)


PANELS = (
    _kilobytes(FORMULA, "80 % clean"),
    _kilobytes(DECODED, "99 % decode"),
    Panel(RATIO, "loss rate of the link", "Canary / FermatSketch, %", log_x=True, log_y=True),
)
FIGURE_6A = Experiment(
    "canary-6a",
    "Canary, figure 6 (a)",
    "memory at one switch against the link's loss rate",
    SETTING,
    seconds=140,
    memory_mb=400,
    panels=PANELS,
    tasks=_tasks,
    series={"Canary / FermatSketch": ("80 % clean", "by decoding")},
    quantities={"KB": (FORMULA, DECODED)},
    reasons=REASONS,
)
