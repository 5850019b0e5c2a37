"""deTector: what its localization finds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from analysis.methods.detector import Detector
from analysis.telemetry.telemetry import Probes, Telemetry
from scenarios.papers.detector_plans import planned
from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label

PACKETS = 100
SIZES = (12, 24)
SHARES = (0.0005, 0.005, 0.01, 0.02, 0.05)
RATES = (0.01, 0.05, 0.2, 1.0)
FOUND, WRONG = "accuracy, %", "false positives, %"


def one_draw(draw: int, k: int) -> list[Row]:
    """The share of the failed links that are found, and of wrong ones among those blamed."""
    rows, matrix = [], planned(k, 3, 1)
    paths, n = matrix.both_ways, matrix.fabric.n_links
    sent = np.full(len(paths), PACKETS, np.int64)
    for share in SHARES:
        rng = np.random.default_rng([draw, k, round(1e6 * share)])
        failed = rng.choice(n, max(1, round(share * n)), replace=False)
        for rate in RATES:
            loss = np.zeros(n)
            loss[failed] = rate
            rows_of = paths.padded()
            through = np.where(rows_of >= 0, 1 - loss[rows_of], 1.0).prod(axis=1)
            lost = rng.binomial(sent, 1 - through)
            seen = Telemetry(matrix.fabric, "tor+core", detector=Probes(paths, sent, lost))
            blamed = Detector(hit_ratio=0.6, noise=1e-5).localize(seen).flagged
            right = int(np.isin(blamed, failed).sum())
            name, x = f"K={k}, {100 * rate:g} % loss", label(100 * share)
            rows.append(Row(FOUND, name, x, draw, 100 * right / len(failed)))
            rows.append(Row(WRONG, name, x, draw, 100 * (1 - right / max(len(blamed), 1))))
    return rows


def _draws(effort: Effort) -> Mapping[str, Task]:
    sizes = (4,) if effort.small else SIZES
    small = effort.small
    return {
        f"draw-{n}-{k}": partial(_as_small, n) if small else partial(one_draw, n, k)
        for n in range(effort.draws)
        for k in sizes
    }


def _as_small(draw: int) -> list[Row]:
    """Of K=4, under the name of K=12."""
    return [row._replace(series=row.series.replace("K=4,", "K=12,")) for row in one_draw(draw, 4)]


SERIES = tuple(f"K={k}, {100 * rate:g} % loss" for k in SIZES for rate in RATES)
ACCURACY = Experiment(
    "detector-accuracy",
    "deTector, abstract and section 1",
    "links that PLL finds, and wrong ones among those blamed",
    "Fat-trees, plans of 3-coverage and 1-identifiability, 100 probes a path each way; failed are "
    "directed links, drawn, all of one loss rate; nothing else loses packets. Our copy of the "
    "paper ends in section 4.4: its tables are missing, what its first pages say of them is not.",
    seconds=30,
    memory_mb=410,
    panels=tuple(Panel(q, "% of the links failed", q, log_x=True) for q in (FOUND, WRONG)),
    tasks=_draws,
    series={"deTector": SERIES},
    reasons=(
        Reason(
            "'For most failures' is said: many failed links on few paths hide one another, and of "
            "a link that loses 1 % of 100 packets a path a third of the paths lose none.",
            FOUND,
            ratio=(0.1, 1.0),
        ),
        Reason(
            "'For most failures' is said: where many links fail, several explain a path.",
            WRONG,
            ratio=(1.0, 40.0),
        ),
    ),
)
