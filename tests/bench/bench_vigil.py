# SPDX-License-Identifier: Apache-2.0
"""How long 007 takes at K=48; its figures are `make reproduce FIG=007-3` and on."""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console

from analysis.methods.vigil.vigil import Vigil
from analysis.telemetry.telemetry import Connections, Telemetry
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.network.flow import send

PACKETS = 100
NOISE = 1e-6


def bench_vigil(console: Console, k: int = 48, n_flows: int = 2_000_000) -> None:
    """007 on a fat-tree with 1 % of its links failed."""
    fabric = FatTree(k)
    ecmp = Ecmp(fabric)
    rng = np.random.default_rng(1)
    loss = rng.uniform(0, NOISE, fabric.n_links)
    failed = rng.choice(fabric.n_links, fabric.n_links // 100, replace=False)
    loss[failed] = rng.uniform(0.001, 0.1, len(failed))
    src = rng.integers(0, fabric.n_tors, n_flows).astype(np.int32)
    dst = (src + rng.integers(1, fabric.n_tors, n_flows, np.int32)) % fabric.n_tors
    paths = ecmp.draw(src, dst.astype(np.int32), rng)
    lost = send(loss[None, :], paths, np.full(n_flows, PACKETS), rng).lost
    bad = np.flatnonzero(lost)
    whole = np.ones(len(bad), np.bool_)
    part = Connections(src[bad], dst[bad].astype(np.int32), lost[bad], paths.take(bad), whole, 0)
    begin = time.perf_counter()
    flagged = Vigil().localize(Telemetry(fabric, "tor", connections=part)).flagged
    seconds = time.perf_counter() - begin
    hits = int(np.isin(flagged, failed).sum())
    console.print(
        f"007 at K={k}: {fabric.n_links:,} links, {len(failed):,} of them failed; {len(bad):,} of "
        f"{n_flows:,} connections lossy: {seconds:.1f} s, precision "
        f"{hits / max(len(flagged), 1):.3f}, recall {hits / len(failed):.3f}"
    )
