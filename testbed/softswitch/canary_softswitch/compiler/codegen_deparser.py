# SPDX-License-Identifier: Apache-2.0
"""Writes the C of the deparser, which puts headers and payload together again."""

from __future__ import annotations

from canary_softswitch.compiler.bmv2_program import Header, HeaderType
from canary_softswitch.compiler.codegen_headers import write_header, write_values
from canary_softswitch.compiler.codegen_stacks import StackWriter
from canary_softswitch.compiler.layout import Layout
from canary_softswitch.errors import UnsupportedProgram


def header_bytes(header: str, t: HeaderType) -> str:
    """Return the C expression of the bytes a header takes in a packet."""
    return f"{t.width // 8} + {header}.v" if t.varbit else str(t.width // 8)


def _write_kept(header: str, t: HeaderType, buffer: str, was: str) -> list[str]:
    """Return the C statements that write a header's fields, except those that surely have the
    values that are there: of ``was``, if ``placed``."""
    out: list[str] = []
    group: list[int] = []
    start = bit = 0
    for i, f in enumerate(t.fields):
        group.append(i)
        bit += f.width
        if bit % 8:
            continue
        values = [(f"{header}.f{i}", t.fields[i].width, False) for i in group]
        same = " && ".join(f"SS_SURELY({header}.f{i} == {was}.f{i})" for i in group)
        for line in write_values(values, buffer, start):
            out.append(f"if (!(SS_SURELY(placed) && {same})) {line}")
        group, start = [], bit
    return out


def _as_came(layout: Layout, stacks: StackWriter | None) -> tuple[dict[str, str], str]:
    """Return how many bytes were between the begin of each header and the payload when it came, as
    C expressions of ``stack``, and how many bytes all headers had."""
    ends: dict[str, list[str]] = {}
    had = "0"
    for number, stack in enumerate(stacks.stacks if stacks else (), 1):
        offsets, size = stacks.offsets(stack) if stacks else ({}, 0)
        had = f"stack == {number} ? {size} : {had}"
        for name, offset in offsets.items():
            type_ = layout.program.headers[name].type
            if type_.width % 8 == 0 and all(f.width <= 64 for f in type_.fields):
                ends.setdefault(name, []).append(f"stack == {number} ? {size - offset} : ")
    return {name: "".join(cases) + "UINT32_MAX" for name, cases in ends.items()}, had


def deparser(layout: Layout, statements: list[str], stacks: StackWriter | None) -> str:
    """Return the C function ``ss_deparser``: update checksums, then write headers and payload.

    ``statements`` are the deparser's own statements in C, which run between the two as in BMv2.
    The headers of a usual stack are mostly written over themselves, and what has not changed of
    them stays.
    """
    headers: list[Header] = []
    for name in layout.root.deparsers[0].order:
        header = layout.program.headers[name]
        if header.metadata:  # its width may be no whole bytes, and it is always valid
            raise UnsupportedProgram(f"emission of the metadata {name!r}")
        headers.append(header)
    ends, had = _as_came(layout, stacks)
    out = [
        "SS_INLINE uint8_t *ss_deparser(int stack, ss_switch *sw, ss_item *it,",
        "                               const struct phv *was, uint64_t sum, uint32_t *length,",
        "                               uint32_t *stored) {",
        "    struct phv *p = &it->p;",
        "    uint8_t *start, *b;",
        f"    const uint32_t had = {had};",
        "    (void)stack; (void)was;",
        "    ss_update_checksums(stack, sw, it, was, sum);",
    ]
    out += [f"    {line}" for line in statements]  # they may change which headers are valid
    if statements:
        out.append("    if (it->exit) return NULL; /* an assertion failed */")
    behind = "0"
    for i, h in reversed([*enumerate(headers)]):
        lvalue = layout.header(h.name)
        size = header_bytes(lvalue, h.type)
        out.append(f"    const uint32_t end{i} = {behind} + ({lvalue}.valid ? {size} : 0);")
        behind = f"end{i}"
    out += [
        f"    uint32_t n = {behind};",
        "    if ((uintptr_t)it->data - n >= (uintptr_t)it->room && it->room) {",
        "        start = b = (uint8_t *)it->data - n;",
        "    } else {",
        "        uint32_t most = n > had ? n : had;",
        "        if (!(b = ss_alloc(sw, (size_t)most + it->stored))) return NULL;",
        "        if (had) memcpy(b + most - had, it->data - had, (size_t)had + it->stored);",
        "        start = b += most - n;",
        "    }",
    ]
    for i, h in enumerate(headers):
        lvalue = layout.header(h.name)
        size = header_bytes(lvalue, h.type)
        out.append(f"    if ({lvalue}.valid) {{")
        if h.name in ends:
            out.append(f"        const int placed = end{i} == ({ends[h.name]});")
            lines = _write_kept(lvalue, h.type, "b", lvalue.replace("p->", "was->", 1))
        else:
            lines = write_header(lvalue, h.type, "b")
        if any("ss_put_bits" in line or "ss_put_wide" in line for line in lines) or h.type.varbit:
            out.append(f"        memset(b, 0, {size});")
        out += [f"        {line}" for line in lines]
        out.append(f"        b += {size};\n    }}")
    out += [
        "    (void)p;",
        "    if (!had && it->stored && b != it->data) memcpy(b, it->data, it->stored);",
        "    *stored = n + it->stored;",
        "    n += it->length;",
        "    *length = n < it->truncate ? n : it->truncate;",
        "    return start;\n}",
    ]
    return "\n".join(out) + "\n"
