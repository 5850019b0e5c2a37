# SPDX-License-Identifier: Apache-2.0
"""007's simulation (its section 6.1): pods of two levels, 60 connections per host and epoch, and
the traces of its agents.

Flows that lost packets are traced completely, as in the paper's simulator. A flow's cause is right
if it is the link that dropped most of its packets. As in the paper, noise drops do not count: for
every method, accuracy is the share among the flows that 007 does not attribute to noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.methods.diagnosis import Diagnosis
from analysis.telemetry.telemetry import Connections, Telemetry
from testbed.arrays import BoolArray, FloatArray, IntArray
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp import Ecmp

FLOW_PACKETS = 100
NOISE = 1e-6


@dataclass(frozen=True)
class Shape:
    """Numbers of ToRs and tier-1 switches per pod, of tier-2 switches, and of hosts per ToR; the
    defaults with 2 pods give 4160 links."""

    tors: int = 20
    aggs: int = 8
    cores: int = 10
    hosts: int = 40


@dataclass(frozen=True)
class Setting:
    """``failed`` links lose packets at rates drawn from ``rates``, the other links at rates up to
    ``noise``.

    With ``worst``, the rate of one failed link is drawn from that range instead. A host opens a
    number of connections per epoch that is drawn from the range ``flows``. The share ``skew`` of
    all connections goes to ``hot`` ToRs. ``kind`` is the kind of the failed links: the tier of the
    upper end (2 for ToR to tier 1, 3 for tier 1 to tier 2) and the direction (0 up, 1 down); None
    draws among the kinds with equal probability.
    """

    failed: int = 1
    rates: tuple[float, float] = (0.0001, 0.01)
    worst: tuple[float, float] | None = None
    noise: float = NOISE
    flows: tuple[int, int] = (60, 60)
    hot: int = 0
    skew: float = 0.0
    pods: int = 2
    kind: tuple[int, int] | None = None


def paper_network(pods: int, shape: Shape = Shape()) -> Fabric:
    """Return the Clos network of section 6.1, in which the hosts are tier 0 and their links are
    included."""
    tors, aggs = pods * shape.tors, pods * shape.aggs
    hosts = tors * shape.hosts
    tor, agg = np.arange(tors).repeat(shape.aggs), np.arange(aggs).repeat(shape.cores)
    names = [
        f"{kind}{i}"
        for kind, n in (("host", hosts), ("tor", tors), ("t1_", aggs), ("t2_", shape.cores))
        for i in range(n)
    ]
    up_of_tor = tor // shape.tors * shape.aggs + np.tile(np.arange(shape.aggs), tors)
    return Fabric(
        names,
        np.repeat([0, 1, 2, 3], [hosts, tors, aggs, shape.cores]),
        np.concatenate((np.arange(hosts), hosts + tor, hosts + tors + agg)),
        np.concatenate(
            (
                hosts + np.arange(hosts) // shape.hosts,
                hosts + tors + up_of_tor,
                hosts + tors + aggs + np.tile(np.arange(shape.cores), aggs),
            )
        ),
    )


@dataclass(frozen=True)
class Epoch:
    """What 007 observes in 30 seconds, the failed links, and the true cause of each connection's
    loss."""

    telemetry: Telemetry
    failed: IntArray
    cause: IntArray


def fail_links(
    fabric: Fabric, setting: Setting, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Draw the failed links between switches and the loss rates of all links; return both."""
    loss = rng.uniform(0, setting.noise, fabric.n_links)
    upper = fabric.tier[fabric.link_dst[::2]]
    failed = np.empty(0, np.int32)
    levels = (2,) if setting.pods == 1 else (2, 3)
    kinds = [(level, way) for level in levels for way in (0, 1)]
    kinds = kinds if setting.kind is None else [setting.kind]
    for kind, n in enumerate(rng.multinomial(setting.failed, np.full(len(kinds), 1 / len(kinds)))):
        level, way = kinds[kind]
        some = rng.choice(np.flatnonzero(upper == level), n, replace=False)
        failed = np.concatenate((failed, 2 * some + way))
    loss[failed] = rng.uniform(*setting.rates, len(failed))
    if setting.worst is not None:
        loss[rng.choice(failed)] = rng.uniform(*setting.worst)
    return failed.astype(np.int32), loss


def simulate(ecmp: Ecmp, setting: Setting, seed: int, shape: Shape = Shape()) -> Epoch:
    """Simulate one epoch in which each host opens connections to hosts of other racks, of up to 100
    packets each; return what 007 observes, with the truth."""
    rng = np.random.default_rng(seed)
    failed, loss = fail_links(ecmp.fabric, setting, rng)
    hosts, tors = ecmp.fabric.n_tors, setting.pods * shape.tors
    least, most = setting.flows
    src = np.repeat(np.arange(hosts), rng.integers(least, most + 1, hosts)).astype(np.int32)
    rack = src // shape.hosts
    to = rng.integers(0, tors - 1, len(src))
    to += to >= rack
    if setting.hot:
        hot = rng.choice(tors, setting.hot, replace=False)[rng.integers(0, setting.hot, len(src))]
        to = np.where((rng.random(len(src)) < setting.skew) & (hot != rack), hot, to)
    dst = (to * shape.hosts + rng.integers(0, shape.hosts, len(src))).astype(np.int32)
    paths = ecmp.draw(src, dst, rng)
    rows = paths.padded()
    left = rng.integers(1, FLOW_PACKETS + 1, len(src))
    drops = np.zeros(rows.shape, np.int64)
    for hop in range(rows.shape[1]):
        rate = np.where(rows[:, hop] >= 0, loss[rows[:, hop]], 0.0)
        drops[:, hop] = rng.binomial(left, rate)
        left -= drops[:, hop]
    lost = drops.sum(axis=1)
    bad = np.flatnonzero(lost)
    # If two links dropped equally many packets, the one with the higher loss rate is the cause.
    weight = drops[bad] + np.where(drops[bad] > 0, 0.5 * loss[rows[bad]], 0.0)
    cause = rows[bad, np.argmax(weight, axis=1)]
    connections = Connections(
        src[bad], dst[bad], lost[bad], paths.take(bad), np.ones(len(bad), np.bool_), 15 * len(bad)
    )
    return Epoch(Telemetry(ecmp.fabric, "tor", connections=connections), failed, cause)


@dataclass
class Count:
    """Sums of one method's results over the epochs of a setting."""

    flows: int = 0
    right: int = 0
    flagged: int = 0
    hits: int = 0
    failed: int = 0

    def add(self, epoch: Epoch, diagnosis: Diagnosis, counted: BoolArray) -> None:
        """Add the results of an epoch; ``counted`` says which flows count for accuracy,
        bool[flows]."""
        assert diagnosis.connection_cause is not None
        self.flows += int(counted.sum())
        self.right += int((diagnosis.connection_cause == epoch.cause)[counted].sum())
        self.flagged += len(diagnosis.flagged)
        self.hits += int(np.isin(diagnosis.flagged, epoch.failed).sum())
        self.failed += len(epoch.failed)

    def figures(self) -> Mapping[str, float]:
        """Return accuracy, precision and recall in percent; accuracy is NaN if no flow counts."""
        return {
            "accuracy, %": 100 * self.right / self.flows if self.flows else np.nan,
            "precision, %": 100 * self.hits / self.flagged if self.flagged else 100.0,
            "recall, %": 100 * self.hits / self.failed,
        }
