# SPDX-License-Identifier: Apache-2.0
"""Meters, counters, idle timeouts, value sets, priorities."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from canary_softswitch import MeterRates, Program, SoftSwitchError, Switch

PACKETS, BYTES, PRIORITY, GROUP = range(4)
GREEN, YELLOW, RED = range(3)


@pytest.fixture
def sw(load: Callable[..., Program]) -> Switch:
    return Switch(load("meters"))


def packet(op: int, key: int, size: int = 20) -> bytes:
    return bytes([op, key]).ljust(size, b"\0")


def colours(sw: Switch, op: int, key: int, times: list[int], size: int = 20) -> list[int]:
    return [sw.process(0, packet(op, key, size), now_us=t)[0][1][2] for t in times]


def test_a_meter_without_rates_is_green(sw: Switch) -> None:
    assert colours(sw, PACKETS, 0, [0] * 5) == [GREEN] * 5
    assert sw.meter("I.packets", 0) is None


def test_bursts(sw: Switch) -> None:
    sw.set_meter("I.packets", 1, MeterRates(0, 2, 0, 5))
    assert colours(sw, PACKETS, 1, [9] * 7) == [GREEN] * 2 + [YELLOW] * 3 + [RED] * 2
    assert colours(sw, PACKETS, 0, [9] * 7) == [GREEN] * 7  # another element
    assert colours(sw, PACKETS, 9, [9]) == [GREEN]  # none: nothing is written
    sw.set_meter("I.packets", 1, None)
    assert colours(sw, PACKETS, 1, [9] * 7) == [GREEN] * 7


def test_tokens_come_with_time(sw: Switch) -> None:
    sw.set_meter("I.packets", 0, MeterRates(0.001, 1, 0.01, 1))  # 1,000 and 10,000 a second
    assert colours(sw, PACKETS, 0, [0, 50, 100, 150, 1000]) == [GREEN, RED, YELLOW, RED, GREEN]


def test_bytes_are_those_that_arrived(sw: Switch) -> None:
    sw.set_meter("I.bytes", 2, MeterRates(0, 100, 0, 150))
    assert colours(sw, BYTES, 2, [0] * 4, size=50) == [GREEN, GREEN, YELLOW, RED]
    assert sw.meter("I.bytes", 2) == MeterRates(0, 100, 0, 150)


def test_wrong_meters(sw: Switch) -> None:
    with pytest.raises(SoftSwitchError, match="there is no 4"):
        sw.set_meter("I.packets", 4, None)
    with pytest.raises(SoftSwitchError, match=r"table\('I.entries'\)\.meter"):
        sw.meter("I.each", 0)
    with pytest.raises(SoftSwitchError, match="no meter named 'I.packet'"):
        sw.meter("I.packet", 0)
    with pytest.raises(SoftSwitchError, match="at most the peak"):
        MeterRates(2, 1, 1, 1)


def test_the_meter_of_an_entry(sw: Switch) -> None:
    table = sw.table("I.entries")
    handle = table.add([7], "note")
    table.set_meter(handle, MeterRates(0, 20, 0, 40))
    assert [sw.process(0, packet(9, 7))[0][1][3] for _ in range(3)] == [GREEN, YELLOW, RED]
    assert sw.process(0, packet(9, 8))[0][1][3] == GREEN  # a miss
    assert table.counter(handle) == (3, 60)
    assert table.meter(handle) == MeterRates(0, 20, 0, 40)
    table.delete(handle)
    assert table.meter(table.add([7], "note")) is None  # a new entry has none
    with pytest.raises(SoftSwitchError, match="no entry has this handle"):
        table.meter(5)


def test_counters_count_packets_and_bytes(sw: Switch) -> None:
    for size in (20, 30):
        sw.process(0, packet(9, 3, size))
    sw.process(0, packet(9, 4))  # no such element
    assert sw.counter("I.all").tolist() == [(0, 0)] * 3 + [(2, 50)]


def test_the_last_hit_of_an_entry(sw: Switch) -> None:
    table = sw.table("I.entries")
    assert sw.program.tables["I.entries"].timeouts
    handles = [table.add([k], "note") for k in range(20, 36)]
    assert table.last_hit(handles[3]) == 0
    sw.process(0, packet(9, 23), now_us=77)
    assert [table.last_hit(h) for h in handles] == [0] * 3 + [77] + [0] * 12
    table.delete(handles[3])
    assert table.last_hit(table.add([23], "note")) == 0


def test_a_value_set_selects(sw: Switch) -> None:
    def member(key: int) -> int:
        return sw.process(0, packet(9, key))[0][1][4]

    assert [member(k) for k in (5, 6)] == [0, 0]
    sw.set_value_set("P.known", [6, 9, 6])
    assert sw.value_set("P.known") == (6, 9)
    assert [member(k) for k in (5, 6, 9)] == [0, 1, 1]
    sw.set_value_set("P.known", [])
    assert member(6) == 0
    with pytest.raises(SoftSwitchError, match="does not fit in 8 bits"):
        sw.set_value_set("P.known", [256])


def test_a_priority_without_a_queue_drops(load: Callable[..., Program]) -> None:
    one, eight = (Switch(load("meters"), queues=n) for n in (1, 8))
    assert [len(one.process(0, packet(PRIORITY, p))) for p in (0, 1)] == [1, 0]
    assert [len(eight.process(0, packet(PRIORITY, p))) for p in (0, 7)] == [1, 1]
