# SPDX-License-Identifier: Apache-2.0
"""The grammar of MONITORS."""

from __future__ import annotations

import re

import pytest

from testbed.fabric.clos import Fabric, TopologyError, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.monitors import PLACEMENT, monitor_switches
from testbed.fabric.packet_fabric import TwoSwitches

K4, K8 = FatTree(4), FatTree(8)


def names(fabric: Fabric, text: str, seed: int = 1) -> set[str]:
    assert re.fullmatch(PLACEMENT, text)
    chosen = monitor_switches(fabric, text, seed)
    every = [name for name, here in zip(fabric.switch_names, chosen, strict=True) if here]
    return {name for name in every if not name.startswith("tor")}


def test_terms_are_tiers_and_switches() -> None:
    cores, aggs = ({n for n in K4.switch_names if n.startswith(t)} for t in ("core", "agg"))
    assert names(K4, "tor") == set()
    assert names(K4, "tor+core") == names(K4, "core+tor") == cores
    assert names(K4, "tor+agg+core") == cores | aggs
    assert names(K4, "tor+core0+core3") == {"core0", "core3"}
    assert names(K4, "tor+agg1_0+agg1_0") == {"agg1_0"}
    assert names(K4, "+".join(K4.switch_names)) == cores | aggs


def test_shares_are_drawn_by_the_seed() -> None:
    half = names(K8, "tor+50%core")
    assert len(half) == 8 and half == names(K8, "tor+50pctcore")
    assert half != names(K8, "tor+50%core", seed=2)
    assert names(K8, "tor+25%core") < half < names(K8, "tor+75%core") < names(K8, "tor+core")
    assert names(K8, "tor+100%core") == names(K8, "tor+core")
    assert len(names(K8, "tor+12.5%core")) == 2


def test_which_are_drawn_never_changes() -> None:
    """Records name shares and seeds: the same switches must be drawn in years."""
    drawn = {"agg0_0", "agg1_0", "core0", "core2"}
    assert names(K4, "tor+50%core+25%agg", seed=7) == drawn


def test_other_fabrics_have_these_tiers_as_far_as_they_go() -> None:
    fabric = leaf_spine(3, 2)
    assert monitor_switches(fabric, "tor", 1).tolist() == [True] * 3 + [False] * 2
    assert monitor_switches(fabric, "tor+core", 1).all()
    assert monitor_switches(fabric, "tor+spine1", 1).tolist() == [True] * 3 + [False, True]
    assert monitor_switches(TwoSwitches(), "tor", 1).all()
    with pytest.raises(TopologyError, match=r"no tier and no switch 'agg': choose from tor, core"):
        monitor_switches(fabric, "tor+agg", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agg", r"MONITORS=agg leaves out tor0_0: every ToR must be a monitor.*add \+tor"),
        ("50%tor+core", r"leaves out tor\d_\d"),
        ("tor+spin", r"no tier and no switch 'spin': choose from tor, agg, core, host, "),
        ("tor+core9", r"no switch 'core9': did you mean core"),
        ("tor+", r"no switch ''"),
        ("tor+150%core", r"150% is out of range: use more than 0 and up to 100%"),
        ("tor+0%core", r"0% is out of range"),
        ("tor+10%core", r"10% of 4 switches rounds to none: use a larger share"),
        ("tor+50%core0", r"a share needs a tier, such as 50%core: did you mean core"),
    ],
)
def test_what_means_nothing_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message) as error:
        monitor_switches(K4, text, 1)
    assert "\n" not in str(error.value)
