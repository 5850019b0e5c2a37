# SPDX-License-Identifier: Apache-2.0
"""A soft switch in this process that restarted gets again what was written to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from canary_softswitch import Program, Switch
from testbed.control.entries import SeparateEntries, entries_on
from testbed.control.epochs import set_parity
from testbed.control.forwarding import install_forwarding
from testbed.control.local import LocalEntries, LocalSwitch
from testbed.dataplane import DSM, HEAVY_HITTER, IDENTITY, PROGRAM, ROUTING, USM
from testbed.fabric.fat_tree import FatTree


@pytest.fixture
def control() -> LocalSwitch:
    control = LocalSwitch(Switch(Program.load(PROGRAM)))
    install_forwarding(FatTree(4), 0, control, mask=1, monitor=True)
    return control


def content(control: LocalSwitch) -> dict[str, Any]:
    """All that is in the tables of a switch, whatever its handles."""
    switch, found = control.switch, {}
    for name in (USM.rules, DSM.rules, ROUTING.routes, ROUTING.uplinks):
        table = switch.table(name)
        found[name] = sorted((e.match, e.action, e.params, e.group) for e in table.entries())
    for name in (IDENTITY.identity, IDENTITY.epoch):
        found[name] = switch.table(name).default()
    profile = switch.action_profile(ROUTING.selector)
    return found | {"members": profile.members, "groups": profile.groups}


def test_all_is_installed_again_in_a_switch_that_restarted(control: LocalSwitch) -> None:
    rules = control.table(USM.rules)
    gone, kept = rules.add([41], USM.monitor), rules.add([42], USM.monitor)
    rules.delete(gone)  # so that the switch's own handles will be others
    set_parity(control, 1)
    before = content(control)
    written = sum(len(entries) for name, entries in before.items() if isinstance(entries, list))
    control.give_up("it restarts")
    control.switch.restart()
    assert content(control) != before
    assert rules.counters([kept]).tolist() == [[0, 0]]
    assert control.restore() == written + len(before["members"]) + len(before["groups"])
    assert content(control) == before and not control.lost
    rules.delete(kept)
    assert len(control.switch.table(USM.rules)) == 0


def test_what_was_written_meanwhile_is_there_too(control: LocalSwitch) -> None:
    rules, profile = control.table(USM.rules), control.action_profile(ROUTING.selector)
    old = rules.add([41], USM.monitor)
    control.give_up("it restarts")
    control.switch.restart()
    rules.delete(old)
    new = rules.add([42], USM.monitor)
    profile.modify_group(0, [1])
    set_parity(control, 1)
    assert len(control.switch.table(USM.rules)) == 0
    control.restore()
    assert [e.match for e in control.switch.table(USM.rules).entries()] == [(42,)]
    assert control.switch.action_profile(ROUTING.selector).groups == {0: [1]}
    assert control.switch.table(IDENTITY.epoch).default() == ("action", IDENTITY.set_parity, (1,))
    rules.delete(new)


def test_only_what_is_missing_is_installed(control: LocalSwitch) -> None:
    assert control.restore() == 0
    table = control.switch.table(ROUTING.routes)
    before = content(control)
    for entry in table.entries()[:3]:
        table.delete(entry.handle)  # behind the controller's back
    assert control.restore() == 3
    assert content(control) == before


FLOWS = np.array([[41, 7], [42, 0], [43, 1 << 39]], np.uint64)
SEGMENTS = np.array([1, 2, 1], np.uint32)
AT = np.array([3, 5, 3], np.int32)


def matches(control: LocalSwitch, name: str) -> list[Any]:
    return sorted(entry.match for entry in control.switch.table(name).entries())


def test_entries_of_many_switches_at_once_are_those_added_one_by_one() -> None:
    program, found = Program.load(PROGRAM), []
    for entries in (LocalEntries, SeparateEntries):
        controls: Any = {number: LocalSwitch(Switch(program)) for number in (3, 5)}
        dsm = entries(controls, DSM.rules, DSM.monitor, None)
        hh = entries(controls, HEAVY_HITTER.segments, HEAVY_HITTER.report, 1)
        handles = dsm.add(AT, [FLOWS, SEGMENTS])
        hh.add(AT, [np.array([1, 2, 3], np.uint32), (17, 0xFFFFFFFF)])
        assert dsm.packets(handles).tolist() == [0, 0, 0]
        dsm.delete(handles[:1])
        names = DSM.rules, HEAVY_HITTER.segments
        found.append([matches(controls[at], name) for at in (3, 5) for name in names])
    assert found[0] == found[1]
    assert found[0][0] == [(43 | 1 << 39 << 64, 1)] and len(found[0][1]) == 2


def test_entries_of_many_switches_come_back_after_a_restart() -> None:
    program = Program.load(PROGRAM)
    controls = {number: LocalSwitch(Switch(program)) for number in (3, 5)}
    usm = entries_on(dict(controls), USM.rules, USM.monitor)
    handles = usm.add(AT, [FLOWS])
    before = matches(controls[3], USM.rules)
    controls[3].give_up("it restarts")
    controls[3].switch.restart()
    more = usm.add(AT[:2], [np.array([[50, 0], [51, 0]], np.uint64)])
    assert usm.packets(handles).tolist() == [0, 0, 0]
    usm.delete(handles[:1])
    assert matches(controls[3], USM.rules) == []
    assert controls[3].restore() == 2 and controls[3].restore() == 0
    assert matches(controls[3], USM.rules) == sorted({*before, (50,)} - {(41 | 7 << 64,)})
    assert matches(controls[5], USM.rules) == [(42,), (51,)]
    usm.delete(np.concatenate((handles[1:], more)))
    assert not any(matches(control, USM.rules) for control in controls.values())
    with pytest.raises(KeyError):
        usm.delete(handles[:1])
