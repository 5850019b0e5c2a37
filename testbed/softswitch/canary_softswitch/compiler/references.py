# SPDX-License-Identifier: Apache-2.0
"""Checks the references of a BMv2 JSON: every name and id that a record mentions must exist.

The code generators then look names up without checking them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

from canary_softswitch.compiler import schema, schema_tables
from canary_softswitch.compiler import schema_values as values
from canary_softswitch.compiler.bmv2_program import VALID

Place = tuple[str | int, ...]
"""The keys and indices that lead to a place in the JSON, without those of wrapper objects."""
NAMED = (  # the arrays whose objects are referred to by name
    "header_types",
    "headers",
    "header_stacks",
    "header_union_types",
    "header_unions",
    "header_union_stacks",
    "register_arrays",
    "counter_arrays",
    "meter_arrays",
    "parse_vsets",
    "calculations",
)
SPECIAL = ("__HIT__", "__MISS__")


class Wrong(Exception):
    """An error at a place of the JSON, with the reason ``why``."""

    def __init__(self, place: Place, why: str) -> None:
        super().__init__(why)
        self.place = place
        self.why = why


@cache
def _members(record: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(record))


def walk(record: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield a record and all records within it, each with its place."""
    waiting = [(place, record)]
    while waiting:
        at, one = waiting.pop()
        if isinstance(one, tuple):
            waiting += [((*at, i), x) for i, x in enumerate(one)]
        elif is_dataclass(one) and not isinstance(one, type):
            yield at, one
            waiting += [((*at, name), getattr(one, name)) for name in _members(type(one))]


def check(root: schema.Root) -> None:
    """Check all references of a file.

    Raises:
        Wrong: The first one that is wrong.
    """
    names = _Names(root)
    _check_headers(names)
    for i, (_, (header, name)) in enumerate(root.field_aliases):
        names.field(("field_aliases", i, 1), header, name)
    _check_state(names)
    for i, one in enumerate(root.parsers):
        _check_parser(names, ("parsers", i), one)
    for i, one in enumerate(root.deparsers):
        for j, name in enumerate(one.order):
            names.known(("deparsers", i, "order", j), "header", name, names.headers)
        names.check_values(one.primitives, ("deparsers", i, "primitives"))
    for i, one in enumerate(root.actions):
        _check_action(names, ("actions", i), one)
    for name in ("calculations", "checksums", "learn_lists", "field_lists"):
        names.check_values(getattr(root, name), (name,))
    for i, one in enumerate(root.checksums):
        names.field(("checksums", i, "target"), *one.target)
        place = ("checksums", i, "calculation")
        names.known(place, "calculation", one.calculation, names.by_name["calculations"])
    _check_controls(names)


