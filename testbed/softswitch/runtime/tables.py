"""Control of match tables and action profiles at run time."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.softswitch.compiler.bmv2_json import Action, KeyField, Profile, TableDef, hexint
from testbed.softswitch.compiler.codegen_calculation import field_words
from testbed.softswitch.compiler.codegen_control import TableLayout, pack_params, profile_words
from testbed.softswitch.errors import SoftSwitchError, unknown_name

if TYPE_CHECKING:
    from testbed.softswitch.runtime.switch import Switch

USED, GROUP = 1 << 32, 1 << 33
MAX_PRIORITY = (1 << 31) - 1
MASK64 = (1 << 64) - 1
ERRORS = {
    -1: "there is an entry with the same match already",
    -2: "the table is full",
    -3: "out of memory",
    -4: "no entry has this handle",
}
Match = Sequence[Any]


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


def number(value: Any, width: int, what: str) -> int:
    """``value`` (int or big-endian bytes) checked to fit in ``width`` bits."""
    if isinstance(value, (bytes, bytearray)):
        value = int.from_bytes(value, "big")
    elif hasattr(value, "__index__"):
        value = value.__index__()
    else:
        raise SoftSwitchError(f"{what}: {value!r} is not an int or bytes")
    if not 0 <= value < 1 << width:
        raise SoftSwitchError(f"{what}: {value} does not fit in {width} bits")
    return value


def words(values: list[int]) -> Any:
    """C array of 64-bit words."""
    return (ctypes.c_uint64 * max(len(values), 1))(*values)


def action_params(action: Action, params: Sequence[Any]) -> tuple[int, ...]:
    """Checked values of an action's parameters."""
    if isinstance(params, (bytes, str)) or not isinstance(params, Sequence):
        raise SoftSwitchError(f"action {action.name!r}: params must be a sequence")
    if len(params) != len(action.params):
        names = ", ".join(f"{n}: {w} bits" for n, w in action.params) or "none"
        raise SoftSwitchError(
            f"action {action.name!r} takes {len(action.params)} parameters "
            f"({names}), not {len(params)}"
        )
    return tuple(
        number(v, w, f"action {action.name!r} parameter {n!r}")
        for v, (n, w) in zip(params, action.params, strict=True)
    )


def read_params(action: Action, row: list[int]) -> tuple[int, ...]:
    """Parameter values out of 64-bit words."""
    out, i = [], 0
    for _, width in action.params:
        n = field_words(width)
        out.append(sum(row[i + k] << 64 * k for k in range(n)))
        i += n
    return tuple(out)


