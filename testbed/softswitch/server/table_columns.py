"""Table entries of P4Runtime, many at once, as ``wire`` writes them: from the switch's own rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from testbed.softswitch.runtime.later import np
from testbed.softswitch.runtime.tables import MAX_PRIORITY
from testbed.softswitch.server.arrays import ENTITIES, counts, meter_config
from testbed.softswitch.server.config import (
    MATCH,
    ActionConfig,
    FieldConfig,
    PipelineConfig,
    TableConfig,
)
from testbed.softswitch.server.messages import p4runtime_pb2
from testbed.softswitch.server.wire import AT_ONCE, big_endian, joined, message, number, octets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from testbed.softswitch.compiler.rows import TableLayout
    from testbed.softswitch.runtime.tables import Table
    from testbed.softswitch.server.entries import Stored
    from testbed.softswitch.server.ports import Ports
    from testbed.softswitch.server.wire import Column

KEY = 4  # where the key begins in a row
FIELDS: dict[str, dict[str, int]] = {
    name: {f.name: f.number for f in getattr(p4runtime_pb2, name).DESCRIPTOR.fields}
    for name in ("Entity", "TableEntry", "FieldMatch", "TableAction", "Action")
}


class TableColumns:
    """Writes the plain entries of a table: those that run an action and have no metadata."""

    def __init__(self, table: TableConfig, config: PipelineConfig, layout: TableLayout) -> None:
        self._table = table
        self._config = config
        self._layout = layout
        self._program = program = config.program.definition
        ours = {config.actions[i].name: config.actions[i] for i in table.actions}
        numbers = table.definition.action_ids
        names = {i: program.actions[i].name for i in numbers}
        self._actions = {i: ours[name] for i, name in names.items() if name in ours}

    def read(
        self, table: Table, ports: Ports, request: Any, found: Sequence[Stored], out: list[Any]
    ) -> list[Stored]:
        """Add the plain ones of some entries to a list, as bytes of ReadResponses; return the
        others."""
        plain: list[Stored] = []
        others: list[Stored] = []
        for s in found:
            extra = s.timeout_ns or s.metadata or s.controller_metadata
            (others if extra or s.reference.kind != "action" else plain).append(s)
        unit = None
        if request.HasField("counter_data") and self._table.counter:
            unit = self._config.direct_counters[self._table.counter].spec.unit
        metered = request.HasField("meter_config") and self._table.meter
        for at in range(0, len(plain), AT_ONCE):
            handles = np.array([s.handle for s in plain[at : at + AT_ONCE]])
            with ports.lock():
                rows = table.rows(handles)
                meters = table.meters(handles) if metered else None
            out.append(self.write(rows, unit, meters))
        return others

    def write(self, rows: NDArray[Any], counter: int | None, meters: NDArray[Any] | None) -> bytes:
        """Return the entries of rows u64[n, row_words] as a ReadResponse.

        Args:
            rows: The rows.
            counter: The unit of the counters that are to be in it, None for none.
            meters: The meters that are to be in it.
        """
        names, n = FIELDS["TableEntry"], len(rows)
        columns = number(names["table_id"], np.full(n, self._table.id))
        for f in self._table.fields:
            columns += self._match(f, rows)
        which = rows[:, 0] & np.uint64(0xFFFFFFFF)
        for i in np.unique(which):
            there = which == i
            action = message(FIELDS["TableAction"]["action"], self._action(int(i), rows))
            columns += message(names["action"], action, there)
        if self._table.prioritized:
            columns += number(names["priority"], MAX_PRIORITY - rows[:, 1].astype(np.int64))
        if meters is not None:
            config = message(names["meter_config"], meter_config(meters), meters["configured"] != 0)
            columns += config
        if counter is not None:
            counted = {"packets": rows[:, 2], "bytes": rows[:, 3]}
            columns += message(names["counter_data"], counts(counter, counted))
        return joined(message(ENTITIES, message(FIELDS["Entity"]["table_entry"], columns)))

    def _octets(self, rows: NDArray[Any], first: int, shift: int, width: int) -> NDArray[np.uint8]:
        """A number of the rows as u8[n, bytes], from a word and a bit in it on."""
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
        first = message(1, [octets(value)])
        if f.kind == MATCH.EXACT:
            match = message(names["exact"], first)
        else:
            at = KEY + self._layout.words + place.word
            mask = self._octets(rows, at, place.shift, f.width)
            where = mask.any(1)
            second = message(2, [octets(mask)])
            if f.kind == MATCH.LPM:
                length = np.unpackbits(mask, axis=1).sum(1)
                match = message(names["lpm"], [*first, *number(2, length)])
            elif f.kind == MATCH.TERNARY:
                match = message(names["ternary"], [*first, *second])
            elif f.kind == MATCH.RANGE:
                full = ((1 << f.width) - 1).to_bytes(mask.shape[1], "big")
                where = value.any(1) | (mask != np.frombuffer(full, np.uint8)).any(1)
                match = message(names["range"], [*first, *second])
            else:
                match = message(names["optional"], first)
        columns = [*number(names["field_id"], np.full(len(rows), f.id)), *match]
        return message(FIELDS["TableEntry"]["match"], columns, where)

    def _action(self, i: int, rows: NDArray[Any]) -> list[Column]:
        """Action number ``i`` of the program with its parameters, in every row."""
        config, at = self._actions[i], self._layout.params
        columns = number(FIELDS["Action"]["action_id"], np.full(len(rows), config.id))
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
            columns += message(
                FIELDS["Action"]["params"],
                [*number(2, np.full(len(rows), param)), *message(3, [octets(value)])],
            )
        return columns

    @staticmethod
    def _places(config: ActionConfig, places: list[int]) -> list[int]:
        """Where the parameters are, in P4Info's order."""
        found = [0] * len(places)
        for place, i in enumerate(config.order):
            found[i] = places[place]
        return found