class _Names:
    """All objects that records can refer to, by name or id."""

    def __init__(self, root: schema.Root) -> None:
        self.root = root
        self.by_name: dict[str, Mapping[str, Any]] = {}
        for kind in NAMED:
            self.by_name[kind] = self._unique(kind, "name")
        self.types: Mapping[str, schema.HeaderType] = self.by_name["header_types"]
        self.headers: Mapping[str, schema.Header] = self.by_name["headers"]
        self.stacks: Mapping[str, schema.HeaderStack] = self.by_name["header_stacks"]
        self.unions: Mapping[str, schema.HeaderUnion] = self.by_name["header_unions"]
        self.union_types: Mapping[str, schema.HeaderUnionType] = self.by_name["header_union_types"]
        self.union_stacks: Mapping[str, schema.HeaderUnionStack]
        self.union_stacks = self.by_name["header_union_stacks"]
        self.headers_by_id: Mapping[int, schema.Header] = self._unique("headers", "id")
        self.unions_by_id: Mapping[int, schema.HeaderUnion] = self._unique("header_unions", "id")
        self.actions: Mapping[int, schema.Action] = self._unique("actions", "id")
        for kind in ("learn_lists", "field_lists"):
            self._unique(kind, "id")
        self.headers_and_unions = {*self.headers, *self.unions}
        self.all_stacks = {*self.stacks, *self.union_stacks}
        self.fields = {t.name: {f.name for f in t.fields} for t in root.header_types}

    def _unique(self, kind: str, key: str) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for i, one in enumerate(getattr(self.root, kind)):
            value = getattr(one, key)
            if getattr(one, "is_direct", False) and key == "name" and kind == "counter_arrays":
                found.setdefault(value, one)  # tables may share a name: nothing refers to it
                continue
            if value in found and not getattr(found[value], "is_direct", False):
                raise Wrong((kind, i, key), f"two of {kind} have the same {key} {value!r}")
            found[value] = one
        return found

    def known(self, place: Place, what: str, name: Any, known: Collection[Any]) -> None:
        """Raise ``Wrong`` if a name or id is not in ``known``."""
        if name not in known:
            raise Wrong(place, f"there is no {what} {name!r}")

    def field(self, place: Place, header: str, name: str) -> None:
        """Raise ``Wrong`` if a header has no such field."""
        self.known(place, "header", header, self.headers)
        if name != VALID:
            self.member(place, self.headers[header].header_type, name, f"header {header!r}")

    def member(self, place: Place, header_type: str, name: str, where: str) -> None:
        """Raise ``Wrong`` if a header type has no such field."""
        if name not in self.fields[header_type]:
            raise Wrong(place, f"there is no field {name!r} in {where}")

    def check_values(self, record: Any, place: Place, parameters: int = 0) -> None:
        """Check all values in a record of an action with this number of parameters."""
        for at, one in walk(record, place):
            self._check_value((*at, "value"), one, parameters)

    # Long: one case for each record that refers to another.
    def _check_value(self, at: Place, one: Any, parameters: int) -> None:
        match one:
            case values.FieldValue(value=(header, name)):
                self.field(at, header, name)
            case values.StackFieldValue(value=(stack, name)):
                self.known(at, "header stack", stack, self.stacks)
                self.member(at, self.stacks[stack].header_type, name, f"header stack {stack!r}")
            case values.UnionStackFieldValue(value=(stack, union, name)):
                self.member(at, self._member_type(at, stack, union), name, f"member {union!r}")
            case values.HeaderValue(value=name):
                self.known(at, "header", name, self.headers_and_unions)
            case values.UnionValue(value=name):
                self.known(at, "header union", name, self.unions)
            case values.StackValue(value=name):
                self.known(at, "header stack", name, self.all_stacks)
            case values.ParameterValue(value=number) if number >= parameters:
                raise Wrong(at, f"there is no run-time parameter {number}")
            case values.RegisterName(value=name):
                self.known(at, "register array", name, self.by_name["register_arrays"])
            case values.CounterName(value=name):
                self._indirect(at, name, "counter")
            case values.MeterName(value=name):
                self._indirect(at, name, "meter")
            case values.CalculationName(value=name):
                self.known(at, "calculation", name, self.by_name["calculations"])
            case values.IntoHeader(value=name):
                self.known(at, "header", name, self.headers)
            case values.IntoStack(value=name):
                self.known(at, "header stack", name, self.stacks)
            case values.IntoUnionStack(value=(stack, union)):
                self._member_type(at, stack, union)
            case _:
                pass

    def _indirect(self, at: Place, name: str, what: str) -> None:
        arrays = self.by_name[f"{what}_arrays"]
        self.known(at, f"{what} array", name, arrays)
        if arrays[name].is_direct:
            raise Wrong(at, f"the {what} array {name!r} is a table's")

    def _member_type(self, at: Place, stack: str, member: str) -> str:
        """Return the header type of a member of the unions in a stack."""
        self.known(at, "header union stack", stack, self.union_stacks)
        members = dict(self.union_types[self.union_stacks[stack].union_type].headers)
        self.known(at, "member", member, members)
        return members[member]


def _check_length(place: Place, t: schema.HeaderType) -> None:
    """Check the expression of the length of a header: BMv2 has only its own fields there."""
    if all(f.width != "*" for f in t.fields):
        return  # BMv2 does not read it
    for at, one in walk(t.length_exp, place):
        if isinstance(one, values.ParameterValue) and one.value >= len(t.fields):
            raise Wrong((*at, "value"), f"there is no field {one.value} in the header type")
        own = (values.ParameterValue, values.HexValue, values.BoolValue, values.Operation)
        if not isinstance(one, own):
            raise Wrong(at, "a length is computed from the header's own fields and constants")


