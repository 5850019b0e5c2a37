# SPDX-License-Identifier: Apache-2.0
"""Reads table entries, direct counters and direct meters by P4Runtime.

Many entries are serialized at once as columns, from the rows of the switch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from canary_softswitch.device.arrays import ENTITIES, counts, fill_config, meter_config
from canary_softswitch.device.config import (
    MATCH,
    ActionConfig,
    FieldConfig,
    PipelineConfig,
    TableConfig,
)
from canary_softswitch.device.groups import write_action
from canary_softswitch.device.messages import (
    AT_ONCE,
    Column,
    big_endian,
    either,
    encode,
    fill_counter,
    joined,
    nested,
    number,
    octets,
    p4runtime_pb2,
)
from canary_softswitch.device.table_entries import Reference, Stored, TableState, dont_care
from canary_softswitch.runtime.instance import USED
from canary_softswitch.runtime.tables import MAX_PRIORITY

if TYPE_CHECKING:
    from canary_softswitch.ports.ports import Ports
    from canary_softswitch.runtime.tables import Table

KEY = 4  # where the key begins in a row
ACTION = 0xFFFFFFFF  # the bits of a row's first word that number its action
FIELDS: dict[str, dict[str, int]] = {
    name: {f.name: f.number for f in getattr(p4runtime_pb2, name).DESCRIPTOR.fields}
    for name in (
        "Entity",
        "TableEntry",
        "FieldMatch",
        "TableAction",
        "Action",
        "DirectCounterEntry",
        "DirectMeterEntry",
    )
}


REFERENCES = {"member": "action_profile_member_id", "group": "action_profile_group_id"}
FEW = 64  # entries that are read one by one: numpy is not loaded for them


def has_more(stored: Stored) -> bool:
    """Return True if an entry has a timeout or metadata, which the switch does not store."""
    return bool(stored.timeout_ns or stored.metadata or stored.controller_metadata)


def write_match(f: FieldConfig, v: Any, entry: Any) -> None:
    """Add a match element of the switch to a TableEntry, unless it matches everything."""
    if f.kind == MATCH.EXACT:
        entry.match.add(field_id=f.id).exact.value = encode(v)
    elif v == dont_care(f.kind, f.width) or (f.kind == MATCH.LPM and not v[1]):
        return
    elif f.kind == MATCH.OPTIONAL:
        entry.match.add(field_id=f.id).optional.value = encode(v)
    elif f.kind == MATCH.LPM:
        m = entry.match.add(field_id=f.id).lpm
        m.value, m.prefix_len = encode(v[0]), v[1]
    elif f.kind == MATCH.TERNARY:
        m = entry.match.add(field_id=f.id).ternary
        m.value, m.mask = encode(v[0]), encode(v[1])
    else:
        m = entry.match.add(field_id=f.id).range
        m.low, m.high = encode(v[0]), encode(v[1])


class TableReader:
    """Reads the entries of the table ``state``: one by one, or as columns where they are many."""

    def __init__(self, state: TableState) -> None:
        self.state = state
        self._columns = TableColumns(state.config, state.pipeline, state.table)

    def read(self, request: Any) -> Iterator[Any]:
        """Yield the entries that a TableEntry of a Read selects.

        They are entities, or many at once bytes of ReadResponses, all of the moment when the first
        one is read.
        """
        state = self.state
        if request.is_default_action:
            r = state.default or state.program_default
            e = p4runtime_pb2.Entity()
            e.table_entry.table_id, e.table_entry.is_default_action = state.config.id, True
            if r is not None:
                self._fill_action(r, e.table_entry.action)
                yield e
            return
        counted = bool(state.config.counter) and request.HasField("counter_data")
        metered = bool(state.config.meter) and request.HasField("meter_config")
        one_by_one, parts = self._found(request, metered, has_more)
        out = [self._entity(s, counted, metered, request) for s in one_by_one]
        yield from self._columns.entries(parts, counted)
        yield from out

    def _entity(self, stored: Stored, counted: bool, metered: bool, request: Any) -> Any:
        e = p4runtime_pb2.Entity()
        entry = e.table_entry
        self.fill(stored, entry)
        if counted:
            self._fill_counter(stored, entry.counter_data)
        if metered:
            self._fill_meter(stored, entry, "meter_config")
        if request.HasField("time_since_last_hit") and stored.timeout_ns:
            entry.time_since_last_hit.elapsed_ns = self.state.idle_ns(stored)
        return e

    def read_direct(self, what: str, request: Any) -> Iterator[Any]:
        """Yield the direct counters or meters of the entries that a TableEntry selects.

        ``what`` is "counter" or "meter"; see ``read``.
        """
        one_by_one, parts = self._found(request, what == "meter", lambda _: False)
        out: list[Any] = []
        for stored in one_by_one:
            e = p4runtime_pb2.Entity()
            found = e.direct_counter_entry if what == "counter" else e.direct_meter_entry
            self.fill_match(stored, found.table_entry)
            if what == "counter":
                self._fill_counter(stored, found.data)
            else:
                self._fill_meter(stored, found, "config")
            out.append(e)
        columns = self._columns
        yield from (columns.direct_counters if what == "counter" else columns.direct_meters)(parts)
        yield from out

    def fill_match(self, stored: Stored, entry: Any) -> None:
        """Fill in table id, match and priority of a TableEntry."""
        entry.table_id = self.state.config.id
        for f in self.state.config.fields:
            write_match(f, stored.match[f.place], entry)
        entry.priority = stored.priority

    def fill(self, stored: Stored, entry: Any) -> None:
        """Fill in a TableEntry with all that a controller wrote of an entry."""
        self.fill_match(stored, entry)
        self._fill_action(stored.reference, entry.action)
        entry.metadata = stored.metadata
        entry.controller_metadata = stored.controller_metadata
        entry.idle_timeout_ns = stored.timeout_ns

    def _fill_action(self, r: Reference, action: Any) -> None:
        if r.kind == "action":
            write_action(self.state.pipeline.actions[r.id], r.values, action.action)
        elif r.kind in REFERENCES:
            setattr(action, REFERENCES[r.kind], r.id)
        else:
            action.action_profile_action_set.CopyFrom(r.message)

    def _fill_counter(self, stored: Stored, data: Any) -> None:
        state = self.state
        with state.ports.lock():
            packets, size = state.table.counter(stored.handle)
        unit = state.pipeline.direct_counters[state.config.counter].spec.unit
        fill_counter(unit, packets, size, data)

    def _fill_meter(self, stored: Stored, message: Any, field: str) -> None:
        with self.state.ports.lock():
            rates = self.state.table.meter(stored.handle)
        fill_config(rates, message, field)

    def _found(
        self, request: Any, metered: bool, alone: Callable[[Stored], bool]
    ) -> tuple[list[Stored], list[Rows]]:
        """Return the selected entries to be read one by one, and copies of the others' rows.

        All entries are read one by one if they are few, else those for which ``alone`` is True.
        """
        state, priority = self.state, request.priority
        if request.match:
            stored = state.entries.get(state.key(request))
            return [stored] if stored else [], []
        if len(state.table) <= FEW or state.profile is not None:
            found = [s for s in state.entries.values() if not priority or s.priority == priority]
            if len(found) <= FEW:
                return found, []
            plain = [s for s in found if s.reference.kind in REFERENCES and not alone(s)]
            one_by_one = [s for s in found if s.reference.kind not in REFERENCES or alone(s)]
            references = {
                field: np.array([s.reference.id if s.reference.kind == kind else 0 for s in plain])
                for kind, field in REFERENCES.items()
            }
            handles = np.array([s.handle for s in plain], np.int64)
        else:
            # The stored entries need an update only if they have more than the switch.
            if state.stale and any(map(alone, state.known)):
                state.adopt()
            others = list(filter(alone, state.known))
            handles = self._columns.handles(priority, [s.handle for s in others])
            one_by_one = [s for s in others if not priority or s.priority == priority]
            references = {}
        return one_by_one, self._columns.copies(state.ports, handles, metered, references)


@dataclass(frozen=True)
class Rows:
    """A copy of the switch's rows of n entries."""

    words: NDArray[np.uint64]
    """The words of their rows, u64[n, words], as ``Table.rows`` gives them."""
    meters: NDArray[Any] | None
    """Their meters, if these were asked for."""
    references: dict[str, NDArray[np.int64]]
    """In a table with an action profile: ids of members and groups, i64[n], 0 for none, by the
    field of TableAction that they stand in."""


