"""deTector (USENIX ATC 2017): packet loss localization, PLL, from probes over a planned matrix.

Lossy paths are explained by as few links as possible, greedily, the link first that explains most
lost packets. A path on which some link loses probes of every path over it shows full loss: there
Tomo decides among the links that no working path clears. The other lossy paths show partial loss,
which may spare some paths over a bad link; there a link counts only if its hit ratio, the share of
the paths over it that lost probes, is high enough.

This algorithm cannot be checked against the paper here: the text at hand ends in section 4.4, and
PLL is section 5. It is derived from what others say of it: NetBouncer's section 6.2 ("designed to
blame the smallest number of links", and a hit ratio of 0.6 that filters false positives) and the
descriptions of Tomo, the greedy algorithm that it extends. Numbers of its subsections are from
memory.
Choices of ours among several readings:

- which test tells lossy paths from noise: a binomial one, against links that lose ``noise``;
- the hit ratio is that of lossy paths which show partial loss, and it must be *above* the limit;
- full loss is explained first, and its losses do not count for partial loss;
- of links that explain equally much the first is taken.

The plan is `testbed.probes.probe_matrix`. Its probes go one way and back apart, so the directions
of a link are told apart, which the paper's echoed probes cannot do.
"""

from __future__ import annotations

import numpy as np
from scipy.special import bdtrc

from analysis.methods.base import Diagnosis, Method
from analysis.methods.constraints import Rate, Share
from analysis.solvers.incidence import Incidence
from analysis.telemetry.telemetry import Probes
from testbed.arrays import BoolArray, LongArray
from testbed.compiled import njit
from testbed.fabric.clos import Fabric


class Detector(Method):
    """Localize faulty directed links with PLL.

    The paper splits the work into parts that share no link; greedy choices in one part do not touch
    those in another, so all parts are done here in one pass.

    Args:
        hit_ratio: A link under partial loss needs a higher one to be blamed (section 5.4: 0.6).
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
    paper = "deTector, 5"
    reads = "detector"

    def __init__(
        self, *, hit_ratio: Share = 0.6, noise: Rate = 5e-5, significance: Share = 0.01
    ) -> None:
        self.hit_ratio = hit_ratio
        self.noise = noise
        self.significance = significance

    def infer(self, probes: Probes, fabric: Fabric) -> Diagnosis:
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
        # Those not blamed rank below, by hit ratio: an estimate of their loss would be 0.
        score = np.zeros(fabric.n_links)
        score[incidence.link_ids] = np.where(blamed, 1 + loss, hit / np.maximum(over, 1))
        return self.diagnosis(
            fabric,
            incidence.link_ids[blamed],
            success=success,
            score=score,
        )

    def _lossy(self, probes: Probes) -> BoolArray:
        """Paths that lost more than healthy links would: bool[P] (section 5.1)."""
        healthy = 1 - (1 - self.noise) ** probes.paths.length
        chance = np.where(probes.lost > 0, bdtrc(probes.lost - 1.0, probes.sent, healthy), 1.0)
        return (probes.lost > 0) & (chance <= self.significance)


def _over(incidence: Incidence, chosen: BoolArray) -> LongArray:
    """How many of the chosen paths (bool[P]) lead over each local link."""
    entry = np.repeat(chosen, np.diff(incidence.path_ptr))
    return np.bincount(incidence.links[entry], minlength=incidence.n_links)


@njit
def _explain(incidence, lost, open_paths, suspect, explained):
    """Tomo: the suspect that explains most losses of the open paths, until no suspect does.

    Adds to ``explained`` what each link chosen explains; closes the paths.
    """
    path_ptr, links = incidence.path_ptr, incidence.links
    link_ptr, paths = incidence.link_ptr, incidence.paths
    gain = np.zeros(len(suspect), np.int64)
    for path in range(len(open_paths)):
        if open_paths[path]:
            for e in range(path_ptr[path], path_ptr[path + 1]):
                if suspect[links[e]]:
                    gain[links[e]] += lost[path]
    while len(gain):
        best = np.argmax(gain)
        if gain[best] <= 0:
            return
        explained[best] += gain[best]
        for at in range(link_ptr[best], link_ptr[best + 1]):
            path = paths[at]
            if open_paths[path]:
                open_paths[path] = False
                for e in range(path_ptr[path], path_ptr[path + 1]):
                    if suspect[links[e]]:
                        gain[links[e]] -= lost[path]
