# SPDX-License-Identifier: Apache-2.0
"""ECMP probabilities of any Clos, against sums over enumerated paths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.fabric.clos import Fabric, clos, leaf_spine
from testbed.fabric.ecmp_probabilities import EcmpProbabilities
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths


def irregular(seed: int) -> Fabric:
    """A three-layer Clos with a fifth of its links left out."""
    fabric = clos(3, 3, 2, 4, wiring="complete" if seed % 2 else "planes")
    gone = np.random.default_rng(seed).choice(fabric.n_edges, fabric.n_edges // 5, replace=False)
    return fabric.without(gone)


def odd() -> Fabric:
    """Parallel links, and links that skip a tier."""
    lower = [0, 0, 1, 2, 1, 3, 3, 4, 2, 2, 0, 0]
    upper = [3, 4, 3, 4, 4, 5, 6, 6, 6, 3, 5, 3]
    return Fabric("abcdefg", np.array([0, 0, 0, 1, 1, 2, 2]), np.array(lower), np.array(upper))


FABRICS = {
    "fat-tree": FatTree(4),
    "leaf-spine": leaf_spine(4, 3),
    "complete": clos(2, 3, 2, 3, wiring="complete"),
    "irregular": irregular(0),
    "odd": odd(),
    "unlinked": leaf_spine(3, 2).without([0, 1]),
}


def pairs(fabric):
    src, dst = np.divmod(np.arange(fabric.n_tors**2, dtype=np.int32), np.int32(fabric.n_tors))
    return src[src != dst], dst[src != dst]


def every_path(fabric):
    """All paths of all pairs of ToRs, with the probability that ECMP takes each."""
    sets = fabric.path_sets(*pairs(fabric))
    return sets.paths, 1 / sets.width[sets.owner]


def shared_by_enumeration(fabric, link):
    paths, chance = every_path(fabric)
    over = np.zeros(len(paths), np.bool_)
    over[paths.owner[paths.links == link]] = True
    vote = np.where(over, chance / np.maximum(np.diff(paths.ptr), 1), 0.0)
    votes = np.bincount(paths.links, vote[paths.owner], fabric.n_links)
    if votes[link]:
        votes /= votes[link]
    votes[link] = 1.0
    return votes


def check_against_enumeration(fabric):
    ecmp = EcmpProbabilities(fabric)
    every = ecmp.shared_votes(np.arange(fabric.n_links))
    for link, shared in enumerate(every):
        votes = np.zeros(fabric.n_links)
        votes[shared.links] = shared.share
        assert votes == pytest.approx(shared_by_enumeration(fabric, link))
    paths, chance = every_path(fabric)
    used = np.bincount(paths.links, chance[paths.owner], fabric.n_links)
    assert ecmp.usage() == pytest.approx(used / max(fabric.n_tors * (fabric.n_tors - 1), 1))


@pytest.mark.parametrize("name", FABRICS)
def test_against_enumerated_paths(name):
    check_against_enumeration(FABRICS[name])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_against_enumerated_paths_of_irregular_fabrics(seed):
    check_against_enumeration(irregular(seed))


@pytest.mark.parametrize("name", FABRICS)
def test_continuations_are_the_paths_that_begin_so(name):
    """Of every beginning of every path, and of beginnings that no path has."""
    fabric = FABRICS[name]
    rng = np.random.default_rng(0)
    src, dst, rows, expected = [], [], [], []
    for s, d in zip(*pairs(fabric), strict=True):
        paths = fabric.path_sets(np.array([s]), np.array([d])).paths.padded()
        for path in paths:
            for length in range((path >= 0).sum() + 1):
                traced = path[:length] if rng.random() < 0.9 else rng.integers(0, 8, length)
                alike = paths[(paths[:, :length] == traced).all(axis=1)]
                links, times = np.unique(alike[alike >= 0], return_counts=True)
                src.append(s)
                dst.append(d)
                rows.append(np.pad(traced, (0, paths.shape[1] - length), constant_values=-1))
                expected.append(dict(zip(links.tolist(), times / max(len(alike), 1), strict=True)))
    width = max(len(row) for row in rows)
    padded = np.array([np.pad(row, (0, width - len(row)), constant_values=-1) for row in rows])
    found = EcmpProbabilities(fabric).continuations(
        np.array(src, np.int32), np.array(dst, np.int32), Paths.from_padded(padded)
    )
    assert len(found.ptr) == len(expected) + 1
    for i, want in enumerate(expected):
        at = slice(found.ptr[i], found.ptr[i + 1])
        got = dict(zip(found.links[at].tolist(), found.chance[at].tolist(), strict=True))
        assert got == pytest.approx(want)


def test_no_connections_have_no_continuations():
    none = np.zeros(0, np.int32)
    found = EcmpProbabilities(FatTree(4)).continuations(
        none, none, Paths(np.zeros(1, np.int64), none)
    )
    assert found.ptr.tolist() == [0] and not len(found.links) and not len(found.chance)


def test_usage_is_the_papers_in_its_clos():
    """Equations 14a and 15a of appendix C, for links up and, by symmetry, down."""
    pods, n0, n1, n2 = 3, 4, 2, 3
    fabric = clos(pods, n0, n1, n2, wiring="complete")
    usage = EcmpProbabilities(fabric).usage()
    level_1 = fabric.tier[np.minimum(fabric.link_src, fabric.link_dst)] == 0
    leaves = n0 * (pods - 1) / (n0 * pods - 1)
    assert usage[level_1] == pytest.approx(1 / (n0 * n1 * pods))
    assert usage[~level_1] == pytest.approx(leaves / (n1 * n2 * pods))
