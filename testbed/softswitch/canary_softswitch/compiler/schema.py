# SPDX-License-Identifier: Apache-2.0
"""Records of BMv2's JSON, with the type and the bounds of every value that is read.

A value is a number within bounds, a name that must be defined elsewhere in the file, or an
expression. Other keys are ignored, as in BMv2. ``bmv2_json.parse`` validates a file against these
records with pydantic.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from canary_softswitch.compiler.schema_rules import (
    Between,
    Flag,
    FlagOrBit,
    Hex,
    Id,
    Kinds,
    Many,
    Name,
    Named,
    Record,
    Row,
)
from canary_softswitch.compiler.schema_tables import Entries, Ids, Pipeline
from canary_softswitch.compiler.schema_values import (
    FieldPath,
    ParserOperation,
    Primitive,
    Sourced,
    Value,
    Width,
)

MAX_DEPTH = 400
"""The most levels of nested arrays and objects."""
MAX_CELLS = 1 << 31
"""The most elements of a register, counter or meter array."""

Cells = Annotated[int, Between(0, MAX_CELLS)]
Names = Many[Name]
ListId = Annotated[int, Between(0, (1 << 16) - 1)]
"""The id of a field list or a digest, which a packet carries in 16 bits."""


class Field(Named):
    """A field of a header type; its width is ``*`` if packets differ in it."""

    width: Width | Literal["*"]
    signed: FlagOrBit = False
    saturating: Flag = False


class HeaderType(Named, Sourced):
    """A layout of headers or metadata. ``max_length`` in bytes.

    ``length_exp``: the bits of the field of variable length, where ``local`` values are the
    header's own fields by number. Without it, each extraction gives them.
    """

    fields: Many[Annotated[Field, Row]]
    max_length: Width | None = None
    length_exp: Value | None = None


class Header(Named):
    """An instance of a header type: a header of the packet, or metadata."""

    id: Id
    header_type: Name
    metadata: Flag = False


class HeaderStack(Named):
    """A stack, and the headers it consists of."""

    header_type: Name
    header_ids: Ids


class HeaderUnionType(Named):
    """Members of header unions: name and header type."""

    headers: Many[tuple[Name, Name]]


class HeaderUnion(Named):
    """A header union, and the headers it consists of."""

    id: Id
    union_type: Name
    header_ids: Ids


class HeaderUnionStack(Named):
    """A stack of header unions, and the unions it consists of."""

    union_type: Name
    header_union_ids: Ids


class Extern(Named, Sourced):
    """An instance of an extern object, which this switch does not support."""


# ---- parser and deparser ----


class ValueSet(Named, Sourced):
    """A parser value set; ``compressed_bitwidth`` is the width of its values."""

    compressed_bitwidth: Width
    max_size: Entries | None = None


class DefaultTransition(Record):
    """The transition that the parser takes if no other one matches."""

    next_state: Name | None


class ValueTransition(Record):
    """The transition that the parser takes for a value of the transition key."""

    value: Hex
    next_state: Name | None
    mask: Hex | None = None


class SetTransition(Record):
    """The transition that the parser takes for the values of a value set."""

    value: Name
    next_state: Name | None
    mask: Hex | None = None


class OtherTransition(Record):
    """A transition of a type that is not supported."""

    type: Name


def _kind_of_transition(data: Any) -> Any:
    if not isinstance(data, dict):
        return None
    return "default" if data.get("value") == "default" else data.get("type") or "hexstr"


Transition = Annotated[
    DefaultTransition | ValueTransition | SetTransition | OtherTransition,
    Kinds(
        {"default": DefaultTransition, "hexstr": ValueTransition, "parse_vset": SetTransition},
        OtherTransition,
        _kind_of_transition,
    ),
]


class ParseState(Named):
    """A state of the parser: its operations and its transitions to other states."""

    parser_ops: Many[ParserOperation]
    transition_key: Many[Value]
    transitions: Many[Transition]


class Parser(Record):
    """The parser: its states and the name of the first one."""

    parse_states: Many[ParseState]
    init_state: Name | None = None


class Deparser(Record):
    """The headers in the order in which they are sent, and the primitives that run before."""

    order: Names
    primitives: Many[Primitive] = ()


# ---- actions and state ----


class RunTimeParameter(Named):
    """A parameter that a table entry gives to an action."""

    bitwidth: Width


class Action(Named, Sourced):
    """An action: its run-time parameters and its primitives, which run in order."""

    id: Id
    runtime_data: Many[RunTimeParameter]
    primitives: Many[Primitive]


class RegisterArray(Named, Sourced):
    """An array of ``size`` registers of ``bitwidth`` bits each."""

    size: Cells
    bitwidth: Width


class CounterArray(Named):
    """An array of counters, or the direct counters of the table ``binding``."""

    size: Cells | None = None
    is_direct: Flag = False
    binding: Name | None = None


class MeterArray(Named, Sourced):
    """An array of meters, or the direct meters of the table ``binding``, which write a field."""

    type: Name
    rate_count: Id
    size: Cells | None = None
    is_direct: Flag = False
    binding: Name | None = None
    result_target: FieldPath | None = None


class Calculation(Named, Sourced):
    """A hash calculation: its algorithm and its input values."""

    algo: Name
    input: Many[Value]


class Checksum(Sourced):
    """A field that a hash is compared with or written to."""

    type: Name
    target: FieldPath
    calculation: Name
    if_cond: Value | None = None
    verify: Flag = True
    update: Flag = True


class FieldList(Sourced):
    """Fields of a digest, or those that a copy of a packet keeps."""

    id: ListId
    name: Name
    elements: Many[Value]


# ---- all of it ----


class Root(Record):
    """The top-level object of a BMv2 JSON file."""

    header_types: Many[HeaderType]
    headers: Many[Header]
    parsers: Many[Parser]
    deparsers: Many[Deparser]
    actions: Many[Action]
    pipelines: Many[Pipeline]
    header_stacks: Many[HeaderStack] = ()
    header_union_types: Many[HeaderUnionType] = ()
    header_unions: Many[HeaderUnion] = ()
    header_union_stacks: Many[HeaderUnionStack] = ()
    errors: Many[tuple[Name, Id]] = ()
    field_aliases: Many[tuple[Name, FieldPath]] = ()
    extern_instances: Many[Extern] = ()
    parse_vsets: Many[ValueSet] = ()
    register_arrays: Many[RegisterArray] = ()
    counter_arrays: Many[CounterArray] = ()
    meter_arrays: Many[MeterArray] = ()
    calculations: Many[Calculation] = ()
    checksums: Many[Checksum] = ()
    learn_lists: Many[FieldList] = ()
    field_lists: Many[FieldList] = ()
