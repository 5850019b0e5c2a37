# SPDX-License-Identifier: Apache-2.0
"""007 (NSDI 2018): every connection that lost packets votes for the links of its path.

A connection over h links gives each of them 1/h of a vote (section 5.1). Algorithm 1 blames the
link with most votes, takes from every other link the votes that it is expected to have received
from that link's connections under ECMP, and repeats while the largest tally is at least a share of
all votes cast.

The paper leaves open:

- **The threshold.** Algorithm 1, line 6, sums the votes of all links, which its line 11 has already
  lowered; section 5.1 calls the threshold "1 % of the total votes cast". Here the votes cast count.
- **The votes that are taken away.** Section 5.1 assumes that all connections over the blamed link
  lost packets there, but votes that were taken from the link before are explained already. Here
  only the votes that the link has left are distributed; the other reading distributes all votes
  that were cast for it.
- **Partial traces.** Section 4.2 says that the analysis uses them, but not how. Here a connection
  always casts one vote in total, 1/h for each of its h links. Where the trace leaves a choice of
  links, that part is divided among the possible links by ECMP probability, as section 5.1 does with
  the votes to take away. Leaving such connections out would ignore those over the worst links.
- **Ties.** Of links with equally many votes, up to rounding, the one with the lowest id is blamed.
- **Cause.** Section 5.1 calls the highest ranked link of its path "the most likely cause of drops
  on each flow"; section 6 attributes flows with a single drop to noise, but does not say how. Here
  a connection's cause is the blamed link that it crossed, and of several the one blamed first; with
  a partial trace, the link that it most likely crossed. If it crossed no blamed link, its drops are
  noise (-1).

`Vigil.changes` lists the variants that go beyond the paper.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from analysis.methods.base import Change, Diagnosis, Method
from analysis.methods.constraints import NotNegative
from analysis.solvers.parts import in_parts
from analysis.telemetry.telemetry import Connections
from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp_probabilities import Continuations, EcmpProbabilities, Shares
from testbed.fabric.paths import pointers
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)


@dataclass(frozen=True)
class Ballot:
    """The votes cast; entry e is a part of the vote of connection ``voter[e]``.

    Attributes:
        voter: The connection of each entry, int32[V].
        link: The directed link that the entry votes for, int32[V].
        share: The probability that the connection crossed this link, float64[V].
        links: The number of links that each connection crosses, float64[n_connections]; 0 if it
            does not vote.
    """

    voter: IntArray
    link: IntArray
    share: FloatArray
    links: FloatArray

    def tally(self, n_links: int) -> FloatArray:
        """Return the votes for each link, by which 007 ranks links: float64[n_links]."""
        total = np.zeros(n_links)
        _KERNELS.add_votes(
            link=self.link, voter=self.voter, share=self.share, links=self.links, total=total
        )
        return total

    def crossings(self, n_links: int) -> FloatArray:
        """Return the expected number of voters that crossed each link: float64[n_links]."""
        return _added(self.link, self.share, n_links)


class Vigil(Method):
    """Localize faulty links, and the cause of every connection's drops, by voting.

    Args:
        threshold: Algorithm 1 continues while the largest tally is at least this share of all votes
            (the paper: 0.01 on 4,160 links).
        chance: The expected number of links that may be blamed because connections of blamed links
            crossed them by chance.
        false_alarm: The expected number of links that may be blamed because of noise drops.
        adjust: Take the votes that a blamed link's connections gave to others from these.

    Two connections that lost packets share one link:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Connections, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(3, 1)
    >>> traced = Connections(
    ...     src_tor=np.array([0, 2]),
    ...     dst_tor=np.array([1, 1]),
    ...     lost=np.array([5, 3]),
    ...     paths=fabric.paths_over("leaf0->spine0->leaf1", "leaf2->spine0->leaf1"),
    ...     complete=np.array([True, True]),
    ...     traceroute_packets=4,
    ... )
    >>> verdict = Vigil().localize(Telemetry(fabric, "none", connections=traced))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['spine0->leaf1']
    """

    base = "007"
    paper = "007, 5.1 and algorithm 1"
    reads = "connections"
    changes = (
        Change(
            "chance",
            "chance",
            0.5,
            "algorithm 1, line 11",
            "The votes taken from a link are those expected of the blamed link's connections.",
            "A link is blamed only if by chance fewer than half a link of the fabric would get "
            "as many voters (Poisson tail of the expected ones).",
            "The true number varies about the expected one, and one faulty link makes others "
            "look faulty.",
        ),
        Change(
            "noise",
            "false_alarm",
            0.01,
            "6",
            "The paper first separates flows whose drops are noise, but does not say how.",
            "A link is blamed only if connections that lost one packet each, spread by ECMP, "
            "would give as many votes to fewer than 0.01 links of the fabric.",
            "With a handful of single drops, links that two of them cross by chance have the "
            "most votes.",
        ),
        Change(
            "unadjusted",
            "adjust",
            False,
            "5.1",
            "A blamed link's votes are taken from the others.",
            "They are not.",
            "The paper reports the effect of the adjustment: 5 % fewer false positives.",
            "the paper",
        ),
    )

    def __init__(
        self,
        *,
        threshold: NotNegative = 0.01,
        chance: NotNegative = math.inf,
        false_alarm: NotNegative = math.inf,
        adjust: bool = True,
    ) -> None:
        self.threshold = threshold
        self.chance = chance
        self.false_alarm = false_alarm
        self.adjust = adjust

    def infer(self, connections: Connections, fabric: Fabric) -> Diagnosis:
        """Return the links that algorithm 1 blames and the cause of each connection's drops; the
        score of a link is its tally before any vote is taken away."""
        n_links = fabric.n_links
        ecmp = EcmpProbabilities(fabric)
        votes = ballot(connections, ecmp)
        tally = votes.tally(n_links)
        voters = connections.lost[votes.links > 0]
        lone = float((voters == 1).sum()) / max(len(voters), 1)
        hops = votes.crossings(n_links) / np.where(tally > 0, tally, 1.0)
        order = self._blame(tally, hops, lone, ecmp)
        rank = np.full(n_links, len(order), np.int64)
        rank[order] = np.arange(len(order))
        return self.diagnosis(
            fabric,
            order,
            score=tally,
            connection_cause=connection_causes(votes, rank, len(order), len(connections)),
        )

    def _blame(
        self, tally: FloatArray, hops: FloatArray, lone: float, ecmp: EcmpProbabilities
    ) -> list[int]:
        """Return the blamed links in the order in which algorithm 1 picks them.

        Args:
            tally: Votes for each link, float64[n_links].
            hops: Mean path length of the voters over each link, float64[n_links]; converts votes
                to voters.
            lone: Share of the voters that lost a single packet.
            ecmp: ECMP probabilities of the fabric.
        """
        n_links = len(tally)
        least = (1 - ROUNDING) * self.threshold * tally.sum()
        tests = min(self.chance, self.false_alarm) < math.inf
        usage = ecmp.usage() if tests else np.zeros(0)
        shares = _SharedVotes(ecmp)
        taken, blamed = np.zeros_like(tally), np.empty(n_links, np.int64)
        left = np.empty_like(tally)

        def explained(some: LongArray) -> BoolArray:
            """Return for each link whether connections of blamed links or noise explain its votes:
            bool[len(some)]."""
            if not tests:
                return np.zeros(len(some), np.bool_)
            noise = noisy * usage[some]
            by_chance = _as_many(tally[some] * hops[some], taken[some] * hops[some] + noise)
            by_noise = _as_many(left[some] * hops[some], noise)
            return (n_links * by_chance > self.chance) | (n_links * by_noise > self.false_alarm)

        for n in range(n_links):
            np.subtract(tally, taken, out=left)
            left[blamed[:n]] = 0.0
            noisy = left.sum() * lone  # voters that noise alone explains, by ECMP over all links
            top = _most(left, least, explained)
            if top < 0:
                return blamed[:n].tolist()
            blamed[n] = top
            if self.adjust:
                links, share = shares.of(top, left)
                taken[links] = np.minimum(taken[links] + left[top] * share, tally[links])
        return blamed.tolist()


ROUNDING = 1e-9
"""Numbers of votes that differ by no more than this share are equal."""

_ONE_BY_ONE = 4


def _most(left: FloatArray, least: float, explained: Callable[[LongArray], BoolArray]) -> int:
    """Return the link with most votes left that ``explained`` does not explain, and of equals the
    lowest id; -1 if none has at least ``least`` votes.

    Explained votes in ``left``, float64[n_links], are set to 0. The first few links are tested one
    by one, as the first is usually the result, and then all others at once.
    """
    for _ in range(_ONE_BY_ONE):
        most = left.max(initial=0.0)
        if most < least or most <= 0:
            return -1
        top = int(np.argmax(left >= (1 - ROUNDING) * most))
        if not explained(np.array([top]))[0]:
            return top
        left[top] = 0.0
    some = np.flatnonzero((left >= least) & (left > 0))
    some = some[~explained(some)]
    if not len(some):
        return -1
    return int(some[np.argmax(left[some] >= (1 - ROUNDING) * left[some].max())])


class _SharedVotes:
    """A cache of `EcmpProbabilities.shared_votes` by link. It computes the links with most votes
    ahead, on all cores, because they are likely to be blamed next."""

    _AHEAD = 64

    def __init__(self, ecmp: EcmpProbabilities) -> None:
        self._ecmp = ecmp
        self._known: dict[int, Shares] = {}

    def of(self, link: int, left: FloatArray) -> Shares:
        """Return the shares of a link, which can be asked for once.

        ``left``, the votes that each link has, float64[n_links], tells which to compute ahead.
        """
        if link not in self._known:
            unknown = left.copy()
            unknown[list(self._known)] = 0.0
            unknown[link] = np.inf
            links = np.argpartition(-unknown, min(self._AHEAD, len(left) - 1))[: self._AHEAD]
            links = links[unknown[links] > 0]
            shares = in_parts(
                len(links) * len(left),
                lambda part, parts: self._ecmp.shared_votes(links[part::parts]),
            )
            for part, of_part in enumerate(shares):
                some = links[part :: len(shares)].tolist()
                self._known |= dict(zip(some, of_part, strict=True))
        return self._known.pop(link)


def _as_many(voters: FloatArray, expected: FloatArray) -> FloatArray:
    """Return the probability of at least ``voters`` voters if ``expected`` are expected (Poisson),
    for each link."""
    return gammainc(np.maximum(voters, 1e-9), expected)


def ballot(connections: Connections, ecmp: EcmpProbabilities) -> Ballot:
    """Return the votes of all connections. A connection without loss, or between hosts of one ToR,
    casts none."""
    paths = connections.paths
    voting = (connections.lost > 0) & (connections.src_tor != connections.dst_tor)
    owner = paths.owner
    whole = (voting & connections.complete)[owner]
    known = owner[whole].astype(np.int32)
    broken = np.flatnonzero(voting & ~connections.complete).astype(np.int32)

    def onward(part: int, parts: int) -> Continuations:
        """Return the links that connections with broken traces may have crossed, for part number
        ``part`` of ``parts`` of these connections."""
        some = broken[len(broken) * part // parts : len(broken) * (part + 1) // parts]
        ends = connections.src_tor[some], connections.dst_tor[some]
        return ecmp.continuations(*ends, paths.take(some))

    possible = in_parts(len(broken) * ecmp.n_links, onward)
    ends = len(known) + pointers([len(one.links) for one in possible])
    voter, link = np.empty((2, ends[-1]), np.int32)
    share = np.empty(ends[-1])
    voter[: len(known)], link[: len(known)], share[: len(known)] = known, paths.links[whole], 1.0
    length = np.concatenate([np.diff(one.ptr) for one in possible])
    voter[len(known) :] = np.repeat(broken, length)
    for begin, end in itertools.pairwise(ends.tolist()):
        one = possible.pop(0)  # frees a large array that is not needed any more
        link[begin:end], share[begin:end] = one.links, one.chance
    return Ballot(voter, link, share, _added(voter, share, len(connections)))


def connection_causes(
    ballot: Ballot, rank: LongArray, n_blamed: int, n_connections: int
) -> IntArray:
    """Return the cause of each connection's drops, int32[n_connections]: the first blamed link that
    it crossed, or -1 for noise. Of the possible links of a partial trace, the likeliest is taken.

    Args:
        ballot: The votes.
        rank: The order in which links were blamed, int64[n_links], from 0; links from ``n_blamed``
            on are not blamed.
    """
    cause = np.full(n_connections, -1, np.int32)
    _KERNELS.find_likeliest(
        link=ballot.link,
        voter=ballot.voter,
        share=ballot.share,
        rank=rank,
        n_blamed=n_blamed,
        cause=cause,
        largest=np.zeros(n_connections),
    )
    return cause


def _added(index: IntArray, value: FloatArray, n: int) -> FloatArray:
    total = np.zeros(n)
    _KERNELS.add(index=index, value=value, total=total)
    return total
