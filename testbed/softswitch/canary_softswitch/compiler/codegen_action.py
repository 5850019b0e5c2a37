# SPDX-License-Identifier: Apache-2.0
"""Writes actions as C: one function for each, from its BMv2 primitives."""

from __future__ import annotations

from canary_softswitch.compiler.bmv2_program import Action, HeaderType, Stack, UnionStack
from canary_softswitch.compiler.codegen_log import log_msg
from canary_softswitch.compiler.expressions import Expressions
from canary_softswitch.compiler.layout import FieldRef, Layout, storage
from canary_softswitch.compiler.nodes import Node
from canary_softswitch.compiler.rows import field_words, places
from canary_softswitch.compiler.schema_values import (
    CalculationName,
    CounterName,
    HexValue,
    MeterName,
    Operation,
    OtherCall,
    ParameterValue,
    Primitive,
    RegisterName,
    Value,
    kind_of,
    source_of,
)

ARITHMETIC = {
    "add_to_field": "+",
    "subtract_from_field": "-",
    "add": "+",
    "subtract": "-",
    "bit_xor": "^",
    "bit_or": "|",
    "bit_and": "&",
    "shift_left": "<<",
    "shift_right": ">>",
}
"""P4-14 primitives and their operators; the target comes first, and is the left operand of two."""
JUMPS = ("_jump", "_jump_if_zero")


