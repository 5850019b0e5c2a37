# SPDX-License-Identifier: Apache-2.0
"""Blame the links of ways that bring less than their share of sprayed packets.

This follows the public description of SprayCheck (arXiv 2605.03702): the leaf that receives counts
what came by each spine, a way that brings less than its share of the known spraying distribution
loses packets, and lossy ways of several pairs of leaves are intersected to a link. Its text was not
at hand. The test of a way, the spread that it allows for and the order in which links are blamed
are this project's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from analysis.methods.base import Method
from analysis.methods.constraints import Count, Probability, Rate
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.variants import Change
from analysis.telemetry.telemetry import Probes, Telemetry
from testbed.arrays import BoolArray, FloatArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths

if TYPE_CHECKING:
    from analysis.telemetry.views.spray_counts import SprayCounts

_NORMAL = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""


class SprayCheck(Method):
    """Blame links that lossy ways of several pairs of leaves have in common.

    A way is lossy if it brings fewer packets than its share of what its pair's middle way brought,
    by more than chance and healthy links explain. Lossy ways are left out one after another, those
    that lack most first, as they lower the share of the others. Then the link is blamed that most
    lossy ways cross, its ways count as explained, and so on while a link has lossy ways of
    ``pairs`` pairs.

    With ``pool``, what the ways of a link lack is then added up, without those that cross a blamed
    link: the link that lacks most, measured by what chance explains, is blamed if that is more than
    chance explains for any healthy link, and so on.

    Args:
        significance: The expected number of healthy ways that are taken for lossy, and, with
            ``pool``, of healthy links.
        noise: The highest loss rate of a healthy link (Flock, section 6.3: 1e-4).
        pairs: The lossy ways that a blamed link needs, or all of its ways if they are fewer.
        pool: Whether the ways of a link are also added up. Healthy ways must differ by chance
            alone: with flowlets, whose bursts differ more, healthy links are blamed.

    Three leaves send over two spines, and one link loses a tenth:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> from analysis.telemetry.views.spray_counts import SprayCounts
    >>> fabric = leaf_spine(3, 2)
    >>> src, dst = np.nonzero(~np.eye(3, dtype=bool))
    >>> ways = SprayCounts(
    ...     *(each.repeat(2).astype(np.int32) for each in (src, dst)),
    ...     spine=np.tile([3, 4], 6).astype(np.int32),
    ...     share=np.full(12, 0.5),
    ...     packets=np.array([900, 1000, 900, 1000, *[1000] * 8]),
    ... )
    >>> verdict = SprayCheck().localize(Telemetry(fabric, "none", views={"spray_check": ways}))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['leaf0->spine0']
    """

    base = "spray-check"
    changes = (
        Change(
            "pool",
            "pool",
            True,
            "public description",
            "Pairs of leaves whose ways bring less than their share are intersected to a link.",
            "What all ways of a link lack is added up, and compared with chance.",
            "Where packets are not sprayed evenly, no single way of a faint fault stands out.",
        ),
    )

    def __init__(
        self,
        *,
        significance: Probability = 0.05,
        noise: Rate = 1e-4,
        pairs: Count = 2,
        pool: bool = False,
    ) -> None:
        self.significance = significance
        self.noise = noise
        self.pairs = pairs
        self.pool = pool

    def data(self, telemetry: Telemetry) -> Ways:
        """Return the ways between leaves.

        Raises:
            MissingTelemetry: The run did not count them.
        """
        return Ways(telemetry.need("spray_check", self.name), telemetry.topology)

    def observations(self, data: Ways) -> Sequence[Probes]:
        """Return the ways of pairs that exchanged packets, as observations of their two links."""
        at = np.nonzero(~np.isnan(data.packets) & (np.nansum(data.packets, axis=1) > 0)[:, None])
        links = np.stack((data.up[at], data.down[at]), axis=1).reshape(-1).astype(np.int32)
        ptr = np.arange(0, len(links) + 1, 2)
        return [Probes(Paths(ptr, links), np.ones(len(ptr) - 1, np.int64), np.zeros_like(ptr[1:]))]

    def infer(self, data: Ways, fabric: Fabric, /) -> Diagnosis:
        """Return the diagnosis; a link's score is the number of lossy ways that it explains, plus
        the share of packets that all its ways lack."""
        lossy, expected, spread = self.lossy_ways(data)
        sent = _sums(data, expected, fabric.n_links)
        lacking = _sums(data, np.maximum(expected - data.packets, 0), fabric.n_links)
        share = np.minimum(lacking / np.maximum(sent, 1), 1)
        ways = _sums(data, ~np.isnan(data.packets), fabric.n_links)
        enough = np.minimum(np.maximum(ways, 1), self.pairs)
        blamed = np.zeros(fabric.n_links)
        while True:
            explains = _sums(data, lossy, fabric.n_links)
            worst = int(np.argmax(np.where(explains >= enough, explains + share / 2, -1)))
            if explains[worst] < enough[worst]:
                break
            blamed[worst] = explains[worst]
            lossy &= (data.up != worst) & (data.down != worst)
        if self.pool:
            self._blame_pooled(data, expected, spread, blamed)
        score = np.where(blamed > 0, blamed, explains) + share
        return self.diagnosis(fabric, np.flatnonzero(blamed), score=score)

    def _blame_pooled(
        self, data: Ways, expected: FloatArray, spread: float, blamed: FloatArray
    ) -> None:
        """Blame links whose ways lack, together, more than chance explains: note in ``blamed`` by
        how many standard deviations."""
        n_links = len(blamed)
        limit = ndtri(1 - self.significance / n_links)
        healthy = 2 * self.noise * expected
        left = ~np.isnan(data.packets) & (expected > 0)
        for link in np.flatnonzero(blamed):
            left &= (data.up != link) & (data.down != link)
        while True:
            lacks = _sums(data, np.where(left, expected - data.packets - healthy, 0), n_links)
            chance = np.where(left, spread**2 * expected + healthy + 1, 0)
            z = lacks / np.sqrt(np.maximum(_sums(data, chance, n_links), 1))
            worst = int(np.argmax(z))
            if z[worst] <= limit:
                return
            blamed[worst] = z[worst]
            left &= (data.up != worst) & (data.down != worst)

    def lossy_ways(self, data: Ways) -> tuple[BoolArray, FloatArray, float]:
        """Return which ways are lossy, bool[pairs, spines], the packets that each would have
        brought if it had lost none, float64[pairs, spines], and how far healthy ways are from
        theirs.

        The reference of a way is its share of what its pair's middle way brought. How far healthy
        ways are from theirs depends on how packets are sprayed: more if at random, less if in turn.
        It is measured, as a multiple of the square root of the packets, from how far the ways over
        one spine and over the next are apart, in the middle of all.
        """
        kept = ~np.isnan(data.packets)
        found = int(kept.sum())
        limit = ndtri(1 - self.significance / max(found, 1))
        while True:
            sent = data.packets / np.where(kept, data.share, np.nan)
            expected = _middle(sent)[:, None] * data.share
            lacks = expected - data.packets
            some = kept & (expected > 0)
            off = np.where(some, lacks / np.sqrt(np.where(some, expected, 1)), np.nan)
            apart = np.abs(np.diff(off, axis=1))
            apart = apart[~np.isnan(apart)]
            spread = _NORMAL * np.median(apart) / np.sqrt(2) if len(apart) else 0.0
            healthy = 2 * self.noise * expected
            z = (lacks - healthy) / np.sqrt(spread**2 * expected + healthy + 1)
            z = np.where(some & (kept.sum(axis=1) > 1)[:, None], z, -np.inf)
            worst = np.argmax(z, axis=1)
            rows = np.flatnonzero(z[np.arange(len(z)), worst] > limit)
            if not len(rows):
                lossy = ~kept & ~np.isnan(data.packets)
                return lossy, np.nan_to_num(expected), float(spread)
            kept[rows, worst[rows]] = False

    @property
    def views(self) -> Sequence[str]:
        """Return the name of the counters."""
        return ("spray_check",)

    def measurements(self, telemetry: Telemetry) -> Sequence[str]:
        """Return the name of the counters."""
        return self.views

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        """Return the bytes of all counters that were read."""
        return telemetry.need("spray_check", self.name).bytes

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Return 0: the leaves count the hosts' own packets."""
        return 0


