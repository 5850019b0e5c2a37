# SPDX-License-Identifier: Apache-2.0
"""Members and groups of action profiles at run time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from canary_softswitch.compiler.bmv2_program import Profile
from canary_softswitch.compiler.rows import profile_words
from canary_softswitch.errors import SoftSwitchError, TableError, unknown_name
from canary_softswitch.errors import TableErrorCode as Code
from canary_softswitch.runtime.encoding import checked_params, packed_params
from canary_softswitch.runtime.instance import USED, Instance


class ActionProfile:
    """Members and groups of an action profile or selector; ``Switch.action_profile``.

    A group runs its member number ``hash % size`` counted by rising member id, as BMv2.
    """

    def __init__(self, instance: Instance, definition: Profile) -> None:
        self._instance = instance
        self.definition = definition
        self.name = definition.name
        program = instance.program.definition
        self._words = profile_words(program)[definition.index]
        self._actions = {
            program.actions[i].name: program.actions[i]
            for t in program.tables
            if t.profile == definition.name
            for i in t.action_ids
        }
        self._users: list[Callable[[str, int], bool]] = []
        self._members: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._groups: dict[int, list[int]] = {}

    @property
    def members(self) -> dict[int, tuple[str, tuple[int, ...]]]:
        """Return the action and the parameters of each member, by member id."""
        return dict(self._members)

    @property
    def groups(self) -> dict[int, list[int]]:
        """Return the sorted member ids of each group, by group id."""
        return {g: list(m) for g, m in self._groups.items()}

    def attach(self, references: Callable[[str, int], bool]) -> None:
        """Register a function that returns True if a table uses a "member" or "group" of an id.

        It is called before a member or group is deleted.
        """
        self._users.append(references)

    def check_member(self, member: int) -> None:
        """Raise ``TableError`` unless the profile has a member with this number."""
        if member not in self._members:
            raise TableError(
                Code.INVALID_MBR_HANDLE, f"action profile {self.name!r} has no member {member!r}"
            )

    def check_group(self, group: int) -> int:
        """Return the number of members of a group; raise ``TableError`` unless it exists."""
        if group not in self._groups:
            raise TableError(
                Code.INVALID_GRP_HANDLE, f"action profile {self.name!r} has no group {group!r}"
            )
        return len(self._groups[group])

    def _write(self, member: int, action: str, params: Sequence[Any]) -> None:
        names = [n for n in self._actions if n == action or n.split(".")[-1] == action]
        if len(names) != 1 and action not in self._actions:
            raise unknown_name(
                f"action of profile {self.name!r}", action, self._actions, Code.INVALID_ACTION_NAME
            )
        a = self._actions[action if action in self._actions else names[0]]
        values = checked_params(a, params)
        program = self._instance.program.definition
        rc = self._instance.lib.ss_set_member(
            self._instance.handle,
            self.definition.index,
            member,
            a.id | USED,
            packed_params(program, a, values, self._words),
        )
        if rc:
            raise SoftSwitchError("out of memory")
        self._members[member] = (a.name, values)

    def add_member(self, action: str, params: Sequence[Any] = ()) -> int:
        """Add a member and return its id, the lowest free one."""
        member = next(i for i in range(len(self._members) + 1) if i not in self._members)
        self._write(member, action, params)
        return member

    def modify_member(self, member: int, action: str, params: Sequence[Any] = ()) -> None:
        """Replace the action and the parameters of the member with this number."""
        self.check_member(member)
        self._write(member, action, params)

    def delete_member(self, member: int) -> None:
        """Remove the member with this number; ``TableError`` if an entry or a group uses it."""
        self.check_member(member)
        if any(member in m for m in self._groups.values()) or self._used("member", member):
            raise TableError(Code.MBR_STILL_USED, f"member {member} of {self.name!r} is still used")
        del self._members[member]

    def _used(self, what: str, n: int) -> bool:
        return any(uses(what, n) for uses in self._users)

    def _set_group(self, group: int, members: Sequence[int]) -> None:
        if self.definition.selector is None:
            raise TableError(
                Code.NO_ACTION_PROFILE_SELECTION,
                f"action profile {self.name!r} has no selector, so no groups",
            )
        for m in members:
            self.check_member(m)
        chosen = sorted(members)
        if len(set(chosen)) != len(chosen):
            raise TableError(
                Code.MBR_ALREADY_IN_GRP,
                f"a member is given twice in group {group} of {self.name!r}",
            )
        array = (ctypes.c_uint32 * max(len(chosen), 1))(*chosen)
        if self._instance.lib.ss_set_group(
            self._instance.handle, self.definition.index, group, array, len(chosen)
        ):
            raise SoftSwitchError("out of memory")
        self._groups[group] = chosen

    def add_group(self, members: Sequence[int] = ()) -> int:
        """Add a group of members and return its id, the lowest free one."""
        group = next(i for i in range(len(self._groups) + 1) if i not in self._groups)
        self._set_group(group, members)
        return group

    def modify_group(self, group: int, members: Sequence[int]) -> None:
        """Replace the members of a group by those with the ids ``members``."""
        self.check_group(group)
        self._set_group(group, members)

    def delete_group(self, group: int) -> None:
        """Remove the group with this number; raise ``TableError`` if an entry uses it."""
        self.check_group(group)
        if self._used("group", group):
            raise TableError(Code.GRP_STILL_USED, f"group {group} of {self.name!r} is still used")
        self._set_group(group, ())
        del self._groups[group]
