# SPDX-License-Identifier: Apache-2.0
"""The place of headers, metadata and stacks in the generated ``struct phv``.

All identifiers are made of numbers that are assigned here or in ``Bmv2Program``: no name of a
program is ever part of its C.
"""

from __future__ import annotations

from dataclasses import dataclass

from canary_softswitch.compiler import schema
from canary_softswitch.compiler.bmv2_program import (
    VALID,
    Bmv2Program,
    FieldType,
    HeaderType,
    UnionType,
)


def storage(width: int) -> str:
    """Return the C type that stores an unsigned field of ``width`` bits (at most 128)."""
    for bits in (8, 16, 32, 64):
        if width <= bits:
            return f"uint{bits}_t"
    return "u128"


@dataclass(frozen=True)
class FieldRef:
    """A field in C: its lvalue, and the condition under which its header is valid.

    ``length``: lvalue of the bytes a varbit field has, an array of at most ``width`` bits; "" of
    any other field.
    """

    code: str
    width: int
    signed: bool
    valid: str  # C expression, "1" for metadata
    name: str
    length: str = ""
    saturating: bool = False

    @property
    def wide(self) -> bool:
        """Return True if the field is a byte array in C, as it has more than 128 bits."""
        return self.width > 128 and not self.length


class Layout:
    """C names of everything in the packet header vector of one program.

    ``root``: the records of what the program does.
    """

    def __init__(self, program: Bmv2Program, root: schema.Root) -> None:
        self.program = program
        self.root = root
        used = dict.fromkeys(h.type.name for h in program.headers.values())
        self._types = {name: i for i, name in enumerate({**used, **program.header_types})}

    def type_name(self, t: HeaderType) -> str:
        """Return the C struct tag of a header type."""
        return f"struct ht{self._types[t.name]}"

    def union_tag(self, t: UnionType) -> str:
        """Return the C struct tag of a header union, which has all members side by side."""
        return f"struct un{t.index}"

    def header(self, name: str) -> str:
        """Return the C lvalue of a header instance."""
        h = self.program.headers[name]
        if h.stack:
            return f"p->s{self.program.stacks[h.stack].index}[{h.place}]"
        if h.union:
            return f"{self.union(h.union)}.m{h.place}"
        return f"p->h{h.index}"

    def union(self, name: str) -> str:
        """Return the C lvalue of a header union."""
        u = self.program.unions[name]
        if u.stack:
            return f"p->us{self.program.union_stacks[u.stack].index}[{u.place}]"
        return f"p->u{u.index}"

    def rivals(self, name: str) -> tuple[str, ...]:
        """Return C lvalues of the other headers of this one's union, invalid when it is valid."""
        h = self.program.headers[name]
        if not h.union:
            return ()
        return self.members(self.union(h.union), self.program.unions[h.union].type, h.place)

    @staticmethod
    def members(union: str, t: UnionType, but: int = -1) -> tuple[str, ...]:
        """Return the C lvalues of a union's members but one."""
        return tuple(f"{union}.m{i}" for i in range(len(t.members)) if i != but)

    def stack_next(self, name: str) -> str:
        """Return the C lvalue of the number of elements a stack has (BMv2's ``next``)."""
        if name in self.program.union_stacks:
            return f"p->un{self.program.union_stacks[name].index}"
        return f"p->n{self.program.stacks[name].index}"

    def stack_size(self, name: str) -> int:
        """Return the largest number of elements of a stack of headers or header unions."""
        if name in self.program.union_stacks:
            return self.program.union_stacks[name].size
        return len(self.program.stacks[name].headers)

    def element(self, stack: str, index: str) -> str:
        """Return the C lvalue of a stack element; a scratch element if the index is too large."""
        if stack in self.program.union_stacks:
            u = self.program.union_stacks[stack]
            return f"p->us{u.index}[ss_index({index}, {u.size})]"
        s = self.program.stacks[stack]
        n = len(s.headers)
        return f"p->s{s.index}[ss_index({index}, {n})]"

    def member(self, header: str, t: HeaderType, i: int, metadata: bool, name: str) -> FieldRef:
        """Return field number ``i`` of a header lvalue."""
        f = t.fields[i]
        valid = "1" if metadata else f"{header}.valid"
        length = f"{header}.v" if f.varbit else ""
        return FieldRef(
            f"{header}.f{i}", f.width, f.signed, valid, f"{name}.{f.name}", length, f.saturating
        )

    def field(self, header: str, name: str) -> FieldRef:
        """Return the field of a header instance by names; ``$valid$`` is its validity."""
        h = self.program.headers[header]
        lvalue = self.header(header)
        if name == VALID:
            code = "1" if h.metadata else f"{lvalue}.valid"
            return FieldRef(code, 1, False, "1", f"{header}.{VALID}")
        return self.member(lvalue, h.type, h.type.find(name), h.metadata, header)

    def definition(self) -> str:
        """Return the C definition of the header structs and ``struct phv``."""
        out = []
        for name in self._types:
            t = self.program.header_types[name]
            members = "".join(f" {_declared(f, i)};" for i, f in enumerate(t.fields))
            length = " uint32_t v;" if t.varbit else ""
            out.append(f"struct ht{self._types[name]} {{ uint8_t valid;{length}{members} }};")
        for u in self.program.union_types.values():
            members = "".join(f" {self.type_name(t)} m{i};" for i, (_, t) in enumerate(u.members))
            out.append(f"{self.union_tag(u)} {{{members} }};")
        out.append("struct phv {")
        headers = self.program.headers.values()
        metadata = [h for h in headers if h.metadata]
        plain = [h for h in headers if not h.metadata and not h.stack and not h.union]
        for h in metadata + plain:
            out.append(f"    {self.type_name(h.type)} h{h.index};")
        for s in self.program.stacks.values():
            size = len(s.headers) + 1  # the last is for indices out of bounds
            out.append(f"    {self.type_name(s.type)} s{s.index}[{size}];")
            out.append(f"    uint32_t n{s.index};")
        unions = [u for u in self.program.unions.values() if not u.stack]
        for one in unions:
            out.append(f"    {self.union_tag(one.type)} u{one.index};")
        for us in self.program.union_stacks.values():
            out.append(f"    {self.union_tag(us.type)} us{us.index}[{us.size + 1}];")
            out.append(f"    uint32_t un{us.index};")
        out.append("};")
        out.append("SS_INLINE void ss_reset_metadata(struct phv *p) {")
        out += [f"    memset(&p->h{h.index}, 0, sizeof p->h{h.index});" for h in metadata]
        out.append("    (void)p;\n}")
        single = [(f"p->h{h.index}", h.type) for h in metadata + plain]
        for one in unions:
            types = (t for _, t in one.type.members)
            single += zip(self.members(f"p->u{one.index}", one.type), types, strict=True)
        out += self._clearing(single)
        return "\n".join(out) + "\n"

    def _clearing(self, single: list[tuple[str, HeaderType]]) -> list[str]:
        """Return the C function ``ss_clear``, which clears ``struct phv`` field by field.

        With a memset of the whole struct, compilers keep a local one in memory.
        """
        out = ["SS_INLINE void ss_clear(struct phv *p) {"]
        for header, t in single:
            out.append(f"    {header}.valid = 0;")
            if t.varbit:
                out.append(f"    {header}.v = 0;")
            for i, f in enumerate(t.fields):
                field = f"{header}.f{i}"
                if f.varbit:
                    continue
                out.append(
                    f"    memset({field}, 0, sizeof {field});"
                    if f.width > 128
                    else f"    {field} = 0;"
                )
        for s in self.program.stacks.values():
            out.append(f"    memset(p->s{s.index}, 0, sizeof p->s{s.index});")
            out.append(f"    p->n{s.index} = 0;")
        for us in self.program.union_stacks.values():
            out.append(f"    memset(p->us{us.index}, 0, sizeof p->us{us.index});")
            out.append(f"    p->un{us.index} = 0;")
        return [*out, "    (void)p;\n}"]


def _declared(f: FieldType, i: int) -> str:
    """Return the C declaration of field number ``i`` of a header."""
    if f.varbit or f.width > 128:
        return f"uint8_t f{i}[{(f.width + 7) // 8}]"
    return f"{storage(f.width)} f{i}"
