# SPDX-License-Identifier: Apache-2.0
"""Paths drawn without being listed, against the lists."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import chdtrc

from testbed.fabric.clos import Fabric, TopologyError, clos, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree

FABRICS = [
    FatTree(4),
    FatTree(6),
    leaf_spine(5, 3),
    clos(3, 2, 2, 4),
    clos(2, 3, 2, 3, wiring="complete"),
    FatTree(6).without([0, 7, 31, 60, 61]),
    leaf_spine(6, 4).without([1, 5, 14]),
]


def every_pair(fabric: Fabric) -> tuple[np.ndarray, np.ndarray]:
    tor = np.arange(fabric.n_tors, dtype=np.int32)
    src, dst = (a.ravel() for a in np.meshgrid(tor, tor, indexing="ij"))
    return src, dst


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda f: f.title)
def test_number_and_length_of_paths_are_those_of_the_lists(fabric: Fabric) -> None:
    ecmp = Ecmp(fabric)
    src, dst = every_pair(fabric)
    sets = fabric.path_sets(src, dst)
    assert ecmp.width[src, dst].tolist() == sets.width.tolist()
    length = sets.paths.length[sets.ptr[:-1]]
    assert (2 * ecmp.turn[src, dst]).tolist() == length.tolist()


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda f: f.title)
def test_draws_are_uniform_over_the_path_set(fabric: Fabric) -> None:
    ecmp, rng = Ecmp(fabric), np.random.default_rng(1)
    src, dst = every_pair(fabric)
    apart = np.flatnonzero(src != dst)
    p_values = []
    for pair in rng.choice(apart, 6, replace=False):
        path_set = fabric.path_sets(src[pair : pair + 1], dst[pair : pair + 1]).paths
        known = {tuple(path_set[i].tolist()): i for i in range(len(path_set))}
        n = 200 * len(known)
        drawn = ecmp.draw(np.repeat(src[pair], n), np.repeat(dst[pair], n), rng)
        times = np.zeros(len(known))
        for row in drawn.padded().tolist():
            times[known[tuple(row)]] += 1
        if len(known) > 1:
            p_values.append(chdtrc(len(known) - 1, ((times - 200) ** 2 / 200).sum()))
    assert min(p_values) > 1e-4


def test_a_rack_has_a_path_of_no_link() -> None:
    paths = Ecmp(FatTree(4)).draw(
        np.array([1, 2], np.int32), np.array([1, 3], np.int32), np.random.default_rng(0)
    )
    assert paths.length.tolist() == [0, 2]


def test_a_fabric_that_falls_apart_is_refused() -> None:
    fabric = leaf_spine(3, 1).without([1])
    with pytest.raises(TopologyError, match="no path from leaf0 to leaf1"):
        Ecmp(fabric)


def test_a_link_that_skips_a_tier_is_refused() -> None:
    fabric = Fabric(["a", "b", "c"], np.array([0, 0, 2]), np.array([0, 1]), np.array([2, 2]))
    with pytest.raises(TopologyError, match="a->c skips a tier"):
        Ecmp(fabric)


@pytest.mark.parametrize(
    "fabric",
    [leaf_spine(3, 2), clos(2, 2, 2, 4, wiring="complete"), FatTree(4).without([3, 17])],
    ids=lambda f: f.title,
)
def test_bounces_go_up_to_the_highest_tier_and_back(fabric) -> None:
    rows = Ecmp(fabric).bounces().padded()
    half = rows.shape[1] // 2
    assert (rows[:, ::-1] == rows ^ 1).all()
    assert (fabric.link_dst[rows[:, :-1]] == fabric.link_src[rows[:, 1:]]).all()
    assert (fabric.tier[fabric.link_src[rows[:, 0]]] == 0).all()
    assert (fabric.tier[fabric.link_dst[rows[:, half - 1]]] == fabric.tier.max()).all()
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert set(rows.ravel().tolist()) == set(range(fabric.n_links))
