# SPDX-License-Identifier: Apache-2.0
"""Control of a soft switch in this process: registers are live views and writes take no time.

What is written to its tables is also kept here, so that it can be restored after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from canary_softswitch import Switch
from canary_softswitch.runtime.tables import Table
from canary_softswitch.runtime.tables_alike import TablesAlike
from testbed.arrays import IntArray, LongArray, WordArray
from testbed.control.switch import Column


@dataclass(eq=False)
class LocalSwitch:
    """Implements `testbed.control.switch.SwitchControl` for a soft switch in this process."""

    switch: Switch
    remote: bool = False
    lost: str = ""
    waiting: bool = False
    _tables: dict[str, LocalTable] = field(default_factory=dict)
    _profiles: dict[str, LocalProfile] = field(default_factory=dict)
    _shared: list[LocalEntries] = field(default_factory=list)

    def table(self, name: str) -> LocalTable:
        """Return the control of a table; raise SoftSwitchError if there is none."""
        if name not in self._tables:
            self.switch.table(name)  # raises
            self._tables[name] = LocalTable(self, name)
        return self._tables[name]

    def action_profile(self, name: str) -> LocalProfile:
        """Return the control of an action profile; raise SoftSwitchError if there is none."""
        if name not in self._profiles:
            self.switch.action_profile(name)  # raises
            self._profiles[name] = LocalProfile(self, name)
        return self._profiles[name]

    def counter(self, name: str, indices: Sequence[int] | None = None) -> npt.NDArray[Any]:
        """Return an indirect counter as a live view of all elements [n]; ``indices`` is ignored."""
        return self.switch.counter(name)

    def read_registers(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Return the register arrays ``names``, by name, as live views [size of the array]."""
        return {name: self.switch.register(name) for name in names}

    def reset_registers(
        self, names: Sequence[str], start: int = 0, stop: int | None = None
    ) -> None:
        """Set elements ``start`` to ``stop - 1``, counted from 0, of each array to zero."""
        for name in names:
            self.switch.register(name)[start:stop] = 0

    def digests(self) -> dict[str, npt.NDArray[Any]]:
        """Return the digests since the last call, by name; they are acknowledged.

        Each is a structured array [n]: the program's fields, ``now_us`` and ``sequence``.
        """
        return self.switch.digests(ack=True) if self.switch.digests_pending else {}

    def hold(self) -> None:
        """Do nothing: writes to a switch in this process take effect at once."""

    def send(self) -> None:
        """Do nothing: `hold` holds no write back."""

    def is_primary(self) -> bool:
        """Return True: nobody else can reach a switch in this process."""
        return True

    def give_up(self, reason: str) -> None:
        """Mark the switch as lost for ``reason``: writes do not reach it until `restore`."""
        self.lost = reason

    def restore(self) -> int:
        """Install every entry, member and group that was written and that the switch lacks.

        Returns:
            The number of entries, members and groups that were installed.
        """
        self.lost = ""
        parts = [*self._profiles.values(), *self._tables.values()]
        shared = sum(entries.restore(self) for entries in self._shared)
        return sum(part.restore() for part in parts) + shared


@dataclass(frozen=True)
class _Entry:
    match: Sequence[Any]
    priority: int | None
    add: Callable[[Table], int]


