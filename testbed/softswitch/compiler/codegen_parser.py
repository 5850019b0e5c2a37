"""C of the parser: one function whose states are labels."""

from __future__ import annotations

from typing import Any

from testbed.softswitch.compiler.bmv2_program import Json, hexint, source_of
from testbed.softswitch.compiler.codegen_action import ActionWriter
from testbed.softswitch.compiler.codegen_headers import extract, read_bits
from testbed.softswitch.compiler.expressions import Expressions
from testbed.softswitch.compiler.layout import Layout, comment
from testbed.softswitch.compiler.nodes import Node, literal
from testbed.softswitch.errors import UnsupportedProgram

MAX_STATES = 4096  # a parser that visits more states is stopped with ParserTimeout


class ParserWriter:
    """Writes ``ss_parser``; ``at`` is the number of bytes consumed so far."""

    def __init__(self, layout: Layout, actions: ActionWriter) -> None:
        self.layout = layout
        self.program = layout.program
        self.actions = actions
        self.states = {s["name"]: i for i, s in enumerate(self.program.parser["parse_states"])}
        self.locals = 0

    def error(self, name: str) -> str:
        """C statements that stop the parser with a core error."""
        return f"{{ it->error = {self.program.errors[name]}; goto done; }}"

    def goto(self, state: str | None) -> str:
        """C jump to a state; None accepts."""
        return "goto done;" if state is None else f"goto state_{self.states[state]};"

    def write(self) -> str:
        """The whole C function."""
        out = [
            "SS_INLINE void ss_parser(ss_switch *sw, ss_item *it) {",
            "    struct phv *p = &it->p;",
            "    const uint8_t *d = it->data;",
            "    uint64_t at = 0, n = it->length;",
            "    unsigned steps = 0;",
            "    (void)sw; (void)p; (void)d; (void)n;",
            f"    {self.goto(self.program.parser.get('init_state'))}",
        ]
        for s in self.program.parser["parse_states"]:
            out.append(f"state_{self.states[s['name']]}: SS_UNUSED; /* {comment(s['name'])} */")
            out.append(f"    if (++steps > {MAX_STATES}) {self.error('ParserTimeout')}")
            out.append("    {")
            for op in s["parser_ops"]:
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

    def operation(self, op: Json) -> list[str]:
        """C of one parser operation."""
        kind, args, source = op["op"], op["parameters"], source_of(op)
        e = Expressions(self.layout, source=source)
        if kind in ("extract", "extract_VL"):
            return self._extract(args[0], e.read(args[1]) if len(args) > 1 else None, e)
        if kind == "set":
            return self._set(args, e)
        if kind == "verify":
            check = e.read(args[0])
            code = e.read(
                {"type": "hexstr", "value": hex(args[1])} if isinstance(args[1], int) else args[1]
            )
            cond = e.boolean(check)
            return [f"if (!{cond}) {{ it->error = (uint32_t){e.word(code)}; goto done; }}"]
        if kind == "shift":
            return self._advance(f"UINT64_C({8 * int(args[0])})")
        if kind == "advance":
            return self._advance(e.index(e.read(args[0])))
        if kind == "primitive":
            return self.actions.primitive(args[0], e)
        raise UnsupportedProgram(f"parser operation {kind!r}", source)

    def _advance(self, bits: str) -> list[str]:
        return [
            "{",
            f"    uint64_t by = {bits};",
            f"    if (by & 7) {self.error('ParserInvalidArgument')}",
            f"    if (n - at < by / 8) {self.error('PacketTooShort')}",
            "    at += by / 8;",
            "}",
        ]

    def _extract(self, arg: Json, length: Node | None, e: Expressions) -> list[str]:
        """An extraction; ``length``: bits of the varbit field of the header, if it has one."""
        out: list[str] = []
        after: list[str] = []
        rivals: tuple[str, ...] = ()
        if arg["type"] == "regular":
            h = self.program.headers[arg["value"]]
            lvalue, t, rivals = self.layout.header(h.name), h.type, self.layout.rivals(h.name)
        elif arg["type"] in ("stack", "union_stack"):
            name = arg["value"] if arg["type"] == "stack" else arg["value"][0]
            next_ = self.layout.stack_next(name)
            if arg["type"] == "stack":
                s = self.program.stacks[name]
                lvalue, t = f"p->s{s.index}[{next_}]", s.type
            else:
                us = self.program.union_stacks[name]
                place = [member for member, _ in us.type.members].index(arg["value"][1])
                union = f"p->us{us.index}[{next_}]"
                lvalue, t = f"{union}.m{place}", us.type.members[place][1]
                rivals = self.layout.members(union, us.type, place)
            size = self.layout.stack_size(name)
            out.append(f"if ({next_} >= {size}) {self.error('StackOutOfBounds')}")
            after.append(f"{next_}++;")
        else:
            raise e.refuse(f"extraction into a {arg['type']}")
        size, bytes_ = t.width // 8, f"{t.width // 8}"
        if bool(t.varbit) != bool(length):
            raise e.refuse(f"extraction of {t.name!r} with another number of lengths than it has")
        if t.varbit and length:
            bytes_ = f"({size} + {lvalue}.v)"
            out += [
                f"{{ int64_t bits = (int32_t){e.word(length)}, all = {bytes_} + bits / 8;",
                f"  if (bits % 8) {self.error('ParserInvalidArgument')}",
                f"  if (bits < 0 || (int64_t)(n - at) < all) {self.error('PacketTooShort')}",
                f"  if (all > {t.max_bytes}) {self.error('HeaderTooShort')}",
                f"  {lvalue}.v = (uint32_t)(bits / 8); }}",
            ]
        else:
            out.append(f"if (n - at < {size}) {self.error('PacketTooShort')}")
        out += extract(lvalue, t, "(d + at)")
        out += [f"{rival}.valid = 0;" for rival in rivals]
        return [*out, f"{lvalue}.valid = 1;", f"at += {bytes_};", *after]

    def _set(self, args: list[Json], e: Expressions) -> list[str]:
        target = self.layout.field(*args[0]["value"])
        if args[1]["type"] != "lookahead":
            return [e.store(target, e.read(args[1]))]
        bit, width = args[1]["value"]
        out = [f"if (n - at < {(bit + width + 7) // 8}) {self.error('PacketTooShort')}"]
        if target.wide and width == target.width:
            return [*out, f"ss_get_wide({target.code}, d + at, {bit}, {width});"]
        if target.wide or width > 128:
            raise e.refuse(f"lookahead of {width} bits into {target.name}")
        value = read_bits("(d + at)", bit, width)
        if width > target.width:
            bits = 64 if width <= 64 else 128
            value = f"{value} & {literal((1 << target.width) - 1, bits)}"
        return [*out, f"{target.code} = {value};"]

    def select(self, s: Json) -> list[str]:
        """C of the transition out of a state."""
        out: list[str] = []
        keys: list[tuple[str, int]] = []
        e = Expressions(self.layout)
        for k in s["transition_key"]:
            name = f"key{len(keys)}"
            if k["type"] == "lookahead":
                bit, width = k["value"]
                out.append(f"if (n - at < {(bit + width + 7) // 8}) {self.error('PacketTooShort')}")
                value = read_bits("(d + at)", bit, width) if width <= 128 else ""
            else:
                ref = (
                    self.layout.field(*k["value"])
                    if k["type"] == "field"
                    else e.stack_field(k["value"])
                    if k["type"] in ("stack_field", "union_stack_field")
                    else None
                )
                if ref is None or ref.length:
                    raise UnsupportedProgram(f"select on a {'varbit' if ref else k['type']}")
                width, value = ref.width, ref.code
            if width > 128:
                raise UnsupportedProgram(f"select on {width} bits in parser state {s['name']!r}")
            out.append(f"{'uint64_t' if width <= 64 else 'u128'} {name} = {value}; (void){name};")
            keys.append((name, width))
        default: str | None = None
        for t in s["transitions"]:
            kind = t.get("type") or "hexstr"
            if kind == "default" or t.get("value") == "default":
                default = t["next_state"]
            elif kind == "parse_vset":
                cond = self._in_value_set(keys, t["value"], t.get("mask"))
                out.append(f"if ({cond}) {self.goto(t['next_state'])}")
            elif kind == "hexstr":
                cond = _case(keys, t["value"], t.get("mask"))
                out.append(f"if ({cond}) {self.goto(t['next_state'])}")
            else:
                raise UnsupportedProgram(f"parser transition of type {kind!r}")
        return [*out, self.goto(default)]

    def _in_value_set(self, keys: list[tuple[str, int]], name: str, mask: Any) -> str:
        """C condition of a select case that is a value set: the keys side by side, no padding."""
        values = self.program.value_sets[name]
        if sum(width for _, width in keys) != values.width:
            raise UnsupportedProgram(f"select with value_set {name!r} of another width")
        left, padded = values.width, 8 * sum((w + 7) // 8 for _, w in keys)
        given = hexint(mask) if mask else (1 << padded) - 1
        parts, wanted = [], 0
        for key, width in keys:
            left -= width
            padded -= 8 * ((width + 7) // 8)
            parts.append(f"(u128){key} << {left}")
            wanted = wanted << width | given >> padded & (1 << width) - 1
        return f"ss_in_value_set(sw, {values.index}, {' | '.join(parts)}, {literal(wanted, 128)})"


def _case(keys: list[tuple[str, int]], value: str, mask: Any) -> str:
    """C condition of one select case; each key takes whole bytes of the value."""
    left = 8 * sum((w + 7) // 8 for _, w in keys)
    v, m = hexint(value), hexint(mask) if mask else (1 << left) - 1
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
    return " && ".join(parts) or "1"
