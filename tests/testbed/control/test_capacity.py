"""Which fat-trees fit into the tables of the P4 program."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from testbed.control.capacity import CapacityError, check_tables, most_entries
from testbed.control.forwarding import install_forwarding
from testbed.control.selection import FlowSelector, SelectionParameters
from testbed.dataplane import HEAVY_HITTER, PROGRAM, ROUTING
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pathbf import SegmentDecoder
from testbed.fabric.segments import Monitors
from testbed.softswitch import Program, SoftSwitchError, Switch


class Counting:
    """A switch's control that counts entries by table."""

    remote = waiting = False

    def __init__(self) -> None:
        self.entries: Counter[str] = Counter()
        self._table = ""

    def table(self, name: str) -> Counting:
        self._table = name
        return self

    action_profile = table

    def add(self, *_: Any, **__: Any) -> int:
        self.entries[self._table] += 1
        return self.entries[self._table]

    set_default = add_member = add_group = add_group_entry = hold = send = lambda self, *_: 0


@pytest.mark.parametrize("monitors", ["tor", "tor+core"])
@pytest.mark.parametrize("k", [4, 6, 8])
def test_the_most_entries_are_what_the_controller_installs(k: int, monitors: Monitors) -> None:
    topology = FatTree(k)
    segments = topology.segments(monitors)
    controls: list[Any] = [Counting() for _ in range(topology.n_switches)]
    for switch, control in enumerate(controls):
        install_forwarding(topology, switch, control, mask=0, monitor=True)
    decoder = SegmentDecoder(topology, segments, np.arange(topology.n_switches, dtype=np.uint64))
    selector = FlowSelector(segments, decoder, dict(enumerate(controls)), SelectionParameters())
    selector.plan(*np.zeros((2, len(segments)), np.int64))
    most = {
        name: max(control.entries[name] for control in controls)
        for name in (HEAVY_HITTER.segments, ROUTING.routes)
    }
    assert most_entries(k, monitors, selects=True) == most
    assert most_entries(k, monitors, selects=False)[HEAVY_HITTER.segments] == 0


@pytest.mark.parametrize(
    ("monitors", "selects", "largest"),
    [("tor", True, 8), ("tor+core", True, 44), ("tor", False, 60), ("tor+core", False, 60)],
)
def test_the_largest_that_fits_fits_a_switch_and_the_next_does_not(
    monitors: Monitors, selects: bool, largest: int
) -> None:
    check_tables(largest, monitors, selects=selects)
    with pytest.raises(CapacityError, match=f"use K up to {largest}"):
        check_tables(largest + 2, monitors, selects=selects)

    fill(largest, monitors, selects)
    with pytest.raises(SoftSwitchError, match="the table is full"):
        fill(largest + 2, monitors, selects)


def fill(k: int, monitors: Monitors, selects: bool) -> None:
    """Install a ToR's routes and as many requests for flows as a switch may have, on one switch."""
    switch = Switch(Program.load(PROGRAM), seed=1)
    install_forwarding(FatTree(k), 0, switch, mask=0, monitor=True)
    table = switch.table(HEAVY_HITTER.segments)
    for n in range(most_entries(k, monitors, selects=selects)[HEAVY_HITTER.segments]):
        table.add([n, (16, 0xFFFFFFFF)], HEAVY_HITTER.report, priority=1)


def test_the_refusal_says_what_fits() -> None:
    with pytest.raises(CapacityError) as tor:
        check_tables(10, "tor", selects=True)
    assert str(tor.value) == (
        "K=10 with MONITORS=tor needs 1,145 entries in the table "
        "CanaryIngress.heavy_hitter.segments of a switch, which has 1,024: "
        "use K up to 8, MONITORS=tor+core (K up to 44) or BACKEND=flow"
    )
    with pytest.raises(CapacityError, match="1,058 entries .* use K up to 44 or BACKEND=flow"):
        check_tables(46, "tor+core", selects=True)
