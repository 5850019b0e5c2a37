# SPDX-License-Identifier: Apache-2.0
"""Writes C that copies fields between a packet's bytes and the packet header vector."""

from __future__ import annotations

from canary_softswitch.compiler.bmv2_program import VALID, Constant, HeaderType
from canary_softswitch.compiler.layout import FieldRef, Layout
from canary_softswitch.compiler.nodes import literal
from canary_softswitch.errors import UnsupportedProgram


def read_bits(buffer: str, bit: int, width: int, size: int = 0) -> str:
    """Return the C expression of ``width`` (at most 128) bits at a bit offset of a buffer.

    ``size``: bytes that the buffer surely has; 5 to 7 bytes are read as 8 where it has so many.
    """
    first, last = bit // 8, (bit + width - 1) // 8
    if 5 <= last - first + 1 < 8 <= size:
        first = min(first, size - 8)
        last = first + 7
    n = last - first + 1
    if n > 16:
        return f"ss_get_bits({buffer}, {bit}, {width})"
    load = f"ss_ld({buffer} + {first}, {n})" if n <= 8 else f"ss_ld128({buffer} + {first}, {n})"
    down = 8 * (last + 1) - bit - width
    if down:
        load = f"({load} >> {down})"
    if width != 8 * n - down:
        load = f"({load} & {literal((1 << width) - 1, 64 if n <= 8 else 128)})"
    return load


def extract(header: str, t: HeaderType, buffer: str, length: list[str]) -> list[str]:
    """Return C statements that fill a header from a buffer, except its validity.

    ``length``: statements that set the length of the varbit field, from the fields before it.
    """
    out = []
    for i, f in enumerate(t.fields):
        target = f"{header}.f{i}"
        if f.varbit:
            out += length
            out.append(f"ss_get_bytes({target}, {buffer}, {f.offset}, {header}.v);")
            buffer = f"({buffer} + {header}.v)"
        elif f.width > 128:
            if f.offset % 8 == 0 and f.width % 8 == 0:
                out.append(f"memcpy({target}, {buffer} + {f.offset // 8}, {f.width // 8});")
            else:
                out.append(f"ss_get_wide({target}, {buffer}, {f.offset}, {f.width});")
        elif f.width:
            size = 0 if t.varbit else t.width // 8
            out.append(f"{target} = {read_bits(buffer, f.offset, f.width, size)};")
    return out


def write_header(header: str, t: HeaderType, buffer: str) -> list[str]:
    """Return the C statements that write the fields of a header."""
    values = [(f"{header}.f{i}", f.width, f.width > 128) for i, f in enumerate(t.fields)]
    if not t.varbit:
        return write_values(values, buffer)
    at = t.fields.index(t.varbit)
    bit, size = t.varbit.offset, f"{header}.v"
    return [
        *write_values(values[:at], buffer),
        f"ss_put_bytes({buffer}, {bit}, {header}.f{at}, {size});",
        *write_values(values[at + 1 :], f"({buffer} + {size})", bit),
    ]


def write_values(values: list[tuple[str, int, bool]], buffer: str, first: int = 0) -> list[str]:
    """Return C statements that write (C value, width, wide) consecutively from bit ``first``.

    The buffer must be zero wherever a group of values does not fill whole bytes.
    """
    out: list[str] = []
    group: list[tuple[str, int, bool]] = []
    start = bit = first
    for value, width, wide in values:
        if wide:
            out += _write_group(group, start, buffer)
            group = []
            if bit % 8 == 0 and width % 8 == 0:
                out.append(f"memcpy({buffer} + {bit // 8}, {value}, {width // 8});")
            else:
                out.append(f"ss_put_wide({buffer}, {bit}, {value}, {width});")
            bit += width
            start = bit
            continue
        if width:
            group.append((value, width, wide))
        bit += width
        if bit % 8 == 0:
            out += _write_group(group, start, buffer)
            group, start = [], bit
    return out + _write_group(group, start, buffer)


