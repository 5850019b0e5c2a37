# SPDX-License-Identifier: Apache-2.0
"""Pings whose way there and way back are hidden, without listing pairs of ways.

The packets of a row are spread evenly over the paths of both ways. With X_p the rate of a path
there and Y_q of one back, the share that is lost is, to first order,

    (1/w) sum_p X_p + (1/v) sum_q Y_q = sum over links of c x,

c the share of the paths of its way that a link is on: a sum over two path sets, and not over their
product. In a Clos fabric whose switches spread packets evenly, c of a link is the same for all rows
that may cross it. So a row is an observation over one known path, of all links that its packets may
cross, in the rates c x; these are found as those of any known path, and divided by c.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.methods.diagnosis import Diagnosis
from analysis.methods.mle.problem import Observed
from analysis.telemetry.telemetry import MissingTelemetry, RoundTrips
from testbed.arrays import FloatArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths, pointers

MOST_LINKS = 100_000_000
"""The most entries of the paths of all pairs."""


def over_all_ways(trips: RoundTrips, fabric: Fabric) -> tuple[Observed, FloatArray]:
    """Return round trips as observations over all links that their packets may cross, and the mean
    share of packets of such a row that cross each link, float64[n_links], 1 for others.

    Raises:
        MissingTelemetry: The paths of all pairs take too much memory.
    """
    n = fabric.n_tors
    ends = np.sort(np.stack((trips.src_tor, trips.dst_tor)), axis=0).astype(np.int64)
    pair, nth = np.unique(ends[0] * n + ends[1], return_inverse=True)
    low, high = (end.astype(np.int32) for end in np.divmod(pair, n))
    ways = int(fabric.path_counts(low, high).sum()) if len(pair) else 0
    if ways * 2 * (1 + int(fabric.tier.max())) > MOST_LINKS:
        raise MissingTelemetry(
            f"mle would list {ways:,} paths for the round trips of {len(pair):,} pairs of ToRs: "
            "give those of fewer pairs"
        )
    sets = fabric.path_sets(low, high)
    owner = sets.owner[sets.paths.owner].astype(np.int64)
    key, times = np.unique(owner * fabric.n_links + sets.paths.links, return_counts=True)
    owner, link = np.divmod(key, fabric.n_links)
    share = times / sets.width[owner]  # the way back has the opposite links
    both = np.stack((link, link ^ 1), axis=1).reshape(-1)
    length = 2 * np.bincount(owner, minlength=len(pair))
    every = Paths(pointers(length), both.astype(np.int32)).take(nth.reshape(-1))
    total = np.bincount(both, share.repeat(2), fabric.n_links)
    rows = np.bincount(both, minlength=fabric.n_links)
    observed = Observed(every, trips.sent.astype(np.float64), trips.lost.astype(np.float64))
    return observed, np.where(rows > 0, total / np.maximum(rows, 1), 1.0)


def per_link(diagnosis: Diagnosis, share: FloatArray) -> Diagnosis:
    """Return a diagnosis whose success probabilities are those of links, not of all packets of
    which only the share ``share``, float64[n_links], crosses a link."""
    with np.errstate(divide="ignore"):
        rate = -np.log(diagnosis.success) / share
    return replace(diagnosis, success=np.exp(-rate))
