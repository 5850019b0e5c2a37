# SPDX-License-Identifier: Apache-2.0
"""Flock's simulation (its section 6.3) without packets: lossy links, flows, probes and
telemetry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from analysis.evaluation.calibration import Case
from analysis.methods.flock.flock import Flock
from analysis.telemetry.telemetry import Connections, Flows, Probes, Telemetry
from testbed.arrays import FloatArray, IntArray
from testbed.fabric.clos import Fabric, clos
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets
from testbed.fabric.topologies import make_fabric
from testbed.network.flow import send

FLOWS = 400_000


class World:
    """A fabric with lossy links, its flows and probes (Flock, section 6.3), and their telemetry.

    Healthy links lose 0 to 0.01 % of their packets. Flow sizes are Pareto-distributed with mean
    200 KB and shape 1.05, at most 100 MB. With ``skewed``, half of the flow ends are in 5 % of the
    racks.
    """

    def __init__(
        self,
        ecmp: Ecmp,
        loss: FloatArray,
        n_flows: int,
        n_probes: int,
        rng: np.random.Generator,
        skewed: bool = False,
        packets: int = 100,
    ) -> None:
        self.fabric = ecmp.fabric
        self.src, self.dst = (self._ends(n_flows, rng, skewed) for _ in range(2))
        again = self.src == self.dst
        self.dst[again] = (self.dst[again] + 1) % self.fabric.n_tors
        self.paths = ecmp.draw(self.src, self.dst, rng)
        size = 200_000 * 0.05 / 1.05 * (1 + rng.pareto(1.05, n_flows))
        self.sent = np.ceil(np.minimum(size, 1e8) / 1500).astype(np.int64)
        self.lost = send(loss[None], self.paths, self.sent, rng).lost
        every = ecmp.bounces()
        self.probes = every.take(np.arange(n_probes) % len(every))
        self.probe_sent = np.full(n_probes, packets, np.int64)
        self.probe_lost = send(loss[None], self.probes, self.probe_sent, rng).lost

    def _ends(self, n: int, rng: np.random.Generator, skewed: bool) -> IntArray:
        """Return random racks, one for an end of each of ``n`` flows, int32[n]."""
        racks = self.fabric.n_tors
        ends = rng.integers(0, racks, n).astype(np.int32)
        if skewed:
            busy = rng.choice(racks, max(1, racks // 20), replace=False).astype(np.int32)
            hot = rng.random(n) < 0.5
            ends[hot] = rng.choice(busy, int(hot.sum()))
        return ends

    def telemetry(self, kinds: str) -> Telemetry:
        """Return telemetry of the kinds of section 6.2: INT, A1, A2 and P, joined by +."""
        chosen = set(kinds.split("+"))
        n = len(self.sent)
        known = np.full(n, "INT" in chosen) | ("A2" in chosen) & (self.lost > 0)
        hidden = np.flatnonzero(~known) if "P" in chosen else np.zeros(0, np.int64)
        traced = np.flatnonzero(known)
        n_tors = self.fabric.n_tors
        used = np.zeros(n_tors**2, np.bool_)
        cell = self.src[hidden].astype(np.int64) * n_tors + self.dst[hidden]
        used[cell] = True
        src, dst = np.divmod(np.flatnonzero(used).astype(np.int32), np.int32(n_tors))
        sets = PairSets(self.fabric, src, dst, PathSets.known(self.paths.take(traced)))
        path_set = np.concatenate(((np.cumsum(used) - 1)[cell], len(src) + np.arange(len(traced))))
        row = np.concatenate((hidden, traced))
        flows = Flows(sets, path_set.astype(np.int32), self.sent[row], self.lost[row])
        probes = Probes(self.probes, self.probe_sent, self.probe_lost)
        return Telemetry(
            self.fabric,
            "tor+core",
            flows=flows if chosen != {"A1"} else None,
            probes=probes if chosen & {"A1", "INT"} else None,
        )

    def for_netbouncer(self, kinds: str) -> Telemetry:
        """Return the probes of A1; for INT also the flows as if they were probes, with those of one
        path added up."""
        rows, sent, lost = self.probes, self.probe_sent, self.probe_lost
        if kinds == "INT":
            ptr = np.concatenate((self.probes.ptr, self.probes.ptr[-1] + self.paths.ptr[1:]))
            rows = Paths(ptr, np.concatenate((self.probes.links, self.paths.links)))
            sent, lost = np.append(sent, self.sent), np.append(lost, self.lost)
        links = rows.padded()
        base = self.fabric.n_links + 1
        assert base ** links.shape[1] < 1 << 63
        key = (links.astype(np.int64) + 1) @ base ** np.arange(links.shape[1])[::-1]
        _, first, nth = np.unique(key, return_index=True, return_inverse=True)
        sent, lost = (np.bincount(nth, n).astype(np.int64) for n in (sent, lost))
        probes = Probes(Paths.from_padded(links[first]), sent, lost)
        return Telemetry(self.fabric, "tor+core", probes=probes)

    def for_vigil(self) -> Telemetry:
        """Return A2 as 007 reads it: the connections that lost packets, with their paths."""
        bad = np.flatnonzero(self.lost)
        connections = Connections(
            self.src[bad],
            self.dst[bad],
            self.lost[bad],
            self.paths.take(bad),
            np.ones(len(bad), np.bool_),
            0,
        )
        return Telemetry(self.fabric, "tor+core", connections=connections)


Made = tuple[World, Case]


def lossy_links(
    fabric: Fabric, failed: npt.NDArray[np.integer], rates: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Return the loss rate of each link, float64[n_links]: up to 0.01 %, and ``rates`` for the
    failed links."""
    loss = rng.uniform(0, 1e-4, fabric.n_links)
    loss[failed] = rates
    return loss