class Table:
    """A table of one switch; get it with ``Switch.table``.

    Match elements: exact ``int | bytes``; lpm ``(value, prefix_len)``; ternary
    ``(value, mask)``; range ``(lo, hi)``; optional ``int | None``. p4c writes optional keys
    as ternary ones, so a ternary key also takes ``int | bytes | None``. Tables with a ternary,
    range or optional key need a ``priority`` of 1 or more: the larger wins, as in P4Runtime.
    Among equal priorities the lower handle wins, as in BMv2.
    """

    def __init__(self, switch: Switch, definition: TableDef, layout: TableLayout) -> None:
        self.switch = switch
        self.definition = definition
        self.layout = layout
        self.name = definition.name
        program = switch.program.definition
        self._lib, self._sw, self._i = switch.program.lib, switch.handle, definition.index
        self._actions = {program.actions[i].name: program.actions[i] for i in definition.action_ids}
        self._const = False
        self._default: tuple[str, int] | None = None

    # ---- keys ----

    def _place(self, i: int, value: int) -> int:
        p = self.layout.places[i]
        return value << 64 * p.word + p.shift

    def _element(self, i: int, k: KeyField, m: Any) -> tuple[int, int, int]:
        """(value, mask, prefix length) of one match element; a range is (low, high, 0)."""
        what = f"table {self.name!r} key {k.name!r}"
        full = (1 << k.width) - 1
        if k.match == "exact":
            return number(m, k.width, what), full, 0
        single = m is None or isinstance(m, (int, bytes, bytearray)) or hasattr(m, "__index__")
        if k.match in ("optional", "ternary") and single:  # p4c writes optional as ternary
            return (0, 0, 0) if m is None else (number(m, k.width, what), full, 0)
        if k.match == "optional":
            raise SoftSwitchError(f"{what}: expected an int, bytes or None, not {m!r}")
        shapes = {"lpm": "(value, prefix_len)", "ternary": "(value, mask)", "range": "(lo, hi)"}
        if not isinstance(m, (tuple, list)) or len(m) != 2:
            raise SoftSwitchError(f"{what}: expected {shapes[k.match]}, not {m!r}")
        value = number(m[0], k.width, what)
        if k.match == "range":
            hi = number(m[1], k.width, what)
            if hi < value:
                raise SoftSwitchError(f"{what}: range {value}..{hi} is empty")
            return value, hi, 0
        if k.match == "lpm":
            plen = number(m[1], 32, what)
            if plen > k.width:
                raise SoftSwitchError(f"{what}: prefix length {plen} exceeds {k.width} bits")
            mask = full ^ (full >> plen)
            return value & mask, mask, plen
        mask = number(m[1], k.width, what)
        return value & mask, mask, 0

    def _key(self, match: Match) -> tuple[list[int], list[int], int]:
        key = self.definition.key
        if isinstance(match, (bytes, str)) or not isinstance(match, Sequence):
            raise SoftSwitchError(f"table {self.name!r}: match must be a sequence")
        if len(match) != len(key):
            names = ", ".join(f"{k.name} ({k.match}, {k.width} bits)" for k in key) or "none"
            raise SoftSwitchError(
                f"table {self.name!r} has {len(key)} keys ({names}), not {len(match)}"
            )
        if not key:
            raise SoftSwitchError(
                f"table {self.name!r} has no key: only its default action can be set"
            )
        value = mask = prefix = 0
        for i, (k, m) in enumerate(zip(key, match, strict=True)):
            v, x, plen = self._element(i, k, m)
            if k.mask is not None and k.match != "range":
                v, x = v & k.mask, x & k.mask if self.layout.kind != "exact" else x
            value |= self._place(i, v)
            mask |= self._place(i, x)
            prefix += plen
        n = self.layout.words
        return (
            [value >> 64 * w & MASK64 for w in range(n)],
            [mask >> 64 * w & MASK64 for w in range(n)],
            prefix,
        )

    def _priority(self, priority: int | None) -> int:
        if self.layout.kind != "ternary":
            if priority not in (None, 0):
                raise SoftSwitchError(
                    f"table {self.name!r} has only exact or lpm keys: its entries take no priority"
                )
            return 0
        if not isinstance(priority, int) or not 1 <= priority <= MAX_PRIORITY:
            raise SoftSwitchError(
                f"table {self.name!r} needs a priority of 1 or more "
                f"(the larger wins), not {priority!r}"
            )
        return MAX_PRIORITY - priority

    # ---- actions ----

    def _action(self, name: str) -> Action:
        if name in self._actions:
            return self._actions[name]
        short = [a for n, a in self._actions.items() if n.split(".")[-1] == name]
        if len(short) == 1:
            return short[0]
        raise unknown_name(f"action of table {self.name!r}", name, self._actions)

    def _reference(self, action: str, params: Sequence[Any]) -> tuple[int, Any]:
        if self.definition.kind != "simple":
            raise SoftSwitchError(
                f"table {self.name!r} uses action profile "
                f"{self.definition.profile!r}: use add_member_entry"
            )
        a = self._action(action)
        values = action_params(a, params)
        packed = pack_params(self.switch.program.definition, a.id, values)
        packed += [0] * (self.layout.param_words - len(packed))
        return a.id, words(packed)

    def _mutable(self) -> None:
        if self._const:
            raise SoftSwitchError(f"the entries of table {self.name!r} are const")

    def _insert(self, match: Match, meta: int, params: Any, priority: int | None) -> int:
        self._mutable()
        value, mask, prefix = self._key(match)
        prio = self._priority(priority)
        return self._raw_insert(
            value, mask, prefix if self.layout.kind == "lpm" else prio, meta, params
        )

    def _raw_insert(
        self, value: list[int], mask: list[int], prio: int, meta: int, params: Any
    ) -> int:
        h = self._lib.ss_table_add(self._sw, self._i, words(value), words(mask), prio, meta, params)
        if h < 0:
            full = f" ({self.definition.max_size} entries)" if h == -2 else ""
            raise SoftSwitchError(f"table {self.name!r}: {ERRORS[h]}{full}")
        return h

    def add(
        self, match: Match, action: str, params: Sequence[Any] = (), priority: int | None = None
    ) -> int:
        """Add an entry; gives its handle. Errors: duplicate, full, wrong widths or names."""
        meta, packed = self._reference(action, params)
        return self._insert(match, meta, packed, priority)

    def modify(self, handle: int, action: str, params: Sequence[Any] = ()) -> None:
        """Give an entry another action or other parameters."""
        self._mutable()
        meta, packed = self._reference(action, params)
        self._check(
            self._lib.ss_table_modify(self._sw, self._i, self._handle(handle), meta, packed), handle
        )

    def delete(self, handle: int) -> None:
        """Remove an entry; its handle may be given out again."""
        self._mutable()
        self._check(self._lib.ss_table_delete(self._sw, self._i, self._handle(handle)), handle)

    def clear(self) -> None:
        """Remove all entries; the default action stays."""
        self._mutable()
        self._lib.ss_table_clear(self._sw, self._i)

    def set_default(self, action: str, params: Sequence[Any] = ()) -> None:
        """Change the default action. Error when the program declares it const."""
        d = self.definition.default
        if d and (d.entry_const or d.action_const):
            name = self.switch.program.definition.actions[d.action_id].name
            if d.entry_const or self._action(action).id != d.action_id:
                raise SoftSwitchError(
                    f"the default action {name!r} of table {self.name!r} is const"
                )
        meta, packed = self._reference(action, params)
        self._lib.ss_table_default(self._sw, self._i, meta | USED, packed)

    def reset_default(self) -> None:
        """Return to the default action of the program."""
        self._default = None
        self._lib.ss_table_default(self._sw, self._i, 0, None)

    def counter(self, handle: int) -> tuple[int, int]:
        """(packets, bytes) that hit an entry; needs a direct counter in the program."""
        if not self.definition.counters:
            raise SoftSwitchError(f"table {self.name!r} has no direct counter")
        row = self._row(self._handle(handle))
        if row is None:
            self._check(-4, handle)
        assert row is not None
        return row[2], row[3]

    def _handle(self, handle: int) -> int:
        return number(handle, 32, f"table {self.name!r} handle")

    def _check(self, rc: int, handle: int) -> None:
        if rc < 0:
            raise SoftSwitchError(f"table {self.name!r}: {ERRORS[rc]} ({handle})")

    def _row(self, handle: int) -> list[int] | None:
        address = self._lib.ss_table_row(self._sw, self._i, handle)
        if not address:
            return None
        return list((ctypes.c_uint64 * self.layout.row_words).from_address(address))

    def __len__(self) -> int:
        return self._lib.ss_table_count(self._sw, self._i)

    def entries(self) -> list[Entry]:
        """All entries, by handle."""
        rows = ((h, self._row(h)) for h in range(self._lib.ss_table_capacity(self._sw, self._i)))
        return [self._entry(h, row) for h, row in rows if row is not None]

    def _entry(self, handle: int, row: list[int]) -> Entry:
        n = self.layout.words
        value = sum(w << 64 * i for i, w in enumerate(row[4 : 4 + n]))
        mask = sum(w << 64 * i for i, w in enumerate(row[4 + n : 4 + 2 * n]))
        match: list[Any] = []
        for i, k in enumerate(self.definition.key):
            p = self.layout.places[i]
            v = value >> 64 * p.word + p.shift & (1 << k.width) - 1
            x = mask >> 64 * p.word + p.shift & (1 << k.width) - 1
            if k.match == "exact":
                match.append(v)
            elif k.match == "optional":
                match.append(v if x else None)
            else:
                match.append((v, x.bit_count()) if k.match == "lpm" else (v, x))
        priority = MAX_PRIORITY - row[1] if self.layout.kind == "ternary" else None
        ref = row[0] & 0xFFFFFFFF
        if self.definition.kind != "simple":
            group = bool(row[0] & GROUP)
            return Entry(
                handle,
                tuple(match),
                "",
                (),
                priority,
                None if group else ref,
                ref if group else None,
            )
        action = self.switch.program.definition.actions[ref]
        return Entry(
            handle, tuple(match), action.name, read_params(action, row[4 + 2 * n :]), priority
        )

    # ---- action profiles ----

    def _profile(self) -> ActionProfile:
        if self.definition.kind == "simple":
            raise SoftSwitchError(f"table {self.name!r} has no action profile: use add")
        return self.switch.action_profile(self.definition.profile)

    def add_member_entry(self, match: Match, member: int, priority: int | None = None) -> int:
        """Add an entry that runs a member of the table's action profile."""
        self._profile().check_member(member)
        return self._insert(match, member, words([]), priority)

    def add_group_entry(self, match: Match, group: int, priority: int | None = None) -> int:
        """Add an entry that runs the member of a group the selector's hash picks."""
        if not self._profile().check_group(group):
            raise SoftSwitchError(f"group {group} of {self.definition.profile!r} is empty")
        return self._insert(match, group | GROUP, words([]), priority)

    def modify_member_entry(self, handle: int, member: int) -> None:
        """Let an entry run another member."""
        self._profile().check_member(member)
        self._mutable()
        self._check(
            self._lib.ss_table_modify(self._sw, self._i, self._handle(handle), member, words([])),
            handle,
        )

    def modify_group_entry(self, handle: int, group: int) -> None:
        """Let an entry run a member of another group."""
        self._profile().check_group(group)
        self._mutable()
        self._check(
            self._lib.ss_table_modify(
                self._sw, self._i, self._handle(handle), group | GROUP, words([])
            ),
            handle,
        )

    def set_default_member(self, member: int) -> None:
        """Let a miss run a member."""
        self._profile().check_member(member)
        self._default = ("member", member)
        self._lib.ss_table_default(self._sw, self._i, member | USED, words([]))

    def set_default_group(self, group: int) -> None:
        """Let a miss run a member of a group."""
        self._profile().check_group(group)
        self._default = ("group", group)
        self._lib.ss_table_default(self._sw, self._i, group | USED | GROUP, words([]))

    def references(self, what: str, number_: int) -> bool:
        """Whether an entry or the default uses a member or group."""
        return self._default == (what, number_) or any(
            (e.member if what == "member" else e.group) == number_ for e in self.entries()
        )

    # ---- const entries ----

    def install_const_entries(self) -> None:
        """Install the entries the program declares; they cannot be changed afterwards."""
        if self.definition.entries is None:
            return
        program = self.switch.program.definition
        for e in self.definition.entries:
            match = [_json_match(m) for m in e["match_key"]]
            value, mask, prefix = self._key(match)
            ref = e["action_entry"]
            data = tuple(hexint(x) for x in ref["action_data"])
            packed = pack_params(program, ref["action_id"], data)
            packed += [0] * (self.layout.param_words - len(packed))
            kind = self.layout.kind
            prio = prefix if kind == "lpm" else int(e["priority"]) if kind == "ternary" else 0
            self._raw_insert(value, mask, prio, ref["action_id"], words(packed))
        self._const = True


