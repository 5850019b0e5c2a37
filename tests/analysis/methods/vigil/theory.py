# SPDX-License-Identifier: Apache-2.0
"""007's theorems (section 4.1, section 5.2 and appendix C) as functions of the paper's Clos.

What `EcmpProbabilities` and the limit of traceroutes are held against.

The paper's Clos has ``pods`` pods; each pod's ``tors`` ToRs and ``aggs`` tier-1 switches are fully
linked (level 1), and every tier-1 switch is linked to every one of the ``cores`` tier-2 switches
(level 2). In its notation these are n_pod, n_0, n_1 and n_2, and ``hosts`` is H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Clos:
    """Numbers of switches: ``cores`` in all, ``tors`` and ``aggs`` a pod; ``hosts`` a ToR."""

    pods: int
    tors: int
    aggs: int
    cores: int
    hosts: int = 1

    def __post_init__(self) -> None:
        if min(self.pods, self.tors, self.aggs, self.cores, self.hosts) < 1:
            raise ValueError(
                "a Clos needs at least one pod, ToR, tier-1 and tier-2 switch and host"
            )
        if self.pods * self.tors < 2:
            raise ValueError("a Clos with a single ToR has no connections to speak of")

    @property
    def leaving(self) -> float:
        """The probability that a connection leaves its pod: n_0 (n_pod - 1) / (n_0 n_pod - 1)."""
        return self.tors * (self.pods - 1) / (self.tors * self.pods - 1)


def icmp_rate(clos: Clos, per_host: float) -> float:
    """ICMP messages a second of the busiest switch above the ToRs, as theorem 1's proof counts.

    ``per_host`` is the rate at which a host sends traceroutes; each switch answers those whose
    connections cross it upwards. The proof counts the links of a tier-2 switch to one pod: it
    answers ``pods`` times as much. A ToR, left out as well, answers all traceroutes of its hosts.
    """
    level_1 = per_host * clos.hosts / clos.aggs
    level_2 = clos.tors / (clos.aggs * clos.cores) * clos.leaving * per_host * clos.hosts
    return max(clos.tors * level_1, clos.aggs * level_2)


def traceroute_limit(clos: Clos, t_max: float = 100.0) -> float:
    """C_t, theorem 1: traceroutes a second that a host may send.

    At this rate `icmp_rate` is ``t_max`` ICMP messages a second (equation 1).
    """
    level_2 = clos.cores / clos.leaving if clos.leaving else math.inf
    return t_max / (clos.tors * clos.hosts) * min(clos.aggs, level_2)


def detectable_links(clos: Clos) -> float:
    """Theorem 2: 007 ranks k bad links above all good ones for k below this."""
    return clos.cores / clos.leaving if clos.leaving else math.inf


def pods_needed(clos: Clos) -> float:
    """Theorem 3: its statement holds for at least so many pods; infinite if n_0 < n_2.

    With n_0 >= 2 n_2 it is theorem 2's 1 + n_0 / n_1, or 2 where that is less.
    """
    n0, n1, n2 = clos.tors, clos.aggs, clos.cores
    if n0 < n2:
        return math.inf
    if n0 == 1:
        return 1 + max(1 / n1, 1.0)
    if n0 == n2:
        return math.inf
    return 1 + max(n0 / n1, n2 * (n0 - 1) / (n0 * (n0 - n2)), 1.0)


def noise_factor(clos: Clos, bad_links: int) -> float:
    """Alpha, equation 2: a bad link outranks good ones that retransmit alpha times more rarely.

    Raises:
        ValueError: More links are bad than the theorem covers, or none.
    """
    limit = min(detectable_links(clos), clos.tors + 1)  # lemma 2 holds for k <= n_0
    if not 0 < bad_links < limit:
        raise ValueError(
            f"bad_links={bad_links}: theorem 2 covers at least 1 and less than {limit:g} here"
        )
    n0, pods = clos.tors, clos.pods
    room = clos.cores * (n0 * pods - 1) - n0 * (pods - 1) * bad_links
    return n0 * (4 * n0 - bad_links) * (pods - 1) / room


def noise_limit(clos: Clos, bad_links: int, bad_rate: float, packets: tuple[float, float]) -> float:
    """Theorem 2: the highest loss rate of good links at which bad ones still rank above them.

    Args:
        bad_rate: p_b, the loss rate of the ``bad_links`` bad links.
        packets: Lower and upper bound of the packets of a connection.

    Raises:
        ValueError: More links are bad than the theorem covers, or none; or a number is no rate or
            no range.
    """
    _check_rates(bad_rate=bad_rate)
    least, most = _check_packets(packets)
    return _loses(bad_rate, least) / (noise_factor(clos, bad_links) * most)


def _loses(rate: float, packets: float) -> float:
    """The probability that a connection loses a packet, 1 - (1 - rate)^packets, to the last digit
    also where it is small."""
    return -math.expm1(packets * math.log1p(-rate)) if rate < 1 else 1.0


@dataclass(frozen=True)
class VoteProbabilities:
    """Lemma 2: ``bad`` is at least the probability that a connection votes for a given bad link,
    ``good`` at most that for any good link."""

    bad: float
    good: float


def vote_probabilities(
    clos: Clos, bad_links: int, bad_rate: float, good_rate: float, packets: tuple[float, float]
) -> VoteProbabilities:
    """The bounds of lemma 2 (equations 10a and 10b). Arguments as for `noise_limit`.

    Raises:
        ValueError: A number is no rate or no range.
    """
    _check_rates(bad_rate=bad_rate, good_rate=good_rate)
    least, most = _check_packets(packets)
    n0, n1, n2 = clos.tors, clos.aggs, clos.cores
    r_bad, r_good = _loses(bad_rate, least), _loses(good_rate, most)
    share = bad_links / n0
    return VoteProbabilities(
        bad=r_bad / (n0 * n1 * clos.pods),
        good=clos.leaving / (n1 * n2 * clos.pods) * ((4 - share) * r_good + share * r_bad),
    )


def misranking_bound(votes: VoteProbabilities, connections: int) -> float:
    """Epsilon, equation 9: at most the probability that a good link outranks a bad one.

    It falls exponentially with the connections; 1 where lemma 1 promises nothing (v_b <= v_g).
    """
    bad, good = votes.bad, votes.good
    if bad <= good:
        return 1.0
    delta = (bad - good) / (bad + good)
    more = math.exp(-connections * divergence((1 + delta) * good, good))
    less = math.exp(-connections * divergence((1 - delta) * bad, bad))
    return min(more + less, 1.0)


def divergence(q: float, r: float) -> float:
    """Kullback-Leibler divergence of two Bernoulli distributions, D(q || r), in nats."""

    def part(a: float, b: float) -> float:
        if a == 0:
            return 0.0
        return a * math.log(a / b) if b else math.inf

    return part(q, r) + part(1 - q, 1 - r)


def _check_rates(**rates: float) -> None:
    for name, rate in rates.items():
        if not 0 <= rate <= 1:
            raise ValueError(f"{name}={rate} is no loss rate: it must be between 0 and 1")


def _check_packets(packets: tuple[float, float]) -> tuple[float, float]:
    least, most = packets
    if not 0 < least <= most:
        raise ValueError(f"packets={packets} is no range: give the least and the most, above 0")
    return least, most
