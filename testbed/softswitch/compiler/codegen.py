"""Puts the C translation unit of a program together."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.softswitch.compiler.bmv2_program import Bmv2Program, Json
from testbed.softswitch.compiler.build import C_SOURCES, read_c
from testbed.softswitch.compiler.codegen_action import ActionWriter
from testbed.softswitch.compiler.codegen_ahead import AheadWriter
from testbed.softswitch.compiler.codegen_calculation import calculations, checksums, learning
from testbed.softswitch.compiler.codegen_control import ControlWriter, TableLayout
from testbed.softswitch.compiler.codegen_headers import deparser, field_lists, intrinsics
from testbed.softswitch.compiler.codegen_parser import ParserWriter
from testbed.softswitch.compiler.codegen_registers import RegisterPlace, places, register_tables
from testbed.softswitch.compiler.layout import FieldRef, Layout

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
    uint8_t exit, original, kind, checksum_error;
    struct phv p;
};
"""


@dataclass(frozen=True)
class Generated:
    """C text, the layouts of rows and registers the control side needs, the lines of asserts."""

    code: str
    tables: dict[str, TableLayout]
    registers: dict[str, RegisterPlace]
    asserts: list[str]


_COPYING = ("clone", "resubmit", "recirculate")


def makes_copies(program: Bmv2Program) -> bool:
    """Whether a packet may leave more than once or go round again: clones, multicast and so on."""
    operations: list[Json] = [p for a in program.actions.values() for p in a.primitives]
    for state in program.parser["parse_states"]:
        operations += state["parser_ops"]
    return any(_copies(program, operation) for operation in operations)


def _copies(program: Bmv2Program, operation: Json) -> bool:
    name, arguments = operation["op"], operation["parameters"]
    if name == "primitive":
        return _copies(program, arguments[0])
    if any(word in name for word in _COPYING):
        return True
    if not arguments or name in ("drop", "mark_to_drop"):  # these set the group to none
        return False
    target = arguments[0]
    if isinstance(target, dict) and target.get("type") in ("header", "regular"):
        header = program.headers.get(target["value"])
        return header is not None and any(f.name == "mcast_grp" for f in header.type.fields)
    return "mcast_grp" in str(target)


def generate(program: Bmv2Program, observed: tuple[str, str] | None) -> Generated:
    """C of a whole program. ``observed`` is the (header, field) reported per packet."""
    layout = Layout(program)
    ref: FieldRef | None = layout.field(*observed) if observed else None
    calc_code, calc_names = calculations(layout)
    actions = ActionWriter(layout, calc_names)
    control = ControlWriter(layout, actions)
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
        field_lists(layout),
        calc_code,
        checksums(layout, calc_names),
        learning(layout),
        parser,
        action_code,
        control.selectors(),
        *(control.pipeline(p) for p in program.pipelines.values()),
        deparser(layout, actions.deparser()),
        AheadWriter(layout, actions, control).write(),
        read_c(C_SOURCES / "pass.h"),
        read_c(C_SOURCES / ("copies.h" if makes_copies(program) else "straight.h")),
        read_c(C_SOURCES / "control.h"),
    ]
    return Generated("\n".join(parts), control.tables, places(program), actions.asserts)
