# SPDX-License-Identifier: Apache-2.0
"""Synthetic telemetry: losses drawn binomially from true link rates, no network needed."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.telemetry.telemetry import Connections, Flows, Probes, SegmentCounts, Telemetry
from analysis.telemetry.views.spray_counts import SprayCounts
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from testbed.fabric.probe_matrix.matrix import standard_matrix
from testbed.measurements.link_meters import LinkLosses

RANGES = ((0.2, 1.0), (0.1, 0.2), (0.05, 0.1), (0.01, 0.05), (0.001, 0.01))
PROPORTIONS = np.array([11, 13, 9, 9, 10]) / 52


@dataclass(frozen=True)
class World:
    """A fat-tree, its truth and what was measured on it."""

    topology: FatTree
    faulty: np.ndarray
    loss: np.ndarray
    telemetry: Telemetry


def paper_rates(n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` loss rates in the proportions of Canary's section IV-D."""
    ideal = PROPORTIONS * n
    count = np.floor(ideal).astype(int)
    for i in np.argsort(count - ideal)[: n - count.sum()]:
        count[i] += 1
    rates = np.concatenate([rng.uniform(*RANGES[i], size=c) for i, c in enumerate(count)])
    return rng.permutation(rates)


def break_links(topology, rng, share=0.1, undirected=False, noise=0.0):
    """Faulty directed links and the loss rate of every link."""
    loss = np.full(topology.n_links, float(noise))
    if undirected:
        edges = rng.choice(topology.n_edges, round(share * topology.n_edges), replace=False)
        rates = paper_rates(len(edges), rng)
        loss[2 * edges] = loss[2 * edges + 1] = rates
        faulty = np.concatenate((2 * edges, 2 * edges + 1))
    else:
        faulty = rng.choice(topology.n_links, round(share * topology.n_links), replace=False)
        loss[faulty] = paper_rates(len(faulty), rng)
    return np.sort(faulty), loss


def path_success(paths: Paths, loss: np.ndarray) -> np.ndarray:
    """Probability that a packet survives each path."""
    with np.errstate(divide="ignore"):
        logs = np.concatenate(([0.0], np.log1p(-loss)[paths.links], [0.0]))
    sums = np.add.reduceat(logs[1:], paths.ptr[:-1]) if len(paths) else np.zeros(0)
    return np.exp(np.where(np.diff(paths.ptr) > 0, sums, 0.0))


