# SPDX-License-Identifier: Apache-2.0
"""Records of the values, expressions and calls in BMv2's JSON."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from canary_softswitch.compiler.schema_rules import (
    MAX_BITS,
    Between,
    Empty,
    Flag,
    Hex,
    Id,
    Kinds,
    Many,
    Name,
    NameValue,
    Record,
    Text,
)
from canary_softswitch.errors import one_line

Width = Annotated[int, Between(0, MAX_BITS)]
Offset = Annotated[int, Between(0, 1 << 20)]
"""An offset in a packet, in bits or bytes."""
FieldPath = tuple[Name, Name]
"""The names of a header and of one of its fields."""


class SourceInfo(Record):
    """The file and line of a construct in the P4 program."""

    filename: Text = ""
    line: Id | None = None


class Sourced(Record):
    """A construct of the P4 program that messages can point to."""

    source_info: SourceInfo | None = field(default=None, kw_only=True)


def source_of(record: Sourced, form: str = "{}:{}") -> str:
    """Return the file and line of a record in a form, or an empty string."""
    info = record.source_info
    if info is None or (not info.filename and info.line is None):
        return ""
    return form.format(one_line(info.filename) or "?", "?" if info.line is None else info.line)


# ---- values ----


class FieldValue(Record):
    """A field of a header, by the names of both."""

    value: FieldPath


class StackFieldValue(Record):
    """A field of the last header of a stack."""

    value: FieldPath


class UnionStackFieldValue(Record):
    """A field of a member of the last header union of a stack."""

    value: tuple[Name, Name, Name]


class HexValue(Record):
    """An integer constant, which may have a width in bits."""

    value: Hex
    bitwidth: Width | None = None


class BoolValue(Record):
    """A constant of type bool: ``true`` or ``false``."""

    value: Flag


class ParameterValue(Record):
    """A run-time parameter of the action, by its index."""

    value: Id


class HeaderValue(NameValue):
    """A header, or a header union that is in a stack."""


class UnionValue(NameValue):
    """A header union that is not in a stack, by its name."""


class StackValue(NameValue):
    """A stack of headers or of header unions."""


class LookaheadValue(Record):
    """Bits of the packet that are not parsed yet: offset and width, in bits."""

    value: tuple[Offset, Annotated[int, Between(1, MAX_BITS)]]


class PayloadValue(Record):
    """The part of a packet behind its headers."""


class OtherValue(Record):
    """A value of a type that is not supported."""

    type: Name


class Operation(Record):
    """An operator and its operands; ``right`` may be the number of a field or member."""

    op: Name
    left: Value | None = None
    right: Value | None = None
    cond: Value | None = None


def _kind_of_value(data: Any) -> str | None:
    if isinstance(data, dict):
        return "operation" if "op" in data and "type" not in data else data.get("type")
    return "number" if isinstance(data, int) else None


VALUES: dict[str, Any] = {
    "field": FieldValue,
    "stack_field": StackFieldValue,
    "union_stack_field": UnionStackFieldValue,
    "hexstr": HexValue,
    "bool": BoolValue,
    "local": ParameterValue,
    "runtime_data": ParameterValue,
    "header": HeaderValue,
    "header_union": UnionValue,
    "header_stack": StackValue,
    "header_union_stack": StackValue,
    "lookahead": LookaheadValue,
    "payload": PayloadValue,
    "operation": Operation,
    "number": Id,
}
Value = Annotated[
    FieldValue
    | StackFieldValue
    | UnionStackFieldValue
    | HexValue
    | BoolValue
    | ParameterValue
    | HeaderValue
    | UnionValue
    | StackValue
    | LookaheadValue
    | PayloadValue
    | OtherValue
    | Operation
    | int,
    Kinds(VALUES, OtherValue, _kind_of_value),
]


def kind_of(value: Value | None) -> str:
    """Return what the JSON calls values of this kind."""
    if isinstance(value, OtherValue):
        return value.type
    names = {record: name for name, record in VALUES.items()}
    return names.get(type(value), "number" if isinstance(value, int) else "missing operand")


# ---- calls ----


class RegisterName(Record):
    """The name of a register array, as an argument of a call."""

    type: Literal["register_array"]
    value: Name


class CounterName(Record):
    """The name of a counter array, as an argument of a call."""

    type: Literal["counter_array"]
    value: Name


class MeterName(Record):
    """The name of a meter array, as an argument of a call."""

    type: Literal["meter_array"]
    value: Name


class CalculationName(Record):
    """The name of a hash calculation, as an argument of a call."""

    type: Literal["calculation"]
    value: Name


class Message(Record):
    """The text of a ``log_msg``, with placeholders."""

    type: Literal["string"]
    value: Text


class Numbers(Record):
    """The values that replace the placeholders of a ``log_msg``."""

    type: Literal["parameters_vector"]
    value: Annotated[Many[Value], Empty]


class IntoHeader(NameValue):
    """The target of an extraction: a header, by its name."""


class IntoStack(NameValue):
    """The target of an extraction: the next header of a stack."""


class IntoUnionStack(Record):
    """The target of an extraction: a member of the next header union of a stack."""

    value: tuple[Name, Name]


Extraction = Annotated[
    IntoHeader | IntoStack | IntoUnionStack | OtherValue,
    Kinds({"regular": IntoHeader, "stack": IntoStack, "union_stack": IntoUnionStack}, OtherValue),
]
Parameters = TypeVar("Parameters")


class Call(Sourced, Generic[Parameters]):
    """A primitive of an action or an operation of the parser, with its arguments."""

    op: Name
    parameters: Parameters


class OtherCall(Sourced):
    """A primitive or an operation of the parser that is not supported."""

    op: Name
    parameters: ClassVar[tuple[Any, ...]] = ()


_Constant = Annotated[HexValue, Kinds({"hexstr": HexValue})]
_None = Call[tuple[()]]
_One = Call[tuple[Value]]
_Two = Call[tuple[Value, Value]]
_Three = Call[tuple[Value, Value, Value]]
PRIMITIVES: dict[str, Any] = {
    "no_op": _None,
    "exit": _None,
    "drop": _None,
    "mark_to_drop": _One,
    "assign": _Two,
    "modify_field": _Two,
    "assign_VL": _Two,
    "assign_header": _Two,
    "copy_header": _Two,
    "assign_union": _Two,
    "assign_header_stack": _Two,
    "assign_union_stack": _Two,
    "add_to_field": _Two,
    "subtract_from_field": _Two,
    "add": _Three,
    "subtract": _Three,
    "bit_xor": _Three,
    "bit_or": _Three,
    "bit_and": _Three,
    "shift_left": _Three,
    "shift_right": _Three,
    "add_header": _One,
    "remove_header": _One,
    "push": _Two,
    "pop": _Two,
    "_jump": Call[tuple[_Constant]],
    "_jump_if_zero": Call[tuple[Value, _Constant]],
    "assert": _One,
    "assume": _One,
    "log_msg": Call[tuple[Message, Numbers]],
    "register_read": Call[tuple[Value, RegisterName, Value]],
    "register_write": Call[tuple[RegisterName, Value, Value]],
    "count": Call[tuple[CounterName, Value]],
    "execute_meter": Call[tuple[MeterName, Value, Value]],
    "modify_field_with_hash_based_offset": Call[tuple[Value, Value, CalculationName, Value]],
    "modify_field_rng_uniform": _Three,
    "generate_digest": _Two,
    "clone_ingress_pkt_to_egress": _Two,
    "clone_egress_pkt_to_egress": _Two,
    "resubmit": _One,
    "recirculate": _One,
    "truncate": _One,
}
Primitive = Annotated[Call[Any] | OtherCall, Kinds(PRIMITIVES, OtherCall, "op")]
PARSER_OPERATIONS: dict[str, Any] = {
    "extract": Call[tuple[Extraction]],
    "extract_VL": Call[tuple[Extraction, Value]],
    "set": _Two,
    "verify": _Two,
    "shift": Call[tuple[Offset]],
    "advance": _One,
    "primitive": Call[tuple[Primitive]],
}
ParserOperation = Annotated[Call[Any] | OtherCall, Kinds(PARSER_OPERATIONS, OtherCall, "op")]
