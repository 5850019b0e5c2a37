# SPDX-License-Identifier: Apache-2.0
"""Writes parsers without branches for the stacks of headers that most packets have.

A packet of such a stack takes a copy of the program of its own, in which the compiler knows which
headers are valid: tests of validity, headers that are never sent and half of the fields disappear.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from canary_softswitch.compiler import schema
from canary_softswitch.compiler import schema_values as values
from canary_softswitch.compiler.bmv2_program import Header
from canary_softswitch.compiler.codegen_headers import extract, read_bits
from canary_softswitch.compiler.codegen_parser import case_condition, case_tests
from canary_softswitch.compiler.layout import Layout

MOST = 3
"""The number of stacks that get a copy of the program; each copy takes .6 s to compile."""
LONGEST = 16
"""The most states that the parser visits for such a stack."""
MOST_PATHS = 256
"""The most paths through a parser that are compared."""


@dataclass(frozen=True)
class _Stack:
    """A path through the parser that ends with accept: its states, and how many select cases, over
    all states, lead along it."""

    states: tuple[schema.ParseState, ...]
    ways: int


class StackWriter:
    """Writes the C functions ``ss_stack``, which finds a packet's stack, and ``ss_parse_as``."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._program = layout.program
        self._parser = layout.root.parsers[0]
        self._states = {state.name: state for state in self._parser.parse_states}
        self.stacks = self._usual()

    def write(self) -> str:
        """Return the C of both functions, which number the stacks from 1; 0 is any other packet.

        ``ss_parse_as`` also keeps the fields as they came in ``was``. A third function,
        ``ss_parse_kept``, reads those again that surely are as they came: a copy of the program
        that hands a packet on need not hold what it does not look at itself.
        """
        found = self.stacks
        out = [f"#define SS_STACKS {len(found)}"]
        out += ["SS_INLINE int ss_stack(const uint8_t *d, uint64_t n) {", "    (void)d; (void)n;"]
        for number, stack in enumerate(found, 1):
            size, test = self._test(stack)
            out.append(f"    if (n >= {size} && {test}) return {number};")
        out += ["    return 0;", "}"]
        out += [
            "SS_INLINE void ss_parse_as(int stack, ss_switch *sw, ss_item *it, struct phv *was) {",
            "    struct phv *p = &it->p;",
            "    const uint8_t *d = it->data;",
            "    (void)p; (void)d; (void)was;",
            "    switch (stack) {",
        ]
        for number, stack in enumerate(found, 1):
            out.append(f"    case {number}:")
            out += [f"        {line}" for line in self._parse(stack)]
            out.append("        return;")
        out += ["    default: ss_parser(sw, it);", "    }", "}"]
        out += [
            "SS_INLINE void ss_parse_kept(int stack, ss_item *it, const struct phv *was,",
            "                             const uint8_t *d) {",
            "    struct phv *p = &it->p;",
            "    (void)p; (void)was; (void)d;",
        ]
        for number, stack in enumerate(found, 1):
            out += [f"    if (stack == {number}) {{", *self._kept(stack), "    }"]
        out.append("}")
        return "\n".join(out) + "\n"

    @cached_property
    def headers(self) -> frozenset[str]:
        """Return the names of the headers that packets of these stacks come with."""
        every = (
            header for s in self.stacks for state in s.states for header in self._headers(state)
        )
        return frozenset(header.name for header in every if header)

    def offsets(self, stack: _Stack) -> tuple[dict[str, int], int]:
        """Return where each header of a stack begins, in bytes, and how many bytes all have."""
        found: dict[str, int] = {}
        at = 0
        for state in stack.states:
            for header in self._headers(state):
                assert header
                found[header.name] = at
                at += header.type.width // 8
        return found, at

    def _usual(self) -> list[_Stack]:
        """Return the paths that most select cases lead along; of equals, the shorter ones."""
        paths = []
        for path in self._paths(self._parser.init_state, ()):
            if len(paths) == MOST_PATHS:
                return []
            paths.append(path)
        if len(paths) < 2:
            return []
        known = [path for path in paths if path]
        return sorted(known, key=lambda path: (-path.ways, len(path.states)))[:MOST]

    def _paths(
        self, name: str | None, before: tuple[schema.ParseState, ...], ways: int = 1
    ) -> Iterator[_Stack | None]:
        """Yield the paths that go on with the state ``name``; None for one that is not simple."""
        if name is None:
            yield _Stack(before, ways)
            return
        state = self._states[name]
        if state in before or len(before) == LONGEST or not self._simple(state, before):
            yield None
            return
        cases: dict[str | None, int] = {}
        for transition in state.transitions:
            assert not isinstance(transition, schema.OtherTransition)
            cases[transition.next_state] = cases.get(transition.next_state, 0) + 1
        for next_state, number in (cases or {None: 1}).items():
            yield from self._paths(next_state, (*before, state), ways * number)

    def _simple(self, state: schema.ParseState, before: tuple[schema.ParseState, ...]) -> bool:
        """Return True if a state extracts plain headers only, and selects on their fields."""
        ready = {header.name for one in before for header in self._headers(one) if header}
        for header in self._headers(state):
            if header is None:
                return False
            ready.add(header.name)
        for key in state.transition_key:
            match key:
                case values.FieldValue(value=(name, field)) if name in ready:
                    type_ = self._program.headers[name].type
                    if type_.fields[type_.find(field)].width > 64:
                        return False
                case values.LookaheadValue(value=(_, width)) if width <= 64:
                    pass
                case _:
                    return False
        return all(
            isinstance(transition, schema.DefaultTransition | schema.ValueTransition)
            for transition in state.transitions
        )

    def _headers(self, state: schema.ParseState) -> Iterator[Header | None]:
        """Yield the headers that a state extracts, None for any other operation."""
        for op in state.parser_ops:
            match op:
                case values.Call(op="extract", parameters=(values.IntoHeader(value=name),)):
                    header = self._program.headers[name]
                    plain = not (header.metadata or header.union or header.stack)
                    yield header if plain and not header.type.varbit else None
                case _:
                    yield None

    def _test(self, stack: _Stack) -> tuple[int, str]:
        """Return the least length in bytes and the C condition of the packets of a stack."""
        offsets: dict[str, int] = {}
        at = least = 0
        tests: list[str] = []
        for state, then in zip(stack.states, (*stack.states[1:], None), strict=True):
            for header in self._headers(state):
                assert header
                offsets[header.name] = 8 * at
                at += header.type.width // 8
            keys: list[tuple[str, int]] = []
            for key in state.transition_key:
                if isinstance(key, values.LookaheadValue):
                    bit, width = key.value
                    least = max(least, at + (bit + width + 7) // 8)
                    keys.append((read_bits("d", 8 * at + bit, width), width))
                else:
                    assert isinstance(key, values.FieldValue)
                    name, field_name = key.value
                    type_ = self._program.headers[name].type
                    field = type_.fields[type_.find(field_name)]
                    code = read_bits("d", offsets[name] + field.offset, field.width)
                    keys.append((code, field.width))
            tests.append(self._chosen(state, keys, then.name if then else None))
        return max(least, at), " && ".join(tests)

    @staticmethod
    def _chosen(state: schema.ParseState, keys: list[tuple[str, int]], to: str | None) -> str:
        """Return the C condition under which a state's transition leads to the state ``to``."""
        default: str | None = None
        cases: list[tuple[str, bool]] = []
        for transition in state.transitions:
            match transition:
                case schema.ValueTransition(value=value, next_state=next_state, mask=mask):
                    cases.append((case_condition(keys, value, mask), next_state == to))
                case schema.DefaultTransition(next_state=next_state):
                    default = next_state
                case _:
                    raise AssertionError(transition)
        code = str(int(default == to))
        for condition, right in reversed(cases):
            code = f"({condition}) ? {int(right)} : {code}"
        return f"({code})"

    def _known(self, state: schema.ParseState, to: str | None) -> list[str]:
        """Return C conditions that hold where a state's transition led to the state ``to``."""
        keys: list[tuple[str, int]] = []
        for key in state.transition_key:
            if not isinstance(key, values.FieldValue):
                return []
            field = self._layout.field(*key.value)
            keys.append((field.code, field.width))
        every: list[list[str]] = []
        for transition in state.transitions:
            assert not isinstance(transition, schema.OtherTransition)
            if transition.next_state != to:
                continue
            if not isinstance(transition, schema.ValueTransition):
                return []
            every.append(case_tests(keys, transition.value, transition.mask))
        return [test for test in every[0] if all(test in tests for tests in every)] if every else []

    def _kept(self, stack: _Stack) -> list[str]:
        """Return the C that reads the fields of a stack again that have surely not changed."""
        out: list[str] = []
        offsets, _ = self.offsets(stack)
        for name, offset in offsets.items():
            lvalue, type_ = self._layout.header(name), self._program.headers[name].type
            for i, f in enumerate(type_.fields):
                if 0 < f.width <= 128:
                    one = f"{lvalue}.f{i}"
                    same = f"SS_SURELY({one} == {one.replace('p->', 'was->', 1)})"
                    code = read_bits(f"(d + {offset})", f.offset, f.width, type_.width // 8)
                    out.append(f"        if ({same}) {one} = {code};")
        return out

    def _parse(self, stack: _Stack) -> list[str]:
        """Return the C that extracts the headers of a packet of a stack."""
        out: list[str] = []
        at = 0
        for state, then in zip(stack.states, (*stack.states[1:], None), strict=True):
            for header in self._headers(state):
                assert header
                lvalue = self._layout.header(header.name)
                out += [*extract(lvalue, header.type, f"(d + {at})", []), f"{lvalue}.valid = 1;"]
                for i, field in enumerate(header.type.fields):
                    if field.width <= 128:
                        one = f"{lvalue}.f{i}"
                        out.append(f"{one.replace('p->', 'was->', 1)} = {one};")
                at += header.type.width // 8
            for known in self._known(state, then.name if then else None):
                out.append(f"if (!({known})) __builtin_unreachable();")
        return [*out, f"it->data += {at};", f"it->length -= {at};", f"it->stored -= {at};"]