def segment_counts(topology, loss, rng, packets=1000, epochs=6, monitors="tor+core"):
    """Binomial segment counts; ``packets`` a segment and epoch, None for exact rates."""
    segments = topology.segments(monitors)
    through = path_success(segments.paths, loss)
    shape = (epochs, len(segments))
    if packets is None:
        sent = np.full(shape, 10**9, np.int64)
        return SegmentCounts(segments, sent, np.round(sent * (1 - through)).astype(np.int64))
    sent = rng.integers(packets // 2, packets * 3 // 2 + 1, size=shape)
    return SegmentCounts(segments, sent, rng.binomial(sent, 1 - through))


def link_losses(loss, packets, seed):
    """What meters at both ends of each link count, of ``packets`` an epoch over each."""
    sent = np.full(len(loss), packets, np.int64)
    lost = np.random.default_rng([seed, 0x11]).binomial(sent, loss)
    counts = {"link": np.arange(len(loss)), "sent": sent, "lost": lost, "bytes": sent}
    return LinkLosses(counts, {})


def spray_counts(topology, loss, packets, seed):
    """What ToRs receive of the others of their pod by each aggregation switch, of ``packets`` that
    each sprays over each."""
    rng, links = np.random.default_rng([seed, 0x5]), np.arange(0, topology.n_links, 2)
    up = links[topology.link_src[links] < topology.n_tors]
    first, second = (each.reshape(-1) for each in np.indices((len(up), len(up))))
    src, dst = topology.link_src[up[first]], topology.link_src[up[second]]
    ways = (src != dst) & (topology.link_dst[up[first]] == topology.link_dst[up[second]])
    first, second = first[ways], second[ways]
    src, dst = src[ways].astype(np.int32), dst[ways].astype(np.int32)
    through = (1 - loss[up[first]]) * (1 - loss[up[second] ^ 1])
    share = np.full(len(src), 1 / topology.half)
    came = rng.binomial(np.full(len(src), packets), through)
    return SprayCounts(src, dst, topology.link_dst[up[first]], share, came)


def bounce_probes(topology, loss, rng, packets=100, per_tor=None):
    """NetBouncer's probes of every host-core pair; ``per_tor`` prober hosts a ToR."""
    per_tor = topology.half if per_tor is None else per_tor
    bounces = Ecmp(topology).bounces()
    paths = bounces.take(np.arange(len(bounces)).repeat(per_tor))
    sent = np.full(len(paths), packets, np.int64)
    return Probes(paths, sent, rng.binomial(sent, 1 - path_success(paths, loss)))


def matrix_probes(topology, loss, rng, packets=100):
    """deTector's probes of the matrix that runs use."""
    paths = standard_matrix(topology).both_ways
    sent = np.full(len(paths), packets, np.int64)
    return Probes(paths, sent, rng.binomial(sent, 1 - path_success(paths, loss)))


def passive(topology, loss, rng, flows=4000, partial=0.0):
    """Flow records over random ECMP paths, and the traces of those that lost packets."""
    n = flows
    src = rng.integers(0, topology.n_tors, n).astype(np.int32)
    dst = ((src + rng.integers(1, topology.n_tors, n)) % topology.n_tors).astype(np.int32)
    sets = topology.path_sets(src, dst)
    paths = sets.paths.take(sets.ptr[:-1] + rng.integers(0, sets.width))
    sent = np.minimum((20 * (1 + rng.pareto(1.2, n))).astype(np.int64), 100_000)
    lost = rng.binomial(sent, 1 - path_success(paths, loss))
    bad = np.flatnonzero(lost)
    traced = paths.padded()[bad]
    complete = np.ones(len(bad), np.bool_)
    # A trace of a lossy path breaks where its probes die.
    dies = rng.random(traced.shape) < np.where(traced >= 0, loss[traced], 0.0) ** 3
    dies |= rng.random(traced.shape) < partial / 4
    for column in range(4):
        hit = dies[:, : column + 1].any(axis=1) & (traced[:, column] >= 0)
        complete &= ~hit
        traced[hit, column:] = -1
    connections = Connections(
        src[bad], dst[bad], lost[bad], Paths.from_padded(traced), complete, 15 * len(bad)
    )
    return ecmp_flows(topology, src, dst, sent, lost), connections


def ecmp_flows(topology, src, dst, sent, lost):
    """Flow records that may have taken any equal-cost path."""
    pair, path_set = np.unique(src * topology.n_tors + dst, return_inverse=True)
    sets = topology.path_sets(pair // topology.n_tors, pair % topology.n_tors)
    return Flows(sets, path_set.astype(np.int32), sent, lost)


def make_world(
    k=4,
    seed=0,
    share=0.1,
    *,
    undirected=False,
    noise=0.0,
    packets=1000,
    epochs=6,
    flows=4000,
    probes=True,
    per_tor=None,
    loss=None,
    monitors="tor+core",
    partial=0.0,
) -> World:
    """One broken fat-tree and all telemetry of it. ``loss`` (float64[n_links]) fixes the truth."""
    rng = np.random.default_rng(seed)
    topology = FatTree(k)
    if loss is None:
        faulty, loss = break_links(topology, rng, share, undirected, noise)
    else:
        faulty = np.flatnonzero(loss > noise)
    flow_part, connections = passive(topology, loss, rng, flows, partial)
    telemetry = Telemetry(
        topology,
        monitors,
        segments=segment_counts(topology, loss, rng, packets, epochs, monitors),
        flows=flow_part,
        probes=bounce_probes(topology, loss, rng, per_tor=per_tor) if probes else None,
        connections=connections,
        detector=matrix_probes(topology, loss, rng) if probes else None,
        canary_bytes=1000,
        views={
            "loss_radar": link_losses(loss, packets or 10**9, seed),
            "spray_check": spray_counts(topology, loss, packets or 10**9, seed),
        },
    )
    return World(topology, faulty, loss, telemetry)


@pytest.fixture(scope="session")
def synthetic() -> SimpleNamespace:
    """The generators above, for tests."""
    return SimpleNamespace(
        make_world=make_world,
        bounce_probes=bounce_probes,
        ecmp_flows=ecmp_flows,
        passive=passive,
        segment_counts=segment_counts,
        path_success=path_success,
        break_links=break_links,
    )
