# SPDX-License-Identifier: Apache-2.0
"""deTector: the number of paths in its plans, and the links that its localization (PLL) finds on
them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

import numpy as np

from analysis.methods.base import decide
from analysis.methods.detector import Detector
from analysis.telemetry.telemetry import Probes, Telemetry
from scenarios.papers.experiment import Effort, Row, Task, label
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.probe_matrix.matrix import ProbeMatrix, probe_matrix

PLANNED = ((6, 1, 1), (12, 1, 1), (18, 1, 1), (24, 1, 1), (6, 3, 1), (12, 3, 1), (18, 3, 1))
PATHS, CANDIDATES = "paths, of the least", "candidate paths"
PATH_PROBES = 100
SHARES = (0.0005, 0.005, 0.01, 0.02, 0.05)
RATES = (0.01, 0.05, 0.2, 1.0)
FOUND, WRONG = "accuracy, %", "false positives, %"


@cache
def planned(k: int, alpha: int, beta: int) -> ProbeMatrix:
    """Return the probe matrix of a fat-tree, computed once. Where the candidate paths allow it, it
    has at least ``alpha`` paths over each link, and tells apart up to ``beta`` links that fail at
    once."""
    return probe_matrix(FatTree(k), alpha, beta)


def plans(effort: Effort) -> Mapping[str, Task]:
    """Return the task that counts the paths of plans."""
    return {"plans": partial(count_paths, 6 if effort.small else 24)}


def count_paths(most: int) -> list[Row]:
    """Return the number of paths of each plan, divided by the least number that could cover each
    link alpha times: a path covers four links."""
    rows = []
    for k, alpha, beta in PLANNED:
        if k <= most:
            matrix = planned(k, alpha, beta)
            least = alpha * matrix.fabric.n_edges / 4
            rows.append(Row(PATHS, f"α={alpha}, β={beta}", label(k), 0, len(matrix) / least))
    for k in (6, 12, 18, 24, 64):
        tree = FatTree(k)
        ends = tree.n_tors * (tree.n_tors - 1)
        rows.append(Row(CANDIDATES, "paths among ToRs", label(k), 0, float(ends * tree.n_cores)))
    return rows


def accuracy(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of deTector's accuracy, one for each draw and size."""
    sizes = (4,) if effort.small else (12, 24)
    small = effort.small
    return {
        f"draw-{n}-{k}": partial(_as_small, n) if small else partial(localized, n, k)
        for n in range(effort.draws)
        for k in sizes
    }


def localized(draw: int, k: int) -> list[Row]:
    """Return the percentage of failed links that are found, and of blamed links that are wrong."""
    rows, matrix = [], planned(k, 3, 1)
    paths, n = matrix.both_ways, matrix.fabric.n_links
    sent = np.full(len(paths), PATH_PROBES, np.int64)
    for share in SHARES:
        rng = np.random.default_rng([draw, k, round(1e6 * share)])
        failed = rng.choice(n, max(1, round(share * n)), replace=False)
        for rate in RATES:
            loss = np.zeros(n)
            loss[failed] = rate
            rows_of = paths.padded()
            through = np.where(rows_of >= 0, 1 - loss[rows_of], 1.0).prod(axis=1)
            lost = rng.binomial(sent, 1 - through)
            telemetry = Telemetry(matrix.fabric, "tor+core", detector=Probes(paths, sent, lost))
            blamed = decide(Detector(hit_ratio=0.6, noise=1e-5), telemetry).flagged
            right = int(np.isin(blamed, failed).sum())
            name, x = f"K={k}, {100 * rate:g} % loss", label(100 * share)
            rows.append(Row(FOUND, name, x, draw, 100 * right / len(failed)))
            rows.append(Row(WRONG, name, x, draw, 100 * (1 - right / max(len(blamed), 1))))
    return rows


def _as_small(draw: int) -> list[Row]:
    """Return the rows of K=4 under the name of K=12, for tests."""
    return [row._replace(series=row.series.replace("K=4,", "K=12,")) for row in localized(draw, 4)]
