# SPDX-License-Identifier: Apache-2.0
"""KDD14 (Herodotou and others, KDD 2014), reconstructed: one culprit a path, and a test.

The paper was not available. The method is built from two statements about it. Its public abstract
says that a failure probability of devices and links is computed from active monitoring, and that
statistically significant increases of it are shown as a ranked list. NetBouncer's section 6.5,
which compares with its inference, says that paths are known, and that "there is at most one faulty
link among all the paths between two servers".

So the suspects are links and switches, and all losses of a path have one culprit: the suspect on it
with the highest failure probability. This probability is the number of lost packets that the
suspect is the culprit of, divided by the number sent across it. A suspect that shares a path with a
likelier one is cleared of that path's losses. So some faults are missed where several lie on one
path, and switches are blamed for their faulty links. docs/why/analysis.md compares other readings.
"""

from __future__ import annotations

import numpy as np
from scipy.special import bdtrc

from analysis.methods.base import Method
from analysis.methods.constraints import Rate, Share
from analysis.methods.diagnosis import Diagnosis
from analysis.solvers.incidence import Incidence
from analysis.telemetry.telemetry import Probes
from testbed.arrays import LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)


class Kdd14(Method):
    """Localize faulty links and switches from probes; undirected links where these bounce.

    A run has no earlier failure probability to compare with. The usual loss rate is therefore a
    parameter, the same for all links.

    Args:
        noise: Loss rate of healthy links (NetBouncer, section 6.1: 1e-3).
        significance: A suspect is blamed if, with all links on its paths healthy, losses as many as
            those that it is the culprit of had at most this probability.

    Of two paths that share a link one loses 5 %:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Probes, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(3, 1)
    >>> paths = fabric.paths_over("leaf0->spine0->leaf1", "leaf0->spine0->leaf2")
    >>> probes = Probes(paths, sent=np.array([5000, 5000]), lost=np.array([250, 0]))
    >>> verdict = Kdd14().localize(Telemetry(fabric, "none", probes=probes))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['spine0->leaf1']
    """

    base = "kdd14"
    reads = "probes"

    def __init__(self, *, noise: Rate = 5e-4, significance: Share = 0.01) -> None:
        self.noise = noise
        self.significance = significance

    def infer(self, probes: Probes, fabric: Fabric) -> Diagnosis:
        """Return the diagnosis of links and switches: those whose losses pass the binomial test."""
        shift = int(probes.bounced)
        n_links = fabric.n_links >> shift
        incidence = Incidence.of(_suspects(probes.paths, fabric, shift))
        sent, lost = probes.sent.astype(np.int64), probes.lost.astype(np.int64)
        across = incidence.sum_on(sent)
        caused = _culprits(incidence, across, lost)

        links_of = Incidence.of(probes.paths, undirected=probes.bounced).path_ptr
        healthy = 1 - (1 - self.noise) ** np.diff(links_of)  # of each path
        usual = np.minimum(incidence.sum_on(sent * healthy) / np.maximum(across, 1), 1.0)
        chance = np.where(caused > 0, bdtrc(caused - 1.0, across, usual), 1.0)
        blamed = incidence.link_ids[(caused > 0) & (chance <= self.significance)]

        crossed = across > 0
        failure = np.full(n_links + fabric.n_switches, np.nan)
        failure[incidence.link_ids[crossed]] = caused[crossed] / across[crossed]
        devices = blamed[blamed >= n_links] - n_links
        ends = np.stack((fabric.link_src, fabric.link_dst))[:, :: 1 << shift]
        of_device = np.where(np.isin(ends, devices), failure[n_links + ends], 0.0).max(axis=0)
        flagged = np.union1d(blamed[blamed < n_links], np.flatnonzero(of_device))
        # A link of a blamed switch fails at least as often as the switch.
        success = 1 - np.maximum(failure[:n_links], of_device)
        return self.diagnosis(
            fabric, flagged, success=success, undirected=probes.bounced, devices=devices
        )


def _suspects(paths: Paths, fabric: Fabric, shift: int) -> Paths:
    """Return each path as a list of suspects: its links, and the switches at their ends, which are
    numbered after all links. ``shift`` is 1 for undirected links and 0 for directed ones."""
    of_link = np.empty((len(paths.links), 3), np.int32)
    of_link[:, 0] = paths.links >> shift
    switches = fabric.n_links >> shift
    of_link[:, 1] = switches + fabric.link_src[paths.links]
    of_link[:, 2] = switches + fabric.link_dst[paths.links]
    return Paths(3 * paths.ptr, of_link.reshape(-1))


def _culprits(incidence: Incidence, across: LongArray, lost: LongArray) -> LongArray:
    """Return how many lost packets each suspect is the culprit of: int64[suspects].

    At first all losses of the paths across a suspect count against it. Then each path's losses are
    assigned to the likeliest suspect on it, again and again until no assignment changes. If D of
    the N packets across a suspect are assigned to it, this is the linearised ascent of the convex
    sum of D² / N over all assignments, so it ends. Of suspects with equal failure probabilities the
    one with more packets across it is taken, as fewer faults then explain the rest, and after that
    a link.

    Args:
        across: Packets sent across each suspect, int64[suspects].
        lost: Packets that each path lost, int64[P].
    """
    caused = incidence.sum_on(lost)
    culprit = np.full(len(lost), -1, np.int64)
    while _KERNELS.name_culprits(
        incidence=incidence,
        failure=caused / np.maximum(across, 1),
        across=across,
        lost=lost,
        culprit=culprit,
    ):
        caused = np.zeros(incidence.n_links, np.int64)
        named = culprit >= 0
        np.add.at(caused, culprit[named], lost[named])
    return caused
