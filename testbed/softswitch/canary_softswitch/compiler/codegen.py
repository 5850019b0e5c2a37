# SPDX-License-Identifier: Apache-2.0
"""Assembles the C translation unit of a program from the parts that the generators write."""

from __future__ import annotations

from typing import Any

from canary_softswitch.compiler import schema
from canary_softswitch.compiler import schema_values as values
from canary_softswitch.compiler.bmv2_json import Parsed
from canary_softswitch.compiler.bmv2_program import Bmv2Program
from canary_softswitch.compiler.build import C_SOURCES, read_c
from canary_softswitch.compiler.codegen_action import ActionWriter
from canary_softswitch.compiler.codegen_calculation import calculations, checksums, learning
from canary_softswitch.compiler.codegen_control import ControlWriter
from canary_softswitch.compiler.codegen_deparser import deparser
from canary_softswitch.compiler.codegen_headers import field_lists, intrinsics
from canary_softswitch.compiler.codegen_parser import ParserWriter
from canary_softswitch.compiler.codegen_stacks import StackWriter
from canary_softswitch.compiler.layout import FieldRef, Layout
from canary_softswitch.compiler.rows import Generated, places, register_tables
from canary_softswitch.errors import InvalidProgram

ITEM = """
struct ss_item { /* a packet on its way */
    ss_item *next;
    const uint8_t *data;     /* whole packet, after parsing the payload */
    uint8_t *room;           /* from here on to the packet's end may be overwritten; or NULL */
    uint32_t length;         /* of data */
    uint32_t stored;         /* bytes of data that exist */
    uint32_t port, egress_port, priority;
    uint32_t reg_length;     /* BMv2's packet length register */
    uint32_t arrival_length; /* length when it entered ingress */
    uint32_t counted_length; /* what byte counters add */
    uint32_t deq_timedelta, deq_qdepth; /* what egress reads of its wait */
    uint32_t truncate, limit;
    uint32_t error;
    uint16_t clone, clone_list, learn, resubmit, recirculate;
    uint16_t left; /* where the program for its stack of headers ended, and that for all goes on */
    uint8_t exit, original, kind, checksum_error;
    struct phv p;
};
"""

MAX_CODE = 8 << 20
"""The most bytes of C that a program may become."""


_COPYING = ("clone", "resubmit", "recirculate")


def makes_copies(program: Bmv2Program, root: schema.Root) -> bool:
    """Return True if a packet may leave twice or pass again: clone, multicast, recirculate, ..."""
    calls: list[Any] = [p for a in root.actions for p in a.primitives]
    for state in root.parsers[0].parse_states:
        calls += state.parser_ops
    return any(_copies(program, call) for call in calls)


def _copies(program: Bmv2Program, call: Any) -> bool:
    if isinstance(call, values.OtherCall):  # is refused
        return False
    if call.op == "primitive":
        return _copies(program, call.parameters[0])
    if any(word in call.op for word in _COPYING):
        return True
    if not call.parameters or call.op in ("drop", "mark_to_drop"):  # these set the group to none
        return False
    match call.parameters[0]:
        case values.HeaderValue(value=name) | values.IntoHeader(value=name):
            header = program.headers.get(name)
            return header is not None and header.type.find("mcast_grp") >= 0
        case values.FieldValue(value=(_, name)):
            return "mcast_grp" in name
        case _:
            return False


def generate(parsed: Parsed, observed: tuple[str, str] | None) -> Generated:
    """Return the C of a whole program. ``observed`` is the (header, field) reported per packet."""
    program, root = parsed.program, parsed.root
    layout = Layout(program, root)
    ref: FieldRef | None = layout.field(*observed) if observed else None
    calc_code, calc_names = calculations(layout)
    actions = ActionWriter(layout, calc_names)
    copies = makes_copies(program, root)
    stacks = None if copies else StackWriter(layout)
    control = ControlWriter(layout, actions, stacks.headers if stacks else frozenset())
    parser = ParserWriter(layout, actions).write()
    action_code = "".join(actions.action(a) for a in program.actions.values())
    parts = [
        read_c(C_SOURCES / "runtime.h"),
        read_c(C_SOURCES / "meters.h"),
        read_c(C_SOURCES / "tables.h"),
        control.infos(),
        register_tables(program),
        read_c(C_SOURCES / "switch.h"),
        read_c(C_SOURCES / "log.h"),
        layout.definition(),
        ITEM,
        intrinsics(layout, ref),
        f"#define SS_NO_ERROR {program.errors['NoError']}\n",
        f"#define SS_DROP_PORT {program.drop_port}\n",
        f"#define SS_ASSERTS {len(actions.asserts)}\n",
        field_lists(layout),
        calc_code,
        checksums(layout, calc_names, stacks),
        learning(layout),
        parser,
        stacks.write() if stacks else "",
        action_code,
        control.selectors(),
        *control.pipelines(),
        deparser(layout, actions.deparser(), stacks),
        read_c(C_SOURCES / "pass.h"),
        read_c(C_SOURCES / ("copies.h" if copies else "straight.h")),
        read_c(C_SOURCES / "control.h"),
    ]
    code = "\n".join(parts)
    if len(code) > MAX_CODE:
        raise InvalidProgram(f"it needs {len(code)} bytes of C (at most {MAX_CODE})")
    return Generated(code, control.tables, places(program), actions.asserts)
