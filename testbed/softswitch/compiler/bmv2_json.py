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
    FieldList,
    FieldType,
    Header,
    HeaderType,
    Json,
    KeyField,
    Pipeline,
    Profile,
    Register,
    Stack,
    TableDef,
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
    _headers(root, p)
    p.errors = {name: int(v) for name, v in root.get("errors", [])}
    for name in CORE_ERRORS:
        p.errors.setdefault(name, max(p.errors.values(), default=-1) + 1)
    p.aliases = {a: (t[0], t[1]) for a, t in root.get("field_aliases", [])}
    for kind, what in (("parse_vsets", "parser value_set"), ("extern_instances", "extern object")):
        for o in root.get(kind) or []:
            raise UnsupportedProgram(f"{what} {o['name']!r}", source_of(o))
    for m in root.get("meter_arrays") or []:
        raise UnsupportedProgram(f"meter {m['name']!r}", source_of(m))
    if len(root["parsers"]) != 1 or len(root["deparsers"]) != 1:
        raise UnsupportedProgram("a program without exactly one parser and one deparser")
    p.parser, p.deparser = root["parsers"][0], root["deparsers"][0]
    for prim in p.deparser.get("primitives") or []:
        raise UnsupportedProgram(f"statement {prim['op']!r} in the deparser", source_of(prim))
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
    for kind in ("header_unions", "header_union_stacks"):
        for u in root.get(kind) or []:
            raise UnsupportedProgram(f"header union {u['name']!r}", source_of(u))
    types: dict[str, HeaderType] = {}
    for t in root["header_types"]:
        fields, offset = [], 0
        for f in t["fields"]:
            if f[1] == "*" or t.get("length_exp") is not None or (len(f) > 3 and f[3]):
                what = "saturating" if f[1] != "*" and len(f) > 3 else "varbit"
                raise UnsupportedProgram(f"{what} field {t['name']}.{f[0]}", source_of(t))
            signed = bool(f[2]) if len(f) > 2 else False
            fields.append(FieldType(f[0], int(f[1]), signed, offset))
            offset += int(f[1])
        types[t["name"]] = HeaderType(t["name"], tuple(fields), offset)
    members: dict[int, tuple[str, int]] = {}
    for s in root.get("header_stacks") or []:
        for i, hid in enumerate(s["header_ids"]):
            members[hid] = (s["name"], i)
    by_id: dict[int, str] = {}
    for h in root["headers"]:
        stack, place = members.get(h["id"], ("", 0))
        by_id[h["id"]] = h["name"]
        p.headers[h["name"]] = Header(
            len(p.headers), h["name"], types[h["header_type"]], bool(h["metadata"]), stack, place
        )
        if not h["metadata"] and types[h["header_type"]].width % 8:
            raise UnsupportedProgram(f"header {h['name']!r} whose width is not whole bytes")
    for s in root.get("header_stacks") or []:
        p.stacks[s["name"]] = Stack(
            len(p.stacks),
            s["name"],
            types[s["header_type"]],
            tuple(by_id[i] for i in s["header_ids"]),
        )


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
        if t.get("direct_meters"):
            raise UnsupportedProgram(f"direct meter of table {t['name']!r}", source)
        if t.get("support_timeout"):
            raise UnsupportedProgram(f"idle timeout of table {t['name']!r}", source)
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
    mask = hexint(k["mask"]) if k.get("mask") else None
    if match == "range" and width > 64:
        raise UnsupportedProgram(
            f"range match of {width} bits (at most 64) in table {table['name']!r}", source_of(table)
        )
    name = k.get("name") or ".".join(target)
    return KeyField(name, match, width, target, mask)
