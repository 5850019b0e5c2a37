# SPDX-License-Identifier: Apache-2.0
"""Sherlock's search, Ferret (SIGCOMM 2007, section 3.2), on Flock's model: for small fabrics.

Every hypothesis of at most k failed components is scored, so the result is the best of these, and
more than k failures cannot be found. With n components, D groups on one and T components on a
group's paths this takes O(n^k D T) time: the log-likelihood of a hypothesis follows from that of
its parent by the groups of one component. Joint likelihood exploration scores all n children of a
hypothesis at once, which is n times faster (Flock, appendix C, algorithm 3), with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.methods.base import Method
from analysis.methods.constraints import Count
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.domain import SPRAYED_FLOWS
from analysis.methods.flock.flock import Flock, verdict
from analysis.methods.flock.likelihood import BETTER
from analysis.methods.flock.model import FlockModel
from analysis.methods.flock.search import Search
from analysis.telemetry.identifiability import Observations
from analysis.telemetry.telemetry import Telemetry
from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric
from testbed.kernels import Kernels

KERNELS = Kernels.beside(__file__)


class Sherlock(Method):
    """Localize at most ``max_failures`` failed links and devices by trying all of them.

    Args:
        max_failures: The most failures of a hypothesis, at least 1. Sherlock uses 2.
        jle: Score all children of a hypothesis at once (joint likelihood exploration).
        flock: The Flock method whose model and parameters are used; default: ``Flock()``.

    Of two paths that share a link one loses 5 %:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Probes, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(3, 1)
    >>> paths = fabric.paths_over("leaf0->spine0->leaf1", "leaf0->spine0->leaf2")
    >>> probes = Probes(paths, sent=np.array([5000, 5000]), lost=np.array([250, 0]))
    >>> verdict = Sherlock().localize(Telemetry(fabric, "none", probes=probes))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['spine0->leaf1']
    """

    base = "sherlock"
    paper = "Ferret, 3.2"
    sprayed = SPRAYED_FLOWS

    def __init__(
        self, *, max_failures: Count = 2, jle: bool = True, flock: Flock | None = None
    ) -> None:
        self.max_failures = max_failures
        self.jle = jle
        self.flock = flock or Flock()

    def data(self, telemetry: Telemetry) -> Telemetry:
        """Return the telemetry, after the check that it has what Flock's model reads."""
        return self.flock.data(telemetry)

    def observations(self, data: Telemetry) -> Sequence[Observations]:
        """Return the observations that Flock's model reads."""
        return self.flock.observations(data)

    def infer(self, telemetry: Telemetry, fabric: Fabric) -> Diagnosis:
        """Return the diagnosis of the best hypothesis of at most ``max_failures`` failures."""
        model = self.flock.model(telemetry, listed=True)
        search = Search(model)
        search.move_to(ferret(model, self.max_failures, jle=self.jle)[0])
        return verdict(self, fabric, search)

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        """Return the bytes of all records that Flock's model reads."""
        return self.flock.telemetry_bytes(telemetry)

    @property
    def views(self) -> Sequence[str]:
        """Return the names of the parts that Flock's model may read."""
        return self.flock.views

    def measurements(self, telemetry: Telemetry) -> Sequence[str]:
        """Return the names of the measurements that Flock's model reads."""
        return self.flock.measurements(telemetry)

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Return how many probes and traceroute packets were sent for Flock's model."""
        return self.flock.probe_packets(telemetry)


def ferret(model: FlockModel, max_failures: int, *, jle: bool) -> tuple[BoolArray, float]:
    """Return the best hypothesis of at most ``max_failures`` failed components, bool[n_components],
    and its log posterior in nats, relative to no failure.

    Of equally good hypotheses, the first in the order of their components is returned.

    Raises:
        ValueError: The model has pairs of ToRs whose paths are not listed.
    """
    if len(model.pairs.bad):
        raise ValueError("Sherlock's search needs listed path sets")
    search = Search(model)
    best = np.zeros(model.n_components, np.bool_)
    chosen, following = np.zeros((2, max_failures + 1), np.int64)
    value = KERNELS.ferret(
        deepest=max_failures,
        jle=jle,
        better=BETTER,
        best=best,
        chosen=chosen,
        following=following,
        values=np.zeros(max_failures + 1),
        state=search.bound,
    )
    return best, value
