# SPDX-License-Identifier: Apache-2.0
"""How long deTector's plans take; what PLL finds is `make reproduce FIG=detector-accuracy`."""

from __future__ import annotations

import time

from rich import box
from rich.console import Console
from rich.table import Table

from testbed.fabric.fat_tree import FatTree
from testbed.fabric.probe_matrix.matrix import probe_matrix

PLANS = ((18, 1, 0), (18, 1, 1), (18, 3, 0), (32, 1, 0), (32, 1, 1), (32, 3, 1), (48, 3, 1))
"""(K, alpha, beta). The paper's own counts are not in the copy at hand, which ends in section 4.4:
what is shown beside ours is a bound, as no path adds more than its links to the coverage."""


def bench_detector(console: Console) -> None:
    probe_matrix(FatTree(4))
    table = Table(title="deTector's plans for fat-trees", box=box.SIMPLE_HEAD)
    for name in ("K", "alpha", "beta", "paths", "at least", "a link's paths", "seconds"):
        table.add_column(name, justify="right")
    for k, alpha, beta in PLANS:
        begin = time.perf_counter()
        matrix = probe_matrix(FatTree(k), alpha, beta)
        seconds = time.perf_counter() - begin
        over = matrix.coverage
        spread = f"{over.min()} / {over.mean():.2f} / {over.max()}"
        least = -(-alpha * matrix.fabric.n_edges // 4)
        row = (k, alpha, beta, len(matrix), least, spread, f"{seconds:.2f}")
        table.add_row(*map(str, row))
    console.print(table)
