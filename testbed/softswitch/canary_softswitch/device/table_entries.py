# SPDX-License-Identifier: Apache-2.0
"""Writes table entries by P4Runtime, and keeps what the switch itself does not store of them.

``table_reads`` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from canary_softswitch.device.arrays import read_config
from canary_softswitch.device.config import MATCH, FieldConfig, PipelineConfig, TableConfig
from canary_softswitch.device.groups import Member, ProfileState, program_order, read_action
from canary_softswitch.device.messages import (
    ALREADY_EXISTS,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    P4Error,
    counted,
    decode,
    p4info_pb2,
    p4runtime_pb2,
)
from canary_softswitch.ports.ports import Ports
from canary_softswitch.runtime.instance import MeterRates
from canary_softswitch.runtime.switch import Switch
from canary_softswitch.runtime.tables import Entry

SCOPE = p4info_pb2.ActionRef.Scope
NAMES = {
    MATCH.EXACT: "exact",
    MATCH.LPM: "lpm",
    MATCH.TERNARY: "ternary",
    MATCH.RANGE: "range",
    MATCH.OPTIONAL: "optional",
}
Key = tuple[tuple[Any, ...], int]


@dataclass
class Reference:
    """The action, member, group or one-shot action set that an entry runs."""

    kind: str  # action, member, group, set
    id: int
    values: tuple[int, ...] = ()
    members: tuple[Member, ...] = ()
    message: Any = None


@dataclass
class Stored:
    """An entry as the controller wrote it; ``match`` is in the order of the program's key."""

    handle: int
    match: tuple[Any, ...]
    priority: int
    reference: Reference
    metadata: bytes = b""
    controller_metadata: int = 0
    timeout_ns: int = 0  # 0: none
    since_us: int = 0  # when it was written
    times_idle: int = 0  # timeouts reported since it was last hit or written


def dont_care(kind: int, width: int) -> Any:
    """Return the match element that stands for a field of ``width`` bits left out."""
    if kind == MATCH.RANGE:
        return 0, (1 << width) - 1
    return None if kind == MATCH.OPTIONAL else (0, 0)


def read_match(f: FieldConfig, m: Any, what: str) -> Any:
    """Return the switch's match element for a FieldMatch; raise ``P4Error`` for a wrong one."""
    kind, width = m.WhichOneof("field_match_type"), f.width
    if kind != NAMES.get(f.kind):
        raise P4Error(INVALID_ARGUMENT, f"{what}: the field is {NAMES.get(f.kind)}, not {kind}")
    if f.kind == MATCH.EXACT:
        return decode(m.exact.value, width, what)
    if f.kind == MATCH.OPTIONAL:
        return decode(m.optional.value, width, what)
    if f.kind == MATCH.LPM:
        n, value = m.lpm.prefix_len, decode(m.lpm.value, width, what)
        if not 0 < n <= width:
            raise P4Error(
                INVALID_ARGUMENT,
                f"{what}: prefix length {n} is not within 1..{width}"
                + (": leave the field out" if not n else ""),
            )
        if value & ((1 << width - n) - 1):
            raise P4Error(INVALID_ARGUMENT, f"{what}: {value:#x} has bits after its prefix")
        return value, n
    if f.kind == MATCH.TERNARY:
        value, mask = decode(m.ternary.value, width, what), decode(m.ternary.mask, width, what)
        if not mask:
            raise P4Error(INVALID_ARGUMENT, f"{what}: the mask is 0: leave the field out")
        if value & ~mask:
            raise P4Error(INVALID_ARGUMENT, f"{what}: {value:#x} has bits outside its mask")
        return value, mask
    low, high = decode(m.range.low, width, what), decode(m.range.high, width, what)
    if low > high:
        raise P4Error(INVALID_ARGUMENT, f"{what}: the range {low}..{high} is empty")
    if (low, high) == (0, (1 << width) - 1):
        raise P4Error(
            INVALID_ARGUMENT, f"{what}: the range matches every value: leave the field out"
        )
    return low, high


