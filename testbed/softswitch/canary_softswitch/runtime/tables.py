# SPDX-License-Identifier: Apache-2.0
"""Control of match tables at run time."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from canary_softswitch.compiler.bmv2_program import Action, TableDef
from canary_softswitch.compiler.rows import TableLayout
from canary_softswitch.errors import TableError, unknown_name
from canary_softswitch.errors import TableErrorCode as Code
from canary_softswitch.runtime.action_profiles import ActionProfile
from canary_softswitch.runtime.encoding import (
    KeyEncoding,
    Match,
    checked_params,
    number,
    packed_params,
    read_params,
    words,
)
from canary_softswitch.runtime.instance import (
    METER,
    USED,
    Instance,
    MeterRates,
    get_meter,
    set_meter,
)

GROUP = 1 << 33  # SS_GROUP: an entry's reference is a group
MAX_PRIORITY = (1 << 31) - 1
ERRORS = {
    -1: (Code.DUPLICATE_ENTRY, "an entry with the same match exists"),
    -2: (Code.TABLE_FULL, "the table is full"),
    -3: (Code.ERROR, "out of memory"),
    -4: (Code.INVALID_HANDLE, "no entry has this handle"),
}


@dataclass(frozen=True)
class Entry:
    """One table entry. ``match`` has the form ``add`` takes; ``priority`` None when unused.

    ``member`` or ``group`` is set instead of ``action`` in tables with an action profile.
    """

    handle: int
    match: tuple[Any, ...]
    action: str
    params: tuple[int, ...]
    priority: int | None
    member: int | None = None
    group: int | None = None
    action_id: int = -1
    written: tuple[Any, ...] | None = None

    @property
    def as_written(self) -> tuple[Any, ...]:
        """Return the match as it was written: an lpm value may have bits after its prefix."""
        return self.match if self.written is None else self.written


class Table:
    """A table of one switch; get it with ``Switch.table``.

    Match elements: exact ``int | bytes``; lpm ``(value, prefix_len)``; ternary
    ``(value, mask)``; range ``(lo, hi)``; optional ``int | None``. p4c writes optional keys
    as ternary ones, so a ternary key also takes ``int | bytes | None``. Tables with a ternary,
    range or optional key need a ``priority`` of 1 or more: the larger wins, as in P4Runtime.
    Among equal priorities the lower handle wins, as in BMv2.

    ``changes`` counts the calls that changed the entries or the default: who keeps a copy of them
    sees by it that another wrote to the table.
    """

    def __init__(
        self,
        instance: Instance,
        definition: TableDef,
        layout: TableLayout,
        profile: ActionProfile | None,
    ) -> None:
        self.definition = definition
        self.layout = layout
        self.name = definition.name
        self.changes = 0
        self._instance = instance  # keeps the handle valid
        self._program = instance.program.definition
        self._lib, self._sw, self._i = instance.lib, instance.handle, definition.index
        self._keys = KeyEncoding(definition.name, definition.key, layout)
        self._actions = {
            self._program.actions[i].name: self._program.actions[i] for i in definition.action_ids
        }
        self._default: tuple[str, int] | None = None
        self._written: dict[int, tuple[Any, ...]] = {}  # matches with bits after a prefix
        self._plain: dict[str, tuple[int, Any]] = {}  # references without parameters
        self._words = ctypes.c_uint64 * layout.row_words
        self._profile = profile
        if profile is not None:
            profile.attach(self.references)
        self._const = definition.entries is not None
        self._install_const_entries()

    def _priority(self, priority: int | None) -> int:
        if self.layout.kind != "ternary":
            if priority not in (None, 0):
                raise TableError(
                    Code.BAD_MATCH_KEY,
                    f"table {self.name!r} has only exact or lpm keys: its entries take no priority",
                )
            return 0
        if not isinstance(priority, int) or not 1 <= priority <= MAX_PRIORITY:
            raise TableError(
                Code.ERROR,
                f"table {self.name!r} needs a priority of 1 or more "
                f"(the larger wins), not {priority!r}",
            )
        return MAX_PRIORITY - priority

    # ---- actions ----

    def _action(self, name: str) -> Action:
        if name in self._actions:
            return self._actions[name]
        short = [a for n, a in self._actions.items() if n.split(".")[-1] == name]
        if len(short) == 1:
            return short[0]
        raise unknown_name(
            f"action of table {self.name!r}", name, self._actions, Code.INVALID_ACTION_NAME
        )

    def _reference(self, action: str, params: Sequence[Any]) -> tuple[int, Any]:
        if params == () and action in self._plain:
            return self._plain[action]
        if self.definition.kind != "simple":
            raise TableError(
                Code.WRONG_TABLE_TYPE,
                f"table {self.name!r} uses action profile "
                f"{self.definition.profile!r}: use add_member_entry",
            )
        a = self._action(action)
        values = checked_params(a, params)
        packed = packed_params(self._program, a, values, self.layout.param_words)
        if params == ():
            self._plain[action] = a.id, packed
        return a.id, packed

    def _mutable(self) -> None:
        if self._const:
            raise TableError(
                Code.IMMUTABLE_TABLE_ENTRIES, f"the entries of table {self.name!r} are const"
            )

    def _insert(self, match: Match, meta: int, params: Any, priority: int | None) -> int:
        self._mutable()
        value, mask, prefix = self._keys.encode(match)
        prio = self._priority(priority)
        if self.layout.kind != "lpm":
            return self._raw_insert(value, mask, prio, meta, params)
        handle = self._raw_insert(value, mask, prefix, meta, params)
        self._written.pop(handle, None)
        if self._keys.has_more(match):
            self._written[handle] = self._keys.plain(match)
        return handle

    def _raw_insert(self, value: bytes, mask: bytes, prio: int, meta: int, params: Any) -> int:
        h = self._lib.ss_table_add(self._sw, self._i, value, mask, prio, meta, params)
        if h < 0:
            raise self._refusal(h)
        self.changes += 1
        return h

    def _refusal(self, error: int) -> TableError:
        code, why = ERRORS[error]
        full = f" ({self.definition.max_size} entries)" if error == -2 else ""
        return TableError(code, f"table {self.name!r}: {why}{full}")

    def add(
        self, match: Match, action: str, params: Sequence[Any] = (), priority: int | None = None
    ) -> int:
        """Add an entry and return its handle, a number.

        Raises:
            TableError: The entry exists, the table is full, or a width or a name is wrong.
        """
        meta, packed = self._reference(action, params)
        return self._insert(match, meta, packed, priority)

    def modify(self, handle: int, action: str, params: Sequence[Any] = ()) -> None:
        """Replace the action and the parameters of the entry with a handle, a number from `add`."""
        self._mutable()
        meta, packed = self._reference(action, params)
        self._modify(handle, meta, packed)

    def _modify(self, handle: int, meta: int, params: Any) -> None:
        row = self._handle(handle)
        self._check(self._lib.ss_table_modify(self._sw, self._i, row, meta, params), handle)
        self.changes += 1

    def delete(self, handle: int) -> None:
        """Remove the entry with a handle, a number that may be reused."""
        self._mutable()
        self._check(self._lib.ss_table_delete(self._sw, self._i, self._handle(handle)), handle)
        self.changes += 1

    def clear(self) -> None:
        """Remove all entries, also those that the program declares const, as BMv2 does; the default
        action stays."""
        self._lib.ss_table_clear(self._sw, self._i)
        self.changes += 1

    def set_default(self, action: str, params: Sequence[Any] = ()) -> None:
        """Change the default action; raise ``TableError`` when the program declares it const."""
        d = self.definition.default
        if d and (d.entry_const or d.action_const):
            name = self._program.actions[d.action_id].name
            if d.entry_const or self._action(action).id != d.action_id:
                raise TableError(
                    Code.DEFAULT_ACTION_IS_CONST,
                    f"the default action {name!r} of table {self.name!r} is const",
                )
        meta, packed = self._reference(action, params)
        self._set_default(meta | USED, packed)

    def _set_default(self, meta: int, params: Any) -> None:
        self._lib.ss_table_default(self._sw, self._i, meta, params)
        self.changes += 1

    def reset_default(self) -> None:
        """Restore the default action that the program declares."""
        self._default = None
        self._set_default(0, None)

    def default(self) -> tuple[str, Any, tuple[int, ...]] | None:
        """Return what a miss runs, or None.

        It is ("action", name, parameters), ("member", number, ()) or ("group", number, ()).
        """
        if self._default is not None:
            return *self._default, ()
        address = self._lib.ss_table_default_row(self._sw, self._i)
        row = list((ctypes.c_uint64 * (1 + self.layout.param_words)).from_address(address))
        if not row[0] & USED or self.definition.kind != "simple":
            return None
        action = self._program.actions[row[0] & 0xFFFFFFFF]
        return "action", action.name, read_params(action, row[1:])

    def default_action(self) -> int:
        """Return the number of the action that a miss runs, if ``default`` returns an action."""
        address = self._lib.ss_table_default_row(self._sw, self._i)
        return ctypes.c_uint64.from_address(address).value & 0xFFFFFFFF

    def canonical(self, match: Match) -> tuple[bytes, bytes, int]:
        """Return the value bytes, mask bytes and prefix bits of a match, however it is written."""
        return self._keys.encode(match)

    def counter(self, handle: int) -> tuple[int, int]:
        """Return (packets, bytes) that hit an entry; the table needs a direct counter."""
        if not self.definition.counters:
            raise TableError(Code.COUNTERS_DISABLED, f"table {self.name!r} has no direct counter")
        row = self._live_row(handle)
        return row[2], row[3]

    def counters(self, handles: Sequence[int]) -> NDArray[np.uint64]:
        """Return (packets, bytes) that hit each of many entries, uint64[n, 2]; see `counter`."""
        if not self.definition.counters:
            raise TableError(Code.COUNTERS_DISABLED, f"table {self.name!r} has no direct counter")
        requested = np.fromiter(map(self._handle, handles), np.uint64, len(handles))
        out = np.empty((len(requested), 2), np.uint64)
        found = self._lib.ss_table_counters(
            self._sw, self._i, requested.ctypes.data, len(requested), out.ctypes.data
        )
        if found < len(requested):
            self._check(-4, handles[found])
        return out

    def set_counter(self, handle: int, packets: int, size: int) -> None:
        """Set the packets and bytes that ``counter`` reads."""
        if not self.definition.counters:
            raise TableError(Code.COUNTERS_DISABLED, f"table {self.name!r} has no direct counter")
        row = self._live_row(handle)
        row[2], row[3] = number(packets, 64, "packets"), number(size, 64, "bytes")

    def meter(self, handle: int) -> MeterRates | None:
        """Return the rates of an entry's direct meter, None if none were set."""
        return get_meter(self._lib, self._meter(handle))

    def set_meter(self, handle: int, rates: MeterRates | None) -> None:
        """Set the rates of an entry's meter; with None it marks all packets green."""
        set_meter(self._lib, self._meter(handle), rates)

    def _meter(self, handle: int) -> int:
        if not self.definition.meter:
            raise TableError(Code.METERS_DISABLED, f"table {self.name!r} has no direct meter")
        address = self._lib.ss_table_meter(self._sw, self._i, self._handle(handle))
        if not address:
            self._check(-4, handle)
        return address

    def last_hit(self, handle: int) -> int:
        """Return the time of an entry's last hit in microseconds, 0 before the first."""
        if not self.definition.aged:
            raise TableError(
                Code.AGEING_DISABLED, f"the entries of table {self.name!r} have no idle timeout"
            )
        self._live_row(handle)
        return self._lib.ss_table_seen(self._sw, self._i, handle)

    def _handle(self, handle: int) -> int:
        return number(handle, 32, f"table {self.name!r} handle")

    def _check(self, rc: int, handle: int) -> None:
        if rc < 0:
            code, why = ERRORS[rc]
            raise TableError(code, f"table {self.name!r}: {why} ({handle})")

    def _row(self, handle: int) -> Any:
        """Return the 64-bit words of an entry's row in C, or None."""
        address = self._lib.ss_table_row(self._sw, self._i, handle)
        return self._words.from_address(address) if address else None

    def heads(self) -> NDArray[np.uint64]:
        """Return the first two words of every row, also of those not in use: a view of
        u64[capacity, 2], valid until an entry is added."""
        return self._all_rows()[:, :2]

    def rows(self, handles: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the words of the rows of entries that are there, u64[n, words]; a copy."""
        return self._all_rows()[:, : self.layout.params + self.layout.param_words][handles]

    def _all_rows(self) -> NDArray[np.uint64]:
        address = self._lib.ss_table_rows(self._sw, self._i)
        return self._view(address, np.dtype("<u8"), self.layout.row_words)

    def meters(self, handles: NDArray[np.int64]) -> NDArray[Any]:
        """Return a copy of the meters of n entries that are there, [n], as in ``Switch.meters``."""
        address = self._meter(int(handles[0])) - int(handles[0]) * np.dtype(METER).itemsize
        return self._view(address, np.dtype(METER), 1)[:, 0][handles]

    def _view(self, address: int | None, dtype: np.dtype[Any], width: int) -> NDArray[Any]:
        """Return a view of the array at an address that has an item for every row.

        Its shape is [capacity, width]; rows not in use are included.
        """
        if not address:
            return np.empty((0, width), dtype)
        size = self._lib.ss_table_capacity(self._sw, self._i) * width * dtype.itemsize
        memory = (ctypes.c_uint8 * size).from_address(address)
        return np.frombuffer(memory, dtype).reshape(-1, width)

    def _live_row(self, handle: int) -> Any:
        row = self._row(self._handle(handle))
        if row is None:
            self._check(-4, handle)
        return row

    def __len__(self) -> int:
        return self._lib.ss_table_count(self._sw, self._i)

    def entries(self) -> list[Entry]:
        """Return all entries in the order of their handles."""
        rows = ((h, self._row(h)) for h in range(self._lib.ss_table_capacity(self._sw, self._i)))
        return [self._entry(h, list(row)) for h, row in rows if row is not None]

    def _entry(self, handle: int, row: list[int]) -> Entry:
        n = self.layout.words
        match = self._keys.decode(row[4 : 4 + n], row[4 + n : self.layout.params])
        priority = MAX_PRIORITY - row[1] if self.layout.kind == "ternary" else None
        ref = row[0] & 0xFFFFFFFF
        if self.definition.kind != "simple":
            group = bool(row[0] & GROUP)
            return Entry(
                handle,
                match,
                "",
                (),
                priority,
                None if group else ref,
                ref if group else None,
                written=self._written.get(handle),
            )
        action = self._program.actions[ref]
        params = read_params(action, row[self.layout.params :])
        written = self._written.get(handle)
        return Entry(handle, match, action.name, params, priority, action_id=ref, written=written)

    # ---- action profiles ----

    def _members(self) -> ActionProfile:
        if self._profile is None:
            raise TableError(
                Code.WRONG_TABLE_TYPE, f"table {self.name!r} has no action profile: use add"
            )
        return self._profile

    def add_member_entry(self, match: Match, member: int, priority: int | None = None) -> int:
        """Add an entry that runs a member of the table's action profile; return its handle."""
        self._members().check_member(member)
        return self._insert(match, member, words([]), priority)

    def add_group_entry(self, match: Match, group: int, priority: int | None = None) -> int:
        """Add an entry that runs a hashed member of a group, given by number; return its handle."""
        if not self._members().check_group(group):
            raise TableError(
                Code.EMPTY_GRP, f"group {group} of {self.definition.profile!r} is empty"
            )
        return self._insert(match, group | GROUP, words([]), priority)

    def modify_member_entry(self, handle: int, member: int) -> None:
        """Let an entry run another member, given by number, of the action profile."""
        self._members().check_member(member)
        self._mutable()
        self._modify(handle, member, words([]))

    def modify_group_entry(self, handle: int, group: int) -> None:
        """Let an entry run a member of another group, given by number, of the action profile."""
        self._members().check_group(group)
        self._mutable()
        self._modify(handle, group | GROUP, words([]))

    def set_default_member(self, member: int) -> None:
        """Let a miss run the member of the action profile with this number."""
        self._members().check_member(member)
        self._default = ("member", member)
        self._set_default(member | USED, words([]))

    def set_default_group(self, group: int) -> None:
        """Let a miss run a member of the action profile's group with this number."""
        self._members().check_group(group)
        self._default = ("group", group)
        self._set_default(group | USED | GROUP, words([]))

    def references(self, what: str, number_: int) -> bool:
        """Return True if an entry or the default uses the member or group with this number."""
        return self._default == (what, number_) or any(
            (e.member if what == "member" else e.group) == number_ for e in self.entries()
        )

    # ---- const entries ----

    def _install_const_entries(self) -> None:
        for entry in self.definition.entries or ():
            value, mask, prefix = self._keys.encode(entry.match)
            action = self._program.actions[entry.action_id]
            packed = packed_params(self._program, action, entry.data, self.layout.param_words)
            prio = prefix if self.layout.kind == "lpm" else entry.priority
            self._raw_insert(value, mask, prio, action.id, packed)
