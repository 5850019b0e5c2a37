"""C of the parser: one function whose states are labels."""

from __future__ import annotations

from typing import Any

from testbed.softswitch.compiler.bmv2_program import Json, hexint, source_of
from testbed.softswitch.compiler.codegen_action import ActionWriter
from testbed.softswitch.compiler.codegen_headers import extract, read_bits
from testbed.softswitch.compiler.expressions import Expressions, literal
from testbed.softswitch.compiler.layout import Layout, comment
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
        if kind == "extract":
            return self._extract(args[0], source)
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

    def _extract(self, arg: Json, source: str) -> list[str]:
        if arg["type"] == "regular":
            h = self.program.headers[arg["value"]]
            lvalue, t, out, after = self.layout.header(h.name), h.type, [], []
        elif arg["type"] == "stack":
            s = self.program.stacks[arg["value"]]
            t, next_ = s.type, self.layout.stack_next(s.name)
            lvalue = f"p->s{s.index}[{next_}]"
            out = [f"if ({next_} >= {len(s.headers)}) {self.error('StackOutOfBounds')}"]
            after = [f"{next_}++;"]
        else:
            raise UnsupportedProgram(f"extraction into a {arg['type']}", source)
        size = t.width // 8
        out.append(f"if (n - at < {size}) {self.error('PacketTooShort')}")
        out += extract(lvalue, t, "(d + at)")
        return [*out, f"{lvalue}.valid = 1;", f"at += {size};", *after]

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
                    if k["type"] == "stack_field"
                    else None
                )
                if ref is None:
                    raise UnsupportedProgram(f"select on a {k['type']}")
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
            elif kind == "hexstr":
                cond = _case(keys, t["value"], t.get("mask"))
                out.append(f"if ({cond}) {self.goto(t['next_state'])}")
            else:
                raise UnsupportedProgram(f"parser transition of type {kind!r}")
        return [*out, self.goto(default)]


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