class TableState:
    """The entries and the default of one table of a running switch, written by P4Runtime."""

    def __init__(
        self,
        config: TableConfig,
        pipeline: PipelineConfig,
        switch: Switch,
        ports: Ports,
        profile: ProfileState | None,
    ) -> None:
        self.config = config
        self.pipeline = pipeline
        self.table = switch.table(config.name)
        self.ports = ports
        self.profile = profile
        self._seen = -1  # the table's changes that are in the books, of which some may be Thrift's
        self._entries: dict[Key, Stored] = {}
        self._default: Reference | None = None
        self._fields = {f.id: f for f in config.fields}
        self._dont_cares = self._template()
        self._required = {f.place: f for f in config.fields if f.kind == MATCH.EXACT}
        self._by_name = {pipeline.actions[i].name: i for i in config.actions}
        self.program_default = self._initial_default()

    @property
    def stale(self) -> bool:
        """Return True if the table has changes that are not in the books, such as Thrift's."""
        return self._seen != self.table.changes

    @property
    def known(self) -> Iterable[Stored]:
        """Return the entries that were written by P4Runtime, which may be out of date."""
        return self._entries.values()

    @property
    def entries(self) -> dict[Key, Stored]:
        """Return all entries of the table by key, including those of Thrift and the program."""
        if self.stale:
            self.adopt()
        return self._entries

    @property
    def default(self) -> Reference | None:
        """Return what a miss runs, None if that is the program's own default action."""
        if self.stale:
            self.adopt()
        return self._default

    def _template(self) -> list[Any]:
        out: list[Any] = [None] * len(self.config.fields)
        for f in self.config.fields:
            out[f.place] = dont_care(f.kind, f.width)
        return out

    def _error(self, code: int, message: str) -> P4Error:
        return P4Error(code, f"table {self.config.name!r}: {message}")

    def _initial_default(self) -> Reference | None:
        d = self.config.definition.default
        if d is None:
            return None
        return self._direct(self.pipeline.program.definition.actions[d.action_id].name, d.data)

    def adopt(self) -> None:
        """Update the stored entries from the switch, which Thrift may have changed.

        Entries to which Thrift assigned a member or group are left out.
        """
        with self.ports.lock():
            self._seen = self.table.changes
            found, default = self.table.entries(), self.table.default()
        known, self._entries = self._entries, {}
        for e in found:
            match: list[Any] = list(e.match)
            for f in self.config.fields:
                v = match[f.place]
                if f.kind == MATCH.OPTIONAL and isinstance(v, tuple):
                    match[f.place] = v[0] if v[1] else None
            key = tuple(match), e.priority or 0
            stored = known.get(key)
            if stored and stored.handle != e.handle:
                stored = None
            r = self._direct(e.action, e.params) if self.profile is None else self._same(stored, e)
            if r is None:
                continue
            if stored:
                stored.reference = r
                self._entries[key] = known.pop(key)
            else:
                self._entries[key] = Stored(e.handle, *key, r, since_us=self.ports.now_us())
        for stored in known.values():
            self._use(stored.reference, -1)
        if self.profile is None:
            r = self._direct(*default[1:]) if default else None
            self._default = None if r == self.program_default else r

    def _direct(self, name: str, data: Sequence[int]) -> Reference | None:
        """Return a reference to an action and its data; None if P4Info lacks it in the table."""
        id_ = self._by_name.get(name)
        if id_ is None:
            return None
        values = [0] * len(data)
        for place, i in enumerate(self.pipeline.actions[id_].order):
            values[i] = data[place]
        return Reference("action", id_, tuple(values))

    def _same(self, stored: Stored | None, e: Entry) -> Reference | None:
        """Return what an entry runs if it is still what the controller wrote, else None."""
        if stored is None or (stored.reference.kind == "member") != (e.group is None):
            return None
        same = self._number(stored.reference) == (e.member if e.group is None else e.group)
        return stored.reference if same else None

    # ---- writing ----

    def key(self, entry: Any) -> Key:
        """Return the match and priority of a TableEntry; raise ``P4Error`` for wrong ones."""
        match = self._dont_cares.copy()
        required = len(self._required)
        seen = set()
        for m in entry.match:
            f = self._fields.get(m.field_id)
            if f is None:
                raise self._error(INVALID_ARGUMENT, f"no match field has the id {m.field_id}")
            if f.id in seen:
                raise self._error(INVALID_ARGUMENT, f"match field {f.name!r} is given twice")
            seen.add(f.id)
            match[f.place] = read_match(f, m, f"table {self.config.name!r} field {f.name!r}")
            required -= f.place in self._required
        if required:
            missing = [f.name for f in self._required.values() if f.id not in seen]
            raise self._error(INVALID_ARGUMENT, f"exact match field {missing[0]!r} is missing")
        if entry.priority < 0 or self.config.prioritized != bool(entry.priority):
            need = "needs a priority above 0" if self.config.prioritized else "takes no priority"
            raise self._error(INVALID_ARGUMENT, f"an entry {need}, not {entry.priority}")
        return tuple(match), entry.priority

    def _reference(self, action: Any, default: bool) -> Reference:
        kind = action.WhichOneof("type")
        if kind is None:
            raise self._error(INVALID_ARGUMENT, "the action is missing")
        if (kind == "action") != (self.profile is None):
            how = "a direct action" if self.profile is None else "a member, group or action set"
            raise self._error(INVALID_ARGUMENT, f"an entry runs {how}")
        if kind == "action":
            id_ = action.action.action_id
            scope = self.config.actions.get(id_)
            wrong = SCOPE.TABLE_ONLY if default else SCOPE.DEFAULT_ONLY
            if scope is None or scope == wrong:
                name = self.pipeline.actions[id_].name if id_ in self.pipeline.actions else id_
                why = "" if scope is None else f" for {'its default' if default else 'an'} entry"
                raise self._error(INVALID_ARGUMENT, f"the table has no action {name!r}{why}")
            return Reference("action", id_, read_action(self.pipeline.actions[id_], action.action))
        assert self.profile is not None
        if kind == "action_profile_action_set":
            handle, members = self.profile.one_shot(
                action.action_profile_action_set.action_profile_actions
            )
            copy = p4runtime_pb2.ActionProfileActionSet()
            copy.CopyFrom(action.action_profile_action_set)
            return Reference("set", handle, (), tuple(members), copy)
        if kind == "action_profile_member_id":
            id_ = action.action_profile_member_id
            if id_ not in self.profile.members:
                raise self._error(NOT_FOUND, f"there is no member {id_}")
            return Reference("member", id_)
        id_ = action.action_profile_group_id
        if id_ not in self.profile.groups:
            raise self._error(NOT_FOUND, f"there is no group {id_}")
        if not self.profile.groups[id_].weights:
            raise self._error(INVALID_ARGUMENT, f"group {id_} is empty")
        return Reference("group", id_)

    def _use(self, r: Reference | None, n: int) -> None:
        """Add ``n`` to the uses of a member or group; remove an action set that is released."""
        if r is None or self.profile is None:
            return
        if r.kind == "set" and n < 0:
            self.profile.drop_one_shot(r.id, list(r.members))
        counts = {"member": self.profile.used_members, "group": self.profile.used_groups}.get(
            r.kind
        )
        if counts is not None:
            counts[r.id] = counts.get(r.id, 0) + n

    def _number(self, r: Reference) -> int:
        assert self.profile is not None
        if r.kind == "member":
            return self.profile.members[r.id].handles[0]
        return self.profile.groups[r.id].handle if r.kind == "group" else r.id

    def write(self, kind: str, entry: Any) -> None:
        """INSERT, MODIFY or DELETE an entry, or MODIFY the default entry."""
        if entry.idle_timeout_ns < 0:
            raise self._error(INVALID_ARGUMENT, "the idle timeout is negative")
        timed = self.config.definition.aged and not entry.is_default_action
        if entry.idle_timeout_ns and not timed:
            raise self._error(INVALID_ARGUMENT, "this entry cannot have an idle timeout")
        rates = None
        if entry.HasField("meter_config"):
            if not self.config.meter or entry.is_default_action:
                raise self._error(INVALID_ARGUMENT, "this entry has no meter")
            rates = read_config(entry.meter_config, f"table {self.config.name!r}")
        if entry.HasField("counter_data"):
            if not self.config.counter:
                raise self._error(INVALID_ARGUMENT, "the table has no direct counter")
            counted(entry.counter_data, f"table {self.config.name!r}")
        if entry.is_default_action:
            self._write_default(kind, entry)
            return
        if self.config.const:
            raise self._error(PERMISSION_DENIED, "the entries of the table are const")
        if not self.config.fields:
            raise self._error(
                INVALID_ARGUMENT, "it has no key, so only a default entry: set is_default_action"
            )
        key = self.key(entry)
        known = self.entries.get(key)
        if kind == "INSERT":
            if known:
                raise self._error(ALREADY_EXISTS, "an entry with this match exists")
            if len(self.entries) >= self.config.definition.max_size:
                raise self._error(
                    RESOURCE_EXHAUSTED, f"it is full ({self.config.definition.max_size} entries)"
                )
            known = self._insert(key, self._reference(entry.action, False))
        elif known is None:
            raise self._error(NOT_FOUND, "no entry has this match")
        elif kind == "MODIFY":
            self._modify(known, self._reference(entry.action, False))
        else:
            with self.ports.lock():
                self.table.delete(known.handle)
            self._seen += 1
            del self._entries[key]
            self._use(known.reference, -1)
            return
        known.metadata, known.controller_metadata = entry.metadata, entry.controller_metadata
        known.timeout_ns, known.since_us = entry.idle_timeout_ns, self.ports.now_us()
        known.times_idle = 0
        if self.config.meter:
            self.set_meter(known, rates)
        if entry.HasField("counter_data"):
            self.set_counter(known, entry.counter_data)

    def _insert(self, key: Key, r: Reference) -> Stored:
        match, priority = key
        prio = priority if self.config.prioritized else None
        if r.kind == "action":
            action = self.pipeline.actions[r.id]
            values = program_order(action, r.values)
            with self.ports.lock():
                handle = self.table.add(match, action.name, values, prio)
        else:
            add = self.table.add_member_entry if r.kind == "member" else self.table.add_group_entry
            with self.ports.lock():
                handle = add(match, self._number(r), prio)
        self._seen += 1
        self._use(r, 1)
        self._entries[key] = stored = Stored(handle, match, priority, r)
        return stored

    def _modify(self, known: Stored, r: Reference) -> None:
        if r.kind == "action":
            action = self.pipeline.actions[r.id]
            values = program_order(action, r.values)
            with self.ports.lock():
                self.table.modify(known.handle, action.name, values)
        else:
            modify = (
                self.table.modify_member_entry
                if r.kind == "member"
                else self.table.modify_group_entry
            )
            with self.ports.lock():
                modify(known.handle, self._number(r))
        self._seen += 1
        old, known.reference = known.reference, r
        self._use(r, 1)
        self._use(old, -1)

    def _write_default(self, kind: str, entry: Any) -> None:
        if kind != "MODIFY":
            raise self._error(INVALID_ARGUMENT, "a default entry can only be modified")
        if entry.match or entry.priority:
            raise self._error(INVALID_ARGUMENT, "a default entry has no match and no priority")
        if entry.HasField("counter_data"):
            raise self._error(UNIMPLEMENTED, "the default entry has no counter")
        definition = self.config.definition.default
        if self.config.const_default or (definition and definition.entry_const):
            raise self._error(PERMISSION_DENIED, "its default action is const")
        old = self.default
        if not entry.HasField("action"):
            with self.ports.lock():
                self.table.reset_default()
            self._default = None
        else:
            r = self._reference(entry.action, True)
            if r.kind == "action":
                action = self.pipeline.actions[r.id]
                values = program_order(action, r.values)
                with self.ports.lock():
                    self.table.set_default(action.name, values)
            else:
                choose = (
                    self.table.set_default_member
                    if r.kind == "member"
                    else self.table.set_default_group
                )
                with self.ports.lock():
                    choose(self._number(r))
            self._default = r
            self._use(r, 1)
        self._seen += 1
        self._use(old, -1)

    # ---- counters ----

    def set_counter(self, stored: Stored, data: Any) -> None:
        """Set the direct counter of an entry from CounterData."""
        counts = counted(data, f"table {self.config.name!r}")
        with self.ports.lock():
            self.table.set_counter(stored.handle, *counts)

    def idle_ns(self, stored: Stored) -> int:
        """Return the time in ns since an entry was last hit or written."""
        with self.ports.lock():
            hit = self.table.last_hit(stored.handle)
        return max(0, self.ports.now_us() - max(hit, stored.since_us)) * 1000

    def set_meter(self, stored: Stored, rates: MeterRates | None) -> None:
        """Set the rates of an entry's direct meter; None clears them."""
        with self.ports.lock():
            self.table.set_meter(stored.handle, rates)

    def find(self, entry: Any) -> Stored:
        """Return the entry with a message's match and priority, or raise ``P4Error``."""
        stored = self.entries.get(self.key(entry))
        if stored is None:
            raise self._error(NOT_FOUND, "no entry has this match")
        return stored