class TableColumns:
    """Writes the entries of one table, its direct counters and its direct meters."""

    def __init__(self, config: TableConfig, pipeline: PipelineConfig, table: Table) -> None:
        self._config = config
        self._table = table
        self._layout = table.layout
        self._program = program = pipeline.program.definition
        self._unit = pipeline.direct_counters[config.counter].spec.unit if config.counter else None
        ours = {pipeline.actions[i].name: pipeline.actions[i] for i in config.actions}
        names = {i: program.actions[i].name for i in config.definition.action_ids}
        self._actions = {i: ours[name] for i, name in names.items() if name in ours}

    def handles(self, priority: int, others: list[int]) -> NDArray[np.int64]:
        """Return the handles, int64[n], of the entries of a priority of P4Runtime, or of all for 0.

        Those in ``others`` and those whose action is not in the P4Info are left out.
        """
        heads = self._table.heads()
        there = heads[:, 0] & np.uint64(USED) != 0
        if priority:
            there &= heads[:, 1] == MAX_PRIORITY - priority
        there[others] = False
        handles = np.flatnonzero(there)
        known = np.array(list(self._actions), np.uint64)
        return handles[np.isin(heads[handles, 0] & np.uint64(ACTION), known)]

    def copies(
        self,
        ports: Ports,
        handles: NDArray[np.int64],
        metered: bool,
        references: dict[str, NDArray[np.int64]],
    ) -> list[Rows]:
        """Return copies of the rows of entries, in parts between which packets are processed."""
        parts: list[Rows] = []
        for at in range(0, len(handles), AT_ONCE):
            some = slice(at, at + AT_ONCE)
            with ports.lock():
                rows = self._table.rows(handles[some])
                meters = self._table.meters(handles[some]) if metered else None
            parts.append(Rows(rows, meters, {k: ids[some] for k, ids in references.items()}))
        return parts

    def entries(self, parts: list[Rows], counted: bool) -> Iterator[bytes]:
        """Yield entries as ReadResponses; with ``counted`` with their counters.

        A part is freed once it is written, and its columns before this waits for the reader.
        """
        for rows in _emptied(parts):
            yield self._entries(rows, counted)

    def direct_counters(self, parts: list[Rows]) -> Iterator[bytes]:
        """Yield the counters of entries as ReadResponses, as ``entries`` does."""
        for rows in _emptied(parts):
            yield self._direct("counter", rows, self._counts(rows))

    def direct_meters(self, parts: list[Rows]) -> Iterator[bytes]:
        """Yield the meters of entries as ReadResponses, as ``entries`` does."""
        for rows in _emptied(parts):
            yield self._direct("meter", rows, self._meters(FIELDS["DirectMeterEntry"], rows))

    def _entries(self, rows: Rows, counted: bool) -> bytes:
        names = FIELDS["TableEntry"]
        columns = [*self._identity(rows.words), *self._runs(rows)]
        if rows.meters is not None:
            columns += self._meters(names, rows)
        if counted:
            columns += nested(names["counter_data"], self._counts(rows))
        entities = nested(ENTITIES, nested(FIELDS["Entity"]["table_entry"], columns))
        return joined(entities, len(rows.words))

    def _direct(self, what: str, rows: Rows, value: list[Column]) -> bytes:
        names = FIELDS["Direct" + what.title() + "Entry"]
        columns = nested(names["table_entry"], self._identity(rows.words))
        columns += nested(names["data"], value) if what == "counter" else value
        entities = nested(ENTITIES, nested(FIELDS["Entity"][f"direct_{what}_entry"], columns))
        return joined(entities, len(rows.words))

    def _counts(self, rows: Rows) -> list[Column]:
        assert self._unit is not None
        return counts(self._unit, {"packets": rows.words[:, 2], "bytes": rows.words[:, 3]})

    def _meters(self, names: dict[str, int], rows: Rows) -> list[Column]:
        meters = rows.meters
        assert meters is not None
        field = names["meter_config"] if "meter_config" in names else names["config"]
        return nested(field, meter_config(meters), meters["configured"] != 0)

    def _identity(self, rows: NDArray[Any]) -> list[Column]:
        """Return the table, the match and the priority."""
        names = FIELDS["TableEntry"]
        columns = number(names["table_id"], self._config.id)
        for f in self._config.fields:
            columns += self._match(f, rows)
        if self._config.prioritized:
            columns += number(names["priority"], MAX_PRIORITY - rows[:, 1].astype(np.int64))
        return columns

    def _runs(self, rows: Rows) -> list[Column]:
        """Return the field ``action`` of the entries."""
        names, field = FIELDS["TableAction"], FIELDS["TableEntry"]["action"]
        if rows.references:
            ids = [c for k, ids in rows.references.items() for c in number(names[k], ids)]
            return nested(field, ids)
        which = rows.words[:, 0] & np.uint64(ACTION)
        parts: list[tuple[NDArray[np.int64], list[Column]]] = []
        for i in np.unique(which):
            some = np.flatnonzero(which == i)
            action = self._action(int(i), rows.words[some])
            parts.append((some, nested(field, nested(names["action"], action))))
        return [either(len(which), parts)] if len(parts) > 1 else parts[0][1]

    def _octets(self, rows: NDArray[Any], first: int, shift: int, width: int) -> NDArray[np.uint8]:
        """Return a number of each row, from a word and a bit in it on, as u8[n, bytes]."""
        words = rows[:, first : first + (width + 63) // 64]
        if width <= 64:
            words = words >> np.uint64(shift) & np.uint64((1 << width) - 1)
        whole = np.ascontiguousarray(words[:, ::-1]).astype(">u8").view(np.uint8)
        return whole.reshape(len(rows), -1)[:, -((width + 7) // 8) :]

    def _match(self, f: FieldConfig, rows: NDArray[Any]) -> list[Column]:
        place = self._layout.places[f.place]
        value = self._octets(rows, KEY + place.word, place.shift, f.width)
        names = FIELDS["FieldMatch"]
        where: Any = None
        first = nested(1, [octets(value)])
        if f.kind == MATCH.EXACT:
            match = nested(names["exact"], first)
        else:
            at = KEY + self._layout.words + place.word
            mask = self._octets(rows, at, place.shift, f.width)
            where = mask.any(1)
            second = nested(2, [octets(mask)])
            if f.kind == MATCH.LPM:
                length = np.unpackbits(mask, axis=1).sum(1)
                match = nested(names["lpm"], [*first, *number(2, length)])
            elif f.kind == MATCH.TERNARY:
                match = nested(names["ternary"], [*first, *second])
            elif f.kind == MATCH.RANGE:
                full = ((1 << f.width) - 1).to_bytes(mask.shape[1], "big")
                where = value.any(1) | (mask != np.frombuffer(full, np.uint8)).any(1)
                match = nested(names["range"], [*first, *second])
            else:
                match = nested(names["optional"], first)
        columns = [*number(names["field_id"], f.id), *match]
        return nested(FIELDS["TableEntry"]["match"], columns, where)

    def _action(self, i: int, rows: NDArray[Any]) -> list[Column]:
        """Return action number ``i`` of the program with the parameters of each row."""
        config, at = self._actions[i], self._layout.params
        columns = number(FIELDS["Action"]["action_id"], config.id)
        places: list[int] = []
        for _, width in self._program.actions[i].params:
            places.append(at)
            at += (width + 63) // 64
        for (param, _, width), place in zip(
            config.params, self._places(config, places), strict=True
        ):
            if width > 128:  # big-endian bytes
                size = (width + 7) // 8
                words = np.ascontiguousarray(rows[:, place : place + (width + 63) // 64])
                value = big_endian(words.view(np.uint8).reshape(len(rows), -1)[:, :size])
            else:
                value = self._octets(rows, place, 0, width)
            columns += nested(
                FIELDS["Action"]["params"],
                [*number(2, param), *nested(3, [octets(value)])],
            )
        return columns

    @staticmethod
    def _places(config: ActionConfig, places: list[int]) -> list[int]:
        """Return the word at which each parameter begins, in P4Info's order."""
        found = [0] * len(places)
        for place, i in enumerate(config.order):
            found[i] = places[place]
        return found


def _emptied(parts: list[Rows]) -> Iterator[Rows]:
    """Yield the parts of a list and remove them from it."""
    parts.reverse()
    while parts:
        yield parts.pop()
