# SPDX-License-Identifier: Apache-2.0
"""`netbouncer` and `netbouncer-stage` are the papers': the plain reference agrees in every case."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from analysis.methods.netbouncer import NetBouncer, NetBouncerStage, bad_devices, good_paths
from analysis.solvers.incidence import Incidence
from analysis.telemetry.telemetry import Probes, Telemetry
from testbed.fabric.clos import Fabric, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from tests.analysis.conftest import path_success
from tests.analysis.references.netbouncer import algorithm_1, processor

CASES = 25
PACKETS = (5, 100, 5000)


def one_way(fabric: Fabric) -> Paths:
    src, dst = np.divmod(np.arange(fabric.n_tors**2, dtype=np.int32), np.int32(fabric.n_tors))
    return fabric.path_sets(src[src != dst], dst[src != dst]).paths


def case(seed: int, fabric: Fabric, paths: Paths, packets: int) -> Telemetry:
    """Links of all rates, a failed switch in half of the cases, background, gaps; some paths are
    probed by two hosts, which are added up."""
    rng = np.random.default_rng([seed, len(paths), packets])
    loss = rng.choice([0.0, 1e-4, 1e-3], fabric.n_links) * rng.integers(0, 2)
    faulty = rng.choice(fabric.n_links, rng.integers(0, fabric.n_links // 6), replace=False)
    loss[faulty] = rng.choice([1.0, 0.5, 0.1, 0.02, 0.004], len(faulty))
    if seed % 2:
        switch = rng.integers(fabric.n_switches)
        own = (fabric.link_src == switch) | (fabric.link_dst == switch)
        loss[own] = rng.choice([0.05, 0.5, 1.0])
    paths = paths.take(np.repeat(np.arange(len(paths)), rng.integers(0, 3, len(paths))))
    sent = rng.integers(packets // 2, packets + 1, len(paths)) * (rng.random(len(paths)) > 0.05)
    probes = Probes(paths, sent, rng.binomial(sent, 1 - path_success(paths, loss)))
    return Telemetry(fabric, "none", probes=probes)


def reference(telemetry: Telemetry, penalty: float, threshold: float, rounds: int):
    probes, fabric = telemetry.need("probes", "netbouncer"), telemetry.topology
    shift = int(probes.bounced)
    links = range(0, fabric.n_links, 1 << shift)
    return processor(
        [sorted(set((probes.paths[p] >> shift).tolist())) for p in range(len(probes))],
        [(int(fabric.link_src[i]), int(fabric.link_dst[i])) for i in links],
        probes.sent.tolist(),
        probes.lost.tolist(),
        penalty,
        1e-4,
        threshold,
        rounds,
    )


FABRICS: dict[str, tuple[Fabric, Paths]] = {
    "bounces": (FatTree(4), Ecmp(FatTree(4)).bounces()),
    "one way": (FatTree(4), one_way(FatTree(4))),
    "leaf-spine": (leaf_spine(5, 3), Ecmp(leaf_spine(5, 3)).bounces()),
}


METHODS = (NetBouncer, NetBouncerStage)
EVERY = list(product(FABRICS, PACKETS))


def compared(kind: type[NetBouncer], name: str, packets: int) -> Iterator[tuple[Any, Any]]:
    """Yield the switches and links that a method and its reference blame in each case."""
    for seed in range(CASES):
        telemetry = case(seed, *FABRICS[name], packets)
        penalty, threshold = (1.0, 0.1, 3.0)[seed % 3], (0.999, 0.98)[seed % 2]
        method = kind(penalty=penalty, link_threshold=threshold)
        assert method.published
        found = method.decide(telemetry)
        devices, links = reference(telemetry, penalty, threshold, method.rounds)
        shift = int(telemetry.need("probes", "").bounced)
        yield (
            (found.devices.tolist(), sorted(set((found.flagged >> shift).tolist()))),
            (sorted(devices), sorted(links)),
        )


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize(("name", "packets"), EVERY)
def test_they_are_the_papers(name: str, packets: int, kind: type[NetBouncer]) -> None:
    """225 cases of each, of lambda as printed, calibrated and others."""
    blamed = failed = 0
    for seed, (found, expected) in enumerate(compared(kind, name, packets)):
        assert found == expected, seed
        failed, blamed = failed + len(found[0]), blamed + len(found[1])
    assert blamed > 40 and failed > 2


@pytest.mark.parametrize("method", METHODS)
def test_each_change_changes_something(method: type[NetBouncer]) -> None:
    for change in method.changes:
        values = {change.parameter: change.value}
        changed = method(penalty=0.1, **values)
        assert changed.name == f"{method.base}+{change.name}" and not changed.published
        usual = method(penalty=0.1)
        differs = (
            changed.decide(seen).flagged.tolist() != usual.decide(seen).flagged.tolist()
            for seen in (case(n, *FABRICS["bounces"], (20, 300, 5000)[n % 3]) for n in range(1, 60))
        )
        assert any(differs), change.name


def test_the_servers_of_a_rack_are_the_papers_paths() -> None:
    """With 100 probes from each of several servers the paper has a path a server: its algorithm on
    these finds the same links, and the same success of each, as ours on their sums."""
    fabric, paths = FABRICS["bounces"]
    found = 0
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        loss = np.zeros(fabric.n_links)
        faulty = rng.choice(fabric.n_links, rng.integers(1, 6), replace=False)
        loss[faulty] = rng.choice([0.5, 0.1, 0.02, 0.004], len(faulty))
        servers = np.repeat(np.arange(len(paths)), rng.integers(1, 5, len(paths)))
        every = paths.take(rng.permutation(servers))
        through = np.array([np.prod(1 - loss[every[p]]) for p in range(len(every))])
        lost = rng.binomial(100, 1 - through)
        expected, _ = algorithm_1(
            [sorted(set((every[p] >> 1).tolist())) for p in range(len(every))],
            (1 - lost / 100).tolist(),
            [100] * len(every),
            range(fabric.n_edges),
            0.1,
            1e-10,
        )
        probes = Probes(every, np.full(len(every), 100), lost)
        assert (len(probes), probes.records) == (len(paths), len(every))
        method = NetBouncer(penalty=0.1, device_detection=False, tolerance=1e-10)
        result = method.decide(Telemetry(fabric, "none", probes=probes))
        x = np.array([expected[i] for i in range(fabric.n_edges)])
        assert np.allclose(result.success[::2], x, rtol=0, atol=1e-9)
        assert result.flagged[::2].tolist() == (2 * np.flatnonzero(x <= 0.999)).tolist()
        found += len(result.flagged)
    assert found > 50


@pytest.mark.parametrize(
    ("sent", "lost", "good"),
    [
        (100, 0, True),
        (100, 1, False),
        (400, 3, True),
        (400, 4, False),
        (50, 1, False),
        (1, 0, True),
    ],
)
def test_a_hundred_probes_of_a_good_path_lost_none(sent: int, lost: int, good: bool) -> None:
    """However the losses are spread over hundreds of probes: three of 400 leave one without any."""
    probes = Probes(Paths.from_padded(np.array([[0, 1]])), np.array([sent]), np.array([lost]))
    assert good_paths(Incidence.of(probes.paths, undirected=True), probes).tolist() == [good]


def test_a_share_of_good_paths_that_is_just_lucky() -> None:
    """At most that share: of a device's five paths one is good, and a fifth is luck."""
    fabric = leaf_spine(5, 3)
    paths = Ecmp(fabric).bounces()
    spine = fabric.switch("spine1")
    over = [p for p in range(len(paths)) if spine in fabric.link_dst[paths[p]]]
    assert len(over) == 5
    incidence = Incidence.of(paths, undirected=True)
    good = ~np.isin(np.arange(len(paths)), over[:4])
    present = np.ones(len(paths), np.bool_)
    for share, found in ((0.2, [spine]), (0.19, []), (0.0, [])):
        assert (
            np.flatnonzero(bad_devices(incidence, present, good, fabric, share)).tolist() == found
        )
    none = ~np.isin(np.arange(len(paths)), over)
    assert np.flatnonzero(bad_devices(incidence, present, none, fabric)).tolist() == [spine]
