# SPDX-License-Identifier: Apache-2.0
"""The entries that a controller keeps in one table of many switches, in arrays.

Switches in this process take and give all at once (`testbed.control.local.LocalEntries`); others
are asked one by one, in parallel where an answer takes time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray, LongArray
from testbed.control.local import LocalEntries, LocalSwitch
from testbed.control.switch import Column, SwitchControl, for_each


class Entries(Protocol):
    """Entries of a table of many switches; their actions have no parameters."""

    def add(self, switch: IntArray, columns: Sequence[Column]) -> LongArray:
        """Add n entries, at the switches int32[n]; return their handles, int64[n].

        A column is a field of all matches: of an exact one the values, unsigned[n], or
        uint64[n, 2] of more than 64 bits, low word first; of a ternary one (values, masks), of a
        range (lows, highs), each an array or one number.
        """
        ...

    def delete(self, handles: LongArray) -> None:
        """Remove the entries with these handles, int64[n]."""
        ...

    def packets(self, handles: LongArray) -> LongArray:
        """Return the packets that hit n entries, int64[n]; of a lost switch's they are 0."""
        ...


def entries_on(
    controls: Mapping[int, SwitchControl], table: str, action: str, priority: int | None = None
) -> Entries:
    """Return the entries of a table of these switches, none as yet; they all have this action."""
    local = {number: c for number, c in controls.items() if isinstance(c, LocalSwitch)}
    if len(local) < len(controls):
        return SeparateEntries(controls, table, action, priority)
    programs: dict[int, dict[int, LocalSwitch]] = {}
    for number, control in local.items():
        programs.setdefault(id(control.switch.program), {})[number] = control
    if len(programs) < 2:
        return LocalEntries(local, table, action, priority)
    parts = [LocalEntries(some, table, action, priority) for some in programs.values()]
    return JoinedEntries(parts, [list(some) for some in programs.values()])


class JoinedEntries:
    """Implements `Entries` for soft switches in this process with several programs.

    A handle is that of a part's entries, times the number of parts, plus the part's number.

    Args:
        parts: The entries of the switches of each program.
        switches: The numbers of these switches.
    """

    def __init__(self, parts: Sequence[Entries], switches: Sequence[Sequence[int]]) -> None:
        self._parts = parts
        self._part_of = np.zeros(max(max(some) for some in switches) + 1, np.int64)
        for number, some in enumerate(switches):
            self._part_of[some] = number

    def add(self, switch: IntArray, columns: Sequence[Column]) -> LongArray:
        """Add entries, see `Entries.add`."""
        handles, part_of = np.zeros(len(switch), np.int64), self._part_of[switch]
        for number, part in enumerate(self._parts):
            rows = np.flatnonzero(part_of == number)
            if len(rows):
                some = part.add(switch[rows], [_taken(column, rows) for column in columns])
                handles[rows] = some * len(self._parts) + number
        return handles

    def delete(self, handles: LongArray) -> None:
        """Remove the entries with these handles, int64[n]."""
        own, part_of = np.divmod(handles, len(self._parts))
        for number, part in enumerate(self._parts):
            part.delete(own[part_of == number])

    def packets(self, handles: LongArray) -> LongArray:
        """Return the packets that hit n entries, int64[n]; of a lost switch's they are 0."""
        packets = np.zeros(len(handles), np.int64)
        own, part_of = np.divmod(handles, len(self._parts))
        for number, part in enumerate(self._parts):
            packets[part_of == number] = part.packets(own[part_of == number])
        return packets


def _taken(column: Column, rows: npt.NDArray[np.intp]) -> Column:
    """Return some of the values of a column."""
    if isinstance(column, tuple):
        return tuple(each if isinstance(each, int) else each[rows] for each in column)
    return column[rows]


class SeparateEntries:
    """Implements `Entries` for switches that take entries one by one.

    A handle is that of the switch's table, with the number of the switch above its 32 bits.
    """

    def __init__(
        self, controls: Mapping[int, SwitchControl], table: str, action: str, priority: int | None
    ) -> None:
        self._controls, self._table = controls, table
        self._action, self._priority = action, priority

    def add(self, switch: IntArray, columns: Sequence[Column]) -> LongArray:
        """Add entries, see `Entries.add`."""
        added = [
            self._controls[number].table(self._table).add(match, self._action, (), self._priority)
            for number, match in zip(switch.tolist(), rows_of(columns), strict=True)
        ]
        return switch.astype(np.int64) << 32 | np.array(added, np.int64)

    def delete(self, handles: LongArray) -> None:
        """Remove the entries with these handles, int64[n]."""
        for switch, some in _by_switch(handles):
            table = self._controls[switch].table(self._table)
            for handle in (handles[some] & _HANDLE).tolist():
                table.delete(handle)

    def packets(self, handles: LongArray) -> LongArray:
        """Return the packets that hit n entries, int64[n]; the switches are asked in parallel."""
        places = dict(_by_switch(handles))
        numbers = {id(self._controls[switch]): switch for switch in places}

        def ask(control: SwitchControl) -> npt.NDArray[np.uint64]:
            """Return the packet counts of one switch's entries, in their order."""
            asked = handles[places[numbers[id(control)]]] & _HANDLE
            return control.table(self._table).counters(asked.tolist())[:, 0]

        counts = np.zeros(len(handles), np.int64)
        answers = for_each([self._controls[switch] for switch in places], ask)
        for some, packets in zip(places.values(), answers, strict=True):
            counts[some] = packets
        return counts


_HANDLE = (1 << 32) - 1


def _by_switch(handles: LongArray) -> Iterator[tuple[int, LongArray]]:
    """Return an iterator over the switches of entries and the positions of each, int64[]."""
    switch = handles >> 32
    for number in np.unique(switch).tolist():
        yield number, np.flatnonzero(switch == number)


def rows_of(columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    """Return matches, as `TableControl.add` takes them, of columns, as `Entries.add` does.

    >>> rows_of([np.array([[5, 1]], np.uint64), (np.array([7], np.uint32), 0xFF)])
    [(18446744073709551621, (7, 255))]
    """
    parts = [column if isinstance(column, tuple) else (column,) for column in columns]
    n = max(len(each) for pair in parts for each in pair if not isinstance(each, int))
    values = [[_numbers(each, n) for each in pair] for pair in parts]
    fields = [list(zip(*each, strict=True)) if len(each) > 1 else each[0] for each in values]
    return list(zip(*fields, strict=True))


def _numbers(values: npt.NDArray[np.unsignedinteger] | int, n: int) -> list[int]:
    """Return n values as integers: of words, low word first, or of one number."""
    if isinstance(values, int):
        return [values] * n
    words = values if values.ndim == 2 else values[:, None]
    return [sum(w << 64 * i for i, w in enumerate(row)) for row in words.tolist()]
