# SPDX-License-Identifier: Apache-2.0
"""Records of tables and controls in BMv2's JSON."""

from __future__ import annotations

from typing import Annotated

from canary_softswitch.compiler.schema_rules import (
    MAX_BITS,
    Between,
    Flag,
    Hex,
    Id,
    Kinds,
    Many,
    Name,
    Named,
    Record,
)
from canary_softswitch.compiler.schema_values import FieldPath, Sourced, Value

MAX_ENTRIES = 1 << 28
"""The most entries of a table, members of an action profile, or values of a value set."""

Entries = Annotated[int, Between(0, MAX_ENTRIES)]
Ids = Many[Id]


class Key(Record):
    """A field of a table's key: its match kind, its field, and a mask if it is a slice."""

    match_type: Name
    target: FieldPath
    name: Name | None = None
    mask: Hex | None = None


class ValidKey(Record):
    """The validity of a header as a field of a table's key."""

    target: Name
    name: Name | None = None
    mask: Hex | None = None


class DefaultEntry(Record):
    """The action that a table runs if no entry matches, and whether it may be changed."""

    action_id: Id
    action_data: Many[Hex]
    action_const: Flag = False
    action_entry_const: Flag = False


class ExactMatch(Record):
    """An exact match: a value, or for the validity of a header ``true`` or ``false``."""

    key: Hex | Flag


class LpmMatch(Record):
    """A longest-prefix match: a value and the length of its prefix in bits."""

    key: Hex
    prefix_length: Annotated[int, Between(0, MAX_BITS)]


class TernaryMatch(Record):
    """A ternary match: a value and the mask of its significant bits."""

    key: Hex
    mask: Hex


class RangeMatch(Record):
    """A range match: the first and the last value, both included."""

    start: Hex
    end: Hex


class OptionalMatch(Record):
    """An optional match: a value, or any value if the mask is 0."""

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


class EntryAction(Record):
    """The action of a table entry and its parameters."""

    action_id: Id
    action_data: Many[Hex]


class Entry(Record):
    """A const entry that the program declares: its match, its action and its priority."""

    match_key: Many[Match]
    action_entry: EntryAction
    priority: Id | None = None


class Table(Named, Sourced):
    """A match-action table: its key, actions, size, next nodes and const entries."""

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


class Conditional(Named, Sourced):
    """An if statement of a control block, with the next node for either result."""

    expression: Value
    true_next: Name | None = None
    false_next: Name | None = None


class ActionCall(Named):
    """An action that a control block calls."""

    action_id: Id
    next_node: Name | None = None


class Selector(Record):
    """How a member of a group is chosen: by a hash."""

    algo: Name
    input: Many[Value]


class ActionProfile(Named):
    """An action profile, which has groups if it has a selector."""

    max_size: Entries
    selector: Selector | None = None


class Pipeline(Named):
    """A control block: its tables, conditions and calls, and the first of these nodes."""

    tables: Many[Table]
    init_table: Name | None = None
    conditionals: Many[Conditional] = ()
    action_calls: Many[ActionCall] = ()
    action_profiles: Many[ActionProfile] = ()