def _write_group(group: list[tuple[str, int, bool]], start: int, buffer: str) -> list[str]:
    if not group:
        return []
    total = sum(w for _, w, _ in group)
    if start % 8 or total % 8 or total > 128:
        out, bit = [], start
        for value, width, _ in group:
            out.append(f"ss_put_bits({buffer}, {bit}, {width}, {value});")
            bit += width
        return out
    ct, fn = ("uint64_t", "ss_st") if total <= 64 else ("u128", "ss_st128")
    left, parts = total, []
    for value, width, _ in group:
        left -= width
        parts.append(f"({ct})({value})" + (f" << {left}" if left else ""))
    return [f"{fn}({buffer} + {start // 8}, {total // 8}, {' | '.join(parts)});"]


def copy_field(to: FieldRef, source: FieldRef) -> str:
    """Return the C statement that copies one field, from ``s->`` to ``d->``."""
    a, b = to.code.replace("p->", "d->", 1), source.code.replace("p->", "s->", 1)
    if to.length:
        n, m = to.length.replace("p->", "d->", 1), source.length.replace("p->", "s->", 1)
        return f"memcpy({a}, {b}, {m}); {n} = {m};"
    if to.wide:
        return f"memcpy({a}, {b}, {(to.width + 7) // 8});"
    return f"{a} = {b};"


def field_lists(layout: Layout) -> str:
    """Return the C function ``ss_copy_fields``, which copies the fields that a clone keeps.

    It also serves resubmit and recirculate.
    """
    out = [
        "static SS_UNUSED void ss_copy_fields(struct phv *d, const struct phv *s, uint32_t list) {",
        "    (void)d; (void)s;",
        "    switch (list) {",
    ]
    for fl in layout.program.field_lists.values():
        out.append(f"    case {fl.id}:")
        for e in fl.elements:
            if isinstance(e, Constant):  # a copy has it anyway
                continue
            ref = layout.field(*e)
            if ref.code != "1":
                out.append(f"        {copy_field(ref, ref)}")
        out.append("        break;")
    out.append("    default: break;\n    }\n}")
    return "\n".join(out) + "\n"


INTRINSIC = {
    "INGRESS_PORT": "standard_metadata.ingress_port",
    "PACKET_LENGTH": "standard_metadata.packet_length",
    "INSTANCE_TYPE": "standard_metadata.instance_type",
    "EGRESS_SPEC": "standard_metadata.egress_spec",
    "EGRESS_PORT": "standard_metadata.egress_port",
    "PARSER_ERROR": "standard_metadata.parser_error",
    "CHECKSUM_ERROR": "standard_metadata.checksum_error",
    "MCAST_GRP": "intrinsic_metadata.mcast_grp",
    "PRIORITY": "intrinsic_metadata.priority",
    "EGRESS_RID": "intrinsic_metadata.egress_rid",
    "INGRESS_TIMESTAMP": "intrinsic_metadata.ingress_global_timestamp",
    "EGRESS_TIMESTAMP": "intrinsic_metadata.egress_global_timestamp",
    "ENQ_TIMESTAMP": "queueing_metadata.enq_timestamp",
    "ENQ_QDEPTH": "queueing_metadata.enq_qdepth",
    "DEQ_TIMEDELTA": "queueing_metadata.deq_timedelta",
    "DEQ_QDEPTH": "queueing_metadata.deq_qdepth",
    "QID": "queueing_metadata.qid",
}


def intrinsics(layout: Layout, observed: FieldRef | None) -> str:
    """Return the C macros that read and write the intrinsic metadata of simple_switch."""
    out = []
    for macro, name in INTRINSIC.items():
        place = layout.program.intrinsic(name)
        if place is None:
            required = name.startswith("standard_metadata.") and "error" not in name
            if required:
                raise UnsupportedProgram(f"a program without {name} (not v1model?)")
            out.append(f"#define SET_{macro}(q, v) ((void)(v))")
            out.append(f"#define GET_{macro}(q) 0")
            continue
        ref = layout.field(*place)
        if ref.width > 64 or ref.length or place[1] == VALID:
            raise UnsupportedProgram(f"{name} in {'.'.join(place)}, which is no field of 64 bits")
        code = ref.code.replace("p->", "(q)->", 1)
        mask = literal((1 << ref.width) - 1, 64)
        out.append(f"#define SET_{macro}(q, v) ({code} = (v) & {mask})")
        out.append(f"#define GET_{macro}(q) ((uint32_t){code})")
    code = observed.code.replace("p->", "(q)->", 1) if observed else "0"
    out.append(f"#define SS_OBSERVED(q) ((uint64_t){code})")
    return "\n".join(out) + "\n"
