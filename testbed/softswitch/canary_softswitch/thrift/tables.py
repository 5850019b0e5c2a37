# SPDX-License-Identifier: Apache-2.0
"""Tables and action profiles of BMv2's service "standard"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from canary_softswitch.device.device import Device
from canary_softswitch.device.messages import encode
from canary_softswitch.device.pipeline import Pipeline
from canary_softswitch.device.table_entries import TableState
from canary_softswitch.errors import SoftSwitchError, TableError
from canary_softswitch.errors import TableErrorCode as Code
from canary_softswitch.runtime.action_profiles import ActionProfile
from canary_softswitch.runtime.tables import MAX_PRIORITY, Entry, Table
from canary_softswitch.thrift.standard import counter_result, meter_rates, rates_result
from canary_softswitch.thrift.values import (
    BOOL,
    I32,
    I64,
    NOTHING,
    STRING,
    STRUCT,
    Arguments,
    BmError,
    Call,
    Result,
    listed,
    struct,
    text,
)

INT_MAX = (1 << 31) - 1
PARAMS = ("exact", "lpm", "ternary", "valid", "range")


def _integer(data: Any) -> int:
    if not isinstance(data, bytes):
        raise BmError(Code.BAD_MATCH_KEY)
    return int.from_bytes(data, "big")


class Tables:
    """BMv2's calls on the tables and action profiles of a device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        names: dict[str, Callable[[Pipeline, Arguments], Result]] = {
            "bm_mt_get_num_entries": lambda p, a: (I64, len(self._table(p, a))),
            "bm_mt_clear_entries": self._clear,
            "bm_mt_add_entry": self._add,
            "bm_mt_set_default_action": self._set_default,
            "bm_mt_reset_default_entry": self._reset_default,
            "bm_mt_delete_entry": self._delete,
            "bm_mt_modify_entry": self._modify,
            "bm_mt_set_entry_ttl": self._set_timeout,
            "bm_mt_indirect_set_entry_ttl": self._set_timeout,
            "bm_mt_indirect_add_entry": lambda p, a: self._add_reference(p, a, False),
            "bm_mt_indirect_ws_add_entry": lambda p, a: self._add_reference(p, a, True),
            "bm_mt_indirect_modify_entry": lambda p, a: self._modify_reference(p, a, False),
            "bm_mt_indirect_ws_modify_entry": lambda p, a: self._modify_reference(p, a, True),
            "bm_mt_indirect_delete_entry": self._delete,
            "bm_mt_indirect_set_default_member": lambda p, a: self._default_reference(p, a, False),
            "bm_mt_indirect_ws_set_default_group": lambda p, a: self._default_reference(p, a, True),
            "bm_mt_indirect_reset_default_entry": self._reset_default,
            "bm_mt_read_counter": self._read_counter,
            "bm_mt_write_counter": self._write_counter,
            "bm_mt_reset_counters": self._reset_counters,
            "bm_mt_set_meter_rates": self._set_meter,
            "bm_mt_get_meter_rates": self._get_meter,
            "bm_mt_get_entries": self._entries,
            "bm_mt_get_entry": self._entry,
            "bm_mt_get_entry_from_key": self._entry_from_key,
            "bm_mt_get_default_entry": self._default_entry,
            "bm_mt_act_prof_add_member": self._add_member,
            "bm_mt_act_prof_delete_member": self._delete_member,
            "bm_mt_act_prof_modify_member": self._modify_member,
            "bm_mt_act_prof_create_group": lambda p, a: (I32, self._selector(p, a).add_group()),
            "bm_mt_act_prof_delete_group": self._delete_group,
            "bm_mt_act_prof_add_member_to_group": self._join,
            "bm_mt_act_prof_remove_member_from_group": self._part,
            "bm_mt_act_prof_get_members": self._members,
            "bm_mt_act_prof_get_member": self._member,
            "bm_mt_act_prof_get_groups": self._groups,
            "bm_mt_act_prof_get_group": self._group,
        }
        self.calls: dict[str, Call] = {name: self._guarded(call) for name, call in names.items()}

    def _guarded(self, call: Callable[[Pipeline, Arguments], Result]) -> Call:
        """Return a call that holds the locks and reports errors with BMv2's codes."""

        def guarded(a: Arguments) -> Result:
            """Return the result of the call; raise ``BmError`` for a failure or another context."""
            with self.device.lock:
                pipeline = self.device.pipeline
                if pipeline is None or a.get(1, 0):
                    raise BmError(Code.INVALID_TABLE_NAME)
                try:
                    with self.device.ports.lock():
                        return call(pipeline, a)
                except TableError as e:
                    raise BmError(e.code) from None
                except SoftSwitchError:
                    raise BmError(Code.ERROR) from None

        return guarded

    @staticmethod
    def _state_of(pipeline: Pipeline, table: str) -> TableState | None:
        """Return P4Runtime's state of a table whose entries may time out, else None."""
        states = (s for s in pipeline.tables.values() if s.config.name == table)
        return next((s for s in states if s.config.definition.aged), None)

    # ---- arguments ----

    @staticmethod
    def _table(pipeline: Pipeline, a: Arguments) -> Table:
        try:
            return pipeline.switch.table(text(a, 2))
        except SoftSwitchError:
            raise BmError(Code.INVALID_TABLE_NAME) from None

    def _direct(self, pipeline: Pipeline, a: Arguments) -> Table:
        table = self._table(pipeline, a)
        if table.definition.kind != "simple":
            raise BmError(Code.WRONG_TABLE_TYPE)
        return table

    def _indirect(self, pipeline: Pipeline, a: Arguments, groups: bool = False) -> Table:
        table = self._table(pipeline, a)
        if table.definition.kind == "simple":
            raise BmError(Code.WRONG_TABLE_TYPE)
        if (
            groups
            and pipeline.switch.action_profile(table.definition.profile).definition.selector is None
        ):
            raise BmError(Code.NO_ACTION_PROFILE_SELECTION)
        return table

    @staticmethod
    def _match(table: Table, params: Sequence[Arguments]) -> list[Any]:
        key = table.definition.key
        if len(params) != len(key):
            raise BmError(Code.BAD_MATCH_KEY)
        out: list[Any] = []
        for k, param in zip(key, params, strict=True):
            kind = param.get(1, 0)
            value = param.get(kind + 2)
            if not isinstance(value, dict):
                raise BmError(Code.BAD_MATCH_KEY)
            if kind == 3:  # validity of a header
                out.append(int(value.get(1, False)))
            elif kind == 0:
                out.append(_integer(value.get(1)))
            elif kind == 1:
                out.append((_integer(value.get(1)), value.get(2, 0)))
            else:
                first, second = _integer(value.get(1)), _integer(value.get(2))
                if k.match == "optional":
                    out.append(first if second else None)
                else:
                    out.append((first, second))
        return out

    @staticmethod
    def _priority(table: Table, options: Arguments) -> int | None:
        """Return the switch's priority for BMv2's, in which the smallest wins; None without one."""
        if table.layout.kind != "ternary":
            return None
        return MAX_PRIORITY - max(0, min(options.get(1, 0), MAX_PRIORITY - 1))

    @staticmethod
    def _data(values: Sequence[bytes]) -> list[int]:
        return [int.from_bytes(v, "big") for v in values]

    @staticmethod
    def _handle(a: Arguments) -> int:
        if a.get(3, 0) < 0:
            raise BmError(Code.INVALID_HANDLE)
        return a.get(3, 0)

    # ---- writing ----

    def _clear(self, p: Pipeline, a: Arguments) -> Result:
        table = self._table(p, a)
        table.clear()
        if a.get(3):
            table.reset_default()
        return NOTHING

    def _add(self, p: Pipeline, a: Arguments) -> Result:
        table = self._direct(p, a)
        return I32, table.add(
            self._match(table, a.get(3, [])),
            text(a, 4),
            self._data(a.get(5, [])),
            self._priority(table, a.get(6, {})),
        )

    def _set_default(self, p: Pipeline, a: Arguments) -> Result:
        table = self._direct(p, a)
        values = self._data(a.get(4, []))
        table.set_default(text(a, 3), values)
        return NOTHING

    def _reset_default(self, p: Pipeline, a: Arguments) -> Result:
        self._table(p, a).reset_default()
        return NOTHING

    def _delete(self, p: Pipeline, a: Arguments) -> Result:
        self._table(p, a).delete(self._handle(a))
        return NOTHING

    def _modify(self, p: Pipeline, a: Arguments) -> Result:
        self._direct(p, a).modify(self._handle(a), text(a, 4), self._data(a.get(5, [])))
        return NOTHING

    def _set_timeout(self, p: Pipeline, a: Arguments) -> Result:
        """Set an entry's idle timeout, which is reported to P4Runtime's controller.

        The table must be in the P4Info.
        """
        handle = self._handle(a)
        self._table(p, a).last_hit(handle)
        state = self._state_of(p, text(a, 2))
        if state is not None:
            for s in state.entries.values():
                if s.handle == handle:
                    s.timeout_ns = (a.get(4, 0) & 0xFFFFFFFF) * 1_000_000
                    s.since_us, s.times_idle = self.device.ports.now_us(), 0
            self.device.wake()
        return NOTHING

    def _add_reference(self, p: Pipeline, a: Arguments, group: bool) -> Result:
        table = self._indirect(p, a, group)
        add = table.add_group_entry if group else table.add_member_entry
        return I32, add(
            self._match(table, a.get(3, [])), a.get(4, 0), self._priority(table, a.get(5, {}))
        )

    def _modify_reference(self, p: Pipeline, a: Arguments, group: bool) -> Result:
        table = self._indirect(p, a, group)
        modify = table.modify_group_entry if group else table.modify_member_entry
        modify(self._handle(a), a.get(4, 0))
        return NOTHING

    def _default_reference(self, p: Pipeline, a: Arguments, group: bool) -> Result:
        table = self._indirect(p, a, group)
        (table.set_default_group if group else table.set_default_member)(a.get(3, 0))
        return NOTHING

    # ---- counters and meters of entries ----

    def _read_counter(self, p: Pipeline, a: Arguments) -> Result:
        return counter_result(*self._table(p, a).counter(self._handle(a)))

    def _write_counter(self, p: Pipeline, a: Arguments) -> Result:
        value = a.get(4, {})
        self._table(p, a).set_counter(self._handle(a), value.get(2, 0), value.get(1, 0))
        return NOTHING

    def _reset_counters(self, p: Pipeline, a: Arguments) -> Result:
        table = self._table(p, a)
        if not table.definition.counters:
            raise BmError(Code.COUNTERS_DISABLED)
        for e in table.entries():
            table.set_counter(e.handle, 0, 0)
        return NOTHING

    def _set_meter(self, p: Pipeline, a: Arguments) -> Result:
        self._table(p, a).set_meter(self._handle(a), meter_rates(a.get(4, [])))
        return NOTHING

    def _get_meter(self, p: Pipeline, a: Arguments) -> Result:
        return rates_result(self._table(p, a).meter(self._handle(a)))

    # ---- reading ----

    @staticmethod
    def _param(kind: str, width: int, value: Any) -> Result:
        """Return a match element as a struct BmMatchParam of BMv2."""

        def octets(v: int) -> bytes:
            """Return a number as big-endian bytes, as many as ``width`` bits take."""
            return v.to_bytes((width + 7) // 8, "big")

        full = (1 << width) - 1
        if kind == "optional":
            value = (value or 0, 0 if value is None else full)
            kind = "ternary"
        number = PARAMS.index(kind)
        if kind == "valid":
            inner = struct((1, BOOL, bool(value)))
        elif kind == "exact":
            inner = struct((1, STRING, octets(value)))
        elif kind == "lpm":
            inner = struct((1, STRING, octets(value[0])), (2, I32, value[1]))
        else:
            inner = struct((1, STRING, octets(value[0])), (2, STRING, octets(value[1])))
        return struct((1, I32, number), (number + 2, STRUCT, inner))

    @staticmethod
    def _action(action: str, values: Sequence[int]) -> Result:
        data = [encode(v) for v in values]
        return struct((1, I32, 1), (2, STRING, action), (3, *listed(STRING, data)))

    def _entry_structs(self, p: Pipeline, table: Table, entries: Sequence[Entry]) -> list[Result]:
        """Return each entry as a struct BmMtEntry of BMv2."""
        state = self._state_of(p, table.name)
        stored = {s.handle: s for s in state.entries.values() if s.timeout_ns} if state else {}
        out: list[Result] = []
        for e in entries:
            life = None
            if state and e.handle in stored:
                s = stored[e.handle]
                timeout, idle = s.timeout_ns // 1_000_000, state.idle_ns(s) // 1_000_000
                life = struct((1, I32, min(timeout, INT_MAX)), (2, I32, min(idle, INT_MAX)))
            out.append(self._entry_struct(table, e, life))
        return out

    def _entry_struct(self, table: Table, e: Entry, life: Result | None) -> Result:
        if e.member is not None:
            action = struct((1, I32, 2), (4, I32, e.member))
        elif e.group is not None:
            action = struct((1, I32, 3), (5, I32, e.group))
        else:
            action = self._action(e.action, e.params)
        key = table.definition.key
        match = [self._param(k.match, k.width, v) for k, v in zip(key, e.as_written, strict=True)]
        priority = -1 if e.priority is None else MAX_PRIORITY - e.priority
        return struct(
            (1, *listed(STRUCT, match)),
            (2, STRUCT, struct((1, I32, priority))),
            (3, I32, e.handle),
            (4, STRUCT, action),
            (5, STRUCT, life),
        )

    def _entries(self, p: Pipeline, a: Arguments) -> Result:
        table = self._table(p, a)
        return listed(STRUCT, self._entry_structs(p, table, table.entries()))

    def _entry(self, p: Pipeline, a: Arguments) -> Result:
        table, handle = self._table(p, a), self._handle(a)
        for e in table.entries():
            if e.handle == handle:
                return self._entry_structs(p, table, [e])[0]
        raise BmError(Code.INVALID_HANDLE)

    def _entry_from_key(self, p: Pipeline, a: Arguments) -> Result:
        table = self._table(p, a)
        priority = self._priority(table, a.get(4, {}))
        wanted = table.canonical(self._match(table, a.get(3, [])))
        for e in table.entries():
            if table.canonical(e.match) == wanted and e.priority == priority:
                return self._entry_structs(p, table, [e])[0]
        raise BmError(Code.BAD_MATCH_KEY)

    def _default_entry(self, p: Pipeline, a: Arguments) -> Result:
        found = self._table(p, a).default()
        if found is None:
            return struct((1, I32, 0))
        kind, value, values = found
        if kind == "action":
            return self._action(value, values)
        return struct((1, I32, 2 if kind == "member" else 3), (4 + (kind == "group"), I32, value))

    # ---- action profiles ----

    @staticmethod
    def _profile(p: Pipeline, a: Arguments) -> ActionProfile:
        try:
            return p.switch.action_profile(text(a, 2))
        except SoftSwitchError:
            raise BmError(Code.INVALID_ACTION_PROFILE_NAME) from None

    def _selector(self, p: Pipeline, a: Arguments) -> ActionProfile:
        profile = self._profile(p, a)
        if profile.definition.selector is None:
            raise BmError(Code.NO_ACTION_PROFILE_SELECTION)
        return profile

    def _add_member(self, p: Pipeline, a: Arguments) -> Result:
        return I32, self._profile(p, a).add_member(text(a, 3), self._data(a.get(4, [])))

    def _delete_member(self, p: Pipeline, a: Arguments) -> Result:
        self._profile(p, a).delete_member(a.get(3, 0))
        return NOTHING

    def _modify_member(self, p: Pipeline, a: Arguments) -> Result:
        self._profile(p, a).modify_member(a.get(3, 0), text(a, 4), self._data(a.get(5, [])))
        return NOTHING

    def _delete_group(self, p: Pipeline, a: Arguments) -> Result:
        profile = self._selector(p, a)
        profile.delete_group(a.get(3, 0))
        return NOTHING

    def _regroup(self, p: Pipeline, a: Arguments) -> tuple[ActionProfile, list[int]]:
        """Return the profile, and the members of the group that the arguments name."""
        profile = self._selector(p, a)
        profile.check_member(a.get(3, 0))
        profile.check_group(a.get(4, 0))
        return profile, profile.groups[a.get(4, 0)]

    def _join(self, p: Pipeline, a: Arguments) -> Result:
        profile, members = self._regroup(p, a)
        if a.get(3, 0) in members:
            raise BmError(Code.MBR_ALREADY_IN_GRP)
        profile.modify_group(a.get(4, 0), [*members, a.get(3, 0)])
        return NOTHING

    def _part(self, p: Pipeline, a: Arguments) -> Result:
        profile, members = self._regroup(p, a)
        if a.get(3, 0) not in members:
            raise BmError(Code.MBR_NOT_IN_GRP)
        profile.modify_group(a.get(4, 0), [m for m in members if m != a.get(3, 0)])
        return NOTHING

    @staticmethod
    def _member_struct(member: int, action: str, values: Sequence[int]) -> Result:
        data = [encode(v) for v in values]
        return struct((1, I32, member), (2, STRING, action), (3, *listed(STRING, data)))

    def _members(self, p: Pipeline, a: Arguments) -> Result:
        members = sorted(self._profile(p, a).members.items())
        return listed(STRUCT, [self._member_struct(m, *what) for m, what in members])

    def _member(self, p: Pipeline, a: Arguments) -> Result:
        profile = self._profile(p, a)
        profile.check_member(a.get(3, 0))
        return self._member_struct(a.get(3, 0), *profile.members[a.get(3, 0)])

    def _groups(self, p: Pipeline, a: Arguments) -> Result:
        groups = sorted(self._selector(p, a).groups.items())
        return listed(STRUCT, [struct((1, I32, g), (2, *listed(I32, m))) for g, m in groups])

    def _group(self, p: Pipeline, a: Arguments) -> Result:
        profile = self._selector(p, a)
        profile.check_group(a.get(3, 0))
        return struct((1, I32, a.get(3, 0)), (2, *listed(I32, profile.groups[a.get(3, 0)])))
