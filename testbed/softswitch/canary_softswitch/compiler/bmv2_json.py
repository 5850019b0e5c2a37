# SPDX-License-Identifier: Apache-2.0
"""Reads BMv2's JSON: its text becomes the records of ``schema``, and these a ``Bmv2Program``."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from canary_softswitch.compiler import bounds, schema, schema_tables
from canary_softswitch.compiler.bmv2_program import (
    VALID,
    Action,
    Bmv2Program,
    Constant,
    Counter,
    DirectMeter,
    FieldList,
    FieldType,
    Header,
    HeaderType,
    Meter,
    Profile,
    Register,
    Stack,
    Union,
    UnionStack,
    UnionType,
    ValueSet,
)
from canary_softswitch.compiler.bmv2_tables import pipeline
from canary_softswitch.compiler.references import Place, Wrong, check
from canary_softswitch.compiler.schema_rules import MAX_BITS, unwrapped
from canary_softswitch.compiler.schema_values import FieldValue, HexValue, kind_of, source_of
from canary_softswitch.errors import InvalidProgram, UnsupportedProgram

CORE_ERRORS = (  # of core.p4
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
WANTED = {  # pydantic speaks of Python's types
    "tuple_type": "should be an array",
    "dict_type": "should be an object",
    "dataclass_type": "should be an object",
}
VERSION = 2, 24
SHOWN = 60
"""Characters of a wrong value that a message repeats."""


@dataclass(frozen=True)
class Parsed:
    """A program (names, widths, sizes), and the records of its parser, actions and controls."""

    program: Bmv2Program
    root: schema.Root


def parse(data: bytes, path: str) -> Parsed:
    """Read and check the content of a BMv2 JSON file, which messages call ``path``.

    Raises:
        InvalidProgram: It is no BMv2 JSON, or goes beyond a bound; names the place.
        UnsupportedProgram: The program uses what this switch does not run.
    """
    raw = _raw(data, path)
    _check_version(raw, path)
    try:
        root = _with_action_ids(_reader().validate_python(raw))
        _check_architecture(root)
        check(root)
        return Parsed(_convert(root, path), root)
    except ValidationError as e:
        error: Any = e.errors(include_url=False)[0]
        place, why = error["loc"], _why(error)
        if error["type"] == "missing" and len(place) == 1:
            raise InvalidProgram(f"{path} is not a BMv2 JSON: {why}") from None
    except Wrong as e:
        place, why = e.place, e.why
    at = _shown_place(raw, place)
    raise InvalidProgram(f"{path} is not a valid BMv2 JSON: {at}{': ' if at else ''}{why}")


@cache
def _reader() -> TypeAdapter[schema.Root]:
    return TypeAdapter(schema.Root)


def _raw(data: bytes, path: str) -> Any:
    """Return the object in a text that is JSON and not nested too deeply."""
    too_deep = f"{path} has more than {schema.MAX_DEPTH} levels of arrays and objects"
    try:
        raw = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidProgram(f"cannot read {path}: it is not UTF-8 text") from None
    except RecursionError:
        raise InvalidProgram(too_deep) from None
    except json.JSONDecodeError as e:
        raise InvalidProgram(f"{path} is not JSON: {e}") from None
    except ValueError:  # of int()
        raise InvalidProgram(f"{path} has a number with too many digits") from None
    level = [raw]
    for _ in range(schema.MAX_DEPTH):
        level = [
            x
            for one in level
            if isinstance(one, (list, dict))
            for x in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            break
    else:
        raise InvalidProgram(too_deep)
    if not isinstance(raw, dict):
        raise InvalidProgram(f"{path} is not a BMv2 JSON: it must be an object")
    return raw


def _check_version(raw: Any, path: str) -> None:
    """Raise InvalidProgram for a version other than 2.0 to 2.24; old files state no version."""
    meta = raw.get("__meta__")
    version = meta.get("version") if isinstance(meta, dict) else None
    if not isinstance(version, list) or len(version) != 2:
        return
    if version[0] != VERSION[0] or not isinstance(version[1], int) or version[1] > VERSION[1]:
        text = ".".join(shortened(x) for x in version)
        raise InvalidProgram(f"{path} is BMv2 JSON of version {text}: 2.0 to 2.24 are read")


def _with_action_ids(root: schema.Root) -> schema.Root:
    """Return the file with the ids of each table's actions; old files have only their names."""
    ids = {a.name: a.id for a in reversed(root.actions)}
    pipelines: list[schema_tables.Pipeline] = []
    for i, pipe in enumerate(root.pipelines):
        tables: list[schema_tables.Table] = []
        for j, table in enumerate(pipe.tables):
            place = ("pipelines", i, "tables", j)
            if table.action_ids is None:
                if table.actions is None:
                    raise Wrong(place, "it has no 'action_ids'")
                for k, name in enumerate(table.actions):
                    if name not in ids:
                        raise Wrong((*place, "actions", k), f"there is no action {name!r}")
                table = replace(table, action_ids=tuple(ids[name] for name in table.actions))
            tables.append(table)
        pipelines.append(replace(pipe, tables=tuple(tables)))
    return replace(root, pipelines=tuple(pipelines))


