# SPDX-License-Identifier: Apache-2.0
"""The sizes of the switches' tables follow the fabric."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canary_softswitch import Program, SoftSwitchError, Switch
from testbed.control.forwarding import install_forwarding, needed_entries
from testbed.dataplane import HEAVY_HITTER, ROUTING, VERDICT
from testbed.dataplane.adapted import IcmpLimit, adapted_program
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pathbf import SegmentDecoder
from testbed.measurements.canary.selection import FlowSelector, SelectionParameters


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


@pytest.mark.parametrize("monitors", ["tor", "tor+core", "tor+agg+core", "tor+50%core"])
@pytest.mark.parametrize("k", [4, 6, 8])
def test_the_most_entries_are_what_the_controller_installs(k: int, monitors: str) -> None:
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
    assert needed_entries(topology, segments) == most


def test_tables_of_a_large_fabric_hold_what_is_installed(tmp_path: Path) -> None:
    """K=12 with ToR monitors alone wants flows of 2,406 segments into a ToR; 1,024 were the end."""
    topology = FatTree(12)
    entries = needed_entries(topology, topology.segments("tor"))
    assert entries[HEAVY_HITTER.segments] == 30 + 66 * 36 > HEAVY_HITTER.capacity
    # With the limit and the entries of a test of p4/test_expiry.py: both are compiled once.
    made = adapted_program(tmp_path, IcmpLimit.of(400), entries)
    program = Program.load(made.json, observe=VERDICT.field)
    table = Switch(program, seed=1).table(HEAVY_HITTER.segments)
    full = entries[HEAVY_HITTER.segments]
    for n in range(full):
        table.add([n, (16, 0xFFFFFFFF)], HEAVY_HITTER.report, priority=1)
    with pytest.raises(SoftSwitchError, match=r"full \(2406 entries\)"):
        table.add([full, (16, 0xFFFFFFFF)], HEAVY_HITTER.report, priority=1)
