# SPDX-License-Identifier: Apache-2.0
"""Tables and action profiles over P4Runtime.

Handles, member and group numbers are assigned here, so that adding an entry needs no answer from
the switch and writes can be held back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from p4.config.v1 import p4info_pb2 as _p4info_pb2

from testbed.control.remote.connection import RemoteError, p4runtime_pb2

p4info_pb2: Any = _p4info_pb2  # its classes are made at run time


class Session(Protocol):
    """What takes the writes of tables and answers their reads: a `Connection`, or a file's."""

    def write(self, kind: str, what: str, message: Any) -> None:
        """Write an entity of P4Runtime to the switch.

        See `testbed.control.remote.connection.Connection.write`.
        """
        ...

    def read(self, *entities: Any) -> list[Any]:
        """Return the switch's entities that match these ones."""
        ...


def known(things: Mapping[str, Any], kind: str, name: str) -> Any:
    """Return the object called ``name``; ``kind`` is for the message of the error.

    Raises:
        RemoteError: The program has no such object.
    """
    if name not in things:
        raise RemoteError(f"no {kind} {name!r} in the program; it has {', '.join(sorted(things))}")
    return things[name]


@dataclass
class RemoteTable:
    """Implements `testbed.control.switch.TableControl` for one table of a remote switch.

    ``_info`` is the table's P4Info; ``_actions`` maps the program's actions to theirs.
    """

    _connection: Session
    _info: Any
    _actions: Mapping[str, Any]
    _entries: dict[int, Any] = field(default_factory=dict)
    _default: Any = None
    _next: int = 1

    def add(
        self,
        match: Sequence[Any],
        action: str,
        params: Sequence[int] = (),
        priority: int | None = None,
    ) -> int:
        """Write an entry, now or with the connection's `send`, and return its handle."""
        message = self._message(match, priority)
        _fill_action(message.action.action, self._actions, action, params)
        return self._insert(message)

    def add_group_entry(self, match: Sequence[Any], group: int, priority: int | None = None) -> int:
        """Write an entry that runs a member of the group with this number; return its handle."""
        message = self._message(match, priority)
        message.action.action_profile_group_id = group
        return self._insert(message)

    def _insert(self, message: Any) -> int:
        self._connection.write("INSERT", "table_entry", message)
        handle = self._next
        self._next += 1
        self._entries[handle] = message
        return handle

    def delete(self, handle: int) -> None:
        """Remove the entry with a handle, the number that `add` or `add_group_entry` returned."""
        self._connection.write("DELETE", "table_entry", _identity(self._entries.pop(handle)))

    def set_default(self, action: str, params: Sequence[int] = ()) -> None:
        """Set the action that packets without a matching entry run."""
        message = p4runtime_pb2.TableEntry(table_id=self._info.preamble.id, is_default_action=True)
        _fill_action(message.action.action, self._actions, action, params)
        self._connection.write("MODIFY", "table_entry", message)
        self._default = message

    def restore(self) -> int:
        """Bring the switch's entries to those written here and return how many were changed.

        Missing entries are inserted, changed ones modified, those of other controllers deleted.
        """
        entity = p4runtime_pb2.Entity()
        entity.table_entry.table_id = self._info.preamble.id
        read = [found.table_entry for found in self._connection.read(entity)]
        there = {_key(e): e for e in read if not (e.is_const or e.is_default_action)}
        wanted = {_key(entry): entry for entry in self._entries.values()}
        changes = [("INSERT", wanted[key]) for key in wanted.keys() - there.keys()]
        for key in wanted.keys() & there.keys():
            if _action(wanted[key].action) != _action(there[key].action):
                changes.append(("MODIFY", wanted[key]))
        changes += [("DELETE", _identity(there[key])) for key in there.keys() - wanted.keys()]
        for kind, entry in changes:
            self._connection.write(kind, "table_entry", entry)
        if self._default is not None:
            self._connection.write("MODIFY", "table_entry", self._default)
        return len(changes)

    def counters(self, handles: Sequence[int]) -> npt.NDArray[np.uint64]:
        """Return the packets and bytes that hit n entries, uint64[n, 2], from one read.

        The counters of an entry that is still held back are 0.
        """
        entity = p4runtime_pb2.Entity()
        entity.direct_counter_entry.table_entry.table_id = self._info.preamble.id
        read = {
            _key(e.direct_counter_entry.table_entry): (
                e.direct_counter_entry.data.packet_count,
                e.direct_counter_entry.data.byte_count,
            )
            for e in self._connection.read(entity)
        }
        found = [read.get(_key(self._entries[handle]), (0, 0)) for handle in handles]
        return np.array(found, np.uint64).reshape(-1, 2)

    def _message(self, match: Sequence[Any], priority: int | None) -> Any:
        message = p4runtime_pb2.TableEntry(table_id=self._info.preamble.id)
        if priority is not None:
            message.priority = priority
        for info, value in zip(self._info.match_fields, match, strict=True):
            _put_match(message, info, value)
        return message


