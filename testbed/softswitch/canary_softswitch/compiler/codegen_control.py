# SPDX-License-Identifier: Apache-2.0
"""Writes the ingress and egress controls as C: each node is a label, tables look up and switch."""

from __future__ import annotations

from canary_softswitch.compiler import schema_tables
from canary_softswitch.compiler.bmv2_program import TableDef
from canary_softswitch.compiler.codegen_action import ActionWriter
from canary_softswitch.compiler.codegen_calculation import function
from canary_softswitch.compiler.expressions import Expressions
from canary_softswitch.compiler.layout import Layout
from canary_softswitch.compiler.nodes import Node, literal
from canary_softswitch.compiler.rows import (
    KINDS,
    TableLayout,
    action_words,
    all_action_ids,
    field_words,
    pack_params,
    profile_words,
    table_layout,
)
from canary_softswitch.compiler.schema_values import HeaderValue, source_of
from canary_softswitch.errors import UnsupportedProgram


class ControlWriter:
    """Writes the C functions ``ss_pipeline_ingress`` and ``ss_pipeline_egress``."""

    def __init__(
        self, layout: Layout, actions: ActionWriter, usual: frozenset[str] = frozenset()
    ) -> None:
        self.layout = layout
        self._usual = usual
        self.program = layout.program
        self.actions = actions
        self.tables = {t.name: table_layout(self.program, t) for t in self.program.tables}
        self._actions = {a.id: i for i, a in enumerate(layout.root.actions)}
        for t in self.program.tables:
            action = self.program.actions[t.default.action_id] if t.default else None
            if t.kind != "simple" and action and actions.primitives(action):
                raise UnsupportedProgram(
                    f"default action of table {t.name!r} that has an action profile", t.source
                )
        # a table without key and parameters is an action call: nothing of it is read
        read = [
            t
            for t in self.program.tables
            if self.tables[t.name].kind != "keyless"
            or action_words(self.program, all_action_ids(t))
        ]
        self._defaults: dict[str, int] = {}
        self._default_words = 0
        for t in sorted(self.program.tables, key=lambda t: t not in read):
            self._defaults[t.name] = self._default_words
            self._default_words += 1 + self.tables[t.name].param_words

    def default(self, t: TableDef) -> str:
        """Return the C pointer to a table's default entry: meta, parameters."""
        return f"sw->defaults + {self._defaults[t.name]}"

    def infos(self) -> str:
        """Return the C arrays that describe tables, profiles, counters and digests."""
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
                f"{literal(self._exact(t, lay), 64)}, {meta}, {params}}},"
            )
        for name, n in (
            ("TABLES", len(rows)),
            ("PROFILES", len(p.profiles)),
            ("COUNTERS", len(p.counters)),
            ("METERS", len(p.meters)),
            ("VALUE_SETS", len(p.value_sets)),
            ("LEARN_LISTS", len(p.learn_lists)),
            ("CRCS", len(p.custom_crcs)),
        ):
            out.append(f"#define SS_{name} {n}")
        out += [
            "static const ss_table_info ss_table_infos[] = {",
            *rows,
            "    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL}\n};",
        ]
        learn = [
            max(sum(field_words(p.sampled(e)[1]) for e in fl.elements), 1)
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
        out.append(f"#define SS_DEFAULT_WORDS {self._default_words}")
        places = ", ".join(str(self._defaults[t.name]) for t in p.tables)
        out.append(f"static const uint32_t ss_default_places[] = {{{places or 0}}};")
        return "\n".join(out) + "\n"

    def selectors(self) -> str:
        """Return the C functions of the selector hashes of action profiles."""
        out = []
        for pipe in self.layout.root.pipelines:
            for ap in pipe.action_profiles:
                if ap.selector:
                    name = f"selector_{self.program.profiles[ap.name].index}"
                    source = f"action selector {ap.name!r}"
                    algo, hashed = ap.selector.algo, ap.selector.input
                    out.append(function(self.layout, name, algo, hashed, source))
        return "".join(out)

    def pipelines(self) -> list[str]:
        """Return the C functions of the control blocks."""
        blocks = {pipe.name: pipe for pipe in self.layout.root.pipelines}
        return [self._pipeline(name, blocks[name]) for name in ("ingress", "egress")]

    def _pipeline(self, function_name: str, pipe: schema_tables.Pipeline) -> str:
        """Return the C function of one control block."""
        tables = self.program.pipelines[pipe.name].tables
        nodes: dict[str, int] = {}
        for n in (*tables, *pipe.conditionals, *pipe.action_calls):
            nodes[n.name] = len(nodes)
        out = [
            f"SS_INLINE int ss_pipeline_{function_name}(ss_switch *sw, ss_item *it, int stack, "
            "int from) {",
            "    struct phv *p = &it->p;",
            "    (void)sw; (void)p; (void)stack; (void)from;",
        ]
        leaving = [t.name for t in tables if function_name == "ingress" and self._leaves(t)]
        for name in leaving:
            out.append(f"    if (from == {nodes[name] + 1}) {self._goto(nodes, name)}")
        out.append(f"    {self._goto(nodes, pipe.init_table)}")
        for t in tables:
            out.append(f"node_{nodes[t.name]}: SS_UNUSED;")
            if t.name in leaving:
                out.append(f"    if (stack) {{ it->left = {nodes[t.name] + 1}; return 0; }}")
            out.append(self._table(t, nodes))
        for c in pipe.conditionals:
            e = Expressions(self.layout, source=source_of(c))
            out.append(f"node_{nodes[c.name]}: SS_UNUSED;")
            out.append(
                f"    if ({e.boolean(e.read(c.expression))}) "
                f"{self._goto(nodes, c.true_next)}\n    {self._goto(nodes, c.false_next)}"
            )
        for a in pipe.action_calls:
            out.append(
                f"node_{nodes[a.name]}: SS_UNUSED;\n"
                f"    {self._call(self._actions[a.action_id], 'NULL')}"
                f"\n    {self._goto(nodes, a.next_node)}"
            )
        # what ends here is mostly a drop: what it changed does not concern other packets' way
        out.append(
            "stop: SS_UNUSED;\n    if (GET_EGRESS_SPEC(p) == SS_DROP_PORT) return 1;\n"
            "end:\n    return 0;\n}"
        )
        return "\n".join(out) + "\n"

    def _leaves(self, t: TableDef) -> bool:
        """Return True if a table is a call of an action that makes a header valid with which no
        usual stack of headers comes: the copy of the program for such a stack ends there."""
        d = t.default
        if not self._usual or t.key or not d or not d.entry_const or t.kind != "simple":
            return False
        return any(
            p.op in ("add_header", "assign_header")
            and isinstance(p.parameters[0], HeaderValue)
            and p.parameters[0].value not in self._usual
            for p in self.actions.primitives(self.program.actions[d.action_id])
        )

    def _goto(self, nodes: dict[str, int], name: str | None) -> str:
        return "goto end;" if name is None else f"goto node_{nodes[name]};"

    def _call(self, action_id: int, params: str) -> str:
        action = self.program.actions[action_id]
        if not self.actions.primitives(action):
            return ""
        code = f"action_{action_id}(sw, it, {params});"
        return f"{code} if (it->exit) goto stop;" if self.actions.stops(action) else code

    def key(self, t: TableDef, lay: TableLayout) -> list[str]:
        """Return the C statements that make the words of a table's key."""
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
                # a field of no bits may lie behind the word's last one
                up = f" << {place.shift}" if place.shift and k.width else ""
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
            call = self._call(d.action_id, f"{self.default(t)} + 1")
            return f"    {call} {after.replace('goto end;', 'goto stop;')}"
        out = [
            "    {",
            f"    ss_table *t = sw->tables + {t.index};",
            f"    const uint64_t *def = {self.default(t)};",
            "    uint64_t *row = NULL;",
            "    (void)t;",
        ]
        if lay.kind != "keyless":
            out += [
                f"    if (SS_FILLED(sw, {t.index})) {{",
                *(f"    {x}" for x in self.key(t, lay)),
            ]
            ranges = sum(
                1 << pl.word for k, pl in zip(t.key, lay.places, strict=True) if k.match == "range"
            )
            exact = literal(self._exact(t, lay), 64)
            alone = len(t.key) == lay.words == 1 and t.key[0].mask is None
            extras = {"ternary": f", UINT64_C({ranges:#x}), {exact}", "lpm": f", {int(alone)}"}
            extra = extras.get(lay.kind, "")
            find = f"ss_find_{lay.kind}(t, key, {lay.words}, {lay.row_words}{extra})"
            out += [f"    row = {find};", "    }"]
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
        always = bool(d) and t.kind == "simple"  # there is an action, and one of these
        known = "" if always else "if (meta & SS_USED) "
        out += ["    (void)a;", f"    {known}switch ((uint32_t)meta) {{"]
        for i in dict.fromkeys(all_action_ids(t)):
            after = "break;" if hit_miss else self._goto(nodes, self._next(t, i))
            out.append(f"    case {i}: {self._call(i, 'a')} {after}")
        out.append(f"    default: {'__builtin_unreachable()' if always else 'break'};\n    }}")
        out += [f"    if (row) {hit if hit_miss else miss}", f"    {miss}\n    }}"]
        return "\n".join(out)

    @staticmethod
    def _exact(t: TableDef, lay: TableLayout) -> int:
        """Return the bits of the first key word that all entries of a table match exactly."""
        if lay.kind != "ternary":
            return 0
        return sum(
            (1 << k.width) - 1 << place.shift
            for k, place in zip(t.key, lay.places, strict=True)
            if k.match == "exact" and place.word == 0 and place.shift + k.width <= 64
        )

    def _on_hit(self, t: TableDef, lay: TableLayout) -> list[str]:
        """Return the C that a hit runs before the action: note its time, and meter the packet."""
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
