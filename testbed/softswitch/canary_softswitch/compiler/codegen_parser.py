# SPDX-License-Identifier: Apache-2.0
"""Writes the parser as C: one function in which each state is a label."""

from __future__ import annotations

from canary_softswitch.compiler import schema
from canary_softswitch.compiler import schema_values as values
from canary_softswitch.compiler.bmv2_program import HeaderType
from canary_softswitch.compiler.codegen_action import ActionWriter
from canary_softswitch.compiler.codegen_headers import extract, read_bits
from canary_softswitch.compiler.expressions import Expressions
from canary_softswitch.compiler.layout import Layout
from canary_softswitch.compiler.nodes import Node, literal
from canary_softswitch.compiler.schema_values import (
    Call,
    Extraction,
    OtherCall,
    ParserOperation,
    Value,
    source_of,
)
from canary_softswitch.errors import UnsupportedProgram

MAX_STATES = 4096  # a parser that visits more states is stopped with ParserTimeout


class ParserWriter:
    """Writes the C function ``ss_parser``, whose ``at`` is the number of bytes consumed."""

    def __init__(self, layout: Layout, actions: ActionWriter) -> None:
        self.layout = layout
        self.program = layout.program
        self.actions = actions
        self.parser = layout.root.parsers[0]
        self.states = {s.name: i for i, s in enumerate(self.parser.parse_states)}
        self.lengths = {t.name: t.length_exp for t in layout.root.header_types}

    def error(self, name: str) -> str:
        """Return the C statements that stop the parser with a core error."""
        return f"{{ it->error = {self.program.errors[name]}; goto done; }}"

    def goto(self, state: str | None) -> str:
        """Return the C jump to a state; None accepts."""
        return "goto done;" if state is None else f"goto state_{self.states[state]};"

    def write(self) -> str:
        """Return the C function ``ss_parser``, with all states of the parser."""
        out = [
            "SS_INLINE void ss_parser(ss_switch *sw, ss_item *it) {",
            "    struct phv *p = &it->p;",
            "    const uint8_t *d = it->data;",
            "    uint64_t at = 0, n = it->length;",
            "    unsigned steps = 0;",
            "    (void)sw; (void)p; (void)d; (void)n;",
            f"    {self.goto(self.parser.init_state)}",
        ]
        for s in self.parser.parse_states:
            out.append(f"state_{self.states[s.name]}: SS_UNUSED;")
            out.append(f"    if (++steps > {MAX_STATES}) {self.error('ParserTimeout')}")
            out.append("    {")
            for op in s.parser_ops:
                out += [f"    {line}" for line in self.operation(op)]
            out += [f"    {line}" for line in self.select(s)]
            out.append("    }")
        out += [
            "done:",
            "    it->data += at;",
            "    it->length -= (uint32_t)at;",
            "    it->stored -= (uint32_t)at;\n}",
        ]
        return "\n".join(out) + "\n"

    def operation(self, op: ParserOperation) -> list[str]:
        """Return the C of one parser operation."""
        e = Expressions(self.layout, source=source_of(op))
        if isinstance(op, OtherCall):
            raise e.refuse(f"parser operation {op.op!r}")
        match op:
            case Call(op="extract", parameters=(into,)):
                return self._extract(into, None, e)
            case Call(op="extract_VL", parameters=(into, length)):
                return self._extract(into, e.read(length), e)
            case Call(op="set", parameters=(target, value)):
                return self._set(target, value, e)
            case Call(op="verify", parameters=(condition, error)):
                # older compilers write the error's number
                code = values.HexValue(error) if isinstance(error, int) else error
                number = e.word(e.read(code))
                test = e.boolean(e.read(condition))
                return [f"if (!{test}) {{ it->error = (uint32_t){number}; goto done; }}"]
            case Call(op="shift", parameters=(size,)):
                return self._advance(f"UINT64_C({8 * size})")
            case Call(op="advance", parameters=(bits,)):
                return self._advance(e.index(e.read(bits)))
            case _:
                return self.actions.primitive(op.parameters[0], e)

    def _advance(self, bits: str) -> list[str]:
        return [
            "{",
            f"    uint64_t by = {bits};",
            f"    if (by & 7) {self.error('ParserInvalidArgument')}",
            f"    if (n - at < by / 8) {self.error('PacketTooShort')}",
            "    at += by / 8;",
            "}",
        ]

    def _extract(self, into: Extraction, length: Node | None, e: Expressions) -> list[str]:
        """Return the C of an extraction.

        ``length`` is the width of the header's varbit field, None if its type computes it.
        """
        out: list[str] = []
        after: list[str] = []
        rivals: tuple[str, ...] = ()
        if isinstance(into, values.OtherValue):
            raise e.refuse(f"extraction into a {into.type}")
        if isinstance(into, values.IntoHeader):
            h = self.program.headers[into.value]
            if h.metadata:
                raise e.refuse(f"extraction into the metadata {h.name!r}")
            lvalue, t, rivals = self.layout.header(h.name), h.type, self.layout.rivals(h.name)
        else:
            name = into.value if isinstance(into, values.IntoStack) else into.value[0]
            next_ = self.layout.stack_next(name)
            if isinstance(into, values.IntoStack):
                s = self.program.stacks[name]
                lvalue, t = f"p->s{s.index}[{next_}]", s.type
            else:
                us = self.program.union_stacks[name]
                place = [member for member, _ in us.type.members].index(into.value[1])
                union = f"p->us{us.index}[{next_}]"
                lvalue, t = f"{union}.m{place}", us.type.members[place][1]
                rivals = self.layout.members(union, us.type, place)
            size = self.layout.stack_size(name)
            out.append(f"if ({next_} >= {size}) {self.error('StackOutOfBounds')}")
            after.append(f"{next_}++;")
        size = f"{t.width // 8}"
        bytes_ = f"({size} + {lvalue}.v)" if t.varbit else size
        computed = self.lengths[t.name] if t.varbit and length is None else None
        if bool(t.varbit) != (length is not None or computed is not None):
            raise e.refuse(f"extraction of {t.name!r} with another number of lengths than it has")
        inner: list[str] = []
        if length is not None:
            out += self._length(lvalue, t, e.word(length), bytes_)
        else:
            out.append(f"if (n - at < {bytes_}) {self.error('PacketTooShort')}")
        if computed is not None:
            own = range(len(t.fields))
            e.params = [self.layout.member(lvalue, t, i, False, t.name) for i in own]
            inner = self._length(lvalue, t, e.word(e.read(computed)), size)
        out += extract(lvalue, t, "(d + at)", inner)
        out += [f"{rival}.valid = 0;" for rival in rivals]
        return [*out, f"{lvalue}.valid = 1;", f"at += {bytes_};", *after]

    def _length(self, header: str, t: HeaderType, bits: str, before: str) -> list[str]:
        """Return C that sets the length of a header's varbit field to a number of bits.

        ``before``: C expression of the bytes that the header takes without them.
        """
        return [
            f"{{ int64_t bits = (int32_t){bits}, all = {before} + bits / 8;",
            f"  if (bits % 8) {self.error('ParserInvalidArgument')}",
            f"  if (bits < 0 || (int64_t)(n - at) < all) {self.error('PacketTooShort')}",
            f"  if (all > {t.max_bytes}) {self.error('HeaderTooShort')}",
            f"  {header}.v = (uint32_t)(bits / 8); }}",
        ]

    def _set(self, to: Value, value: Value, e: Expressions) -> list[str]:
        target = self.actions.target(e, to)
        if not isinstance(value, values.LookaheadValue):
            return [e.store(target, e.read(value))]
        bit, width = value.value
        out = [f"if (n - at < {(bit + width + 7) // 8}) {self.error('PacketTooShort')}"]
        if target.wide and width == target.width:
            return [*out, f"ss_get_wide({target.code}, d + at, {bit}, {width});"]
        if target.wide or target.length or width > 128:
            raise e.refuse(f"lookahead of {width} bits into {target.name}")
        bits = read_bits("(d + at)", bit, width)
        if width > target.width:
            size = 64 if width <= 64 else 128
            bits = f"{bits} & {literal((1 << target.width) - 1, size)}"
        return [*out, f"{target.code} = {bits};"]

    def select(self, s: schema.ParseState) -> list[str]:
        """Return the C of the transition out of a state."""
        out: list[str] = []
        keys: list[tuple[str, int]] = []
        e = Expressions(self.layout)
        for k in s.transition_key:
            name = f"key{len(keys)}"
            if isinstance(k, values.LookaheadValue):
                bit, width = k.value
                out.append(f"if (n - at < {(bit + width + 7) // 8}) {self.error('PacketTooShort')}")
                value = read_bits("(d + at)", bit, width) if width <= 128 else ""
            else:
                width, value = self._selected(k, e)
            if width > 128:
                raise UnsupportedProgram(f"select on {width} bits in parser state {s.name!r}")
            out.append(f"{'uint64_t' if width <= 64 else 'u128'} {name} = {value}; (void){name};")
            keys.append((name, width))
        default: str | None = None
        for t in s.transitions:
            match t:
                case schema.DefaultTransition():
                    default = t.next_state
                case schema.SetTransition():
                    cond = self._in_value_set(keys, t.value, t.mask)
                    out.append(f"if ({cond}) {self.goto(t.next_state)}")
                case schema.ValueTransition():
                    condition = case_condition(keys, t.value, t.mask)
                    out.append(f"if ({condition}) {self.goto(t.next_state)}")
                case _:
                    raise UnsupportedProgram(f"parser transition of type {t.type!r}")
        return [*out, self.goto(default)]

    @staticmethod
    def _selected(key: Value, e: Expressions) -> tuple[int, str]:
        """Return the width and the C expression of a field that a parser state selects on."""
        match key:
            case values.FieldValue(value=(header, name)):
                ref = e.layout.field(header, name)
            case values.StackFieldValue(value=names) | values.UnionStackFieldValue(value=names):
                ref = e.stack_field(names)
            case _:
                raise UnsupportedProgram(f"select on a {values.kind_of(key)}")
        if ref.length:
            raise UnsupportedProgram("select on a varbit")
        return ref.width, ref.code

    def _in_value_set(self, keys: list[tuple[str, int]], name: str, mask: int | None) -> str:
        """Return the C condition of a select case that is a value set: its keys concatenated."""
        values = self.program.value_sets[name]
        if sum(width for _, width in keys) != values.width:
            raise UnsupportedProgram(f"select with value_set {name!r} of another width")
        left, padded = values.width, 8 * sum((w + 7) // 8 for _, w in keys)
        full_mask = (1 << padded) - 1 if mask is None else mask
        parts, wanted = [], 0
        for key, width in keys:
            left -= width
            padded -= 8 * ((width + 7) // 8)
            parts.append(f"(u128){key} << {left}")
            wanted = wanted << width | full_mask >> padded & (1 << width) - 1
        return f"ss_in_value_set(sw, {values.index}, {' | '.join(parts)}, {literal(wanted, 128)})"


def case_condition(keys: list[tuple[str, int]], v: int, mask: int | None) -> str:
    """Return the C condition of one select case; each key takes whole bytes of the value."""
    return " && ".join(case_tests(keys, v, mask)) or "1"


def case_tests(keys: list[tuple[str, int]], v: int, mask: int | None) -> list[str]:
    """Return the C conditions that make up that of one select case, one for each key at most."""
    left = 8 * sum((w + 7) // 8 for _, w in keys)
    m = (1 << left) - 1 if mask is None else mask
    parts = []
    for name, width in keys:
        left -= 8 * ((width + 7) // 8)
        bits = 64 if width <= 64 else 128
        full = (1 << width) - 1
        km, kv = m >> left & full, v >> left & full
        if km == full:
            parts.append(f"{name} == {literal(kv, bits)}")
        elif km:
            parts.append(f"({name} & {literal(km, bits)}) == {literal(kv & km, bits)}")
    return parts
