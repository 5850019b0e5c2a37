# SPDX-License-Identifier: Apache-2.0
"""NetBouncer on all 15.9 million server-core paths of its section 6.1: time and memory.

Its figures are `make reproduce FIG=netbouncer-6` and on, on a 24th of the paths. All paths are 576
over each link, where lambda = 1 would mean losses of 0.0009, less than healthy paths have; 8 is in
between.
"""

from __future__ import annotations

import resource
import time
from typing import Any

from rich.console import Console

from analysis.methods.netbouncer import NetBouncer
from analysis.telemetry.telemetry import Telemetry
from scenarios.papers.netbouncer_network import Network, draw_truth, probe, probing_plan, tally
from testbed.arrays import FloatArray

SHARES = (0.001, 0.01, 0.1)
ALL_PATHS_PENALTY = 8.0


class TimedFit(NetBouncer):
    """NetBouncer that knows how long coordinate descent took."""

    fit_seconds = fit_processor = 0.0

    def _fit(self, *arguments: Any, **named: Any) -> FloatArray:
        begin = time.perf_counter(), time.process_time()
        try:
            return super()._fit(*arguments, **named)
        finally:
            self.fit_seconds = time.perf_counter() - begin[0]
            self.fit_processor = time.process_time() - begin[1]


def bench_netbouncer(console: Console) -> None:
    network = Network.make(48)
    fabric = network.fabric
    begin = time.perf_counter()
    plan = probing_plan(fabric)
    seconds = time.perf_counter() - begin
    console.print(
        f"NetBouncer: {fabric.n_edges:,} links, {len(plan):,} server-core paths "
        f"(plan made in {seconds:.1f} s)"
    )
    method = TimedFit(penalty=ALL_PATHS_PENALTY)
    for share in SHARES:
        truth = draw_truth(network, share, 0)
        probes = probe(plan.paths, truth.success, 0)
        result = method.localize(Telemetry(fabric, "none", probes=probes))
        fn, fp, error = tally(result, truth, network)
        console.print(
            f"  {share:6.1%} faulty: FN {fn:.1f} FP {fp:.1f} Err {error:.2f}; "
            f"CD {method.fit_seconds:.1f} s ({method.fit_processor:.1f} s of processor), "
            f"all {result.seconds:.1f} s"
        )
        del probes, result
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    console.print(f"  lambda={ALL_PATHS_PENALTY:g}; peak memory so far {peak:.1f} GB")