@dataclass(eq=False)
class LocalTable:
    """Implements `testbed.control.switch.TableControl` for one table of a soft switch.

    Handles are assigned here, because the switch assigns different ones after a restart.
    """

    _control: LocalSwitch
    _name: str
    _entries: dict[int, _Entry] = field(default_factory=dict)
    _own: dict[int, int] = field(default_factory=dict)  # the switch's handles, where it has them
    _default: tuple[str, tuple[int, ...]] | None = None
    _next: int = 0

    @property
    def _table(self) -> Table:
        return self._control.switch.table(self._name)

    def add(
        self,
        match: Sequence[Any],
        action: str,
        params: Sequence[int] = (),
        priority: int | None = None,
    ) -> int:
        """Add an entry and return its handle, a number; a lost switch gets it with `restore`."""
        match = tuple(match)
        return self._insert(
            _Entry(match, priority, lambda table: table.add(match, action, params, priority))
        )

    def add_group_entry(self, match: Sequence[Any], group: int, priority: int | None = None) -> int:
        """Add an entry that runs a member of the group with this number; return its handle."""
        match = tuple(match)
        return self._insert(
            _Entry(match, priority, lambda table: table.add_group_entry(match, group, priority))
        )

    def _insert(self, entry: _Entry) -> int:
        if not self._control.lost:
            self._own[self._next] = entry.add(self._table)
        self._entries[self._next] = entry
        self._next += 1
        return self._next - 1

    def delete(self, handle: int) -> None:
        """Remove the entry with a handle, the number that `add` or `add_group_entry` returned."""
        del self._entries[handle]
        own = self._own.pop(handle, None)
        if own is not None and not self._control.lost:
            self._table.delete(own)

    def set_default(self, action: str, params: Sequence[int] = ()) -> None:
        """Set the action that packets without a matching entry run."""
        self._default = action, tuple(params)
        if not self._control.lost:
            self._table.set_default(action, params)

    def counters(self, handles: Sequence[int]) -> npt.NDArray[np.uint64]:
        """Return the packets and bytes that hit n entries, uint64[n, 2]; 0 while it is lost."""
        if self._control.lost:
            return np.zeros((len(handles), 2), np.uint64)
        return self._table.counters([self._own[handle] for handle in handles])

    def restore(self) -> int:
        """Install this table's missing entries and its default action; return how many entries."""
        table, missing = self._table, 0
        there = {(table.canonical(e.match), e.priority or 0): e.handle for e in table.entries()}
        for handle, entry in self._entries.items():
            own = there.get((table.canonical(tuple(entry.match)), entry.priority or 0))
            if own is None:
                own = entry.add(table)
                missing += 1
            self._own[handle] = own
        if self._default is not None:
            table.set_default(*self._default)
        return missing


@dataclass(eq=False)
class LocalProfile:
    """Implements `testbed.control.switch.ActionProfileControl` for one action profile.

    Members and groups have the numbers that the switch assigns, in order from 0.
    """

    _control: LocalSwitch
    _name: str
    _members: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    _groups: list[list[int]] = field(default_factory=list)

    @property
    def _profile(self):
        return self._control.switch.action_profile(self._name)

    def add_member(self, action: str, params: Sequence[int] = ()) -> int:
        """Add an action with its parameters as a member; return its number."""
        if not self._control.lost:
            self._profile.add_member(action, params)
        self._members.append((action, tuple(params)))
        return len(self._members) - 1

    def add_group(self, members: Sequence[int]) -> int:
        """Add a group of members and return its number."""
        if not self._control.lost:
            self._profile.add_group(members)
        self._groups.append(list(members))
        return len(self._groups) - 1

    def modify_group(self, group: int, members: Sequence[int]) -> None:
        """Replace the members of a group; both are numbers that this profile returned."""
        if not self._control.lost:
            self._profile.modify_group(group, members)
        self._groups[group] = list(members)

    def restore(self) -> int:
        """Install this profile's missing members and groups; return how many they were."""
        profile = self._profile
        members, groups = profile.members, profile.groups
        lacking = [n for n in range(len(self._members)) if n not in members]
        for number in lacking:
            profile.add_member(*self._members[number])
        without = [n for n in range(len(self._groups)) if n not in groups]
        for number in without:
            profile.add_group(self._groups[number])
        return len(lacking) + len(without)


_NONE = -1