PARAMETERS = {
    "INT": (0.003, 2e-4, -15.0),
    "A1+A2+P": (0.002, 3e-4, -15.0),
    "A1+P": (0.006, 3e-4, -5.0),
    "A2": (0.007, 3e-4, -35.0),
    "A1": (0.0005, 1.75e-4, -4.0),
}
"""Flock's (p_b, p_g, log prior of a link) for each kind of telemetry, from the authors' code. Every
flow of A2 lost packets, so more of them are needed to blame a link."""


def flock(p_bad: float, p_good: float, prior: float) -> Flock:
    """Return Flock with the log prior of a device as printed: 5 times that of a link (section
    3.2)."""
    return Flock(p_bad=p_bad, p_good=p_good, link_prior=prior, device_factor=5.0)


def silent_drops(ecmp: Ecmp, seed: int, flows: int) -> Made:
    """Return a trace of section 7.1, with 1 to 8 failed links that lose 0.1 to 1 %; in every second
    block of eight seeds, traffic is skewed."""
    rng = np.random.default_rng([seed, 71])
    fabric = ecmp.fabric
    failed = rng.choice(fabric.n_links, 1 + seed % 8, replace=False)
    loss = lossy_links(fabric, failed, rng.uniform(1e-3, 1e-2, len(failed)), rng)
    world = trace(ecmp, loss, flows, rng, skewed=seed // 8 % 2 == 1)
    return world, Case(world.telemetry("A1"), failed)


def device_failures(ecmp: Ecmp, seed: int, flows: int) -> Made:
    """Return a trace of section 7.2, with 1 or 2 failed devices; 25 to 100 % of their links lose
    0.1 to 1 %."""
    rng = np.random.default_rng([seed, 72])
    fabric = ecmp.fabric
    devices = rng.choice(fabric.n_switches, 1 + seed % 2, replace=False)
    share = (0.25, 0.5, 0.75, 1.0)[seed // 2 % 4]
    mine = [fabric.links_of(device) for device in devices]
    failed = np.concatenate(
        [rng.choice(links, max(1, round(share * len(links))), replace=False) for links in mine]
    )
    loss = lossy_links(fabric, failed, rng.uniform(1e-3, 1e-2, len(failed)), rng)
    world = trace(ecmp, loss, flows, rng, skewed=seed // 8 % 2 == 1)
    return world, Case(world.telemetry("A1"), failed, devices)


def soft_failure(ecmp: Ecmp, seed: int, flows: int, rate: float, skewed: bool) -> Made:
    """Return a trace of section 7.3, with one failed link of loss rate ``rate``."""
    rng = np.random.default_rng([seed, 73])
    failed = rng.choice(ecmp.fabric.n_links, 1)
    loss = lossy_links(ecmp.fabric, failed, np.array([rate]), rng)
    world = trace(ecmp, loss, flows, rng, skewed=skewed)
    return world, Case(world.telemetry("A1"), failed)


def trace(
    ecmp: Ecmp, loss: FloatArray, flows: int, rng: np.random.Generator, skewed: bool
) -> World:
    """Return a world with ``flows`` flows in which, at 400,000 flows, each host sends 40 probes to
    each core switch."""
    cores = int((ecmp.fabric.tier == ecmp.top).sum())
    probes = ecmp.fabric.n_tors * cores * ecmp.fabric.hosts_per_tor
    return World(ecmp, loss, flows, probes, rng, skewed, packets=flows // 10_000)


@cache
def network(small: bool) -> Ecmp:
    """Return the paper's Clos network: 2,500 directed links with those of the hosts, oversubscribed
    three times."""
    return Ecmp(clos(*((4, 2, 2, 4) if small else (10, 5, 5, 25)), oversubscription=3))


def by_rate(small: bool, seed: int, low: float, high: float) -> Made:
    """Return a trace of silent drops on 1 to 8 links, with loss rates between ``low`` and
    ``high``."""
    ecmp, rng = network(small), np.random.default_rng([seed, 77])
    failed = rng.choice(ecmp.fabric.n_links, 1 + seed % 8, replace=False)
    loss = lossy_links(ecmp.fabric, failed, rng.uniform(low, high, len(failed)), rng)
    world = trace(ecmp, loss, flows(small), rng, skewed=seed // 8 % 2 == 1)
    return world, Case(world.telemetry("A1"), failed)


def misconfigured(small: bool, seed: int) -> Made:
    """Return a trace with one queue that drops 0.2 to 1 %, in the paper's cluster of 8 leaves, 2
    spines and 48 hosts."""
    fabric = make_fabric("leaf-spine:8:2", 4, seed)
    rng = np.random.default_rng([seed, 78])
    failed = rng.choice(fabric.n_links, 1)
    loss = lossy_links(fabric, failed, rng.uniform(2e-3, 1e-2, 1), rng)
    world = trace(Ecmp(fabric), loss, flows(small) // 4, rng, skewed=seed % 2 == 1)
    return world, Case(world.telemetry("A1"), failed)


def flows(small: bool) -> int:
    """Return the number of flows in a trace."""
    return 4_000 if small else FLOWS


def drops(small: bool, seed: int, share: float = 1.0) -> Made:
    """Return a trace of silent drops with a ``share`` of the usual number of flows."""
    return silent_drops(network(small), seed, round(share * flows(small)))


def devices(small: bool, seed: int) -> Made:
    """Return a trace of device failures (section 7.2) in the paper's network."""
    return device_failures(network(small), seed, flows(small))


ENVIRONMENTS: Mapping[str, tuple[Callable[..., Made], Callable[..., Made]]] = {
    "topology": (drops, misconfigured),
    "failure rate": (partial(by_rate, low=1e-3, high=4e-3), partial(by_rate, low=5e-3, high=1e-2)),
    "interval": (partial(drops, share=0.25), drops),
    "scenario": (drops, devices),
}
"""For each property that differs, the environment of the calibration and that of the test."""