def _shown_place(raw: Any, place: Place) -> str:
    """Return the path of a place in the JSON: ``actions[3].id``."""
    text = ""
    at: Any = raw
    for step in place:
        inner = unwrapped(at)
        while at is not inner and not (isinstance(at, dict) and step in at):
            at = cast(Any, at)["value"]
            text += ".value"
        if isinstance(at, dict) and step in at:
            text += f".{step}"
            at = at[step]
        elif isinstance(at, list) and isinstance(step, int) and 0 <= step < len(at):
            text += f"[{step}]"
            at = at[step]
    text = text.removeprefix(".")
    return text if len(text) <= 200 else f"{text[:120]}...{text[-60:]}"


def _why(error: Any) -> str:
    """Return the reason of a pydantic error in the terms of JSON."""
    value, context = error["input"], error.get("ctx", {})
    if error["type"] == "missing":
        name = error["loc"][-1]
        return f"it has no {name!r}" if isinstance(name, str) else "it has too few elements"
    if error["type"] in ("too_long", "unexpected_positional_argument"):
        return "it has too many elements"
    if error["type"].startswith("recursion_"):
        return "an expression is nested too deeply"
    if error["type"] == "string_too_long":
        return f"it has more than {context['max_length']} characters"
    if isinstance(value, (list, dict)):
        shown = "an array" if isinstance(value, list) else "an object"
    else:
        shown = shortened(value)
    message: str = WANTED.get(error["type"]) or error["msg"].removeprefix("Input ")
    return f"it {message[0].lower()}{message[1:]}, not {shown}"


