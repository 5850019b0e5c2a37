"""C of the ingress and egress controls: nodes are labels, tables look up and dispatch."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.softswitch.compiler.bmv2_program import Bmv2Program, Pipeline, TableDef
from testbed.softswitch.compiler.codegen_action import ActionWriter
from testbed.softswitch.compiler.codegen_calculation import field_words, function
from testbed.softswitch.compiler.codegen_registers import record_bytes
from testbed.softswitch.compiler.expressions import Expressions
from testbed.softswitch.compiler.layout import Layout, comment
from testbed.softswitch.compiler.nodes import Node, literal
from testbed.softswitch.errors import UnsupportedProgram

KINDS = {"keyless": 0, "exact": 1, "lpm": 2, "ternary": 3}


@dataclass(frozen=True)
class KeyPlace:
    """Where a key field sits in the key words of its table: first word and bit in it."""

    word: int
    shift: int


@dataclass(frozen=True)
class TableLayout:
    """Sizes of a table's rows, shared with the run-time side."""

    kind: str
    words: int
    param_words: int
    places: tuple[KeyPlace, ...]

    @property
    def mask_words(self) -> int:
        """64-bit words of a row's masks."""
        return 0 if self.kind == "exact" else self.words

    @property
    def params(self) -> int:
        """Where a row's parameters begin."""
        return 4 + self.words + self.mask_words

    @property
    def row_words(self) -> int:
        """64-bit words from row to row: rows that fit lie within one cache line."""
        return record_bytes(8 * (self.params + self.param_words)) // 8


def action_words(program: Bmv2Program, ids: tuple[int, ...]) -> int:
    """Most parameter words any of these actions takes."""
    return max((sum(field_words(w) for _, w in program.actions[i].params) for i in ids), default=0)


def table_layout(program: Bmv2Program, t: TableDef) -> TableLayout:
    """Chooses key places: fields share a word while they fit, wide and range ones do not."""
    places, word, used = [], 0, 64
    for k in t.key:
        alone = k.width > 64 or k.match == "range"
        if alone or used + k.width > 64:
            word += bool(places)
            places.append(KeyPlace(word, 0))
            word += field_words(k.width) - 1 if k.width > 64 else 0
            used = 64 if alone else k.width
        else:
            places.append(KeyPlace(word, used))
            used += k.width
    kinds = {k.match for k in t.key}
    if not t.key:
        kind = "keyless"
    elif kinds & {"ternary", "range", "optional"}:
        kind = "ternary"
    else:
        kind = "lpm" if "lpm" in kinds else "exact"
    if sum(k.match == "lpm" for k in t.key) > 1:
        raise UnsupportedProgram(f"two lpm keys in table {t.name!r}", t.source)
    words = word + 1 if places else 0
    if words > 64:
        raise UnsupportedProgram(f"key of {64 * words} bits of table {t.name!r}", t.source)
    if t.kind != "simple" and t.default and program.actions[t.default.action_id].primitives:
        raise UnsupportedProgram(
            f"default action of table {t.name!r} that has an action profile", t.source
        )
    params = 0 if t.kind != "simple" else action_words(program, _action_ids(t))
    return TableLayout(kind, words, params, tuple(places))


def _action_ids(t: TableDef) -> tuple[int, ...]:
    return t.action_ids + ((t.default.action_id,) if t.default else ())


def profile_words(program: Bmv2Program) -> list[int]:
    """Parameter words of the members of each action profile."""
    out = [0] * len(program.profiles)
    for t in program.tables:
        if t.profile:
            i = program.profiles[t.profile].index
            out[i] = max(out[i], action_words(program, t.action_ids))
    return out


