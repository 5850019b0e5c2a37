# SPDX-License-Identifier: Apache-2.0
"""Writes hash calculations, checksums and digests as C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canary_softswitch.compiler import schema_values as values
from canary_softswitch.compiler.bmv2_program import VALID, Constant
from canary_softswitch.compiler.codegen_headers import write_values
from canary_softswitch.compiler.expressions import Expressions
from canary_softswitch.compiler.layout import FieldRef, Layout
from canary_softswitch.compiler.nodes import joined, literal
from canary_softswitch.compiler.rows import field_words
from canary_softswitch.compiler.schema_values import Value, source_of
from canary_softswitch.errors import UnsupportedProgram

if TYPE_CHECKING:
    from canary_softswitch.compiler.codegen_stacks import StackWriter

MAX_HASHED = 1 << 16
"""The most bytes of headers that are hashed at once; they are on a thread's stack."""

ALGORITHMS = {
    "crc32": "ss_crc32",
    "crc32_custom": "ss_crc32",
    "crc16": "ss_crc16",
    "crc16_custom": "ss_crc16",
    "crcCCITT": "ss_crcCCITT",
    "csum16": "ss_csum16",
    "cksum16": "ss_csum16",
    "xor16": "ss_xor16",
    "xor32": "ss_xor32",
    "identity": "ss_identity",
}


@dataclass(frozen=True)
class Input:
    """A value that is hashed: C expression, bits, the condition under which its header is valid,
    and of a varbit field the C expression of its bytes (``width`` is the most it can have)."""

    code: str
    width: int
    valid: str = "1"
    length: str = ""

    @property
    def wide(self) -> bool:
        """Return True if the value is a byte array in C, as it has more than 128 bits."""
        return self.width > 128 and not self.length


def inputs_of(layout: Layout, elements: Sequence[Value], source: str) -> tuple[list[Input], bool]:
    """Return the values hashed, in order, and whether the payload follows them."""
    out: list[Input] = []
    payload = False
    for e in elements:
        match e:
            case values.FieldValue(value=(header, name)):
                f = layout.field(header, name)
                out.append(Input(f.code, f.width, f.valid, f.length))
            case values.HexValue(value=v, bitwidth=int(width)):
                if width > 128:
                    raise UnsupportedProgram(f"hashed constant of {width} bits", source)
                code = literal(v & (1 << width) - 1, 64 if width <= 64 else 128)
                out.append(Input(code, width))
            case values.HeaderValue(value=name) if name in layout.program.headers:
                h = layout.program.headers[name]
                lvalue = layout.header(name)
                for i in range(len(h.type.fields)):
                    f = layout.member(lvalue, h.type, i, h.metadata, name)
                    out.append(Input(f.code, f.width, f.valid, f.length))
            case values.PayloadValue():
                payload = True
            case _:
                raise UnsupportedProgram(f"{values.kind_of(e)} as input of a hash", source)
    if sum(i.width for i in out) > 8 * MAX_HASHED:
        raise UnsupportedProgram(f"a hash of more than {MAX_HASHED} bytes", source)
    return out, payload


ON_VALUES = {"crc32": "ss_crc32_value", "crc16": "ss_crc16_value"}
"""C functions of hashes of at most 16 bytes, whose input need not be written to memory."""


def _joined(inputs: list[Input]) -> str:
    """Return the C expression of all inputs, concatenated into a number of at most 128 bits."""
    parts: list[tuple[str, int]] = []
    left = sum(i.width for i in inputs)
    for i in inputs:
        left -= i.width
        parts.append((f"(uint64_t)({i.code})", left))
        if i.width > 64:
            parts.append((f"(uint64_t)((u128)({i.code}) >> 64)", left + 64))
    return joined(parts)


def _added(inputs: list[Input]) -> str:
    """Return the C expression of the sum of all inputs' 16-bit words, one input after the other."""
    parts, at = [], 0
    for i in inputs:
        left = i.width
        while left:
            take = min(left, 16 - at % 16)
            left -= take
            part = f"({i.code}) >> {left}" if left else f"({i.code})"
            up = 16 - at % 16 - take
            parts.append(
                f"((uint64_t)({part}) & {(1 << take) - 1:#x})" + (f" << {up}" if up else "")
            )
            at += take
    return " + ".join(f"({part})" for part in parts)


def _short_cut(algo: str, inputs: list[Input]) -> str | None:
    """Return the C expression of a hash of valid fields without memory; None if there is none."""
    bits = sum(i.width for i in inputs)
    if not bits or any(i.wide or i.length for i in inputs):
        return None
    if algo in ("csum16", "cksum16"):
        return f"ss_csum16_sum({_added(inputs)})"
    if algo in ON_VALUES and bits % 8 == 0 and bits <= 128:
        return f"{ON_VALUES[algo]}({_joined(inputs)}, {bits // 8})"
    return None