class Ways:
    """The ways between the pairs of leaves of a fabric, as tables of [pairs, spines].

    Attributes:
        share, packets: The share and the packets of each way, float64; nan if it is not known.
        up, down: The links of each way, int32.
    """

    def __init__(self, counts: SprayCounts, fabric: Fabric) -> None:
        leaves, spines = fabric.n_tors, fabric.n_switches - fabric.n_tors
        of_pair = counts.src_tor.astype(np.int64) * leaves + counts.dst_tor
        pairs, row = np.unique(of_pair, return_inverse=True)
        at = row.reshape(-1), counts.spine - leaves
        self.share, self.packets = np.full((2, len(pairs), spines), np.nan)
        self.share[at], self.packets[at] = counts.share, counts.packets
        link = np.zeros((fabric.n_switches, fabric.n_switches), np.int32)
        link[fabric.link_src, fabric.link_dst] = np.arange(fabric.n_links)
        spine = leaves + np.arange(spines)
        self.up = link[(pairs // leaves)[:, None], spine]
        self.down = link[spine, (pairs % leaves)[:, None]]


def _middle(values: FloatArray) -> FloatArray:
    """Return the median of each row without its nan, float64[rows]; 0 where all are nan."""
    return np.ma.median(np.ma.masked_invalid(values), axis=1).filled(0.0)


def _sums(ways: Ways, values: npt.NDArray[Any], n_links: int) -> FloatArray:
    """Return the sum of a value over the ways that cross each link, float64[n_links]; nan is 0."""
    weights = np.nan_to_num(values.astype(np.float64)).reshape(-1)
    found = np.zeros(n_links)
    for end in (ways.up, ways.down):
        found += np.bincount(end.reshape(-1), weights, n_links)
    return found