def shortened(value: object) -> str:
    """Return a value as JSON text, cut at ``SHOWN`` characters."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _check_architecture(root: schema.Root) -> None:
    """Raise UnsupportedProgram for a program that is not written for v1model."""
    for o in root.extern_instances:
        raise UnsupportedProgram(f"extern object {o.name!r}", source_of(o))
    if len(root.parsers) != 1 or len(root.deparsers) != 1:
        raise UnsupportedProgram("a program without exactly one parser and one deparser")
    names = sorted(pipe.name for pipe in root.pipelines)
    if {*names} != {"ingress", "egress"}:
        shown = ", ".join(map(repr, names[:10]))
        raise UnsupportedProgram(f"pipelines {shown} (v1model has ingress, egress)")


def _convert(root: schema.Root, path: str) -> Bmv2Program:
    p = Bmv2Program(path)
    _headers(root, p)
    p.errors = dict(root.errors)
    for name in CORE_ERRORS:
        p.errors.setdefault(name, max(p.errors.values(), default=-1) + 1)
    p.aliases = dict(root.field_aliases)
    p.calculations = {c.name: c.algo for c in root.calculations}
    for v in root.parse_vsets:
        width = v.compressed_bitwidth
        if not 1 <= width <= 128:
            raise UnsupportedProgram(
                f"parser value_set {v.name!r} of {width} bits (at most 128)", source_of(v)
            )
        p.value_sets[v.name] = ValueSet(len(p.value_sets), v.name, width, v.max_size or 1)
    for i, a in enumerate(root.actions):
        params = tuple((d.name, d.bitwidth) for d in a.runtime_data)
        p.actions[i] = Action(i, a.name, params, source_of(a))
    _arrays(root, p)
    _field_lists(root, p)
    for pipe in root.pipelines:
        for ap in pipe.action_profiles:
            algo = ap.selector.algo if ap.selector else None
            p.profiles[ap.name] = Profile(len(p.profiles), ap.name, ap.max_size, algo)
    for i, pipe in enumerate(root.pipelines):
        p.pipelines[pipe.name] = pipeline(root, p, i)
    bounds.check(p, root)
    return p


def _headers(root: schema.Root, p: Bmv2Program) -> None:
    types = {t.name: _header_type(i, t) for i, t in enumerate(root.header_types)}
    p.header_types = types
    _unions(root, p, types)
    members: dict[int, tuple[str, str, int]] = {}  # stack, union, place
    for s in root.header_stacks:
        members.update({hid: (s.name, "", i) for i, hid in enumerate(s.header_ids)})
    for u in root.header_unions:
        members.update({hid: ("", u.name, i) for i, hid in enumerate(u.header_ids)})
    by_id: dict[int, str] = {}
    for h in root.headers:
        t = types[h.header_type]
        by_id[h.id] = h.name
        p.headers[h.name] = Header(
            len(p.headers), h.name, t, h.metadata, *members.get(h.id, ("", "", 0))
        )
        if not h.metadata and t.width % 8:
            raise UnsupportedProgram(f"header {h.name!r} whose width is not whole bytes")
    for s in root.header_stacks:
        names = tuple(by_id[i] for i in s.header_ids)
        p.stacks[s.name] = Stack(len(p.stacks), s.name, types[s.header_type], names)


def _header_type(index: int, t: schema.HeaderType) -> HeaderType:
    fields: list[FieldType] = []
    offset = 0
    longest = 8 * (t.max_length or 0)
    fixed = sum(f.width for f in t.fields if f.width != "*")
    for i, f in enumerate(t.fields):
        if f.width == "*":
            if any(x.varbit for x in fields) or not 8 <= longest - fixed <= MAX_BITS:
                raise UnsupportedProgram(
                    f"varbit field {t.name}.{f.name} that is not the only one or has no greatest "
                    "length",
                    source_of(t),
                )
            fields.append(FieldType(f.name, (longest - fixed) // 8 * 8, f.signed, offset, True))
            continue
        if f.signed and not f.width:
            place = ("header_types", index, "fields", i)
            raise Wrong(place, "a signed field has at least one bit")
        fields.append(FieldType(f.name, f.width, f.signed, offset, saturating=f.saturating))
        offset += f.width
    return HeaderType(t.name, tuple(fields), offset)


def _unions(root: schema.Root, p: Bmv2Program, types: dict[str, HeaderType]) -> None:
    for t in root.header_union_types:
        members = tuple((name, types[kind]) for name, kind in t.headers)
        p.union_types[t.name] = UnionType(len(p.union_types), t.name, members)
    places: dict[int, tuple[str, int]] = {}
    for s in root.header_union_stacks:
        ids = s.header_union_ids
        places.update({uid: (s.name, i) for i, uid in enumerate(ids)})
        p.union_stacks[s.name] = UnionStack(
            len(p.union_stacks), s.name, p.union_types[s.union_type], len(ids)
        )
    for u in root.header_unions:
        stack, place = places.get(u.id, ("", 0))
        kind = p.union_types[u.union_type]
        p.unions[u.name] = Union(len(p.unions), u.name, kind, stack, place)


def _arrays(root: schema.Root, p: Bmv2Program) -> None:
    for r in root.register_arrays:
        p.registers[r.name] = Register(len(p.registers), r.name, r.bitwidth, r.size)
    for c in root.counter_arrays:
        if c.is_direct:
            p.direct_counters[c.name] = c.binding or ""
        else:
            p.counters[c.name] = Counter(len(p.counters), c.name, c.size or 0)
    for i, m in enumerate(root.meter_arrays):
        if m.rate_count != 2 or m.type not in ("bytes", "packets"):
            raise UnsupportedProgram(
                f"meter {m.name!r} of {m.rate_count} rates and type {m.type!r}", source_of(m)
            )
        by_bytes = m.type == "bytes"
        if not m.is_direct:
            p.meters[m.name] = Meter(len(p.meters), m.name, m.size or 0, by_bytes)
        elif m.result_target:
            if m.result_target[1] == VALID:
                place = ("meter_arrays", i, "result_target")
                raise Wrong(place, "a meter cannot write the validity of a header")
            p.direct_meters[m.name] = DirectMeter(
                m.name, m.binding or "", by_bytes, m.result_target
            )


def _field_lists(root: schema.Root, p: Bmv2Program) -> None:
    for key, target in (("learn_list", p.learn_lists), ("field_list", p.field_lists)):
        for fl in getattr(root, f"{key}s"):
            elements: list[tuple[str, str] | Constant] = []
            for e in fl.elements:
                if isinstance(e, HexValue):
                    width = e.bitwidth or max(8, -(-e.value.bit_length() // 8) * 8)
                    elements.append(Constant(e.value & (1 << width) - 1, width))
                    continue
                if not isinstance(e, FieldValue):
                    what = f"{kind_of(e)} in {key} {fl.name!r}"
                    raise UnsupportedProgram(what, source_of(fl))
                elements.append(e.value)
            target[fl.id] = FieldList(fl.id, fl.name, tuple(elements))
