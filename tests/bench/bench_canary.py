# SPDX-License-Identifier: Apache-2.0
"""Canary at the size of a data center: all 48 sub-problems of a K=48 fat-tree.

2 million segments between ToR and core switches, about 1,000 packets on each in each of 6 epochs,
faulty links as in the paper's section IV-D.
"""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console

from analysis.evaluation.metrics import score
from analysis.methods.canary import Canary
from analysis.methods.mle.mle import CanaryMle
from analysis.telemetry.telemetry import SegmentCounts, Telemetry
from testbed.fabric.fat_tree import FatTree

LOWEST = np.array([0.2, 0.1, 0.05, 0.01, 0.001])
HIGHEST = np.array([1.0, 0.2, 0.1, 0.05, 0.01])
PROPORTIONS = np.array([11, 13, 9, 9, 10]) / 52
EPOCHS = 6


def measure(topology: FatTree, share: float, seed: int) -> tuple[np.ndarray, Telemetry]:
    """The faulty directed links and what meters count of them."""
    rng = np.random.default_rng(seed)
    faulty = rng.choice(topology.n_links, round(share * topology.n_links), replace=False)
    group = rng.choice(len(PROPORTIONS), len(faulty), p=PROPORTIONS)
    loss = np.zeros(topology.n_links)
    loss[faulty] = rng.uniform(LOWEST[group], HIGHEST[group])
    segments = topology.segments()
    path_loss = 1 - (1 - loss[segments.paths.links.reshape(-1, 2)]).prod(axis=1)
    sent = rng.integers(500, 1501, (EPOCHS, len(segments)))
    lost = np.zeros_like(sent)
    lossy = np.flatnonzero(path_loss)
    lost[:, lossy] = rng.binomial(sent[:, lossy], path_loss[lossy])
    return faulty, Telemetry(topology, "tor+core", segments=SegmentCounts(segments, sent, lost))


def bench_canary(console: Console) -> None:
    topology = FatTree(48)
    begin = time.perf_counter()
    segments = topology.segments()
    console.print(
        f"Canary at K=48: {topology.n_links:,} directed links, {len(segments):,} segments "
        f"(listed in {time.perf_counter() - begin:.1f} s)"
    )
    del segments
    for method in (Canary, CanaryMle):  # compiled before the clock starts
        method().localize(measure(FatTree(4), 0.1, 1)[1])
    for share in (0.01, 0.1):
        faulty, telemetry = measure(topology, share, 1)
        for method in (Canary, CanaryMle):
            begin = time.process_time()
            found = method().localize(telemetry)
            processor = time.process_time() - begin
            figures = score(found.flagged, faulty, topology)["directed"]
            console.print(
                f"  {share:.0%} faulty: {found.method:10} F1 {figures.f1:.4f}, "
                f"{found.seconds:.1f} s ({processor:.1f} s of processor)"
            )
