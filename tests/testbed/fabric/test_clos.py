# SPDX-License-Identifier: Apache-2.0
"""Fabrics of any shape: structure, and path sets against a search from first principles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from testbed.fabric.clos import Fabric, TopologyError, clos, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import PathSets


def plain_paths(fabric: Fabric, src: int, dst: int) -> set[tuple[int, ...]]:
    """All shortest up-down paths by breadth-first search over (switch, has it turned)."""
    if src == dst:
        return {()}
    paths = [((), src, False)]
    while paths:
        longer, found = [], set()
        for path, at, down in paths:
            for link in np.flatnonzero(fabric.link_src == at).tolist():
                if link % 2 == 0 and down:
                    continue
                end = int(fabric.link_dst[link])
                if end == dst:
                    found.add((*path, link))
                longer.append(((*path, link), end, link % 2 == 1))
        if found:
            return found
        paths = longer
    return set()


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Small Clos networks, some links left out, some tiers skipped, some links parallel."""
    kind = draw(st.sampled_from(["leaf-spine", "planes", "complete", "any"]))
    small = st.integers(1, 3)
    if kind == "leaf-spine":
        fabric = leaf_spine(draw(small), draw(small))
    elif kind == "planes":
        aggs = draw(small)
        fabric = clos(draw(small), draw(small), aggs, aggs * draw(st.integers(1, 2)))
    elif kind == "complete":
        sizes = [draw(st.integers(1, 2)) for _ in range(4)]
        fabric = clos(*sizes, wiring="complete")
    else:
        tier = [0, 0, *draw(st.lists(st.integers(0, 3), min_size=1, max_size=5).map(sorted))]
        pairs = [(a, b) for a in range(len(tier)) for b in range(len(tier)) if tier[a] < tier[b]]
        assume(pairs)
        edges = np.array(draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=9)))
        names = [f"s{i}" for i in range(len(tier))]
        fabric = Fabric(names, np.array(tier), edges[:, 0], edges[:, 1])
    gone = draw(st.sets(st.integers(0, fabric.n_edges - 1), max_size=fabric.n_edges // 3))
    return fabric.without(sorted(gone))


def every_pair(fabric: Fabric) -> tuple[np.ndarray, np.ndarray]:
    return np.divmod(np.arange(fabric.n_tors**2), fabric.n_tors)


@settings(max_examples=60, deadline=None)
@given(fabrics())
def test_path_sets_are_the_shortest_up_down_paths(fabric):
    src, dst = every_pair(fabric)
    sets = fabric.path_sets(src, dst)
    assert len(sets) == len(src)
    assert fabric.path_counts(src, dst).tolist() == sets.width.tolist()
    for s in range(len(sets)):
        paths = sets[s]
        found = [tuple(paths[p].tolist()) for p in range(len(paths))]
        assert len(found) == len(set(found))
        assert set(found) == plain_paths(fabric, int(src[s]), int(dst[s]))


@pytest.mark.parametrize("k", [4, 6, 8])
def test_a_fat_tree_counts_its_paths_without_looking(k):
    topology = FatTree(k)
    src, dst = every_pair(topology)
    counted = topology.without([]).path_counts(src, dst)
    assert (topology.path_counts(src, dst) == counted).all()


def test_a_clos_of_the_fat_trees_numbers_is_the_fat_tree():
    tree, same = FatTree(6), clos(6, 3, 3, 9)
    assert tree.switch_names == same.switch_names and tree.link_names == same.link_names
    assert (tree.link_src == same.link_src).all() and (tree.tier == same.tier).all()


def test_shapes():
    fabric = leaf_spine(8, 2, oversubscription=3)
    assert (fabric.n_tors, fabric.n_switches, fabric.n_links) == (8, 10, 32)
    assert fabric.hosts_per_tor == 6
    assert fabric.link_names[:2] == ["leaf0->spine0", "spine0->leaf0"]
    mesh = clos(2, 20, 4, 10, wiring="complete", oversubscription=3)
    assert mesh.n_edges == 2 * 20 * 4 + 2 * 4 * 10
    sets = mesh.path_sets(np.array([0, 0]), np.array([1, 20]))
    assert sets.width.tolist() == [4, 4 * 10 * 4]


def test_links_left_out_number_densely():
    tree = FatTree(4)
    cut = tree.without([tree.link("tor0_0->agg0_1") >> 1, 3, 3])
    assert cut.n_links == tree.n_links - 4
    assert "tor0_0->agg0_1" not in cut.link_names
    assert cut.title == "a K=4 fat-tree without 2 links"
    assert cut.path_sets(np.array([0]), np.array([1])).width.tolist() == [1]  # one agg left
    with pytest.raises(TopologyError, match="links 0 to 31"):
        tree.without([32])


def test_a_pair_that_no_path_joins_has_an_empty_set():
    fabric = leaf_spine(2, 1).without([0])
    sets = fabric.path_sets(np.array([0, 0, 1]), np.array([1, 0, 1]))
    assert sets.width.tolist() == [0, 1, 1]
    assert len(sets.paths.links) == 0


def test_parallel_links_have_names_of_their_own():
    fabric = Fabric(["a", "b", "s"], np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([2, 2, 2]))
    assert fabric.link_names == ["a->s", "s->a", "b->s", "s->b", "a->s#2", "s->a#2"]
    assert fabric.link("s->a#2") == 5
    assert fabric.path_sets(np.array([0]), np.array([1])).width.tolist() == [2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: leaf_spine(0, 2), "leaves=0"),
        (lambda: leaf_spine(2, 2, oversubscription=0), "oversubscription=0"),
        (lambda: clos(2, 2, 3, 4), "cores=4 is not a multiple of aggs=3"),
        (lambda: clos(2, 2, 2, 4, wiring="ring"), "wiring='ring'"),  # pyright: ignore
        (lambda: Fabric(["a", "a"], [0, 1], [0], [1]), "same name"),  # pyright: ignore
        (lambda: Fabric(["a", "b"], [0, 0], [0], [1]), "from a to b does not go up"),  # pyright: ignore
        (lambda: Fabric(["a", "b"], [1, 0], [1], [0]), "tier 0 come first"),  # pyright: ignore
        (lambda: Fabric(["a", "b"], [0, 1], [0], [2]), "ends at an unknown switch"),  # pyright: ignore
        (lambda: leaf_spine(2, 2).path_sets([0], [2]), "ToRs 0 to 1"),  # pyright: ignore
        (lambda: leaf_spine(2, 2).switch("tor0_0"), "names: leaf0, spine0, ..."),
        (lambda: leaf_spine(2, 2).link("leaf0->leaf1"), "not neighbours"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(TopologyError, match=message):
        make()


@given(
    st.lists(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3), max_size=5), st.data()
)
def test_sets_keep_take_and_join(rows, data):
    flat = [path for paths in rows for path in paths]
    sets = make_sets(rows)
    assert as_lists(sets) == rows
    assert sets.owner.tolist() == [s for s, paths in enumerate(rows) for _ in paths]
    assert sets.n_entries.tolist() == [sum(map(len, paths)) for paths in rows]
    taken = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6)) if rows else []
    assert as_lists(sets.take(np.array(taken, np.int64))) == [rows[s] for s in taken]
    known = PathSets.known(sets.paths)
    assert as_lists(known) == [[path] for path in flat]
    assert as_lists(PathSets.join([sets, known])) == rows + [[path] for path in flat]
    padded = sets.paths.padded()
    assert [row[row >= 0].tolist() for row in padded] == flat


def make_sets(rows: list[list[list[int]]]) -> PathSets:
    from testbed.fabric.paths import Paths

    flat = [path for paths in rows for path in paths]
    links = np.array([link for path in flat for link in path], np.int32)
    lengths = [0, *(len(path) for path in flat)]
    widths = [0, *(len(paths) for paths in rows)]
    return PathSets(np.cumsum(widths), Paths(np.cumsum(lengths), links))


def as_lists(sets: PathSets) -> list[list[list[int]]]:
    return [
        [paths[p].tolist() for p in range(len(paths))]
        for paths in map(sets.__getitem__, range(len(sets)))
    ]