def function(
    layout: Layout,
    name: str,
    algo: str,
    elements: Sequence[Value],
    source: str,
    custom: int | None = None,
) -> str:
    """Return the C function that computes a hash; like BMv2, it skips fields of invalid headers.

    ``custom`` is the number of a CRC whose parameters can be set, else None.
    """
    if algo not in ALGORITHMS:
        raise UnsupportedProgram(f"hash algorithm {algo!r}", source)
    inputs, payload = inputs_of(layout, elements, source)
    size = (sum(i.width for i in inputs) + 7) // 8
    valid = " && ".join(sorted({i.valid for i in inputs if i.valid != "1"}))
    short = None if payload else _short_cut(algo, inputs)
    out = [
        f"SS_INLINE uint64_t {name}(ss_switch *sw, ss_item *it) {{",
        "    struct phv *p = &it->p;",
        "    (void)sw; (void)p;",
    ]
    if short:
        out.append(f"    if ({valid or '1'}) return {short};")
    if not short or valid:
        varies = any(i.length for i in inputs)
        out += _in_memory(inputs, size, payload, "" if short or varies else valid, bool(short))
        if custom is not None:
            crc = f"sw->crcs + {custom}"
            out.append(f"    if (({crc})->width) return ss_crc_custom({crc}, b, n);")
        out.append(f"    return {ALGORITHMS[algo]}(b, n);")
    return "\n".join([*out, "}"]) + "\n"


def _in_memory(
    inputs: list[Input], size: int, payload: bool, valid: str, some_invalid: bool
) -> list[str]:
    """Return C statements that write the inputs of valid headers into ``b``, ``n`` bytes.

    ``valid`` is the condition under which all are valid, if that is not sure; ``some_invalid``
    says that one is sure not to be.
    """
    one_by_one = some_invalid or any(i.length for i in inputs)
    extra = " + (it->length < it->truncate ? it->length : it->truncate)" if payload else ""
    values = [(i.code, i.width, i.wide) for i in inputs]
    lines = [] if one_by_one else [f"    {x}" for x in write_values(values, "b")]
    out = [f"    uint32_t n = {size};"]
    if payload:
        out += [
            f"    uint8_t *b = ss_alloc(sw, (size_t)n{extra});",
            "    if (!b) return 0;",
            f"    memset(b, 0, {size});",
        ]
    else:
        zero = " = {0}" if any("ss_put" in x for x in lines) else ""
        out.append(f"    uint8_t b[{max(size, 1)}]{zero};")
    if valid:
        out += [f"    if ({valid}) {{", *lines, "    } else {"]
    elif one_by_one:
        out.append("    {")
    else:
        out += lines
    if valid or one_by_one:
        out += ["    uint32_t bit = 0;", f"    memset(b, 0, {max(size, 1)});"]
        for i in inputs:
            bits = f"8 * {i.length}" if i.length else str(i.width)
            put = f"ss_put_bits(b, bit, {i.width}, {i.code})"
            if i.wide:
                put = f"ss_put_wide(b, bit, {i.code}, {i.width})"
            if i.length:
                put = f"ss_put_bytes(b, bit, {i.code}, {i.length})"
            out.append(f"    if ({i.valid}) {{ {put}; bit += {bits}; }}")
        out += ["    n = (bit + 7) / 8;", "    }"]
    if payload:
        out += [
            f"    uint32_t more = 0{extra};",
            "    if (more) memcpy(b + n, it->data, more);",
            "    n += more;",
        ]
    return out


def calculations(layout: Layout) -> tuple[str, dict[str, str]]:
    """Return the C of all named calculations, and the C function of each by name."""
    out, names = [], {}
    custom = {name: i for i, name in enumerate(layout.program.custom_crcs)}
    for i, c in enumerate(layout.root.calculations):
        names[c.name] = name = f"calculation_{i}"
        number = custom.get(c.name)
        out.append(function(layout, name, c.algo, c.input, source_of(c), number))
    return "".join(out), names


