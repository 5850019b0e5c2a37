"""Records of tables and controls in BMv2's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from testbed.softswitch.compiler.schema_rules import (
    MAX_BITS,
    Between,
    Flag,
    Hex,
    Id,
    Kinds,
    Many,
    Name,
)
from testbed.softswitch.compiler.schema_values import FieldPath, SourceInfo, Value

MAX_ENTRIES = 1 << 28
"""Entries of a table, members of an action profile, values of a value set."""

Entries = Annotated[int, Between(0, MAX_ENTRIES)]
Ids = Many[Id]


@dataclass(frozen=True)
class Key:
    """A field of a table's key."""

    match_type: Name
    target: FieldPath
    name: Name | None = None
    mask: Hex | None = None


@dataclass(frozen=True)
class ValidKey:
    """The validity of a header as a field of a table's key."""

    target: Name
    name: Name | None = None
    mask: Hex | None = None


@dataclass(frozen=True)
class DefaultEntry:
    """What a table does if no entry matches."""

    action_id: Id
    action_data: Many[Hex]
    action_const: Flag = False
    action_entry_const: Flag = False


@dataclass(frozen=True)
class ExactMatch:
    """A value; of validity ``true`` or ``false``, too."""

    match_type: Name
    key: Hex | Flag


@dataclass(frozen=True)
class LpmMatch:
    """A prefix."""

    match_type: Name
    key: Hex
    prefix_length: Annotated[int, Between(0, MAX_BITS)]


@dataclass(frozen=True)
class TernaryMatch:
    """A value and the bits of it that count."""

    match_type: Name
    key: Hex
    mask: Hex


@dataclass(frozen=True)
class RangeMatch:
    """A first and a last value."""

    match_type: Name
    start: Hex
    end: Hex


@dataclass(frozen=True)
class OptionalMatch:
    """A value, or any if the mask is 0."""

    match_type: Name
    key: Hex
    mask: Hex = 1


Match = Annotated[
    ExactMatch | LpmMatch | TernaryMatch | RangeMatch | OptionalMatch,
    Kinds(
        {
            "exact": ExactMatch,
            "valid": ExactMatch,
            "lpm": LpmMatch,
            "ternary": TernaryMatch,
            "range": RangeMatch,
            "optional": OptionalMatch,
        },
        None,
        "match_type",
    ),
]


@dataclass(frozen=True)
class EntryAction:
    """The action of a table entry and its parameters."""

    action_id: Id
    action_data: Many[Hex]


@dataclass(frozen=True)
class Entry:
    """An entry that the program declares."""

    match_key: Many[Match]
    action_entry: EntryAction
    priority: Id | None = None


@dataclass(frozen=True)
class Table:
    """A match-action table."""

    name: Name
    match_type: Name
    type: Name
    key: Many[Annotated[Key | ValidKey, Kinds({"valid": ValidKey}, Key, "match_type")]]
    next_tables: dict[Name, Name | None]
    action_ids: Ids | None = None
    actions: Many[Name] | None = None
    max_size: Entries | None = None
    with_counters: Flag = False
    direct_meters: Name | None = None
    support_timeout: Flag = False
    base_default_next: Name | None = None
    default_entry: DefaultEntry | None = None
    entries: Many[Entry] | None = None
    action_profile: Name | None = None
    source_info: SourceInfo | None = None


@dataclass(frozen=True)
class Conditional:
    """An if of a control block."""

    name: Name
    expression: Value
    true_next: Name | None = None
    false_next: Name | None = None
    source_info: SourceInfo | None = None


@dataclass(frozen=True)
class ActionCall:
    """An action that a control block calls."""

    name: Name
    action_id: Id
    next_node: Name | None = None


@dataclass(frozen=True)
class Selector:
    """How a member of a group is chosen: by a hash."""

    algo: Name
    input: Many[Value]


@dataclass(frozen=True)
class ActionProfile:
    """An action profile, which has groups if it has a selector."""

    name: Name
    max_size: Entries
    selector: Selector | None = None


@dataclass(frozen=True)
class Pipeline:
    """A control block."""

    name: Name
    tables: Many[Table]
    init_table: Name | None = None
    conditionals: Many[Conditional] = ()
    action_calls: Many[ActionCall] = ()
    action_profiles: Many[ActionProfile] = ()
