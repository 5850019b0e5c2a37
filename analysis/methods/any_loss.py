"""The trivial method: whatever lost a packet is faulty.

It is a reference and no proposal. Where it does as well as the published methods, healthy links
lose next to nothing, and the setting cannot tell methods apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.methods.base import RECORD_BYTES, Diagnosis, Method
from analysis.methods.constraints import Count
from analysis.telemetry.telemetry import MissingTelemetry, Probes, Telemetry
from testbed.fabric.clos import Fabric
from testbed.record.measurements import Measurement

_PROBES: tuple[Measurement, ...] = ("probes", "detector")


class AnyLoss(Method):
    """Blame every link on a path that lost a packet, unless a loss-free path crosses it.

    Paths are Canary's segments and those of probes, as far as they were measured.

    Args:
        enough: Packets that a loss-free path has to have carried to clear its links. Of 3,000 a
            link that loses 0.1 %, the faintest of the main job, takes one in 95 of 100 cases.

    Of two paths that share a link one loses 5 %:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Probes, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(3, 1)
    >>> paths = fabric.paths_over("leaf0->spine0->leaf1", "leaf0->spine0->leaf2")
    >>> probes = Probes(paths, sent=np.array([5000, 5000]), lost=np.array([250, 0]))
    >>> verdict = AnyLoss().localize(Telemetry(fabric, "none", probes=probes))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['spine0->leaf1']
    """

    base = "any-loss"

    def __init__(self, *, enough: Count = 3000) -> None:
        self.enough = enough

    def data(self, telemetry: Telemetry) -> Sequence[Probes]:
        found = [part for part in (telemetry.probes, telemetry.detector) if part is not None]
        if (counts := telemetry.segments) is not None:
            sums = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
            found.append(Probes(counts.segments.paths, *sums))
        if not found:
            raise MissingTelemetry(f"{self.name} needs segments or probes: all are missing")
        return found

    def infer(self, data: Sequence[Probes], fabric: Fabric, /) -> Diagnosis:
        lossy, clear = np.zeros((2, fabric.n_links), np.bool_)
        for part in data:
            lossy[part.paths.take(np.flatnonzero(part.lost)).links] = True
            well = (part.lost == 0) & (part.sent >= self.enough)
            clear[part.paths.take(np.flatnonzero(well)).links] = True
        score = lossy.astype(np.float64) - clear
        return self.diagnosis(fabric, np.flatnonzero(lossy & ~clear), score=score)

    def observations(self, data: Sequence[Probes]) -> Sequence[Probes]:
        return data

    def measurements(self, telemetry: Telemetry) -> Sequence[Measurement]:
        every: tuple[Measurement, ...] = ("segments", *_PROBES)
        return [name for name in every if getattr(telemetry, name) is not None]

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        probed: Any = [(name, getattr(telemetry, name)) for name in _PROBES]
        return telemetry.canary_bytes + sum(
            RECORD_BYTES[name] * part.records for name, part in probed if part is not None
        )

    def probe_packets(self, telemetry: Telemetry) -> int:
        probed = [getattr(telemetry, name) for name in _PROBES]
        return sum(int(part.sent.sum()) for part in probed if part is not None)
