"""Reading p4c's BMv2 JSON (v1model) into a ``Bmv2Program``."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.softswitch.compiler.bmv2_program import (
    VALID,
    Action,
    ActionCall,
    Bmv2Program,
    Conditional,
    Counter,
    DefaultEntry,
    DirectMeter,
    FieldList,
    FieldType,
    Header,
    HeaderType,
    Json,
    KeyField,
    Meter,
    Pipeline,
    Profile,
    Register,
    Stack,
    TableDef,
    Union,
    UnionStack,
    UnionType,
    ValueSet,
    hexint,
    source_of,
)
from testbed.softswitch.errors import SoftSwitchError, UnsupportedProgram

CORE_ERRORS = (  # of core.p4
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
UNIQUE = (  # what is found by its name
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
MAX_VARBIT = 1 << 16
"""Bits of a varbit field: no packet is longer."""


def load(path: str | Path) -> Bmv2Program:
    """Read and check a BMv2 JSON file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise SoftSwitchError(f"cannot read {path}: {reason}") from None
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise SoftSwitchError(f"{path} is not JSON: {e}") from None
    needed = ("header_types", "headers", "parsers", "deparsers", "actions", "pipelines")
    missing = [k for k in needed if not isinstance(root, dict) or k not in root]
    if missing:
        raise SoftSwitchError(f"{path} is not a BMv2 JSON: it has no {missing[0]!r}")
    try:
        return _convert(root, str(path))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as e:
        raise SoftSwitchError(f"{path} is not a valid BMv2 JSON: {type(e).__name__} {e}") from None


def _convert(root: Json, path: str) -> Bmv2Program:
    p = Bmv2Program(path)
    for kind in UNIQUE:
        names = [o["name"] for o in root.get(kind) or []]
        if len(set(names)) != len(names):
            raise ValueError(f"two of {kind} have the same name")
    _headers(root, p)
    p.errors = {name: int(v) for name, v in root.get("errors", [])}
    for name in CORE_ERRORS:
        p.errors.setdefault(name, max(p.errors.values(), default=-1) + 1)
    p.aliases = {a: (t[0], t[1]) for a, t in root.get("field_aliases", [])}
    for o in root.get("extern_instances") or []:
        raise UnsupportedProgram(f"extern object {o['name']!r}", source_of(o))
    for v in root.get("parse_vsets") or []:
        width = int(v["compressed_bitwidth"])
        if not 1 <= width <= 128:
            raise UnsupportedProgram(
                f"parser value_set {v['name']!r} of {width} bits (at most 128)", source_of(v)
            )
        p.value_sets[v["name"]] = ValueSet(
            len(p.value_sets), v["name"], width, int(v.get("max_size") or 1)
        )
    if len(root["parsers"]) != 1 or len(root["deparsers"]) != 1:
        raise UnsupportedProgram("a program without exactly one parser and one deparser")
    p.parser, p.deparser = root["parsers"][0], root["deparsers"][0]
    for a in root["actions"]:
        params = tuple((d["name"], int(d["bitwidth"])) for d in a["runtime_data"])
        p.actions[a["id"]] = Action(
            a["id"], a["name"], params, tuple(a["primitives"]), source_of(a)
        )
    _arrays(root, p)
    p.calculations = {c["name"]: c for c in root.get("calculations") or []}
    p.checksums = list(root.get("checksums") or [])
    _field_lists(root, p)
    count = 0
    for pipe in root["pipelines"]:
        for ap in pipe.get("action_profiles") or []:
            p.profiles[ap["name"]] = Profile(
                len(p.profiles), ap["name"], ap["max_size"], ap.get("selector")
            )
        p.pipelines[pipe["name"]] = _pipeline(pipe, p, count)
        count += len(pipe["tables"])
    if set(p.pipelines) != {"ingress", "egress"}:
        raise UnsupportedProgram(f"pipelines {sorted(p.pipelines)} (v1model has ingress, egress)")
    return p


