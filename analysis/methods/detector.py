# SPDX-License-Identifier: Apache-2.0
"""deTector (USENIX ATC 2017): packet loss localization, PLL, from probes over a planned matrix.

A greedy search explains the lossy paths by as few links as possible; it always takes the link that
explains most lost packets. A path shows full loss if it crosses a link all of whose paths lost
probes. Tomo explains these paths by links that no loss-free path crosses. The other lossy paths
show partial loss, in which a bad link may spare some paths over it; to be blamed for them, a link
needs a hit ratio, the share of the paths over it that lost probes, above a limit.

This algorithm could not be checked against the paper: the available text ends in section 4.4, and
section 5 describes PLL. The algorithm follows what others write about it: NetBouncer's section 6.2
("designed to blame the smallest number of links", and a hit ratio of 0.6 that filters false
positives) and descriptions of Tomo, the greedy algorithm that PLL extends. The numbers of PLL's
subsections are not verified.
Where several readings are possible, these are chosen:

- which test tells lossy paths from noise: a binomial one, against links that lose ``noise``;
- the hit ratio is that of lossy paths which show partial loss, and it must be *above* the limit;
- full loss is explained first, and its losses do not count for partial loss;
- of links that explain equally much, the one with the lowest number is taken.

The plan is `testbed.fabric.probe_matrix.matrix`. Its probes go in one direction only, so the
method tells the two directions of a link apart, which the paper's echoed probes cannot do.
"""

from __future__ import annotations

import numpy as np
from scipy.special import bdtrc

from analysis.methods.base import Method
from analysis.methods.constraints import Rate, Share
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.domain import Domain
from analysis.solvers.incidence import Incidence
from analysis.telemetry.telemetry import Probes
from testbed.arrays import BoolArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)


class Detector(Method):
    """Localize faulty directed links with PLL.

    The paper splits the work into parts that share no link. Greedy choices in one part do not
    affect another, so a single pass over all parts gives the same result.

    Args:
        hit_ratio: A link with partial loss is blamed only if its hit ratio is higher than this
            (section 5.4: 0.6).
        noise: Loss rate of healthy links (section 5.1: 1e-4 to 1e-5).
        significance: A path counts as lossy if healthy links would lose as many probes with no
            more than this probability (the hypothesis test of section 5.1).

    Of two paths that share a link one loses 5 %:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Probes, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(3, 1)
    >>> paths = fabric.paths_over("leaf0->spine0->leaf1", "leaf0->spine0->leaf2")
    >>> probes = Probes(paths, sent=np.array([5000, 5000]), lost=np.array([250, 0]))
    >>> verdict = Detector().localize(Telemetry(fabric, "none", detector=probes))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['spine0->leaf1']
    """

    base = "detector"
    domain = Domain("deTector, 5", healthy_loss=1e-4)
    paper = "deTector, 5"
    reads = "detector"

    def __init__(
        self, *, hit_ratio: Share = 0.6, noise: Rate = 2e-4, significance: Share = 0.05
    ) -> None:
        self.hit_ratio = hit_ratio
        self.noise = noise
        self.significance = significance

    def infer(self, probes: Probes, fabric: Fabric) -> Diagnosis:
        """Return PLL's diagnosis of directed links: full loss is explained first, then partial."""
        incidence = Incidence.of(probes.paths)
        lossy = self._lossy(probes)
        lost = np.where(lossy, probes.lost, 0)
        over = _over(incidence, probes.sent > 0)
        hit = _over(incidence, lossy)

        full = (hit == over) & (over > 0)
        shows_full = lossy & incidence.paths_with(full)
        explained = np.zeros(incidence.n_links, np.int64)
        _explain(incidence, lost, shows_full.copy(), full, explained)
        shows_partial = lossy & ~shows_full
        ratio = _over(incidence, shows_partial) / np.maximum(over, 1)
        partly = np.zeros(incidence.n_links, np.int64)
        every = np.ones(incidence.n_links, np.bool_)
        _explain(incidence, lost, shows_partial.copy(), every, partly)
        explained += np.where(ratio > self.hit_ratio, partly, 0)

        sent = np.bincount(
            incidence.links,
            np.repeat(probes.sent, np.diff(incidence.path_ptr)),
            minlength=incidence.n_links,
        )
        loss = explained / np.maximum(sent, 1)
        success = np.full(fabric.n_links, np.nan)
        success[incidence.link_ids[over > 0]] = 1.0
        blamed = explained > 0
        success[incidence.link_ids[blamed]] = 1 - loss[blamed]
        # Links that are not blamed rank below, by hit ratio, as their estimated loss is 0.
        score = np.zeros(fabric.n_links)
        score[incidence.link_ids] = np.where(blamed, 1 + loss, hit / np.maximum(over, 1))
        return self.diagnosis(
            fabric,
            incidence.link_ids[blamed],
            success=success,
            score=score,
        )

    def _lossy(self, probes: Probes) -> BoolArray:
        """Return which paths lost significantly more probes than healthy links would: bool[P]
        (section 5.1)."""
        healthy = 1 - (1 - self.noise) ** probes.paths.length
        chance = np.where(probes.lost > 0, bdtrc(probes.lost - 1.0, probes.sent, healthy), 1.0)
        return (probes.lost > 0) & (chance <= self.significance)


def _over(incidence: Incidence, chosen: BoolArray) -> LongArray:
    """Return how many of the chosen paths (bool[P]) cross each local link: int64[n_links]."""
    entry = np.repeat(chosen, np.diff(incidence.path_ptr))
    return np.bincount(incidence.links[entry], minlength=incidence.n_links)


def _explain(
    incidence: Incidence,
    lost: LongArray,
    open_paths: BoolArray,
    suspect: BoolArray,
    explained: LongArray,
) -> None:
    """Explain the losses of the open paths by suspects (Tomo): choose the suspect that explains
    most lost packets, close its paths, and repeat until no suspect explains any.

    Args:
        lost: Packets that each path lost, int64[P].
        open_paths: Paths to be explained, bool[P]; explained ones become False.
        suspect: Links that may be chosen, bool[n_links].
        explained: int64[n_links]; the packets that a chosen link explains are added to it.
    """
    _KERNELS.explain(
        incidence=incidence,
        lost=np.ascontiguousarray(lost, np.int64),
        open_paths=open_paths,
        suspect=suspect,
        gain=np.zeros(incidence.n_links, np.int64),
        explained=explained,
    )
