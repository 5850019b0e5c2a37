"""Puts the C translation unit of a program together."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.softswitch.compiler.bmv2_program import DROP_PORT, Bmv2Program
from testbed.softswitch.compiler.build import C_SOURCES, read_c
from testbed.softswitch.compiler.codegen_action import ActionWriter
from testbed.softswitch.compiler.codegen_calculation import calculations, checksums, learning
from testbed.softswitch.compiler.codegen_control import ControlWriter, TableLayout
from testbed.softswitch.compiler.codegen_headers import deparser, field_lists, intrinsics
from testbed.softswitch.compiler.codegen_parser import ParserWriter
from testbed.softswitch.compiler.layout import FieldRef, Layout

ITEM = """
struct ss_item { /* a packet on its way */
    ss_item *next;
    const uint8_t *data;     /* whole packet, after parsing the payload */
    uint32_t length;         /* of data */
    uint32_t port, egress_port;
    uint32_t reg_length;     /* BMv2's packet length register */
    uint32_t arrival_length; /* length when it entered ingress */
    uint32_t counted_length; /* what byte counters add */
    uint32_t truncate, limit;
    uint32_t error;
    uint16_t clone, clone_list, learn, resubmit, recirculate;
    uint8_t exit, original, kind, checksum_error;
    struct phv p;
};
"""


@dataclass(frozen=True)
class Generated:
    """C text, the row layouts the control side needs, and the lines of asserts."""

    code: str
    tables: dict[str, TableLayout]
    asserts: list[str]


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
        read_c(C_SOURCES / "tables.h"),
        read_c(C_SOURCES / "switch.h"),
        layout.definition(),
        ITEM,
        intrinsics(layout, ref),
        f"#define SS_NO_ERROR {program.errors['NoError']}\n#define SS_DROP_PORT {DROP_PORT}\n",
        field_lists(layout),
        calc_code,
        checksums(layout, calc_names),
        learning(layout),
        parser,
        action_code,
        control.selectors(),
        *(control.pipeline(p) for p in program.pipelines.values()),
        deparser(layout),
        control.infos(),
        read_c(C_SOURCES / "process.h"),
        read_c(C_SOURCES / "control.h"),
    ]
    return Generated("\n".join(parts), control.tables, actions.asserts)
