# SPDX-License-Identifier: Apache-2.0
"""Control of a soft switch in this process: registers are live views and writes take no time.

What is written to its tables is also kept here, so that it can be restored after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from canary_softswitch import Switch
from canary_softswitch.runtime.tables import Table


@dataclass(eq=False)
class LocalSwitch:
    """Implements `testbed.control.switch.SwitchControl` for a soft switch in this process."""

    switch: Switch
    remote: bool = False
    lost: str = ""
    waiting: bool = False
    _tables: dict[str, LocalTable] = field(default_factory=dict)
    _profiles: dict[str, LocalProfile] = field(default_factory=dict)

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
        return sum(part.restore() for part in parts)


@dataclass(frozen=True)
class _Entry:
    match: Sequence[Any]
    priority: int | None
    add: Callable[[Table], int]


def _add_again(match: Sequence[Any], action: str, table: Table) -> int:
    return table.add(match, action)


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

    def add_all(self, matches: Sequence[Sequence[Any]], action: str) -> list[int]:
        """Add an entry without parameters for each exact match, and return their handles."""
        handles = list(range(self._next, self._next + len(matches)))
        if not self._control.lost:
            own = self._table.add_all(matches, action)
            self._own.update(zip(handles, own, strict=True))
        for handle, match in zip(handles, matches, strict=True):
            self._entries[handle] = _Entry(match, None, partial(_add_again, match, action))
        self._next += len(matches)
        return handles

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
