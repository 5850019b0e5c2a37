# SPDX-License-Identifier: Apache-2.0
"""`flock` is the paper's model and search: the plain reference agrees in every case."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from analysis.methods.flock.flock import Flock
from analysis.telemetry.telemetry import Flows, Probes, Telemetry
from testbed.fabric.clos import Fabric, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import PathSets
from tests.analysis.conftest import path_success
from tests.analysis.references.flock import Flow, greedy

CASES = 25
FABRICS = {"K=4": FatTree(4), "leaf-spine": leaf_spine(5, 3)}
EVERY = list(product(FABRICS, ("A1", "A2", "P", "INT", "A1+P", "A1+A2+P")))


def case(seed: int, fabric: Fabric, kinds: str) -> Telemetry:
    """Some links of all rates, a failed switch in a third of the cases, background; of flows the
    path is known (INT), hidden (P), or known of those that lost packets (A2)."""
    rng = np.random.default_rng([seed, fabric.n_links, len(kinds)])
    loss = rng.choice([0.0, 1e-4], fabric.n_links)
    faulty = rng.choice(fabric.n_links, rng.integers(0, fabric.n_links // 8), replace=False)
    loss[faulty] = rng.choice([1.0, 0.3, 0.05, 0.01, 0.003], len(faulty))
    if seed % 3 == 0:
        switch = rng.integers(fabric.n_switches)
        own = (fabric.link_src == switch) | (fabric.link_dst == switch)
        loss[own] = rng.choice([0.01, 0.5])
    probes = flows = None
    if "A1" in kinds:
        paths = Ecmp(fabric).bounces()
        sent = np.full(len(paths), 100)
        probes = Probes(paths, sent, rng.binomial(sent, 1 - path_success(paths, loss)))
    if kinds != "A1":
        n = 80
        src = rng.integers(0, fabric.n_tors, n).astype(np.int32)
        dst = ((src + rng.integers(1, fabric.n_tors, n)) % fabric.n_tors).astype(np.int32)
        sets = fabric.path_sets(src, dst)
        took = sets.paths.take(sets.ptr[:-1] + rng.integers(0, sets.width))
        sent = rng.integers(1, 800, n)
        lost = rng.binomial(sent, 1 - path_success(took, loss))
        known = lost > 0 if "A2" in kinds else np.full(n, "INT" in kinds)
        there = known | ("P" in kinds)
        own = PathSets.known(took.take(np.flatnonzero(known)))
        flows = Flows.of(
            fabric, src[there], dst[there], known[there], own, sent[there], lost[there]
        )
    return Telemetry(fabric, "none", flows=flows, probes=probes)


def reference(telemetry: Telemetry, method: Flock) -> tuple[set[int], set[int], bool]:
    """The links, undirected if none but bounced probes are there, and switches that it blames."""
    fabric, probes, flows = telemetry.topology, telemetry.probes, telemetry.flows
    shift = int(flows is None)
    n_links = fabric.n_links >> shift

    def components(links: np.ndarray) -> frozenset[int]:
        ends = {int(end[link]) for link in links for end in (fabric.link_src, fabric.link_dst)}
        return frozenset({int(link) >> shift for link in links} | {n_links + end for end in ends})

    seen = []
    if probes is not None:
        for p in range(len(probes)):
            path = components(probes.paths[p])
            seen.append(Flow([path], int(probes.sent[p]), int(probes.lost[p])))
    if flows is not None:
        sets = flows.sets.expanded() if isinstance(flows.sets, PairSets) else flows.sets
        for f in range(len(flows)):
            s = flows.path_set[f]
            paths = [components(sets.paths[p]) for p in range(sets.ptr[s], sets.ptr[s + 1])]
            seen.append(Flow(paths, int(flows.sent[f]), int(flows.lost[f])))
    device_prior = method.device_factor * method.link_prior
    prior = [method.link_prior] * n_links + [device_prior] * fabric.n_switches
    failed = greedy(seen, prior, method.p_bad, method.p_good)
    switches = {each - n_links for each in failed if each >= n_links}
    ends = np.stack((fabric.link_src, fabric.link_dst))[:, :: 1 << shift]
    of_switch = np.flatnonzero(np.isin(ends, list(switches)).any(axis=0))
    return (
        {each for each in failed if each < n_links} | set(of_switch.tolist()),
        switches,
        not shift,
    )


def compared(name: str, kinds: str) -> Iterator[tuple[Any, Any]]:
    """Yield the links and switches that the method and its reference blame in each case."""
    for seed in range(CASES):
        telemetry = case(seed, FABRICS[name], kinds)
        p_bad, prior = (0.003, 0.02, 0.2)[seed % 3], (-4.0, -10.0)[seed % 2]
        method = Flock(p_bad=p_bad, p_good=2e-4, link_prior=prior, device_factor=5)
        assert method.published
        found = method.decide(telemetry)
        links, switches, directed = reference(telemetry, method)
        got = found.flagged if directed else np.unique(found.flagged >> 1)
        yield (set(got.tolist()), set(found.devices.tolist())), (links, switches)


@pytest.mark.parametrize(("name", "kinds"), EVERY)
def test_it_is_the_paper_s(name: str, kinds: str) -> None:
    """300 cases, with small and large rates and priors."""
    blamed = 0
    for seed, (found, expected) in enumerate(compared(name, kinds)):
        assert found == expected, (seed, kinds)
        blamed += len(found[0])
    assert blamed > 30


def test_each_change_changes_something() -> None:
    rates: dict[str, Any] = {"p_bad": 0.01, "p_good": 2e-4}
    printed = Flock(**rates)
    for change in Flock.changes:
        method = Flock(**rates, **{change.parameter: change.value})
        assert method.name == f"flock+{change.name}" and not method.published
        differs = (
            method.decide(seen).flagged.tolist() != printed.decide(seen).flagged.tolist()
            for kinds in ("A1+A2+P", "A2", "P", "A1")
            for seen in (case(seed, leaf_spine(5, 3), kinds) for seed in range(25))
        )
        assert any(differs), change.name
