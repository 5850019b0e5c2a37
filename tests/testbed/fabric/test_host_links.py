# SPDX-License-Identifier: Apache-2.0
"""A fabric with its hosts: numbers, names, paths and ECMP."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.fabric.clos import Fabric, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.ecmp_probabilities import EcmpProbabilities
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.host_links import with_hosts
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.fabric.paths import Paths
from testbed.fabric.topologies import make_fabric

FABRICS = [
    FatTree(4),
    leaf_spine(4, 3, oversubscription=2),
    make_fabric("clos:2:3:2:4:irregular=10pct", 4, 1),
    TwoSwitches(),
]


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.title)
def test_links_keep_their_numbers_and_hosts_follow(fabric: Fabric) -> None:
    whole = with_hosts(fabric)
    n, hosts = fabric.n_links, fabric.n_hosts
    assert whole.link_names[:n] == fabric.link_names
    tor = fabric.switch_names
    for host, name in enumerate(fabric.host_names):
        rack = tor[host // fabric.hosts_per_tor]
        assert whole.link_names[n + 2 * host] == f"{name}->{rack}"
        assert whole.link_names[n + 2 * host + 1] == f"{rack}->{name}"
    assert whole.n_links == n + 2 * hosts
    assert whole.switch_names == [*fabric.host_names, *tor]


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.title)
def test_paths_of_hosts_are_those_of_their_tors_between_their_links(fabric: Fabric) -> None:
    whole, rack = with_hosts(fabric), fabric.hosts_per_tor
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, fabric.n_hosts, (2, 60))
    src, dst = src[src != dst], dst[src != dst]
    of_tors = fabric.path_sets(src // rack, dst // rack)
    of_hosts = whole.path_sets(src, dst)
    owner = of_tors.owner
    around = whole.around(of_tors.paths, src[owner], dst[owner])
    assert of_hosts.width.tolist() == of_tors.width.tolist()
    for pair in range(len(src)):
        found = {tuple(path) for path in _listed(of_hosts[pair])}
        assert found == {tuple(around[path]) for path in np.flatnonzero(owner == pair).tolist()}


def _listed(paths: Paths) -> list[list[int]]:
    return [paths[i].tolist() for i in range(len(paths))]


def test_a_path_that_broke_off_has_no_link_of_the_receiver() -> None:
    fabric = leaf_spine(3, 2, oversubscription=1)
    paths = Paths.from_padded(np.array([[0, -1], [-1, -1], [-1, -1]]))
    some = with_hosts(fabric).around(
        paths, np.array([0, 1, 2]), np.array([5, 2, 3]), np.array([False, False, True])
    )
    up = fabric.n_links + 2 * np.arange(6)
    assert _listed(some) == [[up[0], 0], [up[1]], [up[2], up[3] + 1]]


def test_ecmp_of_hosts_is_that_of_their_tors() -> None:
    fabric = FatTree(4)
    whole = with_hosts(fabric)
    used, of_tors = EcmpProbabilities(whole).usage(), EcmpProbabilities(fabric).usage()
    hosts, tors = fabric.n_hosts, fabric.n_tors
    # A pair of hosts is in two racks with this chance, and then in any two of them alike.
    apart = hosts * (hosts - fabric.hosts_per_tor) / (hosts * (hosts - 1))
    assert used[: fabric.n_links] == pytest.approx(apart * of_tors)
    assert used[fabric.n_links :] == pytest.approx(1 / hosts)
    assert Ecmp(whole).width.shape == (hosts, hosts) and tors == 8


def test_segments_are_between_the_same_switches() -> None:
    fabric = FatTree(4)
    whole, parts = with_hosts(fabric), fabric.segments()
    same = whole.numbered(parts)
    names = [whole.switch_names[each] for each in same.upstream]
    assert names == [fabric.switch_names[each] for each in parts.upstream]
    assert ((same.switches < 0) == (parts.switches < 0)).all()
    first = whole.link_src[same.paths.links[same.paths.ptr[:-1]]]
    assert (first == same.upstream).all()
