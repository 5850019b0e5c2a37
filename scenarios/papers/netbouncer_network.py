# SPDX-License-Identifier: Apache-2.0
"""NetBouncer's simulation (its section 6.1): a Clos network of 48-port switches with its servers.

It has 27,648 servers and 82,944 links. Healthy links lose up to 0.1 %, faulty ones 2 to 100 %; all
links of 10 devices fail; 100 packets are sent over each path. There are 15.9 million paths between
servers and core switches, 576 over each link. Here the servers of a rack probe different core
switches, which makes 24 paths over each link; the paper's estimation errors are those of such a
plan.

A probing plan (sections 3.2 and 4) is for any Clos fabric. A probe goes up from a server, or from
its ToR, to a switch that bounces it, and comes back over the same links. So a plan is a set of
upward paths, and observes undirected links. Probes of runs are planned by
`testbed.fabric.ecmp.Ecmp.bounces`; those here are for the paper's own setting and its theorem 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from analysis.evaluation.metrics import score
from analysis.methods.base import Localizer, decide
from analysis.methods.diagnosis import Diagnosis
from analysis.solvers.parts import in_parts
from analysis.telemetry.telemetry import Probes, Telemetry
from scenarios.papers.experiment import Row, label
from testbed.arrays import IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)

PATH_PACKETS = 100
DEVICES = 10
ROWS = 1 << 20
QUANTITIES = FN, FP, ERROR = "false negatives", "false positives", "error of the estimates"


@dataclass(frozen=True)
class Truth:
    """The true state of a network: the ``success`` rate of each undirected link, float64[n_edges],
    the ``faulty`` links, and the failed ``devices``."""

    success: np.ndarray
    faulty: np.ndarray
    devices: np.ndarray


@dataclass(frozen=True)
class Network:
    """A fat-tree with its servers as the lowest tier, and the paths that are probed, by
    NetBouncer's plan and hop by hop."""

    fabric: Fabric
    servers: int
    paths: Paths
    hop_by_hop: Paths

    @classmethod
    @cache
    def make(cls, k: int) -> Network:
        """Return the network of a fat-tree with ``k`` ports a switch; it is made once."""
        tree = FatTree(k)
        fabric = with_servers(tree)
        plans = (probing_plan(fabric), hop_by_hop_plan(fabric))
        some = [_one_core_in_each(plan, fabric, tree.half) for plan in plans]
        return cls(fabric, tree.n_hosts, *some)


def _one_core_in_each(plan: ProbingPlan, fabric: Fabric, per_rack: int) -> Paths:
    """Return the paths of a plan in which the n-th server of a rack probes the n-th core switch of
    each group."""
    core = plan.bounce - (fabric.n_switches - per_rack**2)
    return plan.paths.take(np.flatnonzero((core < 0) | (core % per_rack == plan.origin % per_rack)))