def _json_match(m: dict[str, Any]) -> Any:
    kind = m["match_type"]
    if kind in ("exact", "valid"):
        return int(m["key"]) if isinstance(m["key"], bool) else hexint(m["key"])
    if kind == "lpm":
        return hexint(m["key"]), int(m["prefix_length"])
    if kind == "range":
        return hexint(m["start"]), hexint(m["end"])
    if kind == "optional":
        return hexint(m["key"]) if hexint(m.get("mask", "0x1")) else None
    return hexint(m["key"]), hexint(m["mask"])


class ActionProfile:
    """Members and groups of an action profile or selector; ``Switch.action_profile``.

    A group runs its member number ``hash % size`` counted by rising member id, as BMv2.
    """

    def __init__(self, switch: Switch, definition: Profile) -> None:
        self.switch = switch
        self.definition = definition
        self.name = definition.name
        program = switch.program.definition
        self._words = profile_words(program)[definition.index]
        self._tables = [t for t in program.tables if t.profile == definition.name]
        self._actions = {
            program.actions[i].name: program.actions[i] for t in self._tables for i in t.action_ids
        }
        self._members: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._groups: dict[int, list[int]] = {}

    @property
    def members(self) -> dict[int, tuple[str, tuple[int, ...]]]:
        """Member id to (action, parameters)."""
        return dict(self._members)

    @property
    def groups(self) -> dict[int, list[int]]:
        """Group id to its sorted member ids."""
        return {g: list(m) for g, m in self._groups.items()}

    def check_member(self, member: int) -> None:
        """Error unless the member exists."""
        if member not in self._members:
            raise SoftSwitchError(f"action profile {self.name!r} has no member {member!r}")

    def check_group(self, group: int) -> int:
        """Number of members of a group; error unless it exists."""
        if group not in self._groups:
            raise SoftSwitchError(f"action profile {self.name!r} has no group {group!r}")
        return len(self._groups[group])

    def _write(self, member: int, action: str, params: Sequence[Any]) -> None:
        names = [n for n in self._actions if n == action or n.split(".")[-1] == action]
        if len(names) != 1 and action not in self._actions:
            raise unknown_name(f"action of profile {self.name!r}", action, self._actions)
        a = self._actions[action if action in self._actions else names[0]]
        values = action_params(a, params)
        packed = pack_params(self.switch.program.definition, a.id, values)
        packed += [0] * (self._words - len(packed))
        rc = self.switch.program.lib.ss_set_member(
            self.switch.handle, self.definition.index, member, a.id | USED, words(packed)
        )
        if rc:
            raise SoftSwitchError("out of memory")
        self._members[member] = (a.name, values)

    def add_member(self, action: str, params: Sequence[Any] = ()) -> int:
        """Add a member; gives its id (the lowest free one)."""
        member = next(i for i in range(len(self._members) + 1) if i not in self._members)
        self._write(member, action, params)
        return member

    def modify_member(self, member: int, action: str, params: Sequence[Any] = ()) -> None:
        """Give a member another action or other parameters."""
        self.check_member(member)
        self._write(member, action, params)

    def delete_member(self, member: int) -> None:
        """Remove a member that no entry and no group uses."""
        self.check_member(member)
        if any(member in m for m in self._groups.values()) or self._used("member", member):
            raise SoftSwitchError(f"member {member} of {self.name!r} is still used")
        del self._members[member]

    def _used(self, what: str, n: int) -> bool:
        return any(self.switch.table(t.name).references(what, n) for t in self._tables)

    def _set_group(self, group: int, members: Sequence[int]) -> None:
        if self.definition.selector is None:
            raise SoftSwitchError(f"action profile {self.name!r} has no selector, so no groups")
        for m in members:
            self.check_member(m)
        chosen = sorted(members)
        if len(set(chosen)) != len(chosen):
            raise SoftSwitchError(f"a member is twice in group {group} of {self.name!r}")
        array = (ctypes.c_uint32 * max(len(chosen), 1))(*chosen)
        if self.switch.program.lib.ss_set_group(
            self.switch.handle, self.definition.index, group, array, len(chosen)
        ):
            raise SoftSwitchError("out of memory")
        self._groups[group] = chosen

    def add_group(self, members: Sequence[int] = ()) -> int:
        """Add a group of members; gives its id (the lowest free one)."""
        group = next(i for i in range(len(self._groups) + 1) if i not in self._groups)
        self._set_group(group, members)
        return group

    def modify_group(self, group: int, members: Sequence[int]) -> None:
        """Replace the members of a group."""
        self.check_group(group)
        self._set_group(group, members)

    def delete_group(self, group: int) -> None:
        """Remove a group that no entry uses."""
        self.check_group(group)
        if self._used("group", group):
            raise SoftSwitchError(f"group {group} of {self.name!r} is still used")
        self._set_group(group, ())
        del self._groups[group]
