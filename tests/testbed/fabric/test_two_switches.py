# SPDX-License-Identifier: Apache-2.0
"""Two switches and a link: paths, segments, probes and addresses of the smallest fabric."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from testbed.fabric.ecmp import Ecmp
from testbed.fabric.ecmp_probabilities import EcmpProbabilities
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.fabric.probe_matrix.matrix import standard_matrix
from testbed.measurements.bounce.probes import probe_plan
from testbed.measurements.matrix.probes import matrix_probes
from testbed.record.fabric_file import read_fabric, write_fabric

TWO = TwoSwitches()
THERE, BACK = np.array([0, 1, 1], np.int32), np.array([1, 0, 1], np.int32)


def test_a_path_is_the_link() -> None:
    paths = TWO.path_sets(THERE, BACK)
    assert paths.width.tolist() == [1, 1, 1]
    assert [path.tolist() for path in paths.paths] == [[0], [1], []]
    assert TWO.hops(THERE[:2], BACK[:2]).tolist() == [1, 1]
    drawn = Ecmp(TWO).draw(THERE, BACK, np.random.default_rng(1))
    assert [path.tolist() for path in drawn] == [[0], [1], []]
    assert EcmpProbabilities(TWO).usage().tolist() == [0.5, 0.5]


def test_each_direction_is_a_segment() -> None:
    for monitors in ("tor", "tor+core"):
        found = TWO.segments(monitors)
        assert found.upstream.tolist() == [0, 1] and found.downstream.tolist() == [1, 0]
        assert found.paths.links.tolist() == [0, 1] and found.switches.tolist() == [[0], [1]]


def test_probes_turn_at_the_upper_switch() -> None:
    assert Ecmp(TWO).bounces().links.tolist() == [0, 1]
    plan = probe_plan(TWO, 1.0, 100)
    assert plan.host.tolist() == [0] and plan.path.tolist() == [0]
    matrix = standard_matrix(TWO)
    assert matrix.turn.tolist() == [1] and matrix.both_ways.links.tolist() == [0, 1]
    probes = matrix_probes(TWO, matrix, 1.0, 12)
    assert set(zip(probes.src_host.tolist(), probes.dst_host.tolist(), strict=True)) == {
        (0, 1),
        (1, 0),
    }


def test_a_file_of_it_is_read_as_such(tmp_path: Path) -> None:
    write_fabric(tmp_path / "fabric.csv", TWO)
    read = read_fabric(tmp_path / "fabric.csv").fabric
    assert isinstance(read, TwoSwitches) and read.n_tors == 2


def test_a_fat_trees_lengths_and_pods_are_those_of_its_paths() -> None:
    tree = FatTree(6)
    src, dst = np.array([0, 0, 3]), np.array([2, 17, 0])
    lengths = tree.path_sets(src, dst).paths.length
    assert np.unique(lengths).tolist() == [2, 4]
    assert tree.hops(src, dst).tolist() == [2, 4, 4]
    assert tree.pod.tolist() == super(FatTree, tree).pod.tolist()
