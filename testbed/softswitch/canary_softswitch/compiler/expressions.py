# SPDX-License-Identifier: Apache-2.0
"""Translates BMv2 expressions to C.

BMv2 computes with integers of unlimited size. Every node here has the range of its value and is
given the smallest C type that holds it. Where only the low bits are needed (under a mask, or stored
into a field), operations that commute with truncation are computed modulo 2**64 or 2**128.
"""

from __future__ import annotations

from canary_softswitch.compiler import schema_values as values
from canary_softswitch.compiler.layout import FieldRef, Layout
from canary_softswitch.compiler.nodes import Node, ctype, joined, literal, power_bits
from canary_softswitch.compiler.schema_rules import MAX_BITS
from canary_softswitch.errors import UnsupportedProgram

MODULAR = {"+", "-", "*", "&", "|", "^", "~", "<<"}
COMPARE = {"==", "!=", "<", ">", "<=", ">="}
MAX_SHIFT = 300  # any larger shift also leaves 128 bits
MAX_CODE = 100_000
"""The most characters of C that a node may have; nested comparisons of headers make it long."""
MAX_VALUE = 1 << 2 * MAX_BITS
"""The bound of the range that a node's value may have."""


class Expressions:
    """Translates expressions of one action, parser or control to C.

    ``params``: what ``local`` values stand for, by number: the action's run-time parameters, or
    the fields of a header in the expression of its length.
    ``source``: P4 line named when something is refused.
    """

    def __init__(
        self, layout: Layout, params: list[FieldRef] | None = None, source: str = ""
    ) -> None:
        self.layout = layout
        self.params = params or []
        self.source = source

    def refuse(self, construct: str) -> UnsupportedProgram:
        """Return the exception for an unsupported construct at the current source line."""
        return UnsupportedProgram(construct, self.source)

    # ---- reading ----

    # Long: one case for each kind of value.
    def read(self, value: values.Value | None) -> Node:
        """Return the node of an expression; raise UnsupportedProgram if it cannot be translated."""
        match value:
            case values.Operation():
                node = self._operation(value)
            case values.FieldValue(value=(header, name)):
                node = self.load(self.layout.field(header, name))
            case values.HexValue(value=v):
                node = Node("data", "const", lo=v, hi=v)
            case values.BoolValue(value=truth):
                node = Node("bool", "bool", code="1" if truth else "0")
            case values.ParameterValue(value=number):
                node = self.load(self.params[number])
            case values.UnionValue(value=name):
                node = self._union(name)
            case values.HeaderValue(value=name) if name in self.layout.program.unions:
                node = self._union(name)  # p4c calls those of a stack headers
            case values.HeaderValue(value=name):
                h = self.layout.program.headers[name]
                node = Node(
                    "header",
                    "1" if h.metadata else "0",
                    code=self.layout.header(name),
                    type_name=h.type.name,
                    rivals=self.layout.rivals(name),
                )
            case values.StackValue(value=name):
                node = Node("stack", "stack", type_name=name)
            case values.StackFieldValue(value=names) | values.UnionStackFieldValue(value=names):
                node = self.load(self.stack_field(names))
            case None:
                raise self.refuse("operator without its operand")
            case _:
                raise self.refuse(f"expression of type {values.kind_of(value)!r}")
        if len(node.code) > MAX_CODE or not -MAX_VALUE < node.lo <= node.hi < MAX_VALUE:
            raise self.refuse("an expression of this size")
        return node

    def _union(self, name: str) -> Node:
        kind = self.layout.program.unions[name].type
        return Node("union", "union", code=self.layout.union(name), type_name=kind.name)

    def stack(self, value: values.Value | None) -> str:
        """Return the name of the stack, of headers or of header unions, that a value is."""
        node = self.read(value)
        if node.sort != "stack":
            raise self.refuse(f"{node.sort} used as a header stack")
        return node.type_name

    def stack_field(self, names: tuple[str, ...]) -> FieldRef:
        """Return the field of the last element of a stack, of headers or of header unions."""
        stack = names[0]
        last = f"(uint64_t){self.layout.stack_next(stack)} - 1"
        element = self.layout.element(stack, last)
        if stack in self.layout.program.union_stacks:
            members = self.layout.program.union_stacks[stack].type.members
            place = [name for name, _ in members].index(names[1])
            t, element = members[place][1], f"{element}.m{place}"
        else:
            t = self.layout.program.stacks[stack].type
        return self.layout.member(element, t, t.find(names[-1]), False, stack)

    def load(self, f: FieldRef) -> Node:
        """Return the node that reads a field, with the range of its values."""
        if f.length:
            return Node("varbit", "load", code=f.code, field=f)
        if f.signed and not f.wide:
            half = 1 << f.width - 1
            tag = 64 if f.width <= 64 else 128
            code = f"ss_sext_{tag}({f.code}, {f.width})"
            return Node("data", "load", lo=-half, hi=half - 1, code=code, field=f)
        return Node("data", "load", lo=0, hi=(1 << f.width) - 1, code=f.code, field=f)

    def _operation(self, e: values.Operation) -> Node:
        op = e.op
        if op in ("access_field", "access_union_header"):
            return self._part(op, self.read(e.left), e.right)
        if op in ("dereference_union_stack", "dereference_header_stack"):
            return self._element(self.stack(e.left), self.index(self.read(e.right)))
        if op in ("last_stack_index", "size_stack"):
            name = self.stack(e.left if e.left is not None else e.right)
            n = f"(uint64_t){self.layout.stack_next(name)}"
            if op == "size_stack":
                size = self.layout.stack_size(name)
                return Node("data", "load", lo=0, hi=size, code=n)
            return Node("data", "load", lo=0, hi=(1 << 64) - 1, code=f"({n} - 1)")
        right = self.read(e.right)
        if op == "?":
            return self._ternary(self.read(e.cond), self.read(e.left), right)
        if e.left is None and op in ("+", "-"):
            return self._binary(op, Node("data", "const"), right)
        if e.left is None:
            return self._unary(op, right)
        return self._binary(op, self.read(e.left), right)

    def _part(self, op: str, whole: Node, number: values.Value | None) -> Node:
        """Return the node of a header's field or of a header union's member, by its number."""
        wanted = "header" if op == "access_field" else "union"
        if whole.sort != wanted or not isinstance(number, int):
            raise self.refuse(f"{op} of a {whole.sort}")
        if wanted == "header":
            return self.load(self.header_field(whole, number))
        return self._union_member(whole, number)

    def _element(self, stack: str, index: str) -> Node:
        """Return the node of a stack's element; ``index`` is a C expression."""
        code = self.layout.element(stack, index)
        program = self.layout.program
        if stack in program.union_stacks:
            return Node(
                "union", "union", code=code, type_name=program.union_stacks[stack].type.name
            )
        return Node("header", "0", code=code, type_name=program.stacks[stack].type.name)

    def header_field(self, header: Node, i: int) -> FieldRef:
        """Return field number ``i`` of a header node."""
        t = self.layout.program.header_types[header.type_name]
        if i == len(t.fields):  # the hidden validity comes last
            return FieldRef(f"{header.code}.valid", 1, False, "1", "$valid$")
        if i > len(t.fields):
            raise self.refuse(f"field {i} of {header.type_name!r}")
        return self.layout.member(header.code, t, i, header.op == "1", t.name)

    def _union_member(self, union: Node, i: int) -> Node:
        t = self.layout.program.union_types[union.type_name]
        if i >= len(t.members):
            raise self.refuse(f"member {i} of {union.type_name!r}")
        code = f"{union.code}.m{i}"
        rivals = self.layout.members(union.code, t, i)
        return Node("header", "0", code=code, type_name=t.members[i][1].name, rivals=rivals)

    def union_headers(self, union: Node) -> list[Node]:
        """Return all members of a header union."""
        members = self.layout.program.union_types[union.type_name].members
        return [self._union_member(union, i) for i in range(len(members))]

    def _ternary(self, cond: Node, left: Node, right: Node) -> Node:
        if left.sort != right.sort or left.sort not in ("data", "bool"):
            raise self.refuse(f"conditional expression of {left.sort}")
        if left.sort == "bool":
            code = f"({self.boolean(cond)} ? {self.boolean(left)} : {self.boolean(right)})"
            return Node("bool", "bool", code=code)
        return Node(
            "data", "?", (cond, left, right), min(left.lo, right.lo), max(left.hi, right.hi)
        )

    def _unary(self, op: str, a: Node) -> Node:
        if op == "not":
            return Node("bool", "bool", code=f"(!{self.boolean(a)})")
        if op == "d2b":
            return Node("bool", "bool", code=f"({self.exact(a)} != 0)")
        if op == "b2d":
            return Node("data", "load", lo=0, hi=1, code=f"(uint64_t)({self.boolean(a)})")
        if op == "valid" and a.sort == "header":
            return Node("bool", "bool", code="1" if a.op == "1" else f"{a.code}.valid")
        if op in ("valid", "valid_union") and a.sort == "union":
            valid = " || ".join(f"{h.code}.valid" for h in self.union_headers(a))
            return Node("bool", "bool", code=f"({valid})")
        if op == "~" and a.sort == "data":
            return Node("data", "~", (a,), ~a.hi, ~a.lo)
        raise self.refuse(f"operator {op!r}")

    def _binary(self, op: str, a: Node, b: Node) -> Node:
        if op in ("and", "or"):
            sign = "&&" if op == "and" else "||"
            return Node("bool", "bool", code=f"({self.boolean(a)} {sign} {self.boolean(b)})")
        if (
            op in ("==", "!=")
            and a.sort == b.sort
            and a.sort in ("bool", "header", "union", "varbit")
        ):
            code = self._equal(a, b)
            return Node("bool", "bool", code=code if op == "==" else f"(!{code})")
        if a.sort != "data" or b.sort != "data":
            raise self.refuse(f"operator {op!r} on {a.sort} and {b.sort}")
        if op in COMPARE:
            return Node("bool", "bool", code=self._compare(op, a, b))
        lo, hi = self._range(op, a, b)
        return Node("data", op, (a, b), lo, hi)

    def _range(self, op: str, a: Node, b: Node) -> tuple[int, int]:
        if op in ("+", "-"):
            return (a.lo + b.lo, a.hi + b.hi) if op == "+" else (a.lo - b.hi, a.hi - b.lo)
        if op == "*":
            corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
            return min(corners), max(corners)
        if op == "&":
            if a.lo >= 0 or b.lo >= 0:
                return 0, min(x.hi for x in (a, b) if x.lo >= 0)
            n = max(power_bits(max(~x.lo, x.hi, 0)) for x in (a, b))
            return -(1 << n), (1 << n) - 1
        if op in ("|", "^"):
            n = max(power_bits(max(~x.lo if x.lo < 0 else 0, x.hi, 0)) for x in (a, b))
            return (0 if a.lo >= 0 and b.lo >= 0 else -(1 << n)), (1 << n) - 1
        if op in ("<<", ">>"):
            if b.lo < 0:
                raise self.refuse("shift by a negative amount")
            most, least = min(b.hi, MAX_SHIFT), min(b.lo, MAX_SHIFT)
            if op == "<<":
                return min(a.lo << most, a.lo << least), max(a.hi << most, a.hi << least)
            return min(a.lo >> least, a.lo >> most), max(a.hi >> least, a.hi >> most)
        if op in ("/", "%"):
            if a.lo < 0 or b.lo < 0:
                raise self.refuse(f"operator {op!r} on signed values")
            return (0, a.hi // max(b.lo, 1)) if op == "/" else (0, min(a.hi, max(b.hi - 1, 0)))
        if op in ("two_comp_mod", "sat_cast", "usat_cast"):
            if b.const is None or not 1 <= b.const <= 128:
                raise self.refuse(f"{op} to a width that is not 1 to 128 bits")
            if op == "usat_cast":
                return 0, (1 << b.const) - 1
            return -(1 << b.const - 1), (1 << b.const - 1) - 1
        raise self.refuse(f"operator {op!r}")

    # ---- writing ----

    def boolean(self, n: Node) -> str:
        """Return the C condition of a boolean node."""
        if n.sort != "bool":
            raise self.refuse(f"{n.sort} used as a condition")
        return n.code

    def exact(self, n: Node) -> str:
        """Return the C expression of the exact value, of type ``ctype(n.lo, n.hi)``."""
        if n.sort != "data":
            raise self.refuse(f"{n.sort} used as a number")
        t = ctype(n.lo, n.hi)
        if t is None:
            what = n.field.name if n.field else f"operator {n.op!r}"
            raise self.refuse(f"arithmetic on more than 128 bits ({what})")
        bits = 64 if "64" in t else 128
        if n.op == "const":
            return f"({t}){literal(n.lo, bits)}"
        if n.op == "load":
            return f"({t})({n.code})"
        if n.op in MODULAR:
            return f"({t}){self.modular(n, bits)}"
        if n.op == "?":
            c, a, b = n.kids
            return f"({self.boolean(c)} ? ({t}){self.exact(a)} : ({t}){self.exact(b)})"
        a, b = n.kids
        if n.op == ">>" and a.field and a.field.wide:
            return f"({t}){self.modular(n, bits)}"
        if n.op == ">>":
            ta = ctype(a.lo, a.hi) or ""
            wide = "64" if "64" in ta else "128"
            fn = "shr" if a.lo >= 0 else "sar"
            return f"({t})ss_{fn}_{wide}({self.exact(a)}, {self.index(b)})"
        if n.op in ("/", "%"):
            common = ctype(0, max(a.hi, b.hi))
            if common is None:
                raise self.refuse(f"operator {n.op!r} on more than 128 bits")
            fn = "div" if n.op == "/" else "mod"
            tag = 64 if "64" in common else 128
            return f"({t})ss_{fn}_{tag}({self.exact(a)}, {self.exact(b)})"
        width = b.lo
        if n.op == "two_comp_mod":
            return f"ss_sext_{bits}({self.modular(a, bits)}, {width})"
        return self._saturate(n, a, t)

    def _saturate(self, n: Node, a: Node, t: str) -> str:
        top = ctype(min(a.lo, n.lo), max(a.hi, n.hi))
        if top is None:
            raise self.refuse("saturating arithmetic on more than 128 bits")
        bits = 64 if "64" in top else 128
        lo, hi = f"({top}){literal(n.lo, bits)}", f"({top}){literal(n.hi, bits)}"
        x = f"({top}){self.exact(a)}"
        return f"({t})({{ {top} x_ = {x}; x_ < {lo} ? {lo} : x_ > {hi} ? {hi} : x_; }})"

    def modular(self, n: Node, bits: int) -> str:
        """Return a C expression, of an unsigned type of ``bits``, of the value modulo 2**bits."""
        u = "uint64_t" if bits == 64 else "u128"
        if n.sort != "data":
            raise self.refuse(f"{n.sort} used as a number")
        if n.op == "const":
            return literal(n.lo, bits)
        if n.op == "&" and bits == 128 and n.lo >= 0 and n.hi < 1 << 64:
            return f"(u128){self.modular(n, 64)}"
        parts = self._joined(n) if n.op == "|" and bits == 128 else None
        if parts:
            return joined([(self.modular(part, 64), up) for part, up in parts])
        if n.op == "~":
            return f"(~{self.modular(n.kids[0], bits)})"
        if n.op == "?":
            c, a, b = n.kids
            return f"({self.boolean(c)} ? {self.modular(a, bits)} : {self.modular(b, bits)})"
        if n.op == "<<":
            a, b = n.kids
            if b.const is not None:
                if b.const >= bits:
                    return f"({u})0"
                return f"({self.modular(a, bits)} << {b.const})"
            return f"ss_shl_{bits}({self.modular(a, bits)}, {self.index(b)})"
        if n.op in MODULAR:
            a, b = (self.modular(k, bits) for k in n.kids)
            return f"({a} {n.op} {b})"
        wide = n.kids[0] if n.op == ">>" else n
        if wide.field and wide.field.wide:  # a slice of a byte array
            shift = self.index(n.kids[1]) if n.op == ">>" else "0"
            size = (wide.field.width + 7) // 8
            return f"({u})ss_wide({wide.field.code}, {size}, {shift})"
        return f"({u}){self.exact(n)}"

    def _joined(self, n: Node, up: int = 0) -> list[tuple[Node, int]] | None:
        """Return the parts of a concatenation and by how many bits they are shifted; None if it is
        none.

        A concatenation shifts and masks its parts, but no mask takes anything from them.
        """
        if n.lo >= 0 and n.hi < 1 << 64 and n.op not in ("|", "<<", "&"):
            return [(n, up)]
        match n.op:
            case "|":
                left, right = (self._joined(kid, up) for kid in n.kids)
                return None if left is None or right is None else left + right
            case "<<" if (shift := n.kids[1].const) is not None:
                return self._joined(n.kids[0], up + shift) if up + shift < 128 else None
            case "&" if (mask := n.kids[1].const) is not None and n.kids[0].lo >= 0:
                whole = mask & mask + 1 == 0 and n.kids[0].hi <= mask
                return self._joined(n.kids[0], up) if whole else self._low(n, up)
            case _:
                return None

    @staticmethod
    def _low(n: Node, up: int) -> list[tuple[Node, int]] | None:
        return [(n, up)] if n.hi < 1 << 64 else None

    def _at_most(self, n: Node, most: int) -> Node:
        """Return the minimum of a non-negative node and ``most``.

        It limits left shifts: a shift by a field's width already exceeds the field's range.
        """
        code = f"({{ uint64_t x_ = {self.index(n)}; x_ < {most} ? x_ : {most}; }})"
        return Node("data", "load", lo=min(n.lo, most), hi=min(n.hi, most), code=code)

    def index(self, n: Node) -> str:
        """Return the C expression of an index, shift amount or id as uint64_t, saturated."""
        if n.lo >= 0 and n.hi < 1 << 64:
            return self.exact(n)
        return f"ss_narrow((u128){self.exact(n)})"

    def word(self, n: Node) -> str:
        """Return the C expression of the low 64 bits."""
        return self.modular(n, 64)

    def _compare(self, op: str, a: Node, b: Node) -> str:
        fields = a.field, b.field
        if any(f and f.wide for f in fields):
            fa, fb = fields
            if op in ("==", "!=") and fa and fb and fa.width == fb.width:
                return f"(memcmp({fa.code}, {fb.code}, {(fa.width + 7) // 8}) {op} 0)"
            wide = next(f for f in fields if f and f.wide)
            raise self.refuse(f"comparison of the {wide.width} bits of {wide.name}")
        t = ctype(min(a.lo, b.lo), max(a.hi, b.hi))
        if t is None:
            raise self.refuse("comparison of signed with unsigned values of 128 bits")
        for whole, other in ((a, b), (b, a)) if t == "u128" and op in ("==", "!=") else ():
            if (differ := self._differ(whole, other)) is not None:
                return f"({differ} {op} 0)"
        return f"(({t}){self.exact(a)} {op} ({t}){self.exact(b)})"

    def _differ(self, whole: Node, other: Node) -> str | None:
        """Return the C expression, of 64 bits, of the bits in which a concatenation differs from a
        field, compared part by part; None if they are none."""
        parts = self._joined(whole) if whole.op == "|" and other.field else None
        if not parts or len(parts) < 2:
            return None
        top, out = 128, []
        for part, up in sorted(parts, key=lambda part: -part[1]):
            code = f"(uint64_t)({self.exact(other)} >> {up})"
            if top < 128:
                code = f"({code} & {literal((1 << top - up) - 1, 64)})"
            if (top - up > 64 and other.hi >> up >= 1 << 64) or part.hi >> top - up:
                return None
            out.append(f"({code} ^ {self.modular(part, 64)})")
            top = up
        return None if top else f"({' | '.join(out)})"

    def _equal(self, a: Node, b: Node) -> str:
        """Return the C condition that two values of the same sort, not numbers, are equal."""
        if a.sort == "bool":
            return f"(!!{self.boolean(a)} == !!{self.boolean(b)})"
        if a.sort == "union":
            return self._union_equal(a, b)
        return self._varbit_equal(a, b) if a.sort == "varbit" else self._header_equal(a, b)

    def _union_equal(self, a: Node, b: Node) -> str:
        if a.type_name != b.type_name:
            raise self.refuse("comparison of header unions of different types")
        pairs = zip(self.union_headers(a), self.union_headers(b), strict=True)
        return "(" + " || ".join(self._header_equal(x, y) for x, y in pairs) + ")"

    @staticmethod
    def _varbit_equal(a: Node, b: Node) -> str:
        """Return the C condition that two varbit fields are equal as numbers, as in BMv2."""
        assert a.field
        assert b.field
        return f"ss_same_number({a.code}, {a.field.length}, {b.code}, {b.field.length})"

    def _header_equal(self, a: Node, b: Node) -> str:
        if a.type_name != b.type_name:
            raise self.refuse("comparison of headers of different types")
        parts = [f"{x.code}.valid" for x in (a, b) if x.op != "1"]
        for i, f in enumerate(self.layout.program.header_types[a.type_name].fields):
            if f.varbit:
                parts.append(
                    f"ss_same_number({a.code}.f{i}, {a.code}.v, {b.code}.f{i}, {b.code}.v)"
                )
            elif f.width > 128:
                parts.append(f"!memcmp({a.code}.f{i}, {b.code}.f{i}, {(f.width + 7) // 8})")
            else:
                parts.append(f"{a.code}.f{i} == {b.code}.f{i}")
        return "(" + " && ".join(parts or ["1"]) + ")"

    def store(self, f: FieldRef, n: Node) -> str:
        """Return the C statement that assigns a value to a field, truncated to its width."""
        if f.length or n.sort == "varbit":
            if not (f.length and n.field and n.sort == "varbit") or f.width < n.field.width:
                raise self.refuse(f"assignment to or from a varbit field ({f.name})")
            size = n.field.length
            return f"{{ memmove({f.code}, {n.code}, {size}); {f.length} = {size}; }}"
        if f.wide:
            size = (f.width + 7) // 8
            if n.field and n.field.width == f.width:
                return f"memcpy({f.code}, {n.field.code}, {size});"
            if n.const is not None:
                data = (n.const & (1 << f.width) - 1).to_bytes(size, "big")
                text = ", ".join(str(x) for x in data)
                return f"memcpy({f.code}, (const uint8_t[]){{{text}}}, {size});"
            raise self.refuse(f"assignment of an expression to the {f.width} bits of {f.name}")
        if f.saturating:
            width = Node("data", "const", lo=f.width, hi=f.width)
            if n.op == "<<" and n.kids[1].hi > f.width:
                n = self._binary("<<", n.kids[0], self._at_most(n.kids[1], f.width))
            n = self._binary("sat_cast" if f.signed else "usat_cast", n, width)
        bits = 64 if f.width <= 64 else 128
        code = self.modular(n, bits)
        if not (n.lo >= 0 and n.hi < 1 << f.width):
            code = f"{code} & {literal((1 << f.width) - 1, bits)}"
        return f"{f.code} = {code};"
