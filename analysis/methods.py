"""The methods on offer. A new one is a class with the face of `analysis.diagnosis.Localizer`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.canary.mle import CanaryMle
from analysis.canary.multistage import Canary
from analysis.diagnosis import Localizer
from analysis.flock import Flock
from analysis.netbouncer import NetBouncer, NetBouncerStage
from analysis.telemetry import Probes, SegmentCounts, Telemetry
from analysis.vigil import Vigil
from testbed.topology import FatTree, Paths

__all__ = ["METHODS", "warm_up"]

METHODS: dict[str, Callable[[], Localizer]] = {
    "canary": Canary,
    "canary-mle": CanaryMle,
    "netbouncer": NetBouncer,
    "netbouncer-stage": NetBouncerStage,
    "flock": Flock,
    "007": Vigil,
}
"""Name to constructor, in the order of the comparison tables."""


def warm_up() -> None:
    """Compile the methods' inner loops into Numba's cache (some seconds, once an installation)."""
    topology = FatTree(4)
    segments = topology.segments()
    sent = np.full((1, len(segments)), 100, np.int64)
    lost = np.zeros_like(sent)
    lost[0, :8] = 10
    probes = Paths.from_padded(topology.bounce_paths().reshape(-1, 4))
    counts = np.full(len(probes), 100, np.int64)
    telemetry = Telemetry(
        topology,
        "tor+core",
        segments=SegmentCounts(segments, sent, lost),
        probes=Probes(probes, counts, counts // 10),
    )
    for method in (Canary(), CanaryMle(), Flock()):
        method.localize(telemetry)
