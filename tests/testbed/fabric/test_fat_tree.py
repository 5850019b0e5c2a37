# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.fabric.clos import TopologyError
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths

KS = st.sampled_from([4, 6, 8, 10, 16])


@given(KS)
def test_counts_are_the_fat_trees(k):
    topology = FatTree(k)
    assert topology.n_hosts == k**3 // 4
    assert topology.n_switches == 5 * k**2 // 4
    assert topology.n_links == len(topology.link_src) == len(topology.link_names) == k**3
    assert len(set(topology.link_names)) == topology.n_links


@pytest.mark.parametrize("k", [-4, 0, 2, 3, 5, 7, 130])
def test_impossible_k_is_refused(k):
    with pytest.raises(TopologyError, match=f"K={k} is not a fat-tree"):
        FatTree(k)


@given(KS)
def test_opposite_links_are_neighbours_in_number(k):
    topology = FatTree(k)
    opposite = np.arange(topology.n_links) ^ 1
    assert (topology.link_src[opposite] == topology.link_dst).all()
    assert (topology.link_src_port[opposite] == topology.link_dst_port).all()
    upward = topology.tier[topology.link_dst] > topology.tier[topology.link_src]
    assert (upward == (np.arange(topology.n_links) % 2 == 0)).all()


@given(KS)
def test_every_port_has_one_link_or_host(k):
    topology = FatTree(k)
    ports = list(zip(topology.link_src.tolist(), topology.link_src_port.tolist(), strict=True))
    ports += zip(topology.host_tor.tolist(), topology.host_port.tolist(), strict=True)
    assert sorted(ports) == [(s, p) for s in range(topology.n_switches) for p in range(1, k + 1)]


@given(KS)
def test_addresses_are_distinct(k):
    topology = FatTree(k)
    addresses = np.concatenate((topology.host_ip, topology.switch_ip))
    assert len(np.unique(addresses)) == topology.n_hosts + topology.n_switches
    assert (addresses >> 24 == 10).all()


def test_names_lead_to_indices_and_back():
    topology = FatTree(4)
    for name in topology.switch_names:
        assert topology.switch_names[topology.switch(name)] == name
    for name in topology.link_names:
        assert topology.link_names[topology.link(name)] == name
    with pytest.raises(TopologyError, match="no switch 'agg9_0'"):
        topology.switch("agg9_0")
    with pytest.raises(TopologyError, match="not neighbours"):
        topology.link("tor0_0->core0")


def walk_is_connected(topology: FatTree, links: np.ndarray) -> bool:
    return bool((topology.link_dst[links[:-1]] == topology.link_src[links[1:]]).all())


def test_equal_cost_paths_connect_their_tors():
    topology = FatTree(6)
    src, dst = np.divmod(np.arange(topology.n_tors**2, dtype=np.int32), topology.n_tors)
    sets = topology.path_sets(src, dst)
    same_pod = src // 3 == dst // 3
    assert (sets.width == np.where(src == dst, 1, np.where(same_pod, 3, 9))).all()
    for pair in range(0, len(src), 7):
        paths = sets[pair]
        for path in range(len(paths)):
            links = paths[path]
            if len(links):
                assert walk_is_connected(topology, links)
                assert topology.link_src[links[0]] == src[pair]
                assert topology.link_dst[links[-1]] == dst[pair]


def test_bounce_paths_go_to_the_core_and_back():
    topology = FatTree(4)
    bounces = Ecmp(topology).bounces().links.reshape(topology.n_tors, topology.n_cores, 4)
    for tor, cores in enumerate(bounces):
        for core, links in enumerate(cores):
            assert walk_is_connected(topology, links)
            assert topology.link_src[links[0]] == topology.link_dst[links[-1]] == tor
            assert topology.link_dst[links[1]] == topology.core(core)


@pytest.mark.parametrize(
    ("monitors", "allowed"),
    [("tor", (0,)), ("tor+core", (0, 2)), ("tor+agg", (0, 1)), ("tor+agg+core", (0, 1, 2))],
)
def test_segments_lead_from_monitor_to_monitor(monitors, allowed):
    topology = FatTree(4)
    segments = topology.segments(monitors)
    for s in range(len(segments)):
        links = segments.paths[s]
        switches = segments.switches[s]
        assert walk_is_connected(topology, links)
        assert topology.link_src[links].tolist() == switches[switches >= 0].tolist()
        assert segments.upstream[s] == switches[0]
        assert segments.downstream[s] == topology.link_dst[links[-1]]
        assert topology.tier[segments.upstream[s]] in allowed
        assert topology.tier[segments.downstream[s]] in allowed


def test_paper_figures_of_k8():
    """Canary, section IV-D: 8 sub-problems of 24 switches and 64 (undirected) links."""
    topology = FatTree(8)
    segments = topology.segments()
    for pod in range(8):
        below = np.minimum(topology.link_src, topology.link_dst)  # ToRs come first, then aggs
        links = np.flatnonzero(topology.pod[below] == pod)
        assert len(links) == 2 * 32
        switches = np.union1d(topology.link_src[links], topology.link_dst[links])
        assert len(switches) == 24
        own = np.flatnonzero(segments.subproblem == pod)
        assert np.isin(segments.paths.take(own).links, links).all()


def test_segments_are_enumerated_once():
    topology = FatTree(8)
    for monitors, inter in (("tor+core", 2 * 32 * 16), ("tor", 32 * 28 * 16)):
        segments = topology.segments(monitors)
        assert len(segments) == 32 * 3 * 4 + inter
        assert len({tuple(segments.paths[s]) for s in range(len(segments))}) == len(segments)


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=8), st.data())
def test_paths_keep_and_take_rows(rows, data):
    padded = np.array([row + [-1] * (5 - len(row)) for row in rows])
    paths = Paths.from_padded(padded)
    assert [paths[p].tolist() for p in range(len(paths))] == rows
    assert paths.owner.tolist() == [p for p, row in enumerate(rows) for _ in row]
    taken = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    again = paths.take(np.array(taken, np.int64))
    assert [again[p].tolist() for p in range(len(again))] == [rows[p] for p in taken]
