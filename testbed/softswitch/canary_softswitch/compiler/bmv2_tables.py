# SPDX-License-Identifier: Apache-2.0
"""Tables of BMv2's JSON, with their keys and the entries that the program gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canary_softswitch.compiler import schema, schema_tables
from canary_softswitch.compiler.bmv2_program import (
    VALID,
    Bmv2Program,
    ConstEntry,
    DefaultEntry,
    KeyField,
    Pipeline,
    TableDef,
)
from canary_softswitch.compiler.references import Place, Wrong
from canary_softswitch.compiler.schema_values import source_of
from canary_softswitch.errors import UnsupportedProgram

MATCHES: Mapping[str, tuple[type, ...]] = {
    "exact": (schema_tables.ExactMatch,),
    "lpm": (schema_tables.LpmMatch,),
    "range": (schema_tables.RangeMatch,),
    "ternary": (schema_tables.TernaryMatch, schema_tables.ExactMatch, schema_tables.OptionalMatch),
    "optional": (schema_tables.TernaryMatch, schema_tables.ExactMatch, schema_tables.OptionalMatch),
}
"""The match elements allowed in an entry for each kind of key; p4c writes optional as ternary."""


def pipeline(root: schema.Root, p: Bmv2Program, number: int) -> Pipeline:
    """Return the control block with this number; its tables are numbered on from those of ``p``."""
    pipe = root.pipelines[number]
    first = len(p.tables)
    ids = {a.id: i for i, a in enumerate(root.actions)}
    return Pipeline(
        pipe.name,
        tuple(
            _table(p, pipe.name, t, first + i, ids, ("pipelines", number, "tables", i))
            for i, t in enumerate(pipe.tables)
        ),
    )


# Long: one value for each member of a table.
def _table(
    p: Bmv2Program,
    control: str,
    t: schema_tables.Table,
    index: int,
    ids: Mapping[int, int],
    place: Place,
) -> TableDef:
    source = source_of(t)
    if t.type not in ("simple", "indirect", "indirect_ws"):
        raise UnsupportedProgram(f"table type {t.type!r} of {t.name!r}", source)
    default = None
    if t.default_entry:
        d = t.default_entry
        default = DefaultEntry(
            ids[d.action_id], d.action_data, d.action_const, d.action_entry_const
        )
    key = tuple(_key(k, t, p) for k in t.key)
    entries = None
    if t.entries is not None:
        entries = _entries(t, key, ids, (*place, "entries"))
    return TableDef(
        index,
        t.name,
        control,
        t.match_type,
        t.type,
        key,
        len(entries) if entries is not None else t.max_size or 0,
        t.with_counters,
        t.direct_meters or "",
        t.support_timeout,
        tuple(ids[i] for i in t.action_ids or ()),
        t.next_tables,
        t.base_default_next,
        default,
        entries,
        t.action_profile or "",
        source,
    )


def _key(
    k: schema_tables.Key | schema_tables.ValidKey, table: schema_tables.Table, p: Bmv2Program
) -> KeyField:
    match, target = "exact", k.target
    if isinstance(k, schema_tables.ValidKey):
        target = (k.target, VALID)
    else:
        match, target = k.match_type, k.target
        if match not in MATCHES:
            raise UnsupportedProgram(
                f"match kind {match!r} in table {table.name!r}", source_of(table)
            )
    field = p.field_type(*target)
    if field.varbit:
        raise UnsupportedProgram(f"varbit key {'.'.join(target)}", source_of(table))
    if match == "range" and field.width > 64:
        raise UnsupportedProgram(
            f"range match of {field.width} bits (at most 64) in table {table.name!r}",
            source_of(table),
        )
    return KeyField(k.name or ".".join(target), match, field.width, target, k.mask)


def _entries(
    t: schema_tables.Table, key: tuple[KeyField, ...], ids: Mapping[int, int], place: Place
) -> tuple[ConstEntry, ...]:
    """Return a table's const entries; ``Wrong`` for one that does not fit its key."""
    if not key and t.entries:
        raise Wrong(place, f"const entries of table {t.name!r}, which has no key")
    prioritized = any(k.match in ("ternary", "range", "optional") for k in key)
    found: list[ConstEntry] = []
    seen: set[Any] = set()
    for i, e in enumerate(t.entries or ()):
        at = (*place, i)
        if len(e.match_key) != len(key):
            why = f"{len(e.match_key)} match elements, but the key has {len(key)}"
            raise Wrong((*at, "match_key"), why)
        parts = [
            _element(k, m, (*at, "match_key", j))
            for j, (k, m) in enumerate(zip(key, e.match_key, strict=True))
        ]
        if prioritized and e.priority is None:
            raise Wrong(at, "it has no 'priority'")
        priority = e.priority or 0 if prioritized else 0
        same = (priority, *(matched for _, matched in parts))
        if same in seen:
            raise Wrong((*at, "match_key"), "another const entry has the same match")
        seen.add(same)
        match = tuple(element for element, _ in parts)
        ref = e.action_entry
        found.append(ConstEntry(match, priority, ids[ref.action_id], ref.action_data))
    return tuple(found)


def _element(k: KeyField, m: Any, place: Place) -> tuple[Any, tuple[int, int]]:
    """Return a match element as ``Table.add`` takes it, and the value and mask that it means."""
    if not isinstance(m, MATCHES[k.match]):
        raise Wrong((*place, "match_type"), f"the key {k.name!r} is {k.match}")
    full = (1 << k.width) - 1
    ours = full if k.mask is None else k.mask & full

    def checked(name: str) -> int:
        """Return a number of the match; raise ``Wrong`` if it has more bits than the key."""
        value = int(getattr(m, name))
        if not 0 <= value <= full:
            raise Wrong((*place, name), f"it does not fit in the {k.width} bits of {k.name!r}")
        return value

    if isinstance(m, schema_tables.RangeMatch):
        low, high = checked("start"), checked("end")
        if high < low:
            raise Wrong((*place, "end"), "the range is empty")
        return (low, high), (low, high)
    value = checked("key")
    if isinstance(m, schema_tables.LpmMatch):
        if m.prefix_length > k.width:
            raise Wrong((*place, "prefix_length"), f"the key {k.name!r} has {k.width} bits")
        mask = full ^ (full >> m.prefix_length)
        return (value, m.prefix_length), (value & mask & ours, mask & ours)
    if isinstance(m, schema_tables.ExactMatch):
        return value, (value & ours, ours)
    if isinstance(m, schema_tables.OptionalMatch):
        return (value, (value & ours, ours)) if m.mask else (None, (0, 0))
    mask = checked("mask")
    return (value, mask), (value & mask & ours, mask & ours)