def _headers(root: Json, p: Bmv2Program) -> None:
    types = {t["name"]: _header_type(t) for t in root["header_types"]}
    _unions(root, p, types)
    members: dict[int, tuple[str, str, int]] = {}  # stack, union, place
    for s in root.get("header_stacks") or []:
        members.update({hid: (s["name"], "", i) for i, hid in enumerate(s["header_ids"])})
    for u in root.get("header_unions") or []:
        if len(u["header_ids"]) != len(p.unions[u["name"]].type.members):
            raise ValueError(f"header union {u['name']!r} and its type have different members")
        members.update({hid: ("", u["name"], i) for i, hid in enumerate(u["header_ids"])})
    by_id: dict[int, str] = {}
    for h in root["headers"]:
        stack, union, place = members.get(h["id"], ("", "", 0))
        t = types[h["header_type"]]
        by_id[h["id"]] = h["name"]
        p.headers[h["name"]] = Header(
            len(p.headers), h["name"], t, bool(h["metadata"]), stack, union, place
        )
        if not h["metadata"] and t.width % 8:
            raise UnsupportedProgram(f"header {h['name']!r} whose width is not whole bytes")
        if union and p.unions[union].type.members[place][1] != t:
            raise ValueError(f"header {h['name']!r} is not of the type that its union has there")
    for s in root.get("header_stacks") or []:
        p.stacks[s["name"]] = Stack(
            len(p.stacks),
            s["name"],
            types[s["header_type"]],
            tuple(by_id[i] for i in s["header_ids"]),
        )


