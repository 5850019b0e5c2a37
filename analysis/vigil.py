"""007 (NSDI 2018): every connection that lost packets votes for the links of its path.

A connection over h links gives each 1/h of a vote (section 5.1). Algorithm 1 blames the link with
most votes, takes from every other link the votes it must have got from that link's connections
under ECMP, and repeats while the largest tally is above a share of all votes cast.

Decisions the paper leaves open:

- **Partial traces.** A trace that broke off knows its first links; the rest is known as far as the
  topology implies. A connection still casts one vote in all, 1/h on each of its h links; where the
  trace leaves a choice, that link's part is spread over the possible links by ECMP probability. As
  the paper notes (section 4.2) a trace that dies points to the place: the packets die on the first
  link that did not answer. But a trace also breaks when a switch's ICMP limit is reached, so the
  break alone convicts nobody. ``break_weight`` moves that share of the vote to the first missing
  link; on synthetic runs with and without ICMP limits no share beat 0, the default.
- **Threshold.** The paper's 1 % of the votes was tuned on 4160 links, and a share of all votes must
  grow as links get fewer. The default is therefore the mean tally of a link: half of it costs
  precision with 10 % faulty links, twice of it recall.
- **Chance.** The votes taken from a link are an expectation; the true number scatters about it.
  What is left of a link's tally counts only if it exceeds ``margin`` standard deviations of what
  was taken. Without this (``margin=0``, the paper's algorithm) a single faulty link at K=8 drags
  dozens of others along unless the threshold is so high that it hides small faults among many.
- **Cause.** A connection's cause is the blamed link it crossed, of several the one blamed first.
  With a partial trace the link it most likely crossed counts first. If it crossed no blamed link
  its drops are noise (-1).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.diagnosis import Diagnosis, sorted_links
from analysis.ecmp import continuations, shared_votes
from analysis.telemetry import Connections, Telemetry
from testbed.fabric import Fabric

__all__ = ["CONNECTION_RECORD_BYTES", "Ballot", "Vigil", "ballot"]

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

CONNECTION_RECORD_BYTES = 36
"""Five-tuple 13 + retransmissions 4, rounded up to 20, and 4 bytes for each of 4 traced hops."""


@dataclass(frozen=True)
class Ballot:
    """The votes cast: entry e is connection ``voter[e]``'s for ``link[e]``.

    ``share`` is the chance that the connection crossed the link, ``vote`` its part of the vote;
    voter int64[V], link int64[V], share and vote float64[V].
    """

    voter: LongArray
    link: LongArray
    share: FloatArray
    vote: FloatArray


class Vigil:
    """Localize faulty links, and the cause of every connection's drops, by voting.

    Args:
        threshold: Algorithm 1 goes on while the largest tally is at least this share of all votes
            (the paper: 0.01 on 4160 links). Default: ``relative_threshold`` of the mean tally.
        relative_threshold: The threshold in units of the mean tally of a link.
        adjust: Take a blamed link's votes from the others.
        margin: Standard deviations of the votes taken from a link that its remaining tally must
            exceed to be believed; 0 is the paper's algorithm.
        break_weight: The share of a vote moved to the link where a trace died.
    """

    name = "007"

    def __init__(
        self,
        *,
        threshold: float | None = None,
        relative_threshold: float = 1.0,
        adjust: bool = True,
        margin: float = 4.0,
        break_weight: float = 0.0,
    ) -> None:
        if not 0 <= break_weight <= 1:
            raise ValueError(f"break_weight={break_weight} is no share between 0 and 1")
        self.threshold = threshold
        self.relative_threshold = relative_threshold
        self.adjust = adjust
        self.margin = margin
        self.break_weight = break_weight

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        connections = telemetry.need("connections", self.name)
        topology = telemetry.topology
        begin = time.perf_counter()
        votes = ballot(connections, topology, self.break_weight)
        tally = np.bincount(votes.link, votes.vote, topology.n_links).astype(np.float64)
        order = self._blame(tally, topology)
        rank = np.full(topology.n_links, len(order), np.int64)
        rank[order] = np.arange(len(order))
        return Diagnosis(
            method=self.name,
            native="directed",
            flagged=sorted_links(order),
            success=np.full(topology.n_links, np.nan),
            score=tally,
            seconds=time.perf_counter() - begin,
            connection_cause=_causes(votes, rank, len(order), len(connections)),
        )

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        return CONNECTION_RECORD_BYTES * len(telemetry.need("connections", self.name))

    def probe_packets(self, telemetry: Telemetry) -> int:
        return int(telemetry.need("connections", self.name).traceroute_packets)

    def _blame(self, tally: FloatArray, topology: Fabric) -> list[int]:
        """Algorithm 1: the blamed links, in the order they were picked."""
        cast = tally.sum()
        threshold = self.threshold
        if threshold is None:
            threshold = self.relative_threshold / topology.n_links
        taken, blamed = np.zeros_like(tally), []
        while len(blamed) < topology.n_links:
            left = tally - taken
            left[blamed] = 0.0
            # What was taken was itself a count, of connections worth 1/4 vote: it may be off.
            left[left < self.margin * 0.5 * np.sqrt(taken)] = 0.0
            top = int(np.argmax(left))
            if left[top] <= 0 or left[top] < threshold * cast:
                break
            blamed.append(top)
            if self.adjust:
                taken = np.minimum(taken + left[top] * shared_votes(topology, top), tally)
        return blamed


def ballot(connections: Connections, topology: Fabric, break_weight: float = 0.0) -> Ballot:
    """Every connection's votes. A connection that lost nothing or has no path casts none."""
    length = np.diff(connections.paths.ptr)
    voting = (connections.lost > 0) & (connections.src_tor != connections.dst_tor)
    whole = voting & connections.complete & (length > 0)
    owner = connections.paths.owner
    entry = whole[owner]
    voter = [owner[entry].astype(np.int64)]
    link = [connections.paths.links[entry].astype(np.int64)]
    share = [np.ones(len(voter[0]))]
    vote = [1 / length[voter[0]]]
    known: dict[tuple[int, ...], tuple[IntArray, FloatArray, FloatArray]] = {}
    for c in np.flatnonzero(voting & ~connections.complete):
        traced = connections.paths[int(c)]
        key = (int(connections.src_tor[c]), int(connections.dst_tor[c]), *traced.tolist())
        if key not in known:
            links, chance = continuations(topology, key[0], key[1], traced)
            part = chance / max(chance.sum(), 1.0)
            if len(links) and break_weight:
                first = np.isin(topology.link_src[links], _last_switch(topology, key[0], traced))
                first &= ~np.isin(links, traced)
                if first.any():
                    aimed = np.where(first, chance, 0.0)
                    part = (1 - break_weight) * part + break_weight * aimed / aimed.sum()
            known[key] = links, chance, part
        links, chance, part = known[key]
        voter.append(np.full(len(links), c, np.int64))
        link.append(links.astype(np.int64))
        share.append(chance)
        vote.append(part)
    return Ballot(
        np.concatenate(voter), np.concatenate(link), np.concatenate(share), np.concatenate(vote)
    )


def _last_switch(topology: Fabric, src_tor: int, traced: IntArray) -> int:
    return int(topology.link_dst[traced[-1]]) if len(traced) else src_tor


def _causes(ballot: Ballot, rank: LongArray, n_blamed: int, n_connections: int) -> IntArray:
    """The cause of each connection's drops: a link, or -1 for noise."""
    cause = np.full(n_connections, -1, np.int32)
    blamed = np.flatnonzero(rank[ballot.link] < n_blamed)
    # The surest link first, then the one blamed earliest.
    order = blamed[
        np.lexsort((rank[ballot.link[blamed]], -ballot.share[blamed], ballot.voter[blamed]))
    ]
    first = np.ones(len(order), np.bool_)
    first[1:] = ballot.voter[order][1:] != ballot.voter[order][:-1]
    cause[ballot.voter[order[first]]] = ballot.link[order[first]]
    return cause
