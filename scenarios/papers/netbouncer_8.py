"""NetBouncer's figure 8: its lambda."""

from __future__ import annotations

from functools import partial

from analysis.methods.netbouncer import NetBouncer
from scenarios.papers.experiment import Experiment, Panel, Row, label
from scenarios.papers.netbouncer_6 import OURS, SETTING, by_share
from scenarios.papers.netbouncer_network import QUANTITIES, Network, scores

FN, FP, _ = QUANTITIES
LAMBDAS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
TRADE = "errors at λ = 8 / at λ = 0.05"


def lambdas(draw: int, k: int, share: float) -> list[Row]:
    """With x the lambda."""
    rows = []
    methods = {label(weight): NetBouncer(penalty=weight) for weight in LAMBDAS}
    for row in scores(Network.make(k), methods, share, draw):
        rows.append(row._replace(series=OURS, x=row.series))
    ends = {(row.quantity, row.x): row.value for row in rows}
    for quantity in (FN, FP):
        first, last = (ends[quantity, label(end)] for end in (LAMBDAS[0], LAMBDAS[-1]))
        rows.append(Row(TRADE, OURS, quantity, draw, (last + 1) / (first + 1)))
    return rows


FIGURE_8 = Experiment(
    "netbouncer-8",
    "NetBouncer, figure 8",
    "false negatives and positives by λ, 1 % faulty",
    SETTING,
    seconds=55,
    memory_mb=1900,
    panels=(
        *(Panel(q, "λ", q, log_x=True, log_y=True) for q in (FN, FP)),
        Panel(TRADE, "", "errors plus 1 at λ = 8, over those at 0.05", numeric=False, log_y=True),
    ),
    tasks=partial(by_share, lambdas, (0.01,)),
    quick=False,
)
