# SPDX-License-Identifier: Apache-2.0
"""TOPOLOGY in a word."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.fabric.clos import TopologyError
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.fabric.topologies import make_fabric, make_packet_fabric


def test_shapes() -> None:
    assert isinstance(make_fabric("fat-tree", 6, 1), FatTree)
    leaf_spine = make_fabric("leaf-spine:8:4:3", 4, 1)
    assert (leaf_spine.n_tors, leaf_spine.n_edges, leaf_spine.hosts_per_tor) == (8, 32, 12)
    assert isinstance(make_fabric("two-switch", 4, 1), TwoSwitches)
    clos = make_fabric("clos:3:4:2:6", 4, 1)
    assert np.bincount(clos.tier).tolist() == [12, 6, 6] and clos.hosts_per_tor == 2


def test_irregular_fabrics_lack_links_by_the_seed() -> None:
    one, same, other = (make_fabric("fat-tree:irregular=5pct", 8, s) for s in (1, 1, 2))
    assert one.n_edges == 256 - 13
    assert one.link_names == same.link_names != other.link_names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ring", "is unknown: use fat-tree, two-switch, leaf-spine"),
        ("leaf-spine", "is unknown"),
        ("leaf-spine:8", "is unknown"),
        ("leaf-spine:8:four", "is unknown"),
        ("leaf-spine:8:4:3:2", "is unknown"),
        ("leaf-spine:8:0", "at least 1"),
        ("leaf-spine:8:4:nan", "oversubscription"),
        ("leaf-spine:99999999:4", "too large"),
        ("clos:4000:4000:2:2", "too large"),
        ("clos:2:2:2:3", "multiple"),
        ("fat-tree:8", "is unknown"),
        ("two-switch:8", "is unknown"),
        ("two-switch:irregular=60pct", "is not connected"),
        ("fat-tree:irregular=", "is unknown"),
        ("fat-tree:irregular=0pct", "is unknown"),
        ("fat-tree:irregular=1pct", "rounds to no link"),
        ("leaf-spine:4:1:irregular=30pct", "is not connected"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, why: str) -> None:
    with pytest.raises(TopologyError, match=why) as error:
        make_fabric(text, 4, 1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fat-tree:irregular=0pct", "is unknown"),
        ("ring", "is unknown"),
        ("two-switch:3", "is unknown"),
    ],
)
def test_packets_go_through_few_shapes(text: str, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        make_packet_fabric(text, 4, seed=1)
