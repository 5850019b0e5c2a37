# SPDX-License-Identifier: Apache-2.0
"""Segments of any placement of monitors, against the paths of all pairs of ToRs cut at monitors."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.monitors import monitor_switches
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.fabric.segments import Segments, segment_share, segments
from tests.testbed.fabric.test_ecmp import FABRICS, every_pair


def cut_paths(fabric: Fabric, monitor: np.ndarray, demand: np.ndarray) -> dict[tuple, float]:
    """Return every segment, by its links, with the share of the flows that crosses it."""
    src, dst = every_pair(fabric)
    sets = fabric.path_sets(src, dst)
    found: dict[tuple, float] = defaultdict(float)
    for pair, number in enumerate(sets.owner.tolist()):
        links: list[int] = []
        for link in sets.paths[pair].tolist():
            links.append(link)
            if monitor[fabric.link_dst[link]]:
                share = float(demand[src[number], dst[number]]) / int(sets.width[number])
                found[tuple(links)] += share
                links = []
    return found


def placements(fabric: Fabric) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    found = [rng.random(fabric.n_switches) < share for share in (0.0, 0.2, 0.5, 0.8, 1.0)]
    for each in found:
        each[: fabric.n_tors] = True
    return [*found, monitor_switches(fabric, "tor+core", 1)]


@pytest.mark.parametrize("fabric", [*FABRICS, TwoSwitches()], ids=lambda f: f.title)
def test_segments_are_the_paths_cut_at_monitors(fabric: Fabric) -> None:
    rng = np.random.default_rng(2)
    demand = rng.random((fabric.n_tors, fabric.n_tors))
    np.fill_diagonal(demand, 0.0)
    demand /= demand.sum()
    ecmp = Ecmp(fabric)
    for monitor in placements(fabric):
        found, wanted = segments(ecmp, monitor), cut_paths(fabric, monitor, demand)
        links = [tuple(found.paths[s].tolist()) for s in range(len(found))]
        assert len(set(links)) == len(links) and set(links) == set(wanted)
        share = segment_share(ecmp, demand, found)
        assert share == pytest.approx([wanted[each] for each in links])
        assert found.upstream.tolist() == [fabric.link_src[each[0]] for each in links]
        assert found.downstream.tolist() == [fabric.link_dst[each[-1]] for each in links]
        assert disjoint(found)


def disjoint(found: Segments) -> bool:
    """Whether no two sub-problems share a directed link."""
    owner = np.full(int(found.paths.links.max()) + 1, -1)
    number = found.subproblem[found.paths.owner]
    owner[found.paths.links] = number
    return bool((owner[found.paths.links] == number).all())


@pytest.mark.parametrize(
    ("monitors", "many"),
    [
        ("tor", 1),
        ("tor+agg", 1),
        ("tor+core", 6),
        ("tor+agg+core", 6),
        ("tor+50%core", 1),
        ("tor+core0", 1),
    ],
)
def test_pods_are_sub_problems_until_segments_join_them(monitors: str, many: int) -> None:
    fabric = FatTree(6)
    found = segments(Ecmp(fabric), monitor_switches(fabric, monitors, 1))
    assert np.unique(found.subproblem).tolist() == list(range(many))


def test_with_every_switch_a_segment_is_a_link() -> None:
    fabric = FatTree(4)
    found = segments(Ecmp(fabric), np.ones(fabric.n_switches, np.bool_))
    assert sorted(found.paths.links.tolist()) == list(range(fabric.n_links))


def test_too_many_segments_are_refused() -> None:
    fabric = FatTree(32)
    with pytest.raises(
        TopologyError, match=r"MONITORS makes .* use more monitors, such as tor\+core"
    ):
        segments(Ecmp(fabric), monitor_switches(fabric, "tor", 1))