@dataclass
class RemoteProfile:
    """Implements `testbed.control.switch.ActionProfileControl` for a profile of a remote switch."""

    _connection: Session
    _info: Any
    _actions: Mapping[str, Any]
    _members: dict[int, Any] = field(default_factory=dict)
    _groups: dict[int, Any] = field(default_factory=dict)

    def add_member(self, action: str, params: Sequence[int] = ()) -> int:
        """Write an action with its parameters as a member; return its number."""
        number = len(self._members) + 1
        message = p4runtime_pb2.ActionProfileMember(
            action_profile_id=self._info.preamble.id, member_id=number
        )
        _fill_action(message.action, self._actions, action, params)
        self._connection.write("INSERT", "action_profile_member", message)
        self._members[number] = message
        return number

    def add_group(self, members: Sequence[int]) -> int:
        """Write a group of members, which it may not outgrow; return its number."""
        number = len(self._groups) + 1
        self._write_group("INSERT", number, members, len(members))
        return number

    def modify_group(self, group: int, members: Sequence[int]) -> None:
        """Replace a group's members, given by number; no more than when it was created."""
        self._write_group("MODIFY", group, members, self._groups[group].max_size)

    def _write_group(self, kind: str, group: int, members: Sequence[int], most: int) -> None:
        message = p4runtime_pb2.ActionProfileGroup(
            action_profile_id=self._info.preamble.id, group_id=group, max_size=most
        )
        for member in members:
            message.members.add(member_id=member, weight=1)
        self._connection.write(kind, "action_profile_group", message)
        self._groups[group] = message

    def restore(self) -> int:
        """Write the members and groups that the switch lacks; return their number."""
        missing = 0
        for what, number, wanted in (
            ("action_profile_member", "member_id", self._members),
            ("action_profile_group", "group_id", self._groups),
        ):
            entity = p4runtime_pb2.Entity()
            getattr(entity, what).action_profile_id = self._info.preamble.id
            read = self._connection.read(entity)
            there = {getattr(getattr(found, what), number) for found in read}
            for key in wanted.keys() - there:
                self._connection.write("INSERT", what, wanted[key])
                missing += 1
        return missing


def _fill_action(
    message: Any, actions: Mapping[str, Any], action: str, params: Sequence[int]
) -> None:
    info = known(actions, "action", action)
    message.action_id = info.preamble.id
    for param, value in zip(info.params, params, strict=True):
        message.params.add(param_id=param.id, value=_bytes(value, param.bitwidth))


def _put_match(message: Any, info: Any, value: Any) -> None:
    """Add one key field to an entry, except one that matches everything (P4Runtime omits it)."""
    kind = p4info_pb2.MatchField.MatchType.Name(info.match_type)
    if kind == "EXACT":
        message.match.add(field_id=info.id).exact.value = _bytes(value, info.bitwidth)
        return
    first, second = value
    if kind == "LPM":
        if second:
            lpm = message.match.add(field_id=info.id).lpm
            lpm.value, lpm.prefix_len = _bytes(first, info.bitwidth), second
    elif kind == "TERNARY":
        if second:
            ternary = message.match.add(field_id=info.id).ternary
            ternary.value = _bytes(first & second, info.bitwidth)
            ternary.mask = _bytes(second, info.bitwidth)
    elif first > 0 or second < (1 << info.bitwidth) - 1:
        limits = message.match.add(field_id=info.id).range
        limits.low, limits.high = _bytes(first, info.bitwidth), _bytes(second, info.bitwidth)


def _bytes(value: int, width: int) -> bytes:
    """Return P4Runtime's canonical form of a number: big-endian without leading zero bytes."""
    if not 0 <= value < 1 << width:
        raise RemoteError(f"{value} does not fit in {width} bits")
    return int(value).to_bytes(max(1, (int(value).bit_length() + 7) // 8), "big")


def _identity(entry: Any) -> Any:
    """Return an entry without its action, as a DELETE takes it."""
    return p4runtime_pb2.TableEntry(
        table_id=entry.table_id, match=entry.match, priority=entry.priority
    )


def _action(message: Any) -> tuple[Any, ...]:
    """Return an entry's group, action and parameters, independent of a server's leading zeros."""
    params = ((p.param_id, p.value.lstrip(b"\0")) for p in message.action.params)
    return message.action_profile_group_id, message.action.action_id, *sorted(params)


def _key(entry: Any) -> bytes:
    """Return the match and priority of an entry in a form that all servers' answers share."""
    parts = [b"%d" % entry.priority]
    for match in sorted(entry.match, key=lambda m: m.field_id):
        kind = match.WhichOneof("field_match_type")
        value = getattr(match, kind)
        numbers = [n.lstrip(b"\0") for n in (_get(value, f) for f in _PARTS[kind])]
        parts.append(b"%d:" % match.field_id + b"/".join(n.hex().encode() for n in numbers))
    return b" ".join(parts)


_PARTS = {
    "exact": ("value",),
    "lpm": ("value", "prefix_len"),
    "ternary": ("value", "mask"),
    "range": ("low", "high"),
    "optional": ("value",),
}


def _get(message: Any, name: str) -> bytes:
    value = getattr(message, name)
    return value if isinstance(value, bytes) else b"%d" % value


def tables_of(
    session: Session, info: Any
) -> tuple[dict[str, RemoteTable], dict[str, RemoteProfile]]:
    """Return the tables and the action profiles of a program's P4Info, by name."""
    actions = {a.preamble.name: a for a in info.actions}
    return (
        {t.preamble.name: RemoteTable(session, t, actions) for t in info.tables},
        {p.preamble.name: RemoteProfile(session, p, actions) for p in info.action_profiles},
    )
