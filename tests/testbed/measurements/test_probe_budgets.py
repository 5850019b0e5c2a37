# SPDX-License-Identifier: Apache-2.0
"""How many probes plans send: deTector's as many as NetBouncer's, up to what a rack may send."""

from __future__ import annotations

import pytest

from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.measurements.matrix.measurement import PER_RACK
from testbed.measurements.registry import budget


@pytest.mark.parametrize("k", [4, 8, 16])
def test_up_to_k_16_both_plans_send_the_same(k: int) -> None:
    tree = FatTree(k)
    pairs = len(Ecmp(tree).bounces()) * tree.hosts_per_tor
    for name in ("probes", "matrix probes"):
        assert budget(name).probes_each(tree, 1, 100) == 100 * pairs


def test_beyond_a_rack_of_detectors_sends_no_more_than_its_pingers_may() -> None:
    for k in (18, 24):
        tree = FatTree(k)
        racks = 100 * PER_RACK * tree.n_tors
        assert budget("matrix probes").probes_each(tree, 1, 100) == racks
        assert budget("probes").probes_each(tree, 1, 100) == 100 * tree.n_hosts * (k // 2) ** 2


def test_every_flow_of_probes_sends_at_least_one() -> None:
    assert budget("matrix probes").probes_each(FatTree(4), 1_000_000, 1) == 1
