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
"""The most entries of a table, members of an action profile, or values of a value set."""

Entries = Annotated[int, Between(0, MAX_ENTRIES)]
Ids = Many[Id]


@dataclass(frozen=True)
class Key:
    """A field of a table's key: its match kind, its field, and a mask if it is a slice."""

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
    """The action that a table runs if no entry matches, and whether it may be changed."""

    action_id: Id
    action_data: Many[Hex]
    action_const: Flag = False
    action_entry_const: Flag = False


@dataclass(frozen=True)
class ExactMatch:
    """An exact match: a value, or for the validity of a header ``true`` or ``false``."""

    match_type: Name
    key: Hex | Flag


@dataclass(frozen=True)
class LpmMatch:
    """A longest-prefix match: a value and the length of its prefix in bits."""

    match_type: Name
    key: Hex
    prefix_length: Annotated[int, Between(0, MAX_BITS)]


@dataclass(frozen=True)
class TernaryMatch:
    """A ternary match: a value and the mask of its significant bits."""

    match_type: Name
    key: Hex
    mask: Hex


@dataclass(frozen=True)
class RangeMatch:
    """A range match: the first and the last value, both included."""

    match_type: Name
    start: Hex
    end: Hex


@dataclass(frozen=True)
class OptionalMatch:
    """An optional match: a value, or any value if the mask is 0."""

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
    """A const entry that the program declares: its match, its action and its priority."""

    match_key: Many[Match]
    action_entry: EntryAction
    priority: Id | None = None


@dataclass(frozen=True)
class Table:
    """A match-action table: its key, actions, size, next nodes and const entries."""

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
    """An if statement of a control block, with the next node for either result."""

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
    """A control block: its tables, conditions and calls, and the first of these nodes."""

    name: Name
    tables: Many[Table]
    init_table: Name | None = None
    conditionals: Many[Conditional] = ()
    action_calls: Many[ActionCall] = ()
    action_profiles: Many[ActionProfile] = ()