class LocalEntries:
    """Implements `testbed.control.entries.Entries` for soft switches in this process.

    Entries are arrays in the order of their handles. What a lost switch should have is kept, and
    reaches it with `LocalSwitch.restore`.
    """

    def __init__(
        self, controls: Mapping[int, LocalSwitch], table: str, action: str, priority: int | None
    ) -> None:
        self._table, self._action, self._priority = table, action, priority
        self._controls = list(controls.values())
        self._position = np.full(max(controls, default=0) + 1, _NONE)  # of a switch in the list
        self._position[list(controls)] = np.arange(len(controls))
        for control in self._controls:
            control._shared.append(self)
        self._next = 0
        self._alike: tuple[list[int], TablesAlike] | None = None
        # The handles, the switches, their own handles of the entries, or none, and the matches.
        self._handle, self._at, self._own = (np.zeros(0, np.int64) for _ in range(3))
        self._words = np.zeros((0, 0), np.uint64)
        self._new: list[tuple[LongArray, LongArray, LongArray, WordArray]] = []

    def add(self, switch: IntArray, columns: Sequence[Column]) -> LongArray:
        """Add entries, see `testbed.control.entries.Entries.add`."""
        at, tables = self._position[switch], self._tables()
        words = tables.words_of(columns)
        handles = np.arange(self._next, self._next + len(at))
        self._next += len(at)
        self._new.append((handles, at, self._added(tables, at, words), words))
        return handles

    def _added(self, tables: TablesAlike, at: LongArray, words: WordArray) -> LongArray:
        """Add entries to the switches that are not lost; return their handles there, or none."""
        own, there = np.full(len(at), _NONE), self._there(at)
        own[there] = tables.add(at[there], words[there], self._action, self._priority)
        return own

    def delete(self, handles: LongArray) -> None:
        """Remove the entries with these handles, int64[n]."""
        rows = self._rows(handles)
        known = rows[self._there(self._at[rows]) & (self._own[rows] != _NONE)]
        self._tables().delete(self._at[known], self._own[known])
        kept = np.ones(len(self._handle), np.bool_)
        kept[rows] = False
        self._handle, self._at = self._handle[kept], self._at[kept]
        self._own, self._words = self._own[kept], self._words[kept]

    def packets(self, handles: LongArray) -> LongArray:
        """Return the packets that hit n entries, int64[n]; of a lost switch's they are 0."""
        rows, packets = self._rows(handles), np.zeros(len(handles), np.int64)
        there = self._there(self._at[rows])
        known = rows[there]
        packets[there] = self._tables().counters(self._at[known], self._own[known])[:, 0]
        return packets

    def restore(self, control: LocalSwitch) -> int:
        """Install the entries that a switch lacks; return how many."""
        self._join()
        rows = np.flatnonzero(self._at == self._controls.index(control))
        table = control.switch.table(self._table)
        exact, there = table.layout.kind == "exact", {}
        for entry in table.entries():
            value, mask, _ = table.canonical(entry.match)
            there[value if exact else value + mask] = entry.handle
        self._own[rows] = [there.get(words.tobytes(), _NONE) for words in self._words[rows]]
        lacking = rows[self._own[rows] == _NONE]
        self._own[lacking] = self._added(self._tables(), self._at[lacking], self._words[lacking])
        return len(lacking)

    def _tables(self) -> TablesAlike:
        """Return the tables of all switches; those of a switch that restarted are others."""
        switches = [control.switch.handle for control in self._controls]
        if self._alike is None or self._alike[0] != switches:
            tables = [control.switch.table(self._table) for control in self._controls]
            self._alike = switches, TablesAlike(tables)
        return self._alike[1]

    def _there(self, at: LongArray) -> npt.NDArray[np.bool_]:
        """Return of each entry whether its switch is not lost, bool[n]."""
        lost = [control.lost for control in self._controls]
        return ~np.array(lost, np.bool_)[at] if any(lost) else np.ones(len(at), np.bool_)

    def _rows(self, handles: LongArray) -> LongArray:
        """Return the indices of entries in the arrays, int64[n]; KeyError if there is none."""
        self._join()
        rows = np.searchsorted(self._handle, handles)
        wrong = np.append(self._handle, _NONE)[rows] != handles
        if wrong.any():
            raise KeyError(int(handles[wrong][0]))
        return rows

    def _join(self) -> None:
        """Append the entries that were added since the last call to the arrays."""
        if self._new:
            now = (self._handle, self._at, self._own, self._words)
            parts = ([now] if len(self._handle) else []) + self._new
            handle, at, own, words = zip(*parts, strict=True)
            self._handle, self._at = np.concatenate(handle), np.concatenate(at)
            self._own, self._words = np.concatenate(own), np.concatenate(words)
            self._new.clear()
