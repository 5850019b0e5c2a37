"""NetBouncer in the setting of its own section 6.1, with the variants of its figures 6 and 9.

A three-layer Clos of 48-port switches with 27,648 servers and 82,944 links. Healthy links lose up
to 0.1 % of the packets, faulty ones 2 to 100 %, all links of 10 devices fail, 100 packets go over
each path. `python -m tests.bench.bench_netbouncer [RUNS]`; each figure is the mean of RUNS
executions.

All server-core paths are 15.9 million, 576 over each link. The variants run on a 24th of them, each
server of a rack probing other cores: that is 24 paths over each link, which the paper's estimation
errors are of.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from analysis.evaluation.metrics import score
from analysis.methods.base import Diagnosis
from analysis.methods.netbouncer import NetBouncer
from analysis.methods.netscope import NetScope
from analysis.telemetry.telemetry import Probes, Telemetry
from testbed.fabric.clos import Fabric
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from tests.bench.probing_plans import (
    ProbingPlan,
    hop_by_hop_plan,
    probing_plan,
    with_servers,
)

__all__ = ["bench_netbouncer"]

SHARES = (0.001, 0.01, 0.1)
PACKETS = 100
DEVICES = 10
ALL_PATHS_PENALTY = 8.0
ROWS = 1 << 20

VARIANTS = {
    "NetBouncer (lambda=1)": NetBouncer(penalty=1.0, lucky_share=0.001),
    "without device detection": NetBouncer(device_detection=False),
    "convex": NetBouncer(model="convex"),
    "L1 (lambda=0.5)": NetBouncer(model="l1", penalty=0.5),
    "L1 (lambda=1)": NetBouncer(model="l1"),
    "L1 (lambda=2)": NetBouncer(model="l1", penalty=2.0),
    "NetScope (0.1)": NetScope(omega=0.1, link_threshold=0.999),
    "NetScope (1)": NetScope(omega=1.0, link_threshold=0.999),
    "NetScope (10)": NetScope(omega=10.0, link_threshold=0.999),
}


class TimedFit(NetBouncer):
    """NetBouncer that knows how long coordinate descent took."""

    fit_seconds = fit_processor = 0.0

    def _fit(self, *arguments):
        begin = time.perf_counter(), time.process_time()
        try:
            return super()._fit(*arguments)
        finally:
            self.fit_seconds = time.perf_counter() - begin[0]
            self.fit_processor = time.process_time() - begin[1]


@dataclass(frozen=True)
class Truth:
    """``success`` float64[n_edges] of each undirected link, the ``faulty`` ones and ``devices``."""

    success: np.ndarray
    faulty: np.ndarray
    devices: np.ndarray


def draw_truth(fabric: Fabric, n_servers: int, share: float, seed: int) -> Truth:
    rng = np.random.default_rng(seed)
    faulty = np.zeros(fabric.n_edges, np.bool_)
    faulty[rng.choice(fabric.n_edges, round(share * fabric.n_edges), replace=False)] = True
    switches = n_servers + rng.choice(fabric.n_switches - n_servers, DEVICES, replace=False)
    faulty |= (np.isin(fabric.link_src, switches) | np.isin(fabric.link_dst, switches))[::2]
    loss = np.where(
        faulty, rng.uniform(0.02, 1, fabric.n_edges), rng.uniform(0, 0.001, fabric.n_edges)
    )
    return Truth(1 - loss, np.flatnonzero(faulty), np.sort(switches))


def probe(paths: Paths, success: np.ndarray, seed: int) -> Probes:
    """What comes back, drawn in parts to keep the memory small."""
    rng = np.random.default_rng([seed, 0xB0])
    lost = np.empty(len(paths), np.int64)
    log = np.log(success) / 2  # half for each way
    for row in range(0, len(paths), ROWS):
        end = min(row + ROWS, len(paths))
        part = log[paths.links[paths.ptr[row] : paths.ptr[end]] >> 1]
        through = np.exp(np.add.reduceat(part, paths.ptr[row:end] - paths.ptr[row]))
        lost[row:end] = rng.binomial(PACKETS, np.clip(1 - through, 0, 1))
    return Probes(paths, np.full(len(paths), PACKETS, np.int64), lost)


def one_core_in_24(plan: ProbingPlan, fabric: Fabric, per_rack: int) -> Paths:
    """The n-th server of a rack probes the n-th core of each group only."""
    core = plan.bounce - (fabric.n_switches - per_rack**2)
    return plan.paths.take(np.flatnonzero((core < 0) | (core % per_rack == plan.origin % per_rack)))


def tally(result: Diagnosis, truth: Truth, fabric: Fabric, n_servers: int) -> list[float]:
    """False negatives and positives of links, error of the estimates, and of devices."""
    links = score(result.flagged, 2 * truth.faulty, fabric)["undirected"]
    estimate = result.success[::2]
    fitted = ~np.isin(fabric.link_src[::2], result.devices)
    fitted &= ~np.isin(fabric.link_dst[::2], result.devices)
    error = float(((estimate - truth.success)[fitted] ** 2).sum())
    devices = result.devices[result.devices >= n_servers]
    return [
        links.false_negatives,
        links.false_positives,
        error,
        len(np.setdiff1d(truth.devices, devices)),
        len(np.setdiff1d(devices, truth.devices)),
    ]


def bench_netbouncer(console: Console, runs: int = 1) -> None:
    tree = FatTree(48)
    fabric, servers = with_servers(tree), tree.n_hosts
    begin = time.perf_counter()
    plan = probing_plan(fabric)
    seconds = time.perf_counter() - begin
    console.print(
        f"NetBouncer: {fabric.n_edges:,} links, {len(plan):,} server-core paths "
        f"(plan made in {seconds:.1f} s)"
    )
    method = TimedFit(penalty=ALL_PATHS_PENALTY)
    for share in SHARES:
        found, times = [], []
        for seed in range(runs):
            truth = draw_truth(fabric, servers, share, seed)
            probes = probe(plan.paths, truth.success, seed)
            result = method.localize(Telemetry(fabric, "none", probes=probes))
            found.append(tally(result, truth, fabric, servers))
            times.append((result.seconds, method.fit_seconds, method.fit_processor))
            del probes
        fn, fp, error, device_fn, device_fp = np.mean(found, axis=0)
        whole, fit, processor = np.max(times, axis=0)
        console.print(
            f"  {share:6.1%} faulty: FN {fn:.1f} FP {fp:.1f} Err {error:.2f}, devices "
            f"FN {device_fn:.1f} FP {device_fp:.1f}; CD {fit:.1f} s ({processor:.1f} s of "
            f"processor), all {whole:.1f} s"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    console.print(f"  lambda={ALL_PATHS_PENALTY:g}; peak memory so far {peak:.1f} GB")
    del plan
    paths = one_core_in_24(probing_plan(fabric), fabric, tree.half)
    hops = one_core_in_24(hop_by_hop_plan(fabric), fabric, tree.half)
    console.print(f"  with 24 paths a link ({len(paths):,}; hop by hop {len(hops):,}): FN/FP/Err")
    for name, variant in {"hop by hop": NetBouncer(), **VARIANTS}.items():
        cells = []
        for share in SHARES:
            found = []
            for seed in range(runs):
                truth = draw_truth(fabric, servers, share, seed)
                probes = probe(hops if name == "hop by hop" else paths, truth.success, seed)
                result = variant.localize(Telemetry(fabric, "none", probes=probes))
                found.append(tally(result, truth, fabric, servers))
            fn, fp, error, _, _ = np.mean(found, axis=0)
            cells.append(f"{share:5.1%}: {fn:.1f}/{fp:.1f}/{error:.2f}")
        console.print(f"    {name:25} " + "   ".join(cells))


if __name__ == "__main__":
    bench_netbouncer(
        Console(width=120, highlight=False), int(sys.argv[1]) if len(sys.argv) > 1 else 1
    )