class ActionWriter:
    """Writes actions and single primitives; ``calculations`` are the C names of hashes."""

    def __init__(self, layout: Layout, calculations: dict[str, str]) -> None:
        self.layout = layout
        self.program = layout.program
        self.calculations = calculations
        self.registers = places(self.program)
        self.asserts: list[str] = []  # source line of each assert, by number
        self._at_hand: set[int] = set()  # blocks of registers of which the function has the place

    def primitives(self, action: Action) -> tuple[Primitive, ...]:
        """Return the primitives of an action, in the order in which they run."""
        return self.layout.root.actions[action.id].primitives

    def stops(self, action: Action) -> bool:
        """Return True if an action may end the control block by an exit or a failed assert."""
        return any(p.op in ("exit", "assert", "assume") for p in self.primitives(action))

    def params(self, action: Action) -> list[FieldRef]:
        """Return an action's parameters as they lie in the 64-bit words of ``a``."""
        params, word = [], 0
        for _, width in action.params:
            code = f"a[{word}]"
            if width > 128:  # big-endian bytes, as in a header
                code = f"((const uint8_t *)(a + {word}))"
            elif width > 64:
                code = f"((u128)a[{word + 1}] << 64 | a[{word}])"
            params.append(FieldRef(code, width, False, "1", "a parameter"))
            word += field_words(width)
        return params

    def action(self, action: Action) -> str:
        """Return the C function ``action_<id>`` with its parameters as 64-bit words in ``a``."""
        params, primitives = self.params(action), self.primitives(action)
        targets = self._jump_targets(primitives)
        out = [
            f"SS_INLINE void action_{action.id}(ss_switch *sw, ss_item *it, const uint64_t *a) {{",
            "    struct phv *p = &it->p;",
            "    (void)sw; (void)p; (void)a;",
        ]
        if targets:
            out.append("    unsigned jumps = 0; (void)jumps;")
        self._at_hand = {
            self.registers[each.value].block
            for prim in primitives
            for each in prim.parameters
            if isinstance(each, RegisterName) and each.value in self.registers
        }
        for block in sorted(self._at_hand):
            out.append(f"    uint8_t *const block{block} = ss_block(sw, {block});")
            out.append(f"    if (!block{block}) return; /* no memory */")
        for i, prim in enumerate(primitives):
            e = Expressions(self.layout, params, source_of(prim) or action.source)
            if i in targets:
                out.append(f"jump_{i}: SS_UNUSED;")
            out += [f"    {line}" for line in self.primitive(prim, e, jumps=True)]
        if len(primitives) in targets:
            out.append(f"jump_{len(primitives)}: SS_UNUSED;")
        out.append("    return;\n}")
        self._at_hand = set()
        return "\n".join(out) + "\n"

    def deparser(self) -> list[str]:
        """Return the C of the deparser's statements; refuse those that change what is emitted."""
        out: list[str] = []
        for prim in self.layout.root.deparsers[0].primitives:
            e = Expressions(self.layout, [], source_of(prim))
            if prim.op not in ("assert", "assume", "assign", "log_msg", "modify_field"):
                raise e.refuse(f"statement {prim.op!r} in the deparser")
            out += self.primitive(prim, e)
        return out

    @staticmethod
    def _jump_targets(primitives: tuple[Primitive, ...]) -> set[int]:
        return {p.parameters[-1].value for p in primitives if p.op in JUMPS}

    def primitive(self, prim: Primitive, e: Expressions, jumps: bool = False) -> list[str]:
        """Return the C statements of one primitive; ``jumps``: it may be a jump to another."""
        if isinstance(prim, OtherCall) or (prim.op in JUMPS and not jumps):
            raise e.refuse(f"primitive {prim.op!r}")
        if prim.op == "log_msg":
            return log_msg(e, prim)
        if prim.op in ARITHMETIC:
            target, *operands = prim.parameters
            left, right = operands if len(operands) == 2 else (target, operands[0])
            return self._op_assign(e, target, Operation(ARITHMETIC[prim.op], left, right))
        return getattr(self, f"_op_{prim.op.lstrip('_')}")(e, *prim.parameters)

    # ---- values ----

    def target(self, e: Expressions, arg: Value) -> FieldRef:
        """Return the field that an argument refers to, which must be assignable."""
        field = e.read(arg).field
        if field is None or isinstance(arg, ParameterValue):
            raise e.refuse(f"assignment to a {kind_of(arg)}")
        if field.code == "1":
            raise e.refuse(f"assignment to {field.name}")
        return field

    def header(self, e: Expressions, arg: Value) -> Node:
        """Return the node of the header that an argument refers to; refuse other values."""
        node = e.read(arg)
        if node.sort != "header":
            raise e.refuse(f"{node.sort} used as a header")
        return node

    def _header_type(self, node: Node) -> HeaderType:
        return self.program.header_types[node.type_name]

    def _type(self, node: Node) -> tuple[str, int]:
        t = self._header_type(node)
        return self.layout.type_name(t), t.width // 8

    def _header_stack(self, e: Expressions, arg: Value) -> Stack:
        name = e.stack(arg)
        if name not in self.program.stacks:
            raise e.refuse("a stack of header unions used as one of headers")
        return self.program.stacks[name]

    def _union_stack(self, e: Expressions, arg: Value) -> UnionStack:
        name = e.stack(arg)
        if name not in self.program.union_stacks:
            raise e.refuse("a stack of headers used as one of header unions")
        return self.program.union_stacks[name]

    # ---- primitives ----

    def _op_assign(self, e: Expressions, dst: Value, src: Value) -> list[str]:
        return [e.store(self.target(e, dst), e.read(src))]

    _op_modify_field = _op_assign

    def _op_no_op(self, e: Expressions) -> list[str]:
        return []

    def _op_exit(self, e: Expressions) -> list[str]:
        return ["it->exit = 1;"]

    def _op_jump(self, e: Expressions, to: HexValue) -> list[str]:
        limit = "if (++jumps > 1000000) { sw->fault = SS_JUMPS; return; }"
        return [limit, f"goto jump_{to.value};"]

    def _op_jump_if_zero(self, e: Expressions, cond: Value, to: HexValue) -> list[str]:
        n = e.read(cond)
        test = f"!{e.boolean(n)}" if n.sort == "bool" else f"{e.exact(n)} == 0"
        return [f"if ({test}) goto jump_{to.value};"]

    def _assertion(self, e: Expressions, cond: Value) -> list[str]:
        n = e.read(cond)
        test = f"!{e.boolean(n)}" if n.sort == "bool" else f"{e.exact(n)} == 0"
        self.asserts.append(e.source)
        return [
            f"if ({test}) {{ sw->fault = SS_ASSERT; sw->fault_line = "
            f"{len(self.asserts) - 1}; it->exit = 1; }}"
        ]

    _op_assert = _assertion
    _op_assume = _assertion

    def _op_drop(self, e: Expressions) -> list[str]:
        return ["SET_EGRESS_SPEC(p, SS_DROP_PORT);", "SET_MCAST_GRP(p, 0);"]

    def _op_mark_to_drop(self, e: Expressions, arg: Value) -> list[str]:
        # The header may be an action's own copy of the standard metadata, copied back later.
        n = self.header(e, arg)
        names = [f.name for f in self._header_type(n).fields]
        if "egress_spec" not in names:
            raise e.refuse(f"mark_to_drop of {n.type_name!r}, which has no egress_spec")
        out = []
        for name, value in (("egress_spec", self.layout.program.drop_port), ("mcast_grp", 0)):
            if name in names:
                field = e.header_field(n, names.index(name))
                out.append(e.store(field, Node("data", "const", lo=value, hi=value)))
        return out

    def _op_add_header(self, e: Expressions, arg: Value) -> list[str]:
        n = self.header(e, arg)
        if n.op == "1":
            return []
        tag, size = self._type(n)
        kept, length = ("", "") if not self._header_type(n).varbit else (", .v = h->v", " + h->v")
        return [
            f"{{ {tag} *h = &{n.code};",
            f"  if (!h->valid) {{ *h = ({tag}){{.valid = 1{kept}}}; it->reg_length += "
            f"{size}{length};",
            *[f"    {rival}.valid = 0;" for rival in n.rivals],
            "  } }",
        ]

    def _op_remove_header(self, e: Expressions, arg: Value) -> list[str]:
        n = self.header(e, arg)
        if n.op == "1":
            return []
        tag, size = self._type(n)
        length = " + h->v" if self._header_type(n).varbit else ""
        return [
            f"{{ {tag} *h = &{n.code};",
            f"  if (h->valid) {{ h->valid = 0; it->reg_length -= {size}{length}; }} }}",
        ]

    def _op_assign_header(self, e: Expressions, dst: Value, src: Value) -> list[str]:
        a, b = self.header(e, dst), self.header(e, src)
        if a.type_name != b.type_name:
            raise e.refuse("assignment between headers of different types")
        if b.op == "1":
            return [f"{a.code} = {b.code};"] + ([] if a.op == "1" else [f"{a.code}.valid = 1;"])
        return self._copied(a, b)

    _op_copy_header = _op_assign_header

    def _copied(self, a: Node, b: Node) -> list[str]:
        """Return the C of an assignment between headers."""
        tag = self._type(a)[0]
        rivals = "".join(f" {rival}.valid = 0;" for rival in a.rivals)
        return [
            f"{{ {tag} *to = &{a.code}; const {tag} *from = &{b.code};",
            f"  if (from->valid) {{ {tag} copy = *from;{rivals} *to = copy; }}",
            "  else to->valid = 0; }",
        ]

    def _op_assign_VL(self, e: Expressions, dst: Value, src: Value) -> list[str]:
        return [e.store(self.target(e, dst), e.read(src))]

    def _op_assign_union(self, e: Expressions, dst: Value, src: Value) -> list[str]:
        a, b = e.read(dst), e.read(src)
        if a.sort != "union" or a.type_name != b.type_name:
            raise e.refuse("assignment between header unions of different types")
        tag = self.layout.union_tag(self.program.union_types[a.type_name])
        return [
            f"{{ {tag} *to = &{a.code}; const {tag} *from = &{b.code};",
            *self._members_copied(a.type_name),
            "}",
        ]

    def _members_copied(self, union_type: str) -> list[str]:
        """Return the C that assigns the members of a union ``from`` to those of ``to``."""
        members = self.program.union_types[union_type].members
        return [
            f"    if (from->m{i}.valid) to->m{i} = from->m{i}; else to->m{i}.valid = 0;"
            for i in range(len(members))
        ]

    def _op_assign_header_stack(self, e: Expressions, dst: Value, src: Value) -> list[str]:
        a, b = (self._header_stack(e, x) for x in (dst, src))
        if a.type != b.type or len(a.headers) != len(b.headers):
            raise e.refuse("assignment between stacks of different types or sizes")
        n = len(a.headers)
        return [
            f"{self.layout.stack_next(a.name)} = {self.layout.stack_next(b.name)};",
            f"for (int i = 0; i < {n}; i++)",
            f"    if (p->s{b.index}[i].valid) p->s{a.index}[i] = p->s{b.index}[i];",
            f"    else p->s{a.index}[i].valid = 0;",
        ]

    def _op_assign_union_stack(self, e: Expressions, dst: Value, src: Value) -> list[str]:
        a, b = (self._union_stack(e, x) for x in (dst, src))
        if a.type != b.type or a.size != b.size:
            raise e.refuse("assignment between stacks of different types or sizes")
        tag = self.layout.union_tag(a.type)
        return [
            f"{self.layout.stack_next(a.name)} = {self.layout.stack_next(b.name)};",
            f"for (int i = 0; i < {a.size}; i++) {{",
            f"    {tag} *to = p->us{a.index} + i; const {tag} *from = p->us{b.index} + i;",
            *self._members_copied(a.type.name),
            "}",
        ]

    def _swapped(self, e: Expressions, stack: str, count: Value, push: bool) -> list[str]:
        """Return the C of a push or pop of header unions, which BMv2 swaps without invalidating."""
        us = self.program.union_stacks[stack]
        n = min(self._count(e, count), us.size)
        next_, tag = self.layout.stack_next(stack), self.layout.union_tag(us.type)
        to = (
            f"{next_} + {n} < {us.size} ? {next_} + {n} : {us.size}"
            if push
            else f"{next_} > {n} ? {next_} - {n} : 0"
        )
        steps = range(us.size - 1, n - 1, -1) if push else range(us.size - n)
        out = [f"{next_} = {to};"] if n else []
        for i in steps if n else ():
            a, b = f"p->us{us.index}[{i}]", f"p->us{us.index}[{i - n if push else i + n}]"
            out.append(f"{{ {tag} swap = {a}; {a} = {b}; {b} = swap; }}")
        return out

    def _shift(self, e: Expressions, stack: Value, count: Value) -> tuple[str, str, int, int]:
        s = self._header_stack(e, stack)
        size = len(s.headers)
        by = min(self._count(e, count), size)
        return f"p->s{s.index}", self.layout.stack_next(s.name), size, by

    def _count(self, e: Expressions, count: Value) -> int:
        n = e.read(count).const
        if n is None or n < 0:
            raise e.refuse("push or pop of a number of headers not known at compile time")
        return n

    def _op_push(self, e: Expressions, stack: Value, count: Value) -> list[str]:
        if e.stack(stack) in self.program.union_stacks:
            return self._swapped(e, e.stack(stack), count, push=True)
        s, next_, size, by = self._shift(e, stack, count)
        out = [f"{next_} = {next_} + {by} < {size} ? {next_} + {by} : {size};"] if by else []
        if size > by:
            out.append(f"memmove({s} + {by}, {s}, sizeof *{s} * {size - by});")
        return out + [f"{s}[{i}].valid = 0;" for i in range(by)]

    def _op_pop(self, e: Expressions, stack: Value, count: Value) -> list[str]:
        if e.stack(stack) in self.program.union_stacks:
            return self._swapped(e, e.stack(stack), count, push=False)
        s, next_, size, by = self._shift(e, stack, count)
        out = [f"{next_} = {next_} > {by} ? {next_} - {by} : 0;"]
        if size > by:
            out.append(f"memmove({s}, {s} + {by}, sizeof *{s} * {size - by});")
        return out + [f"{s}[{i}].valid = 0;" for i in range(size - by, size)]

    def _register(self, e: Expressions, name: str, index: Value) -> tuple[list[str], str, int]:
        r = self.program.registers[name]
        place = self.registers[r.name]
        at_hand = place.block in self._at_hand
        at = f"block{place.block}" if at_hand else f"ss_block(sw, {place.block})"
        code = f"(at + i * {place.stride} + {place.offset})"
        if r.width <= 128:
            code = f"(*({storage(r.width)} *){code})"
        return (
            [
                f"{{ uint64_t i = {e.index(e.read(index))};",
                f"  uint8_t *at = {at};",
                f"  if (i < {r.size}{'' if at_hand else ' && at'}) {{",
            ],
            code,
            r.width,
        )

    def _op_register_read(
        self, e: Expressions, dst: Value, reg: RegisterName, index: Value
    ) -> list[str]:
        out, code, width = self._register(e, reg.value, index)
        value = e.load(FieldRef(code, width, False, "1", reg.value))
        return [*out, f"    {e.store(self.target(e, dst), value)}", "} }"]

    def _op_register_write(
        self, e: Expressions, reg: RegisterName, index: Value, src: Value
    ) -> list[str]:
        out, code, width = self._register(e, reg.value, index)
        element = FieldRef(code, width, False, "1", reg.value)
        return [*out, f"    {e.store(element, e.read(src))}", "} }"]

    def _op_count(self, e: Expressions, counter: CounterName, index: Value) -> list[str]:
        c = self.program.counters[counter.value]
        return [
            f"{{ uint64_t i = {e.index(e.read(index))};",
            f"  if (i < {c.size}) {{ ss_count *c = sw->counters[{c.index}] + i; "
            "c->packets++; c->bytes += it->counted_length; } }",
        ]

    def _op_execute_meter(
        self, e: Expressions, meter: MeterName, index: Value, dst: Value
    ) -> list[str]:
        m = self.program.meters[meter.value]
        units = "it->counted_length" if m.bytes else "1"
        colour = f"ss_meter_run(sw->meters[{m.index}] + i, sw->now, {units})"
        store = e.store(self.target(e, dst), Node("data", "load", lo=0, hi=2, code=colour))
        return [
            f"{{ uint64_t i = {e.index(e.read(index))};",
            f"  if (i < {m.size}) {{ {store} }} }}",
        ]

    def _op_modify_field_with_hash_based_offset(
        self, e: Expressions, dst: Value, base: Value, calc: CalculationName, size: Value
    ) -> list[str]:
        call = f"{self.calculations[calc.value]}(sw, it)"
        value = Node("data", "load", lo=0, hi=(1 << 64) - 1, code="v")
        return [
            f"{{ uint64_t base = {e.word(e.read(base))}, size = {e.word(e.read(size))};",
            f"  uint64_t v = {call} % (size ? size : 1) + base;",
            f"  {e.store(self.target(e, dst), value)} }}",
        ]

    def _op_modify_field_rng_uniform(
        self, e: Expressions, dst: Value, lo: Value, hi: Value
    ) -> list[str]:
        value = Node("data", "load", lo=0, hi=(1 << 64) - 1, code="v")
        return [
            f"{{ uint64_t lo = {e.word(e.read(lo))}, hi = {e.word(e.read(hi))};",
            "  if (lo <= hi) { uint64_t v = ss_uniform(sw->random, lo, hi);",
            f"  {e.store(self.target(e, dst), value)} }} }}",
        ]

    def _op_generate_digest(self, e: Expressions, receiver: Value, learn: Value) -> list[str]:
        return [f"it->learn = (uint16_t){e.word(e.read(learn))};"]

    def _op_clone_ingress_pkt_to_egress(
        self, e: Expressions, session: Value, fields: Value
    ) -> list[str]:
        return [
            f"it->clone = (uint16_t){e.word(e.read(session))} | 0x8000;",
            f"it->clone_list = (uint16_t){e.word(e.read(fields))};",
        ]

    _op_clone_egress_pkt_to_egress = _op_clone_ingress_pkt_to_egress

    def _op_resubmit(self, e: Expressions, fields: Value) -> list[str]:
        return [f"it->resubmit = (uint16_t){e.word(e.read(fields))};"]

    def _op_recirculate(self, e: Expressions, fields: Value) -> list[str]:
        return [f"it->recirculate = (uint16_t){e.word(e.read(fields))};"]

    def _op_truncate(self, e: Expressions, length: Value) -> list[str]:
        return [
            f"{{ uint64_t n = {e.index(e.read(length))}; "
            "if (n < it->truncate) it->truncate = (uint32_t)n; }"
        ]
