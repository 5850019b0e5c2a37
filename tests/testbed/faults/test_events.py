# SPDX-License-Identifier: Apache-2.0
"""EVENTS: what is understood, and what is refused in one line."""

from __future__ import annotations

import pytest

from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.faults.events import EventError, parse_events

FABRIC = FatTree(4)
DRAIN = "drain tor0_0->agg0_1"


def test_events_are_in_order_of_time() -> None:
    text = f"0.7 undrain tor0_0->agg0_1; 0.45 {DRAIN};0.7  drain  agg0_0->core1"
    events = parse_events(text, FABRIC, 1.0)
    assert [(e.seconds, e.kind, e.name) for e in events] == [
        (0.45, "drain", "tor0_0->agg0_1"),
        (0.7, "undrain", "tor0_0->agg0_1"),
        (0.7, "drain", "agg0_0->core1"),
    ]
    assert [FABRIC.link_names[event.target] for event in events] == [e.name for e in events]
    assert events[0].time_ns == 450_000_000


def test_a_switch_restarts() -> None:
    [event] = parse_events("0.5 reboot core0", FABRIC, 1.0)
    assert FABRIC.switch_names[event.target] == event.name == "core0"


def test_cables_and_switches_go_off_and_on() -> None:
    text = "0.2 down core0-agg0_0; 0.3 down h0_0_1; 0.4 stop tor0_0; 0.5 up agg0_0->core0"
    events = parse_events(text, FABRIC, 1.0)
    assert [(e.kind, e.name) for e in events] == [
        ("down", "agg0_0->core0"),
        ("down", "h0_0_1"),
        ("stop", "tor0_0"),
        ("up", "agg0_0->core0"),
    ]
    assert events[1].target == FABRIC.n_links + 1


@pytest.mark.parametrize("text", ["none", " None "])
def test_nothing_happens(text: str) -> None:
    assert parse_events(text, FABRIC, 1.0) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'': use none, or 0.45 drain"),
        ("soon", "'soon': use none, or 0.45 drain"),
        (f"0.1 {DRAIN};", "'': use none"),
        (f"soon {DRAIN}", "'soon' is not a time in seconds"),
        (f"-1 {DRAIN}", "'-1' is not a time in seconds"),
        (f"nan {DRAIN}", "'nan' is not a time in seconds"),
        ("0.1 drian tor0_0->agg0_1", "'drian' is unknown: use drain, undrain, reboot"),
        (f"1 {DRAIN}", "the run ends at 1 s: use an earlier time or more EPOCHS"),
        ("0.1 drain tor0_0->agg9_9", "no link 'tor0_0->agg9_9' in .* the nearest is tor0_0->agg"),
        ("0.1 drain tor0_0", "no link 'tor0_0'"),
        (
            "0.1 drain agg0_1->tor0_0",
            "in no ECMP group: drain a link upwards, such as agg0_1->core",
        ),
        ("0.1 drain core0->agg0_0", "in no ECMP group: drain a link upwards$"),
        (f"0.1 {DRAIN}; 0.2 drain tor0_0->agg0_0", "0.2 .* it is the last uplink of tor0_0"),
        ("0.1 up agg0_0-core0", "agg0_0->core0 is on at that time: down it before"),
        ("0.1 down h0_0_0; 0.2 down h0_0_0", "0.2 .* h0_0_0 is already off"),
        ("0.1 stop core9", "no switch 'core9' in"),
        ("0.1 down h9_9_9", "no link 'h9_9_9'"),
        ("0.1 reboot core9", "no switch 'core9' in .* the nearest is core"),
        (f"0.1 {DRAIN}; 0.2 {DRAIN}", "is already drained"),
        ("0.1 undrain tor0_0->agg0_1", "is not drained at that time: drain it before"),
        (f"0.3 {DRAIN}; 0.2 undrain tor0_0->agg0_1", "0.2 .* is not drained at that time"),
        ("x" * 10_000, "xxx"),
        (f"0.1 drain {'x' * 10_000}", "no link"),
    ],
)
def test_what_makes_no_sense_is_one_line(text: str, message: str) -> None:
    with pytest.raises(EventError, match=f"^EVENTS item .*{message}") as found:
        parse_events(text, FABRIC, 1.0)
    assert "\n" not in str(found.value) and len(str(found.value)) < 400


def test_two_switches_have_no_group() -> None:
    with pytest.raises(EventError, match="it is the last uplink of tor0"):
        parse_events("0.1 drain tor0->tor1", TwoSwitches(), 1.0)


def test_the_last_uplink_may_go_when_another_is_back() -> None:
    text = f"0.1 {DRAIN}; 0.2 undrain tor0_0->agg0_1; 0.2 drain tor0_0->agg0_0"
    assert len(parse_events(text, FABRIC, 1.0)) == 3