def checksums(layout: Layout, names: dict[str, str], stacks: StackWriter | None) -> str:
    """Return the C functions ``ss_verify_checksums`` and ``ss_update_checksums``.

    The first returns, for a packet of a usual stack, the sum that the second goes on with.
    """
    inputs = {c.name: c.input for c in layout.root.calculations}
    verify, update = [], []
    kept: _Kept | None = None
    for c in layout.root.checksums:
        source = source_of(c)
        if c.type != "generic":
            raise UnsupportedProgram(f"checksum type {c.type!r}", source)
        e = Expressions(layout, source=source)
        f: FieldRef = layout.field(*c.target)
        if f.wide or f.length or c.target[1] == VALID:
            raise UnsupportedProgram(f"checksum in {f.name}", source)
        call = f"{names[c.calculation]}(sw, it)"
        cond = e.boolean(e.read(c.if_cond)) if c.if_cond is not None else "1"
        value = e.load(f)
        if c.verify:
            if kept is None and stacks:
                kept = _Kept.of(layout, stacks, c.target, inputs[c.calculation])
                if kept:
                    verify.append(f"    if (stack) sum = {kept.added};")
                    call = f"(stack ? ss_csum16_sum(sum) : {call})"
            verify.append(
                f"    if ({f.valid} && {cond} && {call} != {e.word(value)}) it->checksum_error = 1;"
            )
    for c in layout.root.checksums:
        if not c.update:
            continue
        e = Expressions(layout, source=source_of(c))
        f = layout.field(*c.target)
        call = f"{names[c.calculation]}(sw, it)"
        if kept and (kept.target, kept.inputs) == (c.target, inputs[c.calculation]):
            call = f"(stack ? ss_csum16_sum(sum + {kept.changed}) : {call})"
        cond = e.boolean(e.read(c.if_cond)) if c.if_cond is not None else "1"
        mask = literal((1 << min(f.width, 64)) - 1, 64)
        update.append(f"    if ({cond}) {f.code} = {call} & {mask};")
    return (
        "SS_INLINE uint64_t ss_verify_checksums(int stack, ss_switch *sw, ss_item *it,\n"
        "                                       const uint8_t *d) {\n"
        "    struct phv *p = &it->p;\n"
        "    uint64_t sum = 0;\n    (void)stack; (void)sw; (void)p; (void)d;\n"
        + "".join(line + "\n" for line in verify)
        + "    return sum;\n}\n"
        "SS_INLINE void ss_update_checksums(int stack, ss_switch *sw, ss_item *it,\n"
        "                                   const struct phv *was, uint64_t sum) {\n"
        "    struct phv *p = &it->p;\n"
        "    (void)stack; (void)sw; (void)p; (void)was; (void)sum;\n"
        + "".join(line + "\n" for line in update)
        + "}\n"
    )


@dataclass(frozen=True)
class _Kept:
    """An Internet checksum of all fields of a header but one, the ``target``, which is verified
    first and updated later: the second sum is the first one and what has changed since.

    Attributes:
        inputs: What it is made of.
        added: C expression of the sum of the header's 32-bit words as it came, at ``d``.
        changed: C expression of what to add to it for the header's fields of now.
    """

    target: tuple[str, str]
    inputs: Sequence[Value]
    added: str
    changed: str

    @classmethod
    def of(
        cls,
        layout: Layout,
        stacks: StackWriter,
        target: tuple[str, str],
        inputs: Sequence[Value],
    ) -> _Kept | None:
        """Return such a checksum; None if it is none, or some stack has no such header."""
        header, name = target
        type_ = layout.program.headers[header].type
        wanted = [(header, f.name) for f in type_.fields if f.name != name]
        given = [one.value if isinstance(one, values.FieldValue) else None for one in inputs]
        crossing = any(f.offset // 32 != (f.offset + f.width - 1) // 32 for f in type_.fields)
        own = type_.fields[type_.find(name)]
        if (
            given != wanted
            or crossing
            or type_.width % 32
            or (own.offset % 16, own.width) != (0, 16)
        ):
            return None
        places = [stacks.offsets(stack)[0].get(header) for stack in stacks.stacks]
        if not places or None in places:
            return None
        at = "".join(f"stack == {i} ? {place} : " for i, place in enumerate(places, 1)) + "0"
        lvalue = layout.header(header)
        words = " + ".join(f"ss_ld4(d + ({at}) + {i})" for i in range(0, type_.width // 8, 4))
        less = f"((uint64_t){lvalue}.f{type_.find(name)} << {16 - own.offset % 32})"
        changes = []
        for i, f in enumerate(type_.fields):
            if f.name != name:
                new, old = f"{lvalue}.f{i}", f"{lvalue.replace('p->', 'was->', 1)}.f{i}"
                changes.append(f"(((uint64_t){new} - {old}) << {32 - f.offset % 32 - f.width})")
        return cls(target, inputs, f"{words} - {less}", " + ".join(changes))


def learning(layout: Layout) -> str:
    """Return the C function ``ss_learn_fields``, which takes a sample of the requested digest."""
    out = [
        "SS_INLINE void ss_learn_fields(ss_switch *sw, ss_item *it) {",
        "    struct phv *p = &it->p;",
        "    (void)sw; (void)p;",
        "    switch (it->learn) {",
    ]
    for i, fl in enumerate(layout.program.learn_lists.values()):
        words: list[str] = []
        for e in fl.elements:
            if isinstance(e, Constant):
                words += [literal(e.value >> 64 * k, 64) for k in range(field_words(e.width))]
                continue
            f = layout.field(*e)
            if f.width > 128 or f.length:
                raise UnsupportedProgram(f"digest {fl.name!r} with {f.width}-bit {f.name}")
            words.append(f"(uint64_t){f.code}")
            if f.width > 64:
                words.append(f"(uint64_t)((u128){f.code} >> 64)")
        out.append(
            f"    case {fl.id}: {{ const uint64_t s[] = {{{', '.join(words) or '0'}}}; "
            f"ss_learn(sw, sw->learn + {i}, s); break; }}"
        )
    out.append("    default: break;\n    }\n}")
    return "\n".join(out) + "\n"
