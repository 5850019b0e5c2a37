# SPDX-License-Identifier: Apache-2.0
"""deTector's plan: what it promises, checked by definition, and its speed-ups against none."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.fabric.clos import Fabric, clos, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from testbed.fabric.probe_matrix.candidates import candidates
from testbed.fabric.probe_matrix.identifiability import PlanError
from testbed.fabric.probe_matrix.matrix import Speedups, probe_matrix

K4 = FatTree(4)
PLAIN = Speedups(decomposition=False, lazy=False, symmetry=False)


def syndromes(paths: Paths, n_links: int, most: int) -> dict[frozenset[int], frozenset[int]]:
    """The paths that fail with each set of 0 to ``most`` links, by definition."""
    on = [frozenset(paths.owner[paths.links == link].tolist()) for link in range(n_links)]
    sets = (failed for size in range(most + 1) for failed in combinations(range(n_links), size))
    return {frozenset(s): frozenset().union(*(on[link] for link in s)) for s in sets}


def undirected(paths: Paths) -> Paths:
    return Paths(paths.ptr, paths.links >> 1)


def classes(paths: Paths, n_links: int, most: int) -> set[frozenset[frozenset[int]]]:
    """Sets of links that no probe tells apart."""
    groups: dict[frozenset[int], set[frozenset[int]]] = {}
    for failed, lost in syndromes(paths, n_links, most).items():
        groups.setdefault(lost, set()).add(failed)
    return {frozenset(group) for group in groups.values()}


@st.composite
def irregular(draw: st.DrawFn) -> Fabric:
    whole = draw(
        st.sampled_from(
            [
                K4,
                leaf_spine(5, 3),
                clos(3, 2, 2, 4),
                clos(2, 3, 2, 3, wiring="complete"),
            ]
        )
    )
    gone = draw(st.lists(st.integers(0, whole.n_edges - 1), max_size=whole.n_edges // 2))
    return whole.without(gone)


@pytest.mark.parametrize("beta", [1, 2, 3])
@pytest.mark.parametrize("fabric", [K4, leaf_spine(7, 2)], ids=["k4", "leaf-spine"])
def test_all_sets_of_failed_links_lose_different_probes(fabric: Fabric, beta: int) -> None:
    matrix = probe_matrix(fabric, alpha=2, beta=beta)
    assert matrix.coverage.min() >= 2
    reached = matrix.identifiability()
    best = max(b for b in range(4) if all_differ(undirected(candidates(fabric)), fabric, b))
    assert reached >= min(beta, best)
    assert all_differ(undirected(matrix.paths), fabric, reached)
    assert reached == 3 or not all_differ(undirected(matrix.paths), fabric, reached + 1)


def all_differ(paths: Paths, fabric: Fabric, beta: int) -> bool:
    lost = syndromes(paths, fabric.n_edges, beta)
    return len(set(lost.values())) == len(lost)


@given(fabric=irregular(), alpha=st.integers(1, 4), beta=st.integers(0, 2))
@settings(max_examples=40, deadline=None)
def test_the_plan_covers_and_tells_apart_what_all_candidates_would(
    fabric: Fabric, alpha: int, beta: int
) -> None:
    every, matrix = candidates(fabric), probe_matrix(fabric, alpha, beta)
    possible = np.bincount(every.links >> 1, minlength=fabric.n_edges)
    assert (matrix.coverage >= np.minimum(alpha, possible)).all()
    assert matrix.n_candidates == len(every)
    if beta:
        wanted = classes(undirected(every), fabric.n_edges, beta)
        assert classes(undirected(matrix.paths), fabric.n_edges, beta) == wanted


@given(fabric=irregular(), alpha=st.integers(1, 3), beta=st.integers(0, 2))
@settings(max_examples=30, deadline=None)
def test_lazy_update_and_symmetry_select_the_very_same_paths(
    fabric: Fabric, alpha: int, beta: int
) -> None:
    fast = probe_matrix(fabric, alpha, beta)
    slow = probe_matrix(fabric, alpha, beta, Speedups(lazy=False, symmetry=False))
    assert (fast.paths.ptr == slow.paths.ptr).all()
    assert (fast.paths.links == slow.paths.links).all()


@given(fabric=irregular(), alpha=st.integers(1, 3), beta=st.integers(0, 2))
@settings(max_examples=20, deadline=None)
def test_the_plain_algorithm_covers_and_identifies_the_same(
    fabric: Fabric, alpha: int, beta: int
) -> None:
    fast, plain = (probe_matrix(fabric, alpha, beta, how) for how in (Speedups(), PLAIN))
    enough = [np.minimum(matrix.coverage, alpha).tolist() for matrix in (fast, plain)]
    assert enough[0] == enough[1]
    if beta:
        found = [classes(undirected(m.paths), fabric.n_edges, beta) for m in (fast, plain)]
        assert found[0] == found[1]


@given(fabric=irregular())
@settings(max_examples=30, deadline=None)
def test_candidates_are_the_equal_cost_paths_of_all_pairs(fabric: Fabric) -> None:
    src, dst = np.triu_indices(fabric.n_tors, 1)
    sets = fabric.path_sets(src, dst)
    theirs = {tuple(sets.paths[p].tolist()) for p in range(len(sets.paths))}
    every = candidates(fabric)
    assert {tuple(every[p].tolist()) for p in range(len(every))} == theirs
    assert len(every) == len(theirs)


@given(fabric=irregular(), beta=st.integers(1, 2))
@settings(max_examples=20, deadline=None)
def test_probing_both_ways_tells_directions_apart(fabric: Fabric, beta: int) -> None:
    matrix = probe_matrix(fabric, 1, beta)
    if matrix.identifiability(beta) >= beta:
        lost = syndromes(matrix.both_ways, fabric.n_links, beta)
        assert len(set(lost.values())) == len(lost)


def test_a_path_both_ways_is_a_path_and_its_reverse() -> None:
    matrix = probe_matrix(K4, 3, 1)
    there, back = matrix.both_ways[4], matrix.both_ways[5]
    assert (there == matrix.paths[2]).all()
    assert (back == (there ^ 1)[::-1]).all()
    assert K4.link_src[there[0]] == matrix.src_tor[2]
    assert K4.link_dst[there[-1]] == matrix.dst_tor[2]
    assert matrix.turn[2] in K4.link_dst[there]
    assert (K4.link_dst[there[:-1]] == K4.link_src[there[1:]]).all()


# Table 3 of the paper (fat-tree 32) and its table 5 (fat-tree 18), and the least number of paths
# that its theorem 2 allows for 1-identifiability, k^3 / 5.
@pytest.mark.parametrize(
    ("k", "alpha", "beta", "paper"),
    [(18, 1, 0, 729), (18, 3, 0, 2187), (18, 1, 1, 1269), (32, 1, 0, 4096), (32, 1, 1, 7680)],
)
def test_as_few_paths_as_in_the_paper(k: int, alpha: int, beta: int, paper: int) -> None:
    matrix = probe_matrix(FatTree(k), alpha, beta)
    assert len(matrix) <= paper
    assert len(matrix) >= (k**3 / 5 if beta else alpha * k**3 / 8)
    assert matrix.identifiability(1) >= beta


@pytest.mark.parametrize("k", [4, 6, 8, 12])
def test_links_are_probed_evenly(k: int) -> None:
    matrix = probe_matrix(FatTree(k), 3, 1)
    assert matrix.coverage.min() == 3
    assert matrix.coverage.max() <= 4
    ends = np.bincount(np.concatenate((matrix.src_tor, matrix.dst_tor)))
    assert ends.max() <= 2 * ends.min()


def test_a_fat_tree_falls_into_planes_of_one_shape() -> None:
    matrix = probe_matrix(FatTree(8), 1, 1)
    assert (matrix.n_parts, matrix.n_shapes) == (4, 1)
    broken = probe_matrix(FatTree(8).without([0]), 1, 1)
    assert (broken.n_parts, broken.n_shapes) == (4, 2)
    assert probe_matrix(leaf_spine(6, 5), 1, 1).n_parts == 5
    assert probe_matrix(clos(2, 3, 2, 3, wiring="complete"), 1, 1).n_parts == 1


def test_three_links_in_a_row_need_two_paths() -> None:
    # The worked example of figure 3: p1 over links 1 and 2, p2 over links 1 and 3.
    matrix = probe_matrix(leaf_spine(3, 1), 1, 1)
    assert len(matrix) == 2
    assert sorted(matrix.coverage.tolist()) == [1, 1, 2]
    assert matrix.identifiability() == 1


def test_a_link_that_no_path_crosses_is_left_out_and_said() -> None:
    lonely = leaf_spine(3, 2).without([1, 3])  # spine1 has leaf2 only
    matrix = probe_matrix(lonely, 1, 1)
    assert (matrix.coverage == 0).sum() == 1
    assert matrix.identifiability() == -1
    nothing = probe_matrix(leaf_spine(1, 2), 1, 1)
    assert len(nothing) == 0 and nothing.n_parts == 0


def test_senseless_plans_are_refused() -> None:
    with pytest.raises(PlanError, match="alpha=0"):
        probe_matrix(K4, 0, 1)
    with pytest.raises(PlanError, match="beta=4"):
        probe_matrix(K4, 1, 4)
    with pytest.raises(PlanError, match="combinations"):
        probe_matrix(FatTree(32), 1, 3)
