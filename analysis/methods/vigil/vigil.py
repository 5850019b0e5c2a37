# SPDX-License-Identifier: Apache-2.0
"""007 (NSDI 2018): every connection that lost packets votes for the links of its path.

A connection over h links gives each of them 1/h of a vote (section 5.1). Algorithm 1 blames the
link with most votes, takes from every other link the votes that it is expected to have received
from that link's connections under ECMP, and repeats while the largest tally is at least a share of
all votes cast.

The paper leaves open:

- **The threshold.** Algorithm 1, line 6, sums the votes of all links, which its line 11 has already
  lowered; section 5.1 calls the threshold "1 % of the total votes cast", found by a sweep on 4,160
  links. With 64 links healthy ones have 1.6 % each, and with 3,072 hardly a faulty one has 1 %. By
  default the threshold therefore follows the mean share of the votes that are left, as in line 6
  (`Rule`). A threshold that is given is a share of the votes cast, as in section 5.1.
- **Noise.** Section 6 first sets the flows apart whose drops are noise: "the corresponding link
  only dropped a single packet". Here these are connections that lost one packet, and whose links no
  other lossy connection crossed. They do not vote.
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
  on each flow". Here a connection's cause is the blamed link that it crossed, and of several the
  one blamed first; with a partial trace, the link that it most likely crossed. If it crossed no
  blamed link, its drops are noise (-1).

`Vigil.changes` lists the variants that go beyond the paper.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from analysis.methods.base import Method
from analysis.methods.constraints import NotNegative, Positive
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.domain import SPRAYED_TRACES, Domain
from analysis.methods.variants import Change
from analysis.methods.vigil.adjusted import AdjustedVotes, SharedVotes
from analysis.methods.vigil.threshold import Rule
from analysis.solvers.parts import in_parts
from analysis.telemetry.telemetry import Connections
from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp_probabilities import Continuations, EcmpProbabilities
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
        threshold: Algorithm 1 continues while the largest tally is at least this share of the votes
            cast (the paper: 0.01 on 4,160 links). None: by `Rule`.
        spread: How many times the mean number of voters a healthy link may expect, in the rule.
        alarms: How many healthy links may reach the rule's threshold by chance, in a fabric.
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
    >>> verdict = Vigil(threshold=0.4).localize(Telemetry(fabric, "none", connections=traced))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['spine0->leaf1']
    """

    base = "007"
    paper = "007, 5.1 and algorithm 1"
    domain = Domain(
        "007, 6",
        faulty=0.0072,
        healthy_loss=1e-5,
        links=4160,
        devices=False,
        many_faulty="votes of one faulty link are taken for those of another",
    )
    sprayed = SPRAYED_TRACES
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
        threshold: NotNegative | None = None,
        spread: Positive = 2.0,
        alarms: Positive = 0.1,
        chance: NotNegative = math.inf,
        false_alarm: NotNegative = math.inf,
        adjust: bool = True,
    ) -> None:
        self.threshold = threshold
        self.spread = spread
        self.alarms = alarms
        self.chance = chance
        self.false_alarm = false_alarm
        self.adjust = adjust

    def infer(self, connections: Connections, fabric: Fabric) -> Diagnosis:
        """Return the links that algorithm 1 blames and the cause of each connection's drops.

        The score of a link is its tally when algorithm 1 takes it, after the votes that earlier
        links explain were taken away, so links are ranked in the order in which algorithm 1 takes
        them. Below the threshold it goes on with `_RANKED` links, or with as many as are blamed.
        """
        n_links = fabric.n_links
        ecmp = EcmpProbabilities(fabric)
        votes = without_noise(ballot(connections, ecmp), connections.lost, n_links)
        tally = votes.tally(n_links)
        voters = connections.lost[votes.links > 0]
        lone = float((voters == 1).sum()) / max(len(voters), 1)
        hops = votes.crossings(n_links) / np.where(tally > 0, tally, 1.0)
        mean_hops = float(votes.links.sum()) / max(len(voters), 1)
        rule = Rule(n_links, max(mean_hops, 1.0), self.spread, self.alarms)
        order, score = self._blame(tally, hops, lone, ecmp, rule)
        rank = np.full(n_links, len(order), np.int64)
        rank[order] = np.arange(len(order))
        return self.diagnosis(
            fabric,
            order,
            score=score,
            connection_cause=connection_causes(votes, rank, len(order), len(connections)),
        )

    def _blame(
        self,
        tally: FloatArray,
        hops: FloatArray,
        lone: float,
        ecmp: EcmpProbabilities,
        rule: Rule,
    ) -> tuple[list[int], FloatArray]:
        """Return the blamed links in the order in which algorithm 1 picks them, and the score of
        each link, float64[n_links].

        Args:
            tally: Votes for each link, float64[n_links].
            hops: Mean path length of the voters over each link, float64[n_links]; converts votes
                to voters.
            lone: Share of the voters that lost a single packet.
            ecmp: ECMP probabilities of the fabric.
            rule: The threshold, if none is given.
        """
        n_links = len(tally)
        tests = min(self.chance, self.false_alarm) < math.inf
        usage = ecmp.usage() if tests else np.zeros(0)
        votes = AdjustedVotes(tally, SharedVotes(ecmp) if self.adjust else None)
        while True:
            left = votes.left()
            total = float(left.sum())
            noisy = total * lone  # voters that noise alone explains, by ECMP over all links

            def explained(some: LongArray, left: FloatArray = left, noisy: float = noisy):
                """Return for each link whether connections of blamed links or noise explain its
                votes: bool[len(some)]."""
                if not tests:
                    return np.zeros(len(some), np.bool_)
                noise = noisy * usage[some]
                taken = votes.taken[some]
                by_chance = _as_many(tally[some] * hops[some], taken * hops[some] + noise)
                by_noise = _as_many(left[some] * hops[some], noise)
                return (n_links * by_chance > self.chance) | (n_links * by_noise > self.false_alarm)

            given = self.threshold
            least = rule.least(total) if given is None else given * tally.sum()
            top = _most(left, (1 - ROUNDING) * least, explained)
            if top < 0:
                break
            votes.take(top)
        blamed = list(votes.picked)
        for _ in range(max(len(blamed), _RANKED)):
            top = _most(votes.left(), 0.0, lambda some: np.zeros(len(some), np.bool_))
            if top < 0:
                break
            votes.take(top)
        return blamed, votes.score()


_RANKED = 64
"""Links below the threshold that algorithm 1 goes on to pick, to rank them."""


def without_noise(votes: Ballot, lost: LongArray, n_links: int) -> Ballot:
    """Return the votes without those of connections whose drops are noise: they lost one packet,
    and no other voter crossed, or with a partial trace may have crossed, any of their links.

    Args:
        votes: The votes.
        lost: Packets lost by each connection, int64[n_connections].
        n_links: Directed links of the fabric.
    """
    crossings = votes.crossings(n_links)
    noise = (votes.links > 0) & (lost == 1)
    shared = crossings[votes.link] > votes.share + ROUNDING
    noise[votes.voter[shared]] = False
    if not noise.any():
        return votes
    kept = ~noise[votes.voter]
    links = np.where(noise, 0.0, votes.links)
    return Ballot(votes.voter[kept], votes.link[kept], votes.share[kept], links)


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