def _check_headers(names: _Names) -> None:
    root = names.root
    for i, t in enumerate(root.header_types):
        _check_length(("header_types", i, "length_exp"), t)
    for i, t in enumerate(root.header_union_types):
        members: set[str] = set()
        for j, (name, header_type) in enumerate(t.headers):
            place = ("header_union_types", i, "headers", j)
            names.known((*place, 1), "header type", header_type, names.types)
            if name in members:
                raise Wrong((*place, 0), f"{name!r} is given twice")
            members.add(name)
    for i, h in enumerate(root.headers):
        names.known(("headers", i, "header_type"), "header type", h.header_type, names.types)
    used: set[int] = set()
    for i, s in enumerate(root.header_stacks):
        place = ("header_stacks", i)
        names.known((*place, "header_type"), "header type", s.header_type, names.types)
        wanted = [s.header_type] * len(s.header_ids)
        _check_parts(names, (*place, "header_ids"), s.header_ids, wanted, used)
    for i, u in enumerate(root.header_unions):
        place = ("header_unions", i)
        names.known((*place, "union_type"), "header union type", u.union_type, names.union_types)
        wanted = [header_type for _, header_type in names.union_types[u.union_type].headers]
        if len(u.header_ids) != len(wanted):
            why = f"there are {len(u.header_ids)} headers, but its type has {len(wanted)}"
            raise Wrong((*place, "header_ids"), why)
        _check_parts(names, (*place, "header_ids"), u.header_ids, wanted, used)
    stacked: set[int] = set()
    for i, s in enumerate(root.header_union_stacks):
        place = ("header_union_stacks", i)
        names.known((*place, "union_type"), "header union type", s.union_type, names.union_types)
        for j, number in enumerate(s.header_union_ids):
            at = (*place, "header_union_ids", j)
            names.known(at, "header union", number, names.unions_by_id)
            if names.unions_by_id[number].union_type != s.union_type:
                raise Wrong(at, f"header union {number} is not of the type of the stack")
            if number in stacked:
                raise Wrong(at, f"header union {number} is already in a stack")
            stacked.add(number)


def _check_parts(
    names: _Names, place: Place, ids: tuple[int, ...], types: list[str], used: set[int]
) -> None:
    """Check the headers that a stack or union consists of."""
    for j, (number, wanted) in enumerate(zip(ids, types, strict=True)):
        at = (*place, j)
        names.known(at, "header", number, names.headers_by_id)
        header = names.headers_by_id[number]
        if header.header_type != wanted or header.metadata:
            raise Wrong(at, f"header {number} is not of type {wanted!r}")
        if number in used:
            raise Wrong(at, f"header {number} is already in a stack or header union")
        used.add(number)


def _check_state(names: _Names) -> None:
    tables = {t.name for pipe in names.root.pipelines for t in pipe.tables}
    for kind in ("counter_arrays", "meter_arrays"):
        for i, one in enumerate(getattr(names.root, kind)):
            if not one.is_direct and one.size is None:
                raise Wrong((kind, i), "it has no 'size'")
            if one.is_direct:
                names.known((kind, i, "binding"), "table", one.binding, tables)
    for i, meter in enumerate(names.root.meter_arrays):
        if meter.is_direct and meter.result_target is None:
            raise Wrong(("meter_arrays", i), "it has no 'result_target'")
        if meter.result_target is not None and meter.is_direct:
            names.field(("meter_arrays", i, "result_target"), *meter.result_target)


def _check_parser(names: _Names, place: Place, parser: schema.Parser) -> None:
    states: set[str] = set()
    for i, state in enumerate(parser.parse_states):
        if state.name in states:
            raise Wrong((*place, "parse_states", i, "name"), f"{state.name!r} is given twice")
        states.add(state.name)
    if parser.init_state is not None:
        names.known((*place, "init_state"), "parse state", parser.init_state, states)
    for i, state in enumerate(parser.parse_states):
        at = (*place, "parse_states", i)
        names.check_values(state, at)
        for j, transition in enumerate(state.transitions):
            to = (*at, "transitions", j)
            if isinstance(transition, schema.OtherTransition):
                continue
            if transition.next_state is not None:
                names.known((*to, "next_state"), "parse state", transition.next_state, states)
            if isinstance(transition, schema.SetTransition):
                sets = names.by_name["parse_vsets"]
                names.known((*to, "value"), "value set", transition.value, sets)


def _check_action(names: _Names, place: Place, action: schema.Action) -> None:
    names.check_values(action.primitives, (*place, "primitives"), len(action.runtime_data))
    for i, primitive in enumerate(action.primitives):
        if primitive.op in ("_jump", "_jump_if_zero"):
            to = primitive.parameters[-1].value
            if not 0 <= to <= len(action.primitives):
                at = (*place, "primitives", i, "parameters", len(primitive.parameters) - 1)
                raise Wrong(at, "there is no primitive of this number to jump to")