def draw_truth(network: Network, share: float, seed: int) -> Truth:
    """Draw failed devices and a ``share`` of faulty links; return them with the success rate of
    each link."""
    fabric, servers = network.fabric, network.servers
    rng = np.random.default_rng(seed)
    faulty = np.zeros(fabric.n_edges, np.bool_)
    faulty[rng.choice(fabric.n_edges, round(share * fabric.n_edges), replace=False)] = True
    few = min(DEVICES, (fabric.n_switches - servers) // 20)
    switches = servers + rng.choice(fabric.n_switches - servers, few, replace=False)
    faulty |= (np.isin(fabric.link_src, switches) | np.isin(fabric.link_dst, switches))[::2]
    loss = np.where(
        faulty, rng.uniform(0.02, 1, fabric.n_edges), rng.uniform(0, 0.001, fabric.n_edges)
    )
    return Truth(1 - loss, np.flatnonzero(faulty), np.sort(switches))


def probe(paths: Paths, success: np.ndarray, seed: int) -> Probes:
    """Draw the packets lost on each path, and return the counts. ``success``, float64[n_edges], is
    the success rate of each undirected link. Blocks of rows limit the memory."""
    rng = np.random.default_rng([seed, 0xB0])
    lost = np.empty(len(paths), np.int64)
    log = np.log(success) / 2  # half in each direction
    for row in range(0, len(paths), ROWS):
        end = min(row + ROWS, len(paths))
        part = log[paths.links[paths.ptr[row] : paths.ptr[end]] >> 1]
        through = np.exp(np.add.reduceat(part, paths.ptr[row:end] - paths.ptr[row]))
        lost[row:end] = rng.binomial(PATH_PACKETS, np.clip(1 - through, 0, 1))
    return Probes(paths, np.full(len(paths), PATH_PACKETS, np.int64), lost)


def scores(
    network: Network,
    methods: Mapping[str, Localizer],
    share: float,
    draw: int,
    hop_by_hop: Mapping[str, Localizer] | None = None,
) -> list[Row]:
    """Return `QUANTITIES` of each method on one draw with a ``share`` of faulty links; x is the
    share in percent."""
    rows, truth = [], draw_truth(network, share, draw)
    for paths, group in ((network.paths, methods), (network.hop_by_hop, hop_by_hop or {})):
        if not group:
            continue
        probes = probe(paths, truth.success, draw)
        telemetry = Telemetry(network.fabric, "none", probes=probes, detector=probes)
        for name, method in group.items():
            found = tally(decide(method, telemetry), truth, network)
            for quantity, value in zip(QUANTITIES, found, strict=True):
                if np.isfinite(value):
                    rows.append(Row(quantity, name, label(100 * share), draw, value))
    return rows


def tally(result: Diagnosis, truth: Truth, network: Network) -> tuple[float, float, float]:
    """Return the false negatives and false positives of links, and the squared error of the
    estimated success rates, summed over links whose devices are not blamed."""
    fabric = network.fabric
    links = score(result.flagged, 2 * truth.faulty, fabric)["undirected"]
    fitted = ~np.isin(fabric.link_src[::2], result.devices)
    fitted &= ~np.isin(fabric.link_dst[::2], result.devices)
    error = float(((result.success[::2] - truth.success)[fitted] ** 2).sum())
    return links.false_negatives, links.false_positives, error


@dataclass(frozen=True)
class ProbingPlan:
    """The paths of a plan, ordered by their origin.

    Attributes:
        origin: The switch of tier 0 (or server, see `with_servers`) where each path begins,
            int32[P].
        bounce: The switch that sends the probe back, int32[P].
        paths: The directed links of each path, up and down again over the same links.
    """

    origin: IntArray
    bounce: IntArray
    paths: Paths

    def __len__(self) -> int:
        return len(self.origin)


def probing_plan(fabric: Fabric) -> ProbingPlan:
    """Return NetBouncer's plan: all upward paths from each origin to a switch without links
    upwards.

    In a complete Clos network those are the switches of the top tier. If links are missing, a
    switch without links upwards bounces probes itself, because no other probe would cross it.
    """
    return _plan(fabric, every_hop=False)


def hop_by_hop_plan(fabric: Fabric) -> ProbingPlan:
    """Return the exhaustive plan of section 6.2: all upward paths from each origin to every
    switch."""
    return _plan(fabric, every_hop=True)


def with_servers(fabric: Fabric) -> Fabric:
    """Return a fabric with its servers as the lowest tier, so that their links are links of the
    fabric.

    Server ``h`` has number ``h`` and its link is undirected link ``h``; the numbers of the switches
    and of the undirected links of ``fabric`` increase by ``fabric.n_hosts``.
    """
    servers = np.arange(fabric.n_hosts, dtype=np.int32)
    return Fabric(
        [f"server{h}" for h in range(fabric.n_hosts)] + fabric.switch_names,
        np.concatenate((np.zeros(fabric.n_hosts, np.int8), fabric.tier + 1)),
        np.concatenate((servers, fabric.n_hosts + fabric.link_src[::2])),
        np.concatenate(
            (
                fabric.n_hosts + servers // fabric.hosts_per_tor,
                fabric.n_hosts + fabric.link_dst[::2],
            )
        ),
        title=f"{fabric.title} with its servers",
    )


def _plan(fabric: Fabric, *, every_hop: bool) -> ProbingPlan:
    """Return all upward paths to a switch without links upwards, or, with ``every_hop``, to every
    switch."""
    up = np.argsort(fabric.link_src[::2], kind="stable").astype(np.int32)
    ptr = np.searchsorted(fabric.link_src[::2][up], np.arange(fabric.n_switches + 1))
    upper = fabric.link_dst[::2][up]
    order = np.argsort(-fabric.tier, kind="stable")
    uplinks = _Uplinks(fabric.n_switches, fabric.n_tors, ptr, up, upper)
    here, steps = np.zeros((2, len(order)), np.int64)
    _KERNELS.count_ways(uplinks=uplinks, order=order, every_hop=every_hop, ways=here, steps=steps)
    first = np.concatenate(([0], np.cumsum(here[: fabric.n_tors])))
    entry = np.concatenate(([0], np.cumsum(2 * steps[: fabric.n_tors])))
    origin = np.repeat(np.arange(fabric.n_tors, dtype=np.int32), here[: fabric.n_tors])
    bounce = np.empty(first[-1], np.int32)
    path_ptr = np.zeros(first[-1] + 1, np.int64)
    links = np.empty(entry[-1], np.int32)
    tiers = int(fabric.tier.max(initial=0)) + 1

    def climb(part: int, parts: int) -> None:
        """Write the paths of this part's origins."""
        _KERNELS.climb(
            part=part,
            parts=parts,
            uplinks=uplinks,
            every_hop=every_hop,
            first=first,
            entry=entry,
            taken=np.empty(tiers, np.int64),
            bounce=bounce,
            path_ptr=path_ptr,
            links=links,
        )

    in_parts(len(bounce), climb)
    return ProbingPlan(origin, bounce, Paths(path_ptr, links))


class _Uplinks(NamedTuple):
    """The uplinks of every switch, in the form that kernels read; see `netbouncer_network.c`."""

    n_switches: int
    n_origins: int
    ptr: LongArray
    up: IntArray
    upper: IntArray
