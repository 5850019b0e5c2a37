# SPDX-License-Identifier: Apache-2.0
"""Bounds of a whole program: memory of a switch, size of a packet's headers, code to compile.

Single numbers are bounded by the records of ``schema``; their sums are bounded here, far above what
any program needs, so that an untrusted file cannot make a switch use more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from canary_softswitch.compiler import schema
from canary_softswitch.compiler import schema_values as values
from canary_softswitch.compiler.bmv2_program import Bmv2Program, HeaderType
from canary_softswitch.compiler.references import Wrong, walk
from canary_softswitch.compiler.rows import element_bytes, places

MAX_STATE = 1 << 30
"""Bytes of all registers, counters and meters."""
MAX_HEADERS = 1 << 18
"""Bytes of all headers and metadata of a packet; they lie on a thread's stack."""
MAX_STATEMENTS = 100_000
"""The approximate number of C statements to compile: values, fields, table entries' actions."""
COUNTER_BYTES = 16
METER_BYTES = 72
PARSER_COPIES = 3
"""How often the parser is compiled: for packets, for clones, and for the guess of table keys."""


def check(program: Bmv2Program, root: schema.Root) -> None:
    """Check a program's size.

    Raises:
        Wrong: A bound is exceeded.
    """
    _check_state(program)
    _check_headers(program, root)
    statements = _Statements(program, root).count()
    if statements > MAX_STATEMENTS:
        raise Wrong((), f"it needs {statements} C statements (at most {MAX_STATEMENTS})")


def _check_state(p: Bmv2Program) -> None:
    where = places(p)
    blocks = {where[r.name].block: r.size * where[r.name].stride for r in p.registers.values()}
    taken = {
        "register_arrays": sum(blocks.values()),
        "counter_arrays": sum(COUNTER_BYTES * c.size for c in p.counters.values()),
        "meter_arrays": sum(METER_BYTES * m.size for m in p.meters.values()),
    }
    total = 0
    for kind, size in taken.items():
        total += size
        if total > MAX_STATE:
            why = f"registers, counters and meters take {total} bytes (at most {MAX_STATE})"
            raise Wrong((kind,), why)


def _struct_bytes(t: HeaderType) -> int:
    """Return the bytes of a header type's struct in C."""
    at, widest = 1, 1
    if t.varbit:
        at = widest = 8
    for f in t.fields:
        array = f.varbit or f.width > 128
        size = (f.width + 7) // 8 if array else element_bytes(f.width)
        align = 1 if array else size
        at = -(at // -align) * align + size
        widest = max(widest, align)
    return -(at // -widest) * widest


def _check_headers(p: Bmv2Program, root: schema.Root) -> None:
    total = 0
    for h in p.headers.values():
        total += _struct_bytes(h.type)
    for s in p.stacks.values():  # one more of each to read beyond the end
        total += _struct_bytes(s.type)
    for us in p.union_stacks.values():
        total += sum(_struct_bytes(t) for _, t in us.type.members)
    if total > MAX_HEADERS:
        raise Wrong(("headers",), f"they take {total} bytes (at most {MAX_HEADERS})")
    sent = sum(p.headers[name].type.max_bytes for name in root.deparsers[0].order)
    if sent > MAX_HEADERS:
        raise Wrong(("deparsers", 0, "order"), f"it has {sent} bytes (at most {MAX_HEADERS})")


class _Statements:
    """Counts the C statements that a program becomes; inlined code counts each time."""

    def __init__(self, program: Bmv2Program, root: schema.Root) -> None:
        self._program = program
        self._root = root
        self._types = {
            t.name: len(t.fields) + self._values_in(t.length_exp) for t in root.header_types
        }
        self._calculations = {c.name: self._values_in(c.input) for c in root.calculations}

    def count(self) -> int:
        """Return the approximate number of C statements of the whole program."""
        root = self._root
        parser = self._values_in(root.parsers)
        for c in root.checksums:
            parser += 2 + self._values_in(c) + self._calculations[c.calculation]
        deparser = self._values_in(root.deparsers) + sum(
            self._fields(name) for name in root.deparsers[0].order
        )
        lists = self._values_in((*root.learn_lists, *root.field_lists))
        cleared = sum(1 + len(h.type.fields) for h in self._program.headers.values())
        return PARSER_COPIES * parser + 2 * cleared + deparser + lists + self._controls()

    def _controls(self) -> int:
        """Return the number for tables, conditions and calls, and for actions in each place."""
        actions = {a.id: 1 + self._values_in(a.primitives) for a in self._root.actions}
        profiles = {
            ap.name: self._values_in(ap.selector)
            for pipe in self._root.pipelines
            for ap in pipe.action_profiles
        }
        total = sum(actions.values())
        for pipe in self._root.pipelines:
            total += self._values_in(pipe.conditionals)
            total += sum(actions[call.action_id] for call in pipe.action_calls)
            for t in pipe.tables:
                runs: Iterable[int] = {*(t.action_ids or ())}
                if t.default_entry:
                    runs = {*runs, t.default_entry.action_id}
                total += 10 + len(t.key) + sum(actions[i] for i in runs)
                total += profiles.get(t.action_profile or "", 0)
        return total

    def _values_in(self, record: Any) -> int:
        """Return the number for all values in a record."""
        return sum(1 + self._named(one) for _, one in walk(record))

    def _named(self, one: Any) -> int:
        """Return the number for the object that a value refers to by name."""
        p = self._program
        match one:
            case values.HeaderValue(value=name) | values.UnionValue(value=name):
                return self._fields(name)
            case values.IntoHeader(value=name):
                return self._fields(name)
            case values.StackValue(value=name):
                stack = p.stacks.get(name)
                return len(stack.headers) if stack else p.union_stacks[name].size
            case values.IntoStack(value=name):
                return self._types[p.stacks[name].type.name]
            case values.IntoUnionStack(value=(name, member)):
                return self._types[dict(p.union_stacks[name].type.members)[member].name]
            case values.CalculationName(value=name):
                return self._calculations[name]
            case _:
                return 0

    def _fields(self, name: str) -> int:
        """Return the number of fields of a header, or of all members of a header union."""
        if name in self._program.headers:
            return self._types[self._program.headers[name].type.name]
        members = self._program.unions[name].type.members
        return sum(self._types[t.name] for _, t in members)
