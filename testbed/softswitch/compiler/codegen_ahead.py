# SPDX-License-Identifier: Apache-2.0
"""Writes C that guesses a packet's table keys from its headers, to prefetch rows and registers.

A wrong guess, which other actions or tables may cause, affects only the speed, so the rules are
simple. A packet's field has the value that the parser finds. A metadata field that is assigned in
one place has the value that it would get there. A table whose key has other fields is left out. If
a table has an entry for the packet, the registers of its control block are prefetched as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from testbed.softswitch.compiler import schema_values as values
from testbed.softswitch.compiler.bmv2_program import Action, TableDef
from testbed.softswitch.compiler.codegen_action import ActionWriter
from testbed.softswitch.compiler.codegen_control import ControlWriter
from testbed.softswitch.compiler.expressions import Expressions
from testbed.softswitch.compiler.layout import Layout

Field = tuple[str, str]
GROUPS = 4
"""The number of prefix lengths of an lpm table for which a row is guessed."""
MOST = 16
"""SS_GUESSES of `abi.h`."""
DEEPEST = 50
"""The most assignments that are followed from a key field back to packet fields."""

_ASSIGNS = ("assign", "modify_field", "modify_field_with_hash_based_offset")


class AheadWriter:
    """Writes the C functions ``ss_guess`` and ``ss_guess_rows``, which prefetch rows."""

    def __init__(self, layout: Layout, actions: ActionWriter, control: ControlWriter) -> None:
        self._layout = layout
        self._program = layout.program
        self._actions = actions
        self._control = control
        self._inputs = {c.name: c.input for c in layout.root.calculations}
        self._assigned = self._assignments()
        self._params = self._sure_params()
        self._code: list[str] = []
        self._done: set[Field] = set()
        self._at = 0

    def write(self) -> str:
        """Return the C of both functions and of ``ss_guessed``, which marks the guessed tables."""
        rows: list[str] = []
        guessed: set[int] = set()
        for table in self._program.tables:
            layout = self._control.tables[table.name]
            takes = GROUPS if layout.kind == "lpm" else 1
            if layout.kind not in ("exact", "lpm") or self._at + takes > MOST:
                continue
            if not self._know(key.target for key in table.key):
                continue
            size = f"{layout.words}, {layout.row_words}"
            key = self._control.key(table, layout)
            where = f"sw->tables + {table.index}, "
            slot = f"ss_guess_{layout.kind}({where}key, {size}, guess + {self._at});"
            self._code += ["{", *key, slot, "}"]
            row = f"ss_guess_{layout.kind}_row({where}guess + {self._at}, {size})"
            self._at += takes
            guessed.add(table.index)
            registers = self._registers(table)
            rows += [f"if ({row}) {{", *registers, "}"] if registers else [f"{row};"]
        marks = ", ".join(str(int(t.index in guessed)) for t in self._program.tables)
        return _FUNCTIONS.format(
            marks=marks or 0,
            code="\n".join(f"    {line}" for line in self._code),
            rows="\n".join(f"    {line}" for line in rows),
        )

    def _registers(self, table: TableDef) -> list[str]:
        """Return C that prefetches the registers read in a table's control block and inner blocks.

        They are usually read for packets that match an entry of the table.
        """
        control = table.name.rpartition(".")[0] + "."
        rows: list[str] = []
        blocks: set[int] = set()  # a packet reads one record of each, as a rule
        for action in self._layout.root.actions:
            for operation in action.primitives:
                if operation.op != "register_read" or self._at == MOST:
                    continue
                _, register, index = operation.parameters
                place = self._actions.registers[register.value]
                if place.block in blocks or not register.value.startswith(control):
                    continue
                fields = [
                    one.value if isinstance(one, values.FieldValue) else None
                    for one in self._sources([index])
                ]
                if None in fields or not self._know(f for f in fields if f):
                    continue
                blocks.add(place.block)
                e = Expressions(self._layout, [], values.source_of(operation))
                size = self._program.registers[register.value].size
                self._code.append(f"guess[{self._at}] = {e.index(e.read(index))};")
                rows.append(
                    f"ss_guess_register(sw, {place.block}, guess[{self._at}], {size}, "
                    f"{place.stride});"
                )
                self._at += 1
        return rows

    def _assignments(self) -> dict[Field, list[tuple[Action | None, values.Call | None]]]:
        """Return each field's assignments with their actions; None for other kinds of writes."""
        found: dict[Field, list[tuple[Action | None, values.Call | None]]] = defaultdict(list)
        for action in self._program.actions.values():
            for operation in self._actions.primitives(action):
                self._note(found, action, operation, operation.op in _ASSIGNS)
        for state in self._layout.root.parsers[0].parse_states:
            for operation in state.parser_ops:
                self._note(found, None, operation, known=False)
        return found

    @staticmethod
    def _note(found: dict[Field, list], action: Action | None, operation: Any, known: bool) -> None:
        for argument in operation.parameters[:1]:
            if isinstance(argument, values.FieldValue):
                found[argument.value].append((action, operation if known else None))

    def _sure_params(self) -> dict[int, str]:
        """Return the C pointer to the parameters of each action that only one keyless table calls.

        They are in the default entry of that table.
        """
        users: dict[int, list[TableDef]] = defaultdict(list)
        for table in self._program.tables:
            default = (table.default.action_id,) if table.default else ()
            for action in {*table.action_ids, *default}:
                users[action].append(table)
        return {
            action: f"{self._control.default(tables[0])} + 1"
            for action, tables in users.items()
            if len(tables) == 1 and not tables[0].key and tables[0].kind == "simple"
        }

    def _know(self, targets: Iterable[Field]) -> bool:
        """Return True if all of some fields can be guessed; then add their assignments."""
        order: list[Field] = []
        if not all(self._find(target, order, ()) for target in targets):
            return False
        for target in order:
            self._code += self._statements(target)
        self._done.update(order)
        return True

    def _find(self, target: Field, order: list[Field], above: tuple[Field, ...]) -> bool:
        """Return True if a field can be guessed; append what to assign for it to ``order``."""
        header = self._program.headers[target[0]]
        if not header.metadata:
            return not header.stack
        if target in self._done or target in order:
            return True
        ways = self._assigned.get(target, [])
        if len(ways) != 1 or target in above or len(above) == DEEPEST:
            return False
        action, operation = ways[0]
        if operation is None:
            return False
        for one in self._sources(operation.parameters[1:]):
            if isinstance(one, values.ParameterValue) and action and action.id in self._params:
                continue
            if not isinstance(one, values.FieldValue):
                return False
            if not self._find(one.value, order, (*above, target)):
                return False
        order.append(target)
        return True

    def _sources(self, parameters: Iterable[Any]) -> Iterator[Any]:
        """Yield the values that an operation reads, except constants."""
        waiting: list[Any] = list(parameters)
        while waiting:
            one = waiting.pop()
            match one:
                case values.CalculationName(value=name):
                    waiting += self._inputs[name]
                case values.Operation(left=left, right=right, cond=cond):
                    waiting += (left, right, cond)
                case None | int() | values.HexValue() | values.BoolValue():
                    pass
                case _:
                    yield one

    def _statements(self, target: Field) -> list[str]:
        action, operation = self._assigned[target][0]
        assert operation
        params = self._actions.params(action) if action else []
        e = Expressions(self._layout, params, values.source_of(operation))
        found = "NULL" if action is None else self._params.get(action.id, "NULL")
        code = self._actions.primitive(operation, e)
        return [f"{{ const uint64_t *a = {found}; (void)a;", *code, "}"]


_FUNCTIONS = """
static SS_UNUSED const uint8_t ss_guessed[] = {{{marks}}};

void ss_guess(ss_switch *sw, const uint8_t *data, uint32_t stored, uint32_t length,
              uint64_t *guess) {{
    ss_item item, *it = &item;
    struct phv *p = &item.p;
    ss_clear(p);
    item.data = data;
    item.stored = stored;
    item.length = item.reg_length = length;
    ss_parser(sw, it);
    (void)guess;
{code}
}}

void ss_guess_rows(const ss_switch *sw, const uint64_t *guess) {{
    (void)sw; (void)guess;
{rows}
}}
"""
