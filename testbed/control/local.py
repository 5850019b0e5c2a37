"""A soft switch in this process: live views of its registers, and nothing to wait for.

What is written to its tables is kept here, too, so that a switch that restarted can have it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.softswitch import Switch
from testbed.softswitch.runtime.tables import Table


@dataclass(eq=False)
class LocalSwitch:
    """The face of `testbed.control.switch.SwitchControl` for a soft switch."""

    switch: Switch
    remote: bool = False
    lost: str = ""
    waiting: bool = False
    _tables: dict[str, LocalTable] = field(default_factory=dict)
    _profiles: dict[str, LocalProfile] = field(default_factory=dict)

    def table(self, name: str) -> LocalTable:
        if name not in self._tables:
            self.switch.table(name)  # raises
            self._tables[name] = LocalTable(self, name)
        return self._tables[name]

    def action_profile(self, name: str) -> LocalProfile:
        if name not in self._profiles:
            self.switch.action_profile(name)  # raises
            self._profiles[name] = LocalProfile(self, name)
        return self._profiles[name]

    def counter(self, name: str, indices: Sequence[int] | None = None) -> npt.NDArray[Any]:
        """An indirect counter, a live view; whatever the indices."""
        return self.switch.counter(name)

    def read_registers(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Whole arrays by name, live views."""
        return {name: self.switch.register(name) for name in names}

    def reset_registers(
        self, names: Sequence[str], start: int = 0, stop: int | None = None
    ) -> None:
        """Set elements ``start`` to ``stop - 1`` of each array to zero."""
        for name in names:
            self.switch.register(name)[start:stop] = 0

    def digests(self) -> dict[str, npt.NDArray[Any]]:
        """Digests since the last call, by name: their fields, ``now_us`` and ``sequence``."""
        return self.switch.digests(ack=True) if self.switch.digests_pending else {}

    def hold(self) -> None:
        """Nothing: a write in process takes no time."""

    def send(self) -> None:
        """Nothing: nothing was held back."""

    def is_primary(self) -> bool:
        """Return True: nobody else can reach a switch in this process."""
        return True

    def give_up(self, reason: str) -> None:
        """From now on this switch gets nothing that is written, until `restore`."""
        self.lost = reason

    def restore(self) -> int:
        """Compare what the switch has with what was written, and install what is missing.

        Returns:
            How many entries, members and groups that were.
        """
        self.lost = ""
        parts = [*self._profiles.values(), *self._tables.values()]
        return sum(part.restore() for part in parts)


@dataclass(frozen=True)
class _Entry:
    match: Sequence[Any]
    priority: int | None
    add: Callable[[Table], int]


@dataclass(eq=False)
class LocalTable:
    """One table, with the face of `testbed.control.switch.TableControl`.

    Handles are given out here: one that the switch gave is another when it has restarted.
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
        match = tuple(match)
        return self._insert(
            _Entry(match, priority, lambda table: table.add(match, action, params, priority))
        )

    def add_group_entry(self, match: Sequence[Any], group: int, priority: int | None = None) -> int:
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
        del self._entries[handle]
        own = self._own.pop(handle, None)
        if own is not None and not self._control.lost:
            self._table.delete(own)

    def set_default(self, action: str, params: Sequence[int] = ()) -> None:
        self._default = action, tuple(params)
        if not self._control.lost:
            self._table.set_default(action, params)

    def counters(self, handles: Sequence[int]) -> npt.NDArray[np.uint64]:
        """Packets and bytes of n entries, uint64[n, 2]; 0 while the switch is lost."""
        if self._control.lost:
            return np.zeros((len(handles), 2), np.uint64)
        return self._table.counters([self._own[handle] for handle in handles])

    def restore(self) -> int:
        """As `LocalSwitch.restore`, of this table."""
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
    """One action profile, with the face of `testbed.control.switch.ActionProfileControl`.

    Members and groups have the numbers that the switch gives them, in order from 0.
    """

    _control: LocalSwitch
    _name: str
    _members: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    _groups: list[list[int]] = field(default_factory=list)

    @property
    def _profile(self):
        return self._control.switch.action_profile(self._name)

    def add_member(self, action: str, params: Sequence[int] = ()) -> int:
        if not self._control.lost:
            self._profile.add_member(action, params)
        self._members.append((action, tuple(params)))
        return len(self._members) - 1

    def add_group(self, members: Sequence[int]) -> int:
        if not self._control.lost:
            self._profile.add_group(members)
        self._groups.append(list(members))
        return len(self._groups) - 1

    def modify_group(self, group: int, members: Sequence[int]) -> None:
        if not self._control.lost:
            self._profile.modify_group(group, members)
        self._groups[group] = list(members)

    def restore(self) -> int:
        """As `LocalSwitch.restore`, of this profile."""
        profile = self._profile
        members, groups = profile.members, profile.groups
        lacking = [n for n in range(len(self._members)) if n not in members]
        for number in lacking:
            profile.add_member(*self._members[number])
        without = [n for n in range(len(self._groups)) if n not in groups]
        for number in without:
            profile.add_group(self._groups[number])
        return len(lacking) + len(without)
