"""Where headers, metadata and stacks live in the generated ``struct phv``."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.softswitch.compiler.bmv2_program import VALID, Bmv2Program, Header, HeaderType


def storage(width: int) -> str:
    """C type that stores an unsigned field of ``width`` bits (at most 128)."""
    for bits in (8, 16, 32, 64):
        if width <= bits:
            return f"uint{bits}_t"
    return "u128"


def comment(name: str) -> str:
    """A P4 name as it may stand in a C comment."""
    return "".join(c if c.isalnum() or c in "_.$[]" else "?" for c in name)


@dataclass(frozen=True)
class FieldRef:
    """A field in C: its lvalue, and the condition under which its header is valid."""

    code: str
    width: int
    signed: bool
    valid: str  # C expression, "1" for metadata
    name: str

    @property
    def wide(self) -> bool:
        """Stored as a byte array because it has more than 128 bits."""
        return self.width > 128


class Layout:
    """C names of everything in the packet header vector of one program."""

    def __init__(self, program: Bmv2Program) -> None:
        self.program = program
        types: dict[str, HeaderType] = {}
        for h in program.headers.values():
            types.setdefault(h.type.name, h.type)
        self._types = {name: i for i, name in enumerate(types)}
        self._type_defs = types

    def type_name(self, t: HeaderType) -> str:
        """C struct tag of a header type."""
        return f"struct ht{self._types[t.name]}"

    def header(self, name: str) -> str:
        """C lvalue of a header instance."""
        h = self.program.headers[name]
        if h.stack:
            return f"p->s{self.program.stacks[h.stack].index}[{h.stack_index}]"
        return f"p->h{h.index}"

    def stack_next(self, name: str) -> str:
        """C lvalue of the number of elements a stack has (BMv2's ``next``)."""
        return f"p->n{self.program.stacks[name].index}"

    def element(self, stack: str, index: str) -> str:
        """C lvalue of a stack element; an index out of bounds means a scratch element."""
        s = self.program.stacks[stack]
        n = len(s.headers)
        return f"p->s{s.index}[SS_INDEX({index}, {n})]"

    def member(self, header: str, t: HeaderType, i: int, metadata: bool, name: str) -> FieldRef:
        """Field number ``i`` of a header lvalue."""
        f = t.fields[i]
        valid = "1" if metadata else f"{header}.valid"
        return FieldRef(f"{header}.f{i}", f.width, f.signed, valid, f"{name}.{f.name}")

    def field(self, header: str, name: str) -> FieldRef:
        """Field of a header instance by names; ``$valid$`` is its validity."""
        self.program.field_type(header, name)  # refuses unknown names
        h = self.program.headers[header]
        lvalue = self.header(header)
        if name == VALID:
            code = "1" if h.metadata else f"{lvalue}.valid"
            return FieldRef(code, 1, False, "1", f"{header}.{VALID}")
        return self.member(lvalue, h.type, h.type.find(name), h.metadata, header)

    def definition(self) -> str:
        """C definition of the header structs and ``struct phv``."""
        out = []
        for name, t in self._type_defs.items():
            members = "".join(
                f" uint8_t f{i}[{(f.width + 7) // 8}];"
                if f.width > 128
                else f" {storage(f.width)} f{i};"
                for i, f in enumerate(t.fields)
            )
            out.append(f"struct ht{self._types[name]} {{ uint8_t valid;{members} }};")
        out.append("struct phv {")
        metadata = [h for h in self.program.headers.values() if h.metadata]
        plain = [h for h in self.program.headers.values() if not h.metadata and not h.stack]
        for h in metadata + plain:
            out.append(f"    {self.type_name(h.type)} h{h.index}; /* {comment(h.name)} */")
        for s in self.program.stacks.values():
            out.append(
                f"    {self.type_name(s.type)} s{s.index}[{len(s.headers) + 1}]; "
                f"/* {comment(s.name)}, then a scratch element */"
            )
            out.append(f"    uint32_t n{s.index};")
        out.append("};")
        out.append("#define SS_INDEX(i, n) ((uint64_t)(i) < (n) ? (uint64_t)(i) : (n))")
        out.append("SS_INLINE void ss_reset_metadata(struct phv *p) {")
        out += [f"    memset(&p->h{h.index}, 0, sizeof p->h{h.index});" for h in metadata]
        out.append("    (void)p;\n}")
        out += self._clearing(metadata + plain)
        return "\n".join(out) + "\n"

    def _clearing(self, single: list[Header]) -> list[str]:
        """C function ``ss_clear``: field by field, for a compiler keeps a local vector that is
        filled as a whole in memory."""
        out = ["SS_INLINE void ss_clear(struct phv *p) {"]
        for h in single:
            out.append(f"    p->h{h.index}.valid = 0;")
            for i, f in enumerate(h.type.fields):
                field = f"p->h{h.index}.f{i}"
                out.append(
                    f"    memset({field}, 0, sizeof {field});"
                    if f.width > 128
                    else f"    {field} = 0;"
                )
        for s in self.program.stacks.values():
            out.append(f"    memset(p->s{s.index}, 0, sizeof p->s{s.index});")
            out.append(f"    p->n{s.index} = 0;")
        return [*out, "    (void)p;\n}"]
