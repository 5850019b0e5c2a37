# SPDX-License-Identifier: Apache-2.0
"""Many entries of many switches at once are those that are added one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from canary_softswitch import Program, SoftSwitchError, Switch
from canary_softswitch.runtime.tables_alike import TablesAlike

N = 40
WORD = np.arange(N, dtype=np.uint64)
SHORT = WORD.astype(np.uint32)
WIDE = np.stack((WORD * 3, WORD << np.uint64(6) | np.uint64(1)), axis=1)
AT = np.arange(N) % 3

CASES: dict[str, tuple[list[Any], Callable[[int], list[Any]], int | None]] = {
    "exact_t": ([SHORT, WIDE], lambda n: [n, (n << 6 | 1) << 64 | 3 * n], None),
    "ternary_t": (
        [(SHORT, 0xFE), (SHORT * 5, SHORT * 7), (SHORT % 16).astype(np.uint8)],
        lambda n: [(n, 0xFE), (5 * n, 7 * n), n % 16],
        4,
    ),
    "range_t": (
        [(SHORT, SHORT + 9), (0, 4095), (SHORT, 0xFFFFFFFF)],
        lambda n: [(n, n + 9), (0, 4095), (n, 0xFFFFFFFF)],
        1,
    ),
    "slice_t": ([SHORT, (SHORT, 0xF0)], lambda n: [n, (n, 0xF0)], 2),
}


def tables(load: Callable[..., Program], name: str) -> list[Any]:
    program = load("matching")
    return [Switch(program).table(f"I.{name}") for _ in range(3)]


def content(table: Any) -> list[Any]:
    return [(e.handle, e.match, e.action, e.priority) for e in table.entries()]


@pytest.mark.parametrize("name", CASES)
def test_they_are_those_added_one_by_one(load: Callable[..., Program], name: str) -> None:
    columns, match, priority = CASES[name]
    one, many = tables(load, name), tables(load, name)
    alike = TablesAlike(many)
    handles = alike.add(AT, alike.words_of(columns), "NoAction", priority)
    added = [one[at].add(match(n), "NoAction", (), priority) for n, at in enumerate(AT)]
    assert handles.tolist() == added
    assert [content(table) for table in one] == [content(table) for table in many]
    alike.delete(AT[::2], handles[::2])
    for n in range(0, N, 2):
        one[AT[n]].delete(added[n])
    assert [content(table) for table in one] == [content(table) for table in many]
    with pytest.raises(SoftSwitchError, match="no entry has this handle"):
        alike.delete(AT[:1], handles[:1])


def test_what_is_wrong_is_said(load: Callable[..., Program]) -> None:
    many = tables(load, "exact_t")
    alike = TablesAlike(many)
    words = alike.words_of([SHORT, WIDE])
    with pytest.raises(SoftSwitchError):
        alike.add(AT, words, "set")  # this action has a parameter
    alike.add(AT, words, "NoAction")
    again = alike.words_of([np.array([99, 1], np.uint32), WIDE[:2]])
    with pytest.raises(SoftSwitchError, match="same match"):  # the first stays
        alike.add(AT[[0, 1]], again, "NoAction")
    assert sum(map(len, many)) == N + 1
    for wrong in (
        [SHORT],
        [SHORT, WORD],
        [(SHORT, 1), WIDE],
        [WORD << np.uint64(40), WIDE],
        [SHORT.astype(np.int32), WIDE],
    ):
        with pytest.raises(SoftSwitchError):
            alike.words_of(wrong)
    with pytest.raises(IndexError):
        alike.delete(np.array([3]), np.array([0]))
    with pytest.raises(SoftSwitchError, match="one by one"):
        TablesAlike(tables(load, "lpm_t")).words_of([SHORT, (SHORT, 8)])


def test_counters_are_those_of_each_table(load: Callable[..., Program]) -> None:
    with pytest.raises(SoftSwitchError, match="no direct counter"):
        TablesAlike(tables(load, "exact_t")).counters(AT[:1], AT[:1])
