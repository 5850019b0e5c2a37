# SPDX-License-Identifier: Apache-2.0
"""Groups of uplinks: which ToRs have the same ones, and what the switch program has room for."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.fabric.clos import Fabric, TopologyError, clos, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.topologies import make_packet_fabric
from testbed.fabric.uplink_groups import uplink_groups


@pytest.mark.parametrize("fabric", [FatTree(4), leaf_spine(4, 2), clos(2, 2, 2, 4)])
def test_a_regular_fabric_needs_none(fabric: Fabric) -> None:
    assert uplink_groups(fabric) is None


@pytest.mark.parametrize(
    "text",
    ["leaf-spine:8:4:irregular=20pct", "fat-tree:irregular=15pct", "clos:3:4:3:6:irregular=20pct"],
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_shares_multiply_to_equal_chances_of_all_paths(text: str, seed: int) -> None:
    fabric = make_packet_fabric(text, 4, seed)
    assert fabric.groups is not None
    src, dst = (each.ravel() for each in np.indices((fabric.n_tors, fabric.n_tors)))
    src, dst = src[src != dst], dst[src != dst]
    sets = fabric.path_sets(src, dst)
    for pair, (begin, end) in enumerate(zip(sets.ptr, sets.ptr[1:], strict=False)):
        chances = []
        for path in range(begin, end):
            links = sets.paths.links[slice(*sets.paths.ptr[path : path + 2])]
            up = links[links % 2 == 0]
            chances.append(np.prod([_share(fabric, int(link), int(dst[pair])) for link in up]))
        assert chances == pytest.approx([1 / len(chances)] * len(chances))
    turn = Ecmp(fabric).turn[src, dst].astype(int)
    assert (fabric.hops(src, dst) == 2 * turn).all()


def _share(fabric: PacketFabric, link: int, tor: int) -> float:
    """The share of the flows to a ToR that a switch sends over one of its uplinks."""
    assert fabric.groups is not None
    groups = fabric.groups.of_switch[int(fabric.link_src[link])]
    (group,) = (group for group in groups if tor in group.tors)
    return float((group.links == link).mean())


def test_what_the_program_has_no_room_for_is_one_line() -> None:
    """ToRs with 200 ways over one aggregation switch and 199 over the other."""
    whole = clos(2, 1, 2, 400)
    gone = whole.link("agg0_1->core399") >> 1
    with pytest.raises(TopologyError, match="tor0_0 has 399 shares of flows in a group"):
        PacketFabric.of(whole.without([gone]))
