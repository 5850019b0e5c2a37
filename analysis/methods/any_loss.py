# SPDX-License-Identifier: Apache-2.0
"""The trivial method: every link that may have lost a packet is faulty.

It is a reference for comparisons. Where it does as well as the published methods, healthy links
lose next to no packets, and the setting does not show how methods differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.methods.base import RECORD_BYTES, Method
from analysis.methods.constraints import Count
from analysis.methods.diagnosis import Diagnosis
from analysis.telemetry.telemetry import MissingTelemetry, Probes, Telemetry
from testbed.fabric.clos import Fabric

_PROBES: tuple[str, ...] = ("probes", "detector")


class AnyLoss(Method):
    """Blame every link on a path that lost a packet, unless a loss-free path crosses it.

    Paths are Canary's segments and the paths of probes, whichever were measured.

    Args:
        enough: Packets that a loss-free path must have carried to clear its links. Of 3,000 packets
            a link that loses 0.1 % loses one or more with a probability of 95 %.

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
        """Return all probes, and the segments, summed over the epochs, in the form of probes.

        Raises:
            MissingTelemetry: Neither segments nor probes were measured.
        """
        found = [part for part in (telemetry.probes, telemetry.detector) if part is not None]
        if (counts := telemetry.segments) is not None:
            sums = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
            found.append(Probes(counts.segments.paths, *sums))
        if not found:
            raise MissingTelemetry(
                f"{self.name} needs segments or probes, and the telemetry has neither"
            )
        return found

    def infer(self, data: Sequence[Probes], fabric: Fabric, /) -> Diagnosis:
        """Return the diagnosis; the score is 1 for a blamed link, -1 for a cleared one, else 0."""
        lossy, clear = np.zeros((2, fabric.n_links), np.bool_)
        for part in data:
            lossy[part.paths.take(np.flatnonzero(part.lost)).links] = True
            well = (part.lost == 0) & (part.sent >= self.enough)
            clear[part.paths.take(np.flatnonzero(well)).links] = True
        score = lossy.astype(np.float64) - clear
        return self.diagnosis(fabric, np.flatnonzero(lossy & ~clear), score=score)

    def observations(self, data: Sequence[Probes]) -> Sequence[Probes]:
        """Return ``data``, all of which the method reads."""
        return data

    @property
    def views(self) -> Sequence[str]:
        """Return the names of segments and probes."""
        return ("segments", *_PROBES)

    def measurements(self, telemetry: Telemetry) -> Sequence[str]:
        """Return the names of the parts that were measured, of segments and probes."""
        every: tuple[str, ...] = ("segments", *_PROBES)
        return [name for name in every if getattr(telemetry, name) is not None]

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        """Return the bytes of Canary's reports and of the records of all probed paths."""
        probed: Any = [(name, getattr(telemetry, name)) for name in _PROBES]
        return telemetry.canary_bytes + sum(
            RECORD_BYTES[name] * part.records for name, part in probed if part is not None
        )

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Return how many probe packets were sent, of both kinds."""
        probed = [getattr(telemetry, name) for name in _PROBES]
        return sum(int(part.sent.sum()) for part in probed if part is not None)
