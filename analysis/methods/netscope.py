# SPDX-License-Identifier: Apache-2.0
"""NetScope (INFOCOM 2010): loss tomography by L1-regularised least squares.

This is the version that the NetBouncer paper compares with (its section 6.5): "L1-norm minimization
with non-negativity constraints" on the logarithms of path success; see `log_least_squares`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from analysis.methods.base import Method
from analysis.methods.constraints import NotNegative, Probability
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.netbouncer import PATH_PROBES
from analysis.solvers.incidence import Incidence
from analysis.solvers.log_least_squares import log_least_squares
from analysis.telemetry.telemetry import Probes, SegmentCounts
from testbed.fabric.clos import Fabric

Inputs = Literal["probes", "segments"]


class NetScope(Method):
    """Localize faulty links by L1-regularised least squares.

    Args:
        omega: Weight of the L1 norm. It raises a link's estimated ln(success) by omega / 2n, where
            n is the number of its segments, or of its probes in hundreds (100 are a path, as in
            NetBouncer).
        link_threshold: A link at or below this success probability is blamed: one minus the loss
            rate from which on the user calls a link faulty.
        inputs: NetBouncer's probes (undirected links, if they bounce) or Canary's segments
            (directed).

    Of four probed paths, up and back, one loses 20 %; such probes do not tell directions apart:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Probes, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(2, 2)
    >>> over = [(leaf, spine) for leaf in ("leaf0", "leaf1") for spine in ("spine0", "spine1")]
    >>> paths = fabric.paths_over(*(f"{leaf}->{spine}->{leaf}" for leaf, spine in over))
    >>> probes = Probes(paths, sent=np.full(4, 1000), lost=np.array([200, 0, 0, 0]))
    >>> verdict = NetScope().localize(Telemetry(fabric, "none", probes=probes))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['leaf0->spine0', 'spine0->leaf0']
    """

    base = "netscope"
    paper = "NetBouncer, 6.5"

    def __init__(
        self,
        *,
        omega: NotNegative = 0.03,
        link_threshold: Probability = 0.999,
        inputs: Inputs = "probes",
    ) -> None:
        self.reads = inputs
        self.omega = omega
        self.link_threshold = link_threshold

    def infer(self, data: Probes | SegmentCounts, fabric: Fabric) -> Diagnosis:
        """Return the diagnosis from the least-squares estimates, with segments summed over all
        epochs."""
        if isinstance(data, Probes):
            undirected, sent, lost = data.bounced, data.sent, data.lost
            incidence = Incidence.of(data.paths, undirected=undirected)
            times = sent / PATH_PROBES
        else:
            undirected, incidence = False, Incidence.of(data.segments.paths)
            sent, lost = data.sent.sum(axis=0), data.lost.sum(axis=0)
            times = None
        used = sent > 0
        # ln 0 is infinite: a path that lost all packets is taken to have passed half a packet.
        y = np.maximum(sent - lost, 0.5) / np.maximum(sent, 1)
        estimate = log_least_squares(incidence, y, times, omega=self.omega, used=used)
        crossed = incidence.links_on(used)
        success = np.full(fabric.n_links >> undirected, np.nan)
        success[incidence.link_ids[crossed]] = estimate[crossed]
        blamed = np.flatnonzero(success <= self.link_threshold)
        return self.diagnosis(fabric, blamed, success=success, undirected=undirected)