class ControlWriter:
    """Writes ``ss_pipeline_ingress`` and ``ss_pipeline_egress``."""

    def __init__(self, layout: Layout, actions: ActionWriter) -> None:
        self.layout = layout
        self.program = layout.program
        self.actions = actions
        self.tables = {t.name: table_layout(self.program, t) for t in self.program.tables}
        # a table without key and parameters is an action call: nothing of it is read
        self._read = [
            t
            for t in self.program.tables
            if self.tables[t.name].kind != "keyless" or action_words(self.program, _action_ids(t))
        ]
        self._defaults: dict[str, int] = {}
        self._default_words = 0
        for t in sorted(self.program.tables, key=lambda t: t not in self._read):
            self._defaults[t.name] = self._default_words
            self._default_words += 1 + self.tables[t.name].param_words

    def default(self, t: TableDef) -> str:
        """C pointer to a table's default entry: meta, parameters."""
        return f"sw->defaults + {self._defaults[t.name]}"

    def infos(self) -> str:
        """C arrays that describe tables, profiles, counters and digests."""
        p, out = self.program, []
        rows = []
        for t in p.tables:
            lay = self.tables[t.name]
            meta, params = "0", "NULL"
            if t.default and t.kind == "simple":
                meta = f"SS_USED | {t.default.action_id}"
                words = pack_params(p, t.default.action_id, t.default.data)
                if words:
                    values = ", ".join(
                        literal(w, 64) for w in words + [0] * (lay.param_words - len(words))
                    )
                    out.append(f"static const uint64_t default_{t.index}[] = {{{values}}};")
                    params = f"default_{t.index}"
            rows.append(
                f"    {{{KINDS[lay.kind]}, {lay.words}, {lay.mask_words}, {lay.param_words}, "
                f"{lay.row_words}, {t.max_size}, {int(bool(t.meter))}, {int(t.aged)}, "
                f"{meta}, {params}}}, /* {comment(t.name)} */"
            )
        for name, n in (
            ("TABLES", len(rows)),
            ("PROFILES", len(p.profiles)),
            ("COUNTERS", len(p.counters)),
            ("METERS", len(p.meters)),
            ("VALUE_SETS", len(p.value_sets)),
            ("LEARN_LISTS", len(p.learn_lists)),
        ):
            out.append(f"#define SS_{name} {n}")
        out += [
            "static const ss_table_info ss_table_infos[] = {",
            *rows,
            "    {0, 0, 0, 0, 0, 0, 0, 0, 0, NULL}\n};",
        ]
        learn = [
            max(sum(field_words(p.field_type(*f).width) for f in fl.elements), 1)
            for fl in p.learn_lists.values()
        ]
        for name, values in (
            ("profile_words", profile_words(p)),
            ("learn_words", learn),
            ("counter_sizes", [c.size for c in p.counters.values()]),
            ("meter_sizes", [m.size for m in p.meters.values()]),
        ):
            text = ", ".join(str(v) for v in [*values, 0])
            out.append(f"static const uint32_t ss_{name}[] = {{{text}}};")
        read = self._read
        out.append(f"#define SS_READ {len(read)}")
        numbers = ", ".join(str(t.index) for t in read)
        out.append(f"static const uint32_t ss_read_tables[] = {{{numbers or 0}}};")
        out.append(f"#define SS_DEFAULT_WORDS {self._default_words}")
        places = ", ".join(str(self._defaults[t.name]) for t in p.tables)
        out.append(f"static const uint32_t ss_default_places[] = {{{places or 0}}};")
        return "\n".join(out) + "\n"

    def selectors(self) -> str:
        """C functions of the selector hashes of action profiles."""
        out = []
        for ap in self.program.profiles.values():
            if ap.selector:
                out.append(
                    function(
                        self.layout,
                        f"selector_{ap.index}",
                        ap.selector["algo"],
                        ap.selector["input"],
                        f"action selector {ap.name!r}",
                    )
                )
        return "".join(out)

    def pipeline(self, pipe: Pipeline) -> str:
        """C function of one control block."""
        nodes: dict[str, int] = {}
        for n in (*pipe.tables, *pipe.conditionals, *pipe.action_calls):
            nodes[n.name] = len(nodes)
        out = [
            f"SS_INLINE void ss_pipeline_{pipe.name}(ss_switch *sw, ss_item *it) {{",
            "    struct phv *p = &it->p;",
            "    (void)sw; (void)p;",
            f"    {self._goto(nodes, pipe.init)}",
        ]
        for t in pipe.tables:
            out.append(f"node_{nodes[t.name]}: SS_UNUSED; /* {comment(t.name)} */")
            out.append(self._table(t, nodes))
        for c in pipe.conditionals:
            e = Expressions(self.layout, source=c.source)
            out.append(f"node_{nodes[c.name]}: SS_UNUSED; /* {comment(c.name)} */")
            out.append(
                f"    if ({e.boolean(e.read(c.expression))}) "
                f"{self._goto(nodes, c.true_next)}\n    {self._goto(nodes, c.false_next)}"
            )
        for a in pipe.action_calls:
            out.append(
                f"node_{nodes[a.name]}: SS_UNUSED;\n    {self._call(a.action_id, 'NULL')}"
                f"\n    {self._goto(nodes, a.next_node)}"
            )
        out.append("end:\n    return;\n}")
        return "\n".join(out) + "\n"

    def _goto(self, nodes: dict[str, int], name: str | None) -> str:
        return "goto end;" if name is None else f"goto node_{nodes[name]};"

    def _call(self, action_id: int, params: str) -> str:
        action = self.program.actions[action_id]
        code = f"action_{action_id}(sw, it, {params});" if action.primitives else ""
        stops = self.actions.can_exit(action) or any(
            p["op"] in ("assert", "assume") for p in action.primitives
        )
        return f"{code} if (it->exit) goto end;" if stops else code

    def key(self, t: TableDef, lay: TableLayout) -> list[str]:
        """C statements that make the words of a table's key."""
        parts: list[list[str]] = [[] for _ in range(lay.words)]
        before: list[str] = []
        for k, place in zip(t.key, lay.places, strict=True):
            f = self.layout.field(*k.target)
            if k.width > 128:
                size = (k.width + 7) // 8
                if k.mask is not None:
                    raise UnsupportedProgram(f"mask on {k.width}-bit key {k.name!r}", t.source)
                for w in range(field_words(k.width)):
                    n = min(8, size - 8 * w)
                    code = f"ss_ld({f.code} + {size - 8 * w - n}, {n})"
                    parts[place.word + w].append(
                        code if f.valid == "1" else f"({f.valid} ? {code} : 0)"
                    )
                continue
            value = f.code if f.valid == "1" else f"({f.valid} ? {f.code} : 0)"
            if k.mask is not None:
                value = f"({value} & {literal(k.mask, 64 if k.width <= 64 else 128)})"
            if k.width > 64:
                name = f"wide{len(before)}"
                before.append(f"u128 {name} = {value};")
                parts[place.word].append(f"(uint64_t){name}")
                parts[place.word + 1].append(f"(uint64_t)({name} >> 64)")
            else:
                up = f" << {place.shift}" if place.shift else ""
                parts[place.word].append(f"(uint64_t){value}{up}")
        words = ", ".join(" | ".join(x) for x in parts)
        return [*before, f"const uint64_t key[{lay.words}] = {{{words}}};"]

    def _table(self, t: TableDef, nodes: dict[str, int]) -> str:
        lay = self.tables[t.name]
        hit_miss = "__HIT__" in t.next_tables or "__MISS__" in t.next_tables
        hit = self._goto(nodes, t.next_tables.get("__HIT__"))
        miss = self._goto(nodes, t.next_tables.get("__MISS__") if hit_miss else t.base_default_next)
        d = t.default
        if lay.kind == "keyless" and d and d.entry_const and t.kind == "simple":
            after = miss if hit_miss else self._goto(nodes, self._next(t, d.action_id))
            params = f"{self.default(t)} + 1"
            return f"    {self._call(d.action_id, params)} {after}"
        out = [
            "    {",
            f"    const ss_table *t = sw->tables + {t.index};",
            f"    const uint64_t *def = {self.default(t)};",
            "    uint64_t *row = NULL;",
            "    (void)t;",
        ]
        if lay.kind != "keyless":
            out += ["    if (t->count) {", *(f"    {x}" for x in self.key(t, lay))]
            ranges = sum(
                1 << pl.word for k, pl in zip(t.key, lay.places, strict=True) if k.match == "range"
            )
            extra = f", UINT64_C({ranges:#x})" if lay.kind == "ternary" else ""
            out.append(
                f"    row = ss_find_{lay.kind}(t, key, {lay.words}, {lay.row_words}{extra});"
            )
            out.append("    }")
            if t.counters:
                out.append(
                    "    if (row) { row[SS_PACKETS]++; row[SS_BYTES] += it->counted_length; }"
                )
            out += self._on_hit(t, lay)
        if t.kind == "simple":
            out += [
                f"    const uint64_t *a = row ? row + {lay.params} : def + 1;",
                "    uint64_t meta = row ? row[SS_META] : def[0];",
            ]
        else:
            ap = self.program.profiles[t.profile]
            pick = f"meta & SS_GROUP ? selector_{ap.index}(sw, it) : 0" if ap.selector else "0"
            out += [
                "    uint64_t meta = row ? row[SS_META] : def[0];",
                "    const uint64_t *a = meta & SS_USED ? "
                f"ss_member(sw->profiles + {ap.index}, meta, {pick}) : NULL;",
                "    meta = a ? a[0] : 0;",
                "    if (a) a++;",
            ]
        out.append("    (void)a;")
        out.append("    if (meta & SS_USED) switch ((uint32_t)meta) {")
        for i in dict.fromkeys(_action_ids(t)):
            after = "break;" if hit_miss else self._goto(nodes, self._next(t, i))
            out.append(f"    case {i}: {self._call(i, 'a')} {after}")
        out.append("    default: break;\n    }")
        out.append(f"    if (row) {hit if hit_miss else miss}")
        out.append(f"    {miss}\n    }}")
        return "\n".join(out)

    def _on_hit(self, t: TableDef, lay: TableLayout) -> list[str]:
        """C of what a hit does before the action: time it, meter it."""
        row = f"(row - t->rows) / {lay.row_words}"
        out = [f"    if (row) t->seen[{row}] = sw->now;"] if t.aged else []
        if t.meter:
            m = self.program.direct_meters[t.meter]
            units = "it->counted_length" if m.bytes else "1"
            colour = f"ss_meter_run(t->meters + {row}, sw->now, {units})"
            store = Expressions(self.layout, source=t.source).store(
                self.layout.field(*m.target), Node("data", "load", lo=0, hi=2, code=colour)
            )
            out.append(f"    if (row) {{ {store} }}")
        return out

    def _next(self, t: TableDef, action_id: int) -> str | None:
        name = self.program.actions[action_id].name
        return t.next_tables.get(name, t.base_default_next)


def pack_params(program: Bmv2Program, action_id: int, values: tuple[int, ...]) -> list[int]:
    """Action parameters as 64-bit words, low word first."""
    words: list[int] = []
    for (_, width), v in zip(program.actions[action_id].params, values, strict=True):
        v &= (1 << width) - 1
        words += [v >> 64 * i & (1 << 64) - 1 for i in range(field_words(width))]
    return words