def _check_controls(names: _Names) -> None:
    tables: set[str] = set()
    pipelines: set[str] = set()
    profiles: dict[str, schema_tables.ActionProfile] = {}
    for i, pipe in enumerate(names.root.pipelines):
        for j, profile in enumerate(pipe.action_profiles):
            if profile.name in profiles:
                place = ("pipelines", i, "action_profiles", j, "name")
                raise Wrong(place, f"two of action_profiles have the same name {profile.name!r}")
            profiles[profile.name] = profile
    for i, pipe in enumerate(names.root.pipelines):
        place = ("pipelines", i)
        if pipe.name in pipelines:
            raise Wrong((*place, "name"), f"two of pipelines have the same name {pipe.name!r}")
        pipelines.add(pipe.name)
        nodes: dict[str, list[tuple[Place, str | None]]] = {}
        for kind in ("tables", "conditionals", "action_calls"):
            for j, one in enumerate(getattr(pipe, kind)):
                if one.name in nodes or (kind == "tables" and one.name in tables):
                    raise Wrong((*place, kind, j, "name"), f"{one.name!r} is given twice")
                nodes[one.name] = _next(one, (*place, kind, j))
        tables |= {t.name for t in pipe.tables}
        if pipe.init_table is not None:
            names.known((*place, "init_table"), "table or condition", pipe.init_table, nodes)
        for j, table in enumerate(pipe.tables):
            _check_table(names, (*place, "tables", j), table, profiles)
        for j, call in enumerate(pipe.action_calls):
            _check_call(names, (*place, "action_calls", j, "action_id"), call.action_id, 0)
        for j, condition in enumerate(pipe.conditionals):
            names.check_values(condition.expression, (*place, "conditionals", j, "expression"))
        names.check_values(pipe.action_profiles, (*place, "action_profiles"))
        _check_order(names, nodes)


def _next(node: Any, place: Place) -> list[tuple[Place, str | None]]:
    """Return the next nodes of a table, condition or call, each with its place in the JSON."""
    if isinstance(node, schema_tables.Table):
        found = [((*place, "next_tables", name), to) for name, to in node.next_tables.items()]
        return [*found, ((*place, "base_default_next"), node.base_default_next)]
    if isinstance(node, schema_tables.Conditional):
        ways = ("true_next", "false_next")
        return [((*place, way), getattr(node, way)) for way in ways]
    return [((*place, "next_node"), node.next_node)]


def _check_order(names: _Names, nodes: Mapping[str, list[tuple[Place, str | None]]]) -> None:
    for ways in nodes.values():
        for place, to in ways:
            if to is not None:
                names.known(place, "table or condition", to, nodes)
    after = {node: [to for _, to in ways if to is not None] for node, ways in nodes.items()}
    try:
        TopologicalSorter(after).prepare()
    except CycleError as e:
        first, second = e.args[1][1], e.args[1][0]
        place = next(place for place, to in nodes[first] if to == second)
        raise Wrong(place, f"{second!r} is in a cycle") from None


def _check_call(names: _Names, place: Place, action: int, count: int) -> None:
    names.known(place, "action", action, names.actions)
    wanted = len(names.actions[action].runtime_data)
    if wanted != count:
        raise Wrong(place, f"action {action} takes {wanted} parameters, not {count}")


def _check_table(
    names: _Names,
    place: Place,
    table: schema_tables.Table,
    profiles: Mapping[str, schema_tables.ActionProfile],
) -> None:
    for i, key in enumerate(table.key):
        at = (*place, "key", i, "target")
        if isinstance(key, schema_tables.ValidKey):
            names.field(at, key.target, VALID)
        else:
            names.field(at, *key.target)
    known: set[str] = {*SPECIAL}
    ids = set(table.action_ids or ())
    for i, action in enumerate(table.action_ids or ()):
        names.known((*place, "action_ids", i), "action", action, names.actions)
        known.add(names.actions[action].name)
    default = table.default_entry
    if default is not None:
        at = (*place, "default_entry", "action_id")
        _check_call(names, at, default.action_id, len(default.action_data))
        known.add(names.actions[default.action_id].name)
    for name in table.next_tables:
        names.known((*place, "next_tables"), "action of the table", name, known)
    if table.direct_meters is not None:
        meters = {m.name for m in names.root.meter_arrays if m.is_direct}
        names.known((*place, "direct_meters"), "direct meter", table.direct_meters, meters)
    if table.type != "simple" or table.action_profile is not None:
        names.known((*place, "action_profile"), "action profile", table.action_profile, profiles)
    if table.type != "simple" and table.entries:
        raise Wrong((*place, "entries"), "a table with an action profile has no const entries")
    if table.entries is None and table.max_size is None:
        raise Wrong(place, "it has no 'max_size'")
    for i, entry in enumerate(table.entries or ()):
        ref = entry.action_entry
        at = (*place, "entries", i, "action_entry", "action_id")
        _check_call(names, at, ref.action_id, len(ref.action_data))
        if ref.action_id not in ids:
            raise Wrong(at, f"action {ref.action_id} is not an action of the table")
