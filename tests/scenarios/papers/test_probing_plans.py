# SPDX-License-Identifier: Apache-2.0
"""Probing plans: every climb once, and what theorem 1 says about them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.solvers.incidence import Incidence
from scenarios.papers.netbouncer_network import hop_by_hop_plan, probing_plan, with_servers
from testbed.fabric.clos import clos, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths


@st.composite
def fabrics(draw):
    """Clos fabrics of all sorts, some with their servers, some with links left out."""
    small = st.integers(1, 3)
    if draw(st.booleans()):
        fabric = leaf_spine(draw(small), draw(small))
    else:
        wiring = draw(st.sampled_from(["planes", "complete"]))
        aggs = draw(small)
        fabric = clos(draw(small), draw(small), aggs, aggs * draw(small), wiring=wiring)
    if draw(st.booleans()):
        gone = draw(st.sets(st.integers(0, fabric.n_edges - 1), max_size=fabric.n_edges // 3))
        fabric = fabric.without(sorted(gone))
    return with_servers(fabric) if draw(st.booleans()) else fabric


def climbs(fabric, every_hop):
    """The plan by plain recursion: origin, bounce, links."""
    uplinks = [[] for _ in range(fabric.n_switches)]
    for link in range(0, fabric.n_links, 2):
        uplinks[fabric.link_src[link]].append(link)

    def from_here(switch):
        for link in uplinks[switch]:
            above = int(fabric.link_dst[link])
            if every_hop or not uplinks[above]:
                yield above, [link]
            for bounce, rest in from_here(above):
                yield bounce, [link, *rest]

    return [
        (origin, bounce, up + [link + 1 for link in reversed(up)])
        for origin in range(fabric.n_tors)
        for bounce, up in from_here(origin)
    ]


@settings(max_examples=100, deadline=None)
@given(fabrics())
def test_against_recursion(fabric):
    for plan, every_hop in ((probing_plan(fabric), False), (hop_by_hop_plan(fabric), True)):
        rows = [(int(plan.origin[p]), int(plan.bounce[p]), plan.paths[p].tolist())
                for p in range(len(plan))]  # fmt: skip
        assert rows == climbs(fabric, every_hop)


def test_fat_tree_has_the_known_bounces():
    topology = FatTree(6)
    plan = probing_plan(topology)
    assert plan.paths.padded().tolist() == Ecmp(topology).bounces().padded().tolist()
    servers = probing_plan(with_servers(topology))
    assert len(servers) == topology.n_hosts * topology.n_cores
    assert servers.paths.length.tolist() == [6] * len(servers)
    hops = hop_by_hop_plan(with_servers(topology))
    assert len(hops) == topology.n_hosts * (1 + topology.half + topology.n_cores)


def test_servers_are_the_lowest_tier():
    topology = FatTree(4)
    fabric = with_servers(topology)
    assert fabric.n_edges == topology.n_edges + topology.n_hosts
    assert fabric.link_names[2 * 5] == "server5->tor1_0"
    assert fabric.link_names[2 * topology.n_hosts :] == topology.link_names


def test_a_switch_that_lost_its_uplinks_bounces():
    topology = leaf_spine(2, 2)
    fabric = with_servers(topology).without([4, 5])  # leaf0's uplinks, behind 4 servers' links
    plan = probing_plan(fabric)
    assert {fabric.switch_names[b] for b in plan.bounce[plan.origin < 2]} == {"leaf0"}
    assert {fabric.switch_names[b] for b in plan.bounce[plan.origin >= 2]} == {"spine0", "spine1"}


def path_success(incidence, success):
    x = success[incidence.link_ids]
    pairs = zip(incidence.path_ptr[:-1], incidence.path_ptr[1:], strict=True)
    return np.array([np.prod(x[incidence.links[a:b]]) for a, b in pairs])


def identified(incidence, success):
    """The success of each link that follows from the paths', nan where nothing does.

    A path without loss proves all its links; a path whose other links are all known and not dead
    gives the last one, and so on until nothing new follows.
    """
    value = np.where(incidence.links_on(success == 1), 1.0, np.nan)
    paths = np.split(incidence.links, incidence.path_ptr[1:-1])[: incidence.n_paths]
    found = True
    while found:
        found = False
        for links, through in zip(paths, success, strict=True):
            unknown = links[np.isnan(value[links])]
            others = np.nanprod(value[links])
            if len(unknown) == 1 and others > 0:
                value[unknown] = through / others
                found = True
    return value


def test_figure_2_has_no_unique_solution():
    """Switch T1 under two servers and over two uplinks, all lossy: the example of section 4.2."""
    grid = np.array([[server, 2 + uplink] for server in range(2) for uplink in range(2)])
    incidence = Incidence.of(Paths.from_padded(grid))
    one, other = np.array([0.4, 0.5, 0.8, 0.6]), np.array([0.5, 0.625, 0.64, 0.48])
    y = path_success(incidence, one)
    assert path_success(incidence, other) == pytest.approx(y)
    assert np.isnan(identified(incidence, y)).all()
    healthy = np.array([1.0, 0.5, 1.0, 0.6])  # a good path crosses T1
    assert identified(incidence, path_success(incidence, healthy)) == pytest.approx(healthy)


@settings(max_examples=150, deadline=None)
@given(fabrics(), st.integers(0, 2**32), st.sampled_from([0.1, 0.3, 0.6]))
def test_theorem_1(fabric, seed, share):
    """All links are identified if a good path crosses each switch. Between the tiers that end paths
    also only if: where none crosses a switch, another solution exists."""
    rng = np.random.default_rng(seed)
    success = np.where(
        rng.random(fabric.n_edges) < share, rng.uniform(0, 1, fabric.n_edges).round(1), 1.0
    )
    plan = probing_plan(fabric)
    incidence = Incidence.of(plan.paths, undirected=True)
    y = path_success(incidence, success)
    value = identified(incidence, y)
    known = ~np.isnan(value)
    assert value[known] == pytest.approx(success[incidence.link_ids][known])
    crossed, fine = np.zeros((2, fabric.n_switches), np.bool_)
    for p in range(len(plan)):
        for end in (fabric.link_src[plan.paths[p]], fabric.link_dst[plan.paths[p]]):
            crossed[end] = True
            fine[end] |= y[p] == 1
    if fine[crossed].all():
        assert known.all()
    has_uplink = np.isin(np.arange(fabric.n_switches), fabric.link_src[::2])
    for switch in np.flatnonzero(crossed & ~fine & has_uplink & (fabric.tier > 0)):
        links = np.isin(incidence.link_ids, fabric.links_of(switch) >> 1)
        assert not known[links].all()
        up = np.isin(incidence.link_ids, np.flatnonzero(fabric.link_src[::2] == switch))
        x = success[incidence.link_ids]
        if x[links].max() < 1 and x[links].min() > 0:  # all lossy: shift loss across the switch
            scale = 0.5 * (1 + max(x[up].max(), x[links & ~up].max()))
            other = np.where(up, x / scale, np.where(links, x * scale, x))
            if other.max() <= 1:
                moved = success.copy()
                moved[incidence.link_ids] = other
                assert path_success(incidence, moved) == pytest.approx(y)