def _header_type(t: Json) -> HeaderType:
    fields: list[FieldType] = []
    offset = 0
    longest = 8 * int(t.get("max_length") or 0)
    if t.get("length_exp") is not None:
        raise UnsupportedProgram(f"length expression of header type {t['name']!r}", source_of(t))
    for f in t["fields"]:
        signed = bool(f[2]) if len(f) > 2 else False
        if len(f) > 3 and f[3]:
            raise UnsupportedProgram(f"saturating field {t['name']}.{f[0]}", source_of(t))
        if f[1] == "*":
            fixed = sum(int(x[1]) for x in t["fields"] if x[1] != "*")
            if any(x.varbit for x in fields) or not 8 <= longest - fixed <= MAX_VARBIT:
                raise UnsupportedProgram(
                    f"varbit field {t['name']}.{f[0]} that is not the only one or has no greatest "
                    "length",
                    source_of(t),
                )
            fields.append(FieldType(f[0], (longest - fixed) // 8 * 8, signed, offset, True))
            continue
        fields.append(FieldType(f[0], int(f[1]), signed, offset))
        if fields[-1].width < 0:
            raise ValueError(f"field {t['name']}.{f[0]} of {f[1]} bits")
        offset += fields[-1].width
    return HeaderType(t["name"], tuple(fields), offset)


def _unions(root: Json, p: Bmv2Program, types: dict[str, HeaderType]) -> None:
    for t in root.get("header_union_types") or []:
        members = tuple((name, types[kind]) for name, kind in t["headers"])
        p.union_types[t["name"]] = UnionType(len(p.union_types), t["name"], members)
    places: dict[int, tuple[str, int]] = {}
    for s in root.get("header_union_stacks") or []:
        ids = s["header_union_ids"]
        places.update({uid: (s["name"], i) for i, uid in enumerate(ids)})
        p.union_stacks[s["name"]] = UnionStack(
            len(p.union_stacks), s["name"], p.union_types[s["union_type"]], len(ids)
        )
    for u in root.get("header_unions") or []:
        stack, place = places.get(u["id"], ("", 0))
        kind = p.union_types[u["union_type"]]
        if stack and p.union_stacks[stack].type != kind:
            raise ValueError(f"header union {u['name']!r} is not of the type of its stack")
        p.unions[u["name"]] = Union(len(p.unions), u["name"], kind, stack, place)


def _arrays(root: Json, p: Bmv2Program) -> None:
    for r in root.get("register_arrays") or []:
        if r["bitwidth"] > 128:
            raise UnsupportedProgram(
                f"register {r['name']!r} of {r['bitwidth']} bits (at most 128)", source_of(r)
            )
        p.registers[r["name"]] = Register(len(p.registers), r["name"], r["bitwidth"], r["size"])
    for c in root.get("counter_arrays") or []:
        if c.get("is_direct"):
            p.direct_counters[c["name"]] = c["binding"]
        else:
            p.counters[c["name"]] = Counter(len(p.counters), c["name"], c["size"])

    for m in root.get("meter_arrays") or []:
        if m["rate_count"] != 2 or m["type"] not in ("bytes", "packets"):
            raise UnsupportedProgram(
                f"meter {m['name']!r} of {m['rate_count']} rates and type {m['type']!r}",
                source_of(m),
            )
        if m.get("is_direct"):
            p.direct_meters[m["name"]] = DirectMeter(
                m["name"],
                m["binding"],
                m["type"] == "bytes",
                (m["result_target"][0], m["result_target"][1]),
            )
        else:
            p.meters[m["name"]] = Meter(
                len(p.meters), m["name"], int(m["size"]), m["type"] == "bytes"
            )


def _field_lists(root: Json, p: Bmv2Program) -> None:
    for key, target in (("learn_lists", p.learn_lists), ("field_lists", p.field_lists)):
        for fl in root.get(key) or []:
            for e in fl["elements"]:
                if e["type"] != "field":
                    raise UnsupportedProgram(
                        f"{e['type']} in {key[:-1]} {fl['name']!r}", source_of(fl)
                    )
            elements = tuple((e["value"][0], e["value"][1]) for e in fl["elements"])
            target[fl["id"]] = FieldList(fl["id"], fl["name"], elements)


def _pipeline(pipe: Json, p: Bmv2Program, first: int) -> Pipeline:
    tables = []
    for t in pipe["tables"]:
        source = source_of(t)
        if t.get("direct_meters") and t["direct_meters"] not in p.direct_meters:
            raise UnsupportedProgram(f"direct meter {t['direct_meters']!r}", source)
        if t["type"] not in ("simple", "indirect", "indirect_ws"):
            raise UnsupportedProgram(f"table type {t['type']!r} of {t['name']!r}", source)
        default = None
        if t.get("default_entry"):
            d = t["default_entry"]
            default = DefaultEntry(
                d["action_id"],
                tuple(hexint(x) for x in d["action_data"]),
                bool(d.get("action_const")),
                bool(d.get("action_entry_const")),
            )
        entries = tuple(t["entries"]) if t.get("entries") is not None else None
        tables.append(
            TableDef(
                first + len(tables),
                t["name"],
                pipe["name"],
                t["match_type"],
                t["type"],
                tuple(_key(k, t, p) for k in t["key"]),
                len(entries) if entries is not None else int(t["max_size"]),
                bool(t.get("with_counters")),
                t.get("direct_meters") or "",
                bool(t.get("support_timeout")),
                tuple(t["action_ids"]),
                dict(t["next_tables"]),
                t.get("base_default_next"),
                default,
                entries,
                t.get("action_profile") or "",
                source,
            )
        )
    conditionals = tuple(
        Conditional(
            c["name"], c["expression"], c.get("true_next"), c.get("false_next"), source_of(c)
        )
        for c in pipe.get("conditionals") or []
    )
    calls = tuple(
        ActionCall(c["name"], c["action_id"], c.get("next_node"))
        for c in pipe.get("action_calls") or []
    )
    return Pipeline(pipe["name"], pipe.get("init_table"), tuple(tables), conditionals, calls)


def _key(k: Json, table: Json, p: Bmv2Program) -> KeyField:
    match = k["match_type"]
    if match not in ("exact", "lpm", "ternary", "range", "optional", "valid"):
        raise UnsupportedProgram(
            f"match kind {match!r} in table {table['name']!r}", source_of(table)
        )
    if match == "valid":
        target, match = (k["target"], VALID), "exact"
    else:
        target = (k["target"][0], k["target"][1])
    width = p.field_type(*target).width
    if p.field_type(*target).varbit:
        raise UnsupportedProgram(f"varbit key {'.'.join(target)}", source_of(table))
    mask = hexint(k["mask"]) if k.get("mask") else None
    if match == "range" and width > 64:
        raise UnsupportedProgram(
            f"range match of {width} bits (at most 64) in table {table['name']!r}", source_of(table)
        )
    name = k.get("name") or ".".join(target)
    return KeyField(name, match, width, target, mask)
