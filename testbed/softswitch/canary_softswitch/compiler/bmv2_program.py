# SPDX-License-Identifier: Apache-2.0
"""A v1model program as a running switch needs it: names, widths, sizes and tables.

Its parser, expressions and primitives are in the records of ``schema``, which only the code
generators read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from canary_softswitch.errors import SoftSwitchError, unknown_name

VALID = "$valid$"
DROP_PORT = 511  # simple_switch's, unless told otherwise


@dataclass(frozen=True)
class FieldType:
    """One field of a header type; ``offset`` is in bits from the start of the header.

    A value assigned to a ``saturating`` field is limited to its range. A ``varbit`` field has at
    most ``width`` bits; the offsets of the fields behind it do not include it.
    """

    name: str
    width: int
    signed: bool
    offset: int
    varbit: bool = False
    saturating: bool = False


@dataclass(frozen=True)
class HeaderType:
    """A header or metadata layout; ``width`` in bits, without those of a varbit field."""

    name: str
    fields: tuple[FieldType, ...]
    width: int

    @cached_property
    def varbit(self) -> FieldType | None:
        """Return the field of variable length, of which a header has at most one, or None."""
        return next((f for f in self.fields if f.varbit), None)

    @property
    def max_bytes(self) -> int:
        """Return the number of bytes of the longest header of this type."""
        return (self.width + (self.varbit.width if self.varbit else 0)) // 8

    @cached_property
    def _places(self) -> dict[str, int]:
        return {f.name: i for i, f in reversed([*enumerate(self.fields)])}

    def find(self, name: str) -> int:
        """Return the index, from 0, of the field called ``name``, -1 when there is none."""
        return self._places.get(name, -1)


@dataclass(frozen=True)
class Header:
    """A header instance; members of a stack or union know it and their place in it."""

    index: int
    name: str
    type: HeaderType
    metadata: bool
    stack: str = ""
    union: str = ""
    place: int = 0


@dataclass(frozen=True)
class Stack:
    """A header stack and the names of its headers, in order."""

    index: int
    name: str
    type: HeaderType
    headers: tuple[str, ...]


@dataclass(frozen=True)
class UnionType:
    """Header types of which one at a time is valid: (name, type) of the members."""

    index: int
    name: str
    members: tuple[tuple[str, HeaderType], ...]


@dataclass(frozen=True)
class Union:
    """A header union; one in a stack knows its stack and place in it."""

    index: int
    name: str
    type: UnionType
    stack: str = ""
    place: int = 0


@dataclass(frozen=True)
class UnionStack:
    """A stack of ``size`` header unions of one type."""

    index: int
    name: str
    type: UnionType
    size: int


@dataclass(frozen=True)
class KeyField:
    """One element of a table key. ``width`` in bits; ``mask`` is the P4 slice mask or None."""

    name: str
    match: str
    width: int
    target: tuple[str, str]
    mask: int | None = None


@dataclass(frozen=True)
class Action:
    """An action with its run-time parameters (name, width in bits).

    ``id`` is its index among the program's actions, which may differ from its id in the JSON.
    """

    id: int
    name: str
    params: tuple[tuple[str, int], ...]
    source: str


@dataclass(frozen=True)
class DefaultEntry:
    """The default action of a table in the program, and whether it may be changed."""

    action_id: int
    data: tuple[int, ...]
    action_const: bool
    entry_const: bool


@dataclass(frozen=True)
class ConstEntry:
    """An entry that the program gives a table, with match elements as ``Table.add`` takes them.

    ``priority``: of a table with ternary keys, where the smaller wins; else 0.
    """

    match: tuple[Any, ...]
    priority: int
    action_id: int
    data: tuple[int, ...]


@dataclass(frozen=True)
class TableDef:
    """A match-action table as the JSON describes it."""

    index: int
    name: str
    pipeline: str
    match_type: str
    kind: str  # simple, indirect, indirect_ws
    key: tuple[KeyField, ...]
    max_size: int
    counters: bool
    meter: str  # its direct meter or ""
    aged: bool  # entries can time out
    action_ids: tuple[int, ...]
    next_tables: dict[str, str | None]
    base_default_next: str | None
    default: DefaultEntry | None
    entries: tuple[ConstEntry, ...] | None
    profile: str
    source: str


@dataclass(frozen=True)
class Profile:
    """An action profile; if it has groups, ``selector`` is the name of the hash, else None."""

    index: int
    name: str
    max_size: int
    selector: str | None


@dataclass(frozen=True)
class Pipeline:
    """The ingress or egress control block and its tables."""

    name: str
    tables: tuple[TableDef, ...]


@dataclass(frozen=True)
class Register:
    """A register array; ``width`` in bits, ``size`` in elements."""

    index: int
    name: str
    width: int
    size: int


@dataclass(frozen=True)
class Counter:
    """An indirect counter array of ``size`` elements."""

    index: int
    name: str
    size: int


@dataclass(frozen=True)
class Meter:
    """An array of ``size`` meters, which count bytes or packets."""

    index: int
    name: str
    size: int
    bytes: bool


@dataclass(frozen=True)
class DirectMeter:
    """A meter of each entry of a table; a hit writes its colour into ``target``."""

    name: str
    table: str
    bytes: bool
    target: tuple[str, str]


@dataclass(frozen=True)
class ValueSet:
    """A parser value set: values of ``width`` bits, all fields of a select side by side."""

    index: int
    name: str
    width: int
    size: int


@dataclass(frozen=True)
class Constant:
    """A constant in a field list: a number of ``width`` bits."""

    value: int
    width: int


@dataclass(frozen=True)
class FieldList:
    """A list of (header, field): of a digest, with constants, or kept over a clone or resubmit."""

    id: int
    name: str
    elements: tuple[tuple[str, str] | Constant, ...]


@dataclass
class Bmv2Program:
    """The objects of a P4 program by name or number, as read from a BMv2 JSON file."""

    path: str
    drop_port: int = DROP_PORT
    header_types: dict[str, HeaderType] = field(default_factory=dict)
    headers: dict[str, Header] = field(default_factory=dict)
    stacks: dict[str, Stack] = field(default_factory=dict)
    union_types: dict[str, UnionType] = field(default_factory=dict)
    unions: dict[str, Union] = field(default_factory=dict)
    union_stacks: dict[str, UnionStack] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    actions: dict[int, Action] = field(default_factory=dict)
    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    profiles: dict[str, Profile] = field(default_factory=dict)
    registers: dict[str, Register] = field(default_factory=dict)
    counters: dict[str, Counter] = field(default_factory=dict)
    direct_counters: dict[str, str] = field(default_factory=dict)
    meters: dict[str, Meter] = field(default_factory=dict)
    direct_meters: dict[str, DirectMeter] = field(default_factory=dict)
    value_sets: dict[str, ValueSet] = field(default_factory=dict)
    learn_lists: dict[int, FieldList] = field(default_factory=dict)
    field_lists: dict[int, FieldList] = field(default_factory=dict)
    aliases: dict[str, tuple[str, str]] = field(default_factory=dict)
    calculations: dict[str, str] = field(default_factory=dict)  # algorithm of each hash

    @property
    def custom_crcs(self) -> dict[str, int]:
        """Return the width in bits of each hash that is a CRC with settable parameters, by name."""
        bits = {"crc16_custom": 16, "crc32_custom": 32}
        return {name: bits[algo] for name, algo in self.calculations.items() if algo in bits}

    @property
    def tables(self) -> list[TableDef]:
        """Return the tables of all control blocks, in the order of their indices."""
        return [t for p in self.pipelines.values() for t in p.tables]

    def field_type(self, header: str, name: str) -> FieldType:
        """Return the type of a field, which must exist; ``$valid$`` is a one-bit field."""
        if name == VALID:
            return FieldType(VALID, 1, False, 0)
        t = self.headers[header].type
        return t.fields[t.find(name)]

    def sampled(self, element: tuple[str, str] | Constant) -> tuple[str, int]:
        """Return the name and the width in bits of an element in the samples of a digest."""
        if isinstance(element, Constant):
            return "constant", element.width
        return plain_name(element[1]), self.field_type(*element).width

    def intrinsic(self, name: str) -> tuple[str, str] | None:
        """Return the (header, field) of an intrinsic metadata field by its BMv2 name, or None."""
        if name in self.aliases:
            return self.aliases[name]
        header, _, member = name.partition(".")
        if header in self.headers and self.headers[header].type.find(member) >= 0:
            return header, member
        return None


def plain_name(name: str) -> str:
    """Return the P4 name of a flattened metadata field: no ``meta._a_b7`` decoration."""
    last = name.split(".")[-1]
    match = re.fullmatch(r"_(.*?)\d+", last)
    return match.group(1) if match else last


def resolve_field(program: Bmv2Program, name: str) -> tuple[str, str]:
    """Return (header, field) of a field named as in the JSON, or by its P4 name if unambiguous."""
    exact, loose = [], []
    wanted = name.split(".")
    tails = {"_".join(wanted[i:]) for i in range(min(len(wanted), 2))}
    for h in program.headers.values():
        for f in h.type.fields:
            full = f"{h.name}.{f.name}"
            if name == full:
                return h.name, f.name
            if full.endswith("." + name) or f.name == name:
                exact.append((h.name, f.name))
            elif h.metadata and plain_name(f.name) in tails:
                loose.append((h.name, f.name))
    found = list(dict.fromkeys(exact or loose))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(".".join(x) for x in found[:6])
        raise SoftSwitchError(f"field {name!r} is ambiguous: {names}")
    raise unknown_name(
        "field",
        name,
        [f"{h.name}.{f.name}" for h in program.headers.values() for f in h.type.fields],
    )
