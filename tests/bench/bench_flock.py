# SPDX-License-Identifier: Apache-2.0
"""How long Flock's inference, and mle's, takes at the largest size of Flock's figure 4 (d).

Its other figures are `make reproduce FIG=flock-2` and on.
"""

from __future__ import annotations

import resource
import time

import numpy as np
from rich.console import Console

from analysis.methods.mle.mle import Mle
from scenarios.papers.flock_network import World, flock, lossy_links
from testbed.fabric.clos import clos
from testbed.fabric.ecmp import Ecmp


def bench_flock(console: Console) -> None:
    """Figure 4: 88K links and 9.5M flows, 10 failed, with the parameters of the authors' code."""
    fabric = clos(46, 22, 22, 484)
    rng = np.random.default_rng(1)
    failed = rng.choice(fabric.n_links, 10, replace=False)
    loss = lossy_links(fabric, failed, rng.uniform(1e-3, 1e-2, 10), rng)
    probes = 1012 * 484
    world = World(Ecmp(fabric), loss, 9_500_000 - probes, probes, rng)
    for kinds in ("INT", "A1+A2+P"):
        telemetry = world.telemetry(kinds)
        for method in (flock(0.003, 2e-4, -20.0), Mle(kinds=kinds)):
            begin, busy = time.perf_counter(), time.process_time()
            found = method.localize(telemetry)
            seconds, busy = time.perf_counter() - begin, time.process_time() - busy
            right = len(np.intersect1d(found.flagged, failed))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            console.print(
                f"{method.name} ({kinds}) {fabric.n_links:,} links, 9.5M flows: {seconds:.1f} s "
                f"({busy:.1f} s of processor time), "
                f"{right} of 10 failed links, {len(found.flagged) - right} wrong, "
                f"peak memory so far {peak:.1f} GB"
            )
