"""deTector's plans and what PLL finds with them; called by `make bench`.

Accuracy is the share of failed links that are found, and false positives are the share of wrong
links among those blamed (section 5.4 of the paper). Failed are directed links, at one loss rate or
at rates drawn as in Canary's section IV-D; every path is probed 100 times each way.
"""

from __future__ import annotations

import time

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from analysis.methods.detector import Detector
from analysis.telemetry.telemetry import Probes, Telemetry
from testbed.fabric.fat_tree import FatTree
from testbed.probes.probe_matrix import ProbeMatrix, probe_matrix
from tests.analysis.conftest import paper_rates, path_success

PACKETS = 100
RUNS = 20
SHARES = (0.0005, 0.005, 0.01, 0.02, 0.05)
RATES: tuple[float | None, ...] = (0.01, 0.05, 0.2, 1.0, None)
PLANS = ((18, 1, 0), (18, 1, 1), (18, 3, 0), (32, 1, 0), (32, 1, 1), (32, 3, 1), (48, 3, 1))
"""(K, alpha, beta). The paper's own counts are not in the copy at hand, which ends in section 4.4:
what is shown beside ours is a bound, as no path adds more than its links to the coverage."""


def bench_plans(console: Console) -> None:
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


def failures(n: int, share: float, rate: float | None, rng: np.random.Generator) -> np.ndarray:
    """The loss rate of each link."""
    loss = np.zeros(n)
    failed = rng.choice(n, max(1, round(share * n)), replace=False)
    loss[failed] = paper_rates(len(failed), rng) if rate is None else rate
    return loss


def localize(matrix: ProbeMatrix, share: float, rate: float | None) -> tuple[float, float, float]:
    """Accuracy, false positives and seconds of PLL, over `RUNS` draws."""
    paths = matrix.both_ways
    sent = np.full(len(paths), PACKETS, np.int64)
    found = right = truth = 0
    seconds = 0.0
    for seed in range(RUNS):
        rng = np.random.default_rng([seed, round(1e6 * share)])
        loss = failures(matrix.fabric.n_links, share, rate, rng)
        lost = rng.binomial(sent, 1 - path_success(paths, loss))
        telemetry = Telemetry(matrix.fabric, "tor+core", detector=Probes(paths, sent, lost))
        result = Detector().localize(telemetry)
        found += len(result.flagged)
        right += int((loss[result.flagged] > 0).sum())
        truth += int((loss > 0).sum())
        seconds += result.seconds
    return right / truth, 1 - right / max(found, 1), seconds / RUNS


def bench_localization(console: Console) -> None:
    for k, alpha, beta in ((12, 1, 1), (12, 3, 1), (12, 3, 2), (24, 3, 1)):
        matrix = probe_matrix(FatTree(k), alpha, beta)
        links = matrix.fabric.n_links
        table = Table(
            title=f"PLL: K={k}, {links:,} links, alpha={alpha}, beta={beta}, "
            f"{2 * len(matrix):,} paths x {PACKETS} probes; accuracy / false positives, %",
            box=box.SIMPLE_HEAD,
        )
        table.add_column("failed links", justify="right")
        for rate in RATES:
            table.add_column("drawn" if rate is None else f"{rate:.0%} loss", justify="right")
        table.add_column("seconds", justify="right")
        for share in SHARES:
            cells = [localize(matrix, share, rate) for rate in RATES]
            failed = max(1, round(share * links))
            table.add_row(
                f"{failed} ({100 * failed / links:.2f} %)",
                *(f"{100 * accuracy:.1f} / {100 * wrong:.1f}" for accuracy, wrong, _ in cells),
                f"{max(seconds for *_, seconds in cells):.3f}",
            )
        console.print(table)


def bench_detector(console: Console) -> None:
    bench_plans(console)
    bench_localization(console)


if __name__ == "__main__":
    bench_detector(Console(width=120, highlight=False))
