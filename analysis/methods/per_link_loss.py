# SPDX-License-Identifier: Apache-2.0
"""Blame the links that meters at both of their ends saw lose too many packets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.special import bdtrc

from analysis.methods.base import Method
from analysis.methods.constraints import Probability, Rate
from analysis.methods.diagnosis import Diagnosis
from analysis.telemetry.telemetry import Probes, Telemetry
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths

Meter = Literal["loss_radar", "fermat", "flow_radar"]


class PerLinkLoss(Method):
    """Blame each link that lost significantly more packets than a healthy one may lose.

    The counts are those of a data plane with meters at both ends of every link, so nothing has to
    be inferred: the method shows what such a data plane buys. It needs no decoding, as the sum of
    a meter's counts says how many packets a link lost, if not of which flows.

    Args:
        meter: The measurement that has the meters, which the run then makes.
        noise: The highest loss rate of a healthy link (Flock, section 6.3: 1e-4).
        significance: The expected number of healthy links that are blamed at this rate. A link is
            blamed if it loses so many packets with at most this probability, divided by the links.

    Of two links one loses 1 %:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> from testbed.measurements.link_meters import LinkLosses
    >>> fabric = leaf_spine(2, 1)
    >>> counts = {"link": [0, 2], "sent": [5000, 5000], "lost": [50, 1]}
    >>> views = {"loss_radar": LinkLosses({n: np.array(c) for n, c in counts.items()}, {})}
    >>> verdict = PerLinkLoss().localize(Telemetry(fabric, "none", views=views))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['leaf0->spine0']
    """

    base = "per-link-loss"

    def __init__(
        self,
        *,
        meter: Meter = "loss_radar",
        noise: Rate = 1e-4,
        significance: Probability = 0.01,
    ) -> None:
        self.meter: Meter = meter
        self.noise = noise
        self.significance = significance

    def data(self, telemetry: Telemetry) -> Probes:
        """Return the counts of all links whose meters were read, as probes of a single link.

        Raises:
            MissingTelemetry: The run has no such meters.
        """
        links, sent, lost = telemetry.need(self.meter, self.name).by_link()
        return Probes(Paths(np.arange(len(links) + 1), links), sent, lost)

    def infer(self, data: Probes, fabric: Fabric, /) -> Diagnosis:
        """Return the diagnosis; the score is minus the logarithm of the probability to lose as
        many packets at the rate of healthy links."""
        sent, lost = data.sent.astype(np.int64), data.lost.astype(np.int64)
        chance = np.where(lost > 0, bdtrc(lost - 1.0, sent, self.noise), 1.0)
        crossed = sent > 0
        success = np.full(fabric.n_links, np.nan)
        success[data.paths.links[crossed]] = 1 - lost[crossed] / sent[crossed]
        score = np.zeros(fabric.n_links)
        score[data.paths.links] = -np.log(np.maximum(chance, np.finfo(np.float64).tiny))
        score += np.nan_to_num(1 - success)  # tells those of no probability at all apart
        blamed = data.paths.links[chance <= self.significance / fabric.n_links]
        return self.diagnosis(fabric, blamed, success=success, score=score)

    @property
    def views(self) -> Sequence[str]:
        """Return the name of the meters."""
        return (self.meter,)

    def measurements(self, telemetry: Telemetry) -> Sequence[str]:
        """Return the name of the meters."""
        return self.views

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        """Return the bytes of all meters that were read."""
        return telemetry.need(self.meter, self.name).bytes

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Return 0: the meters count the hosts' own packets."""
        return 0
