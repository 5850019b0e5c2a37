# SPDX-License-Identifier: Apache-2.0
"""Random BMv2 expressions against Python integers, in programs made by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import canary_softswitch
from canary_softswitch import Program, SoftSwitchError, Switch, UnsupportedProgram
from canary_softswitch.compiler import bmv2_json, codegen

Json = dict[str, Any]
WIDTHS = [1, 3, 8, 13, 16, 31, 32, 48, 63, 64, 65, 80, 104, 127, 128]
Value = Callable[[list[int]], Any]


def expression(op: str, left: Json | None, right: Json, **more: Json) -> Json:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **more}}


def hexstr(value: int) -> Json:
    return {"type": "hexstr", "value": hex(value)}


# Long: one literal.
def program(
    fields: list[tuple[str, int, bool]], primitives: list[Json], parameters: tuple[Json, ...] = ()
) -> Json:
    """A JSON that parses one header, runs one action, and sends to port 1."""
    meta = [
        ["ingress_port", 9, False],
        ["egress_spec", 9, False],
        ["egress_port", 9, False],
        ["instance_type", 32, False],
        ["packet_length", 32, False],
    ]
    pad = -sum(w for _, w, _ in fields) % 8
    h = [[n, w, s] for n, w, s in fields] + ([["pad", pad, False]] if pad else [])
    send = {
        "op": "assign",
        "parameters": [{"type": "field", "value": ["standard_metadata", "egress_spec"]}, hexstr(1)],
    }
    table = {
        "name": "t",
        "id": 0,
        "key": [],
        "match_type": "exact",
        "type": "simple",
        "max_size": 1,
        "action_ids": [0],
        "actions": ["a"],
        "base_default_next": None,
        "next_tables": {"a": None},
        "default_entry": {
            "action_id": 0,
            "action_const": True,
            "action_data": [],
            "action_entry_const": True,
        },
    }
    return {
        "header_types": [
            {"name": "std", "id": 0, "fields": meta},
            {"name": "h_t", "id": 1, "fields": h},
        ],
        "headers": [
            {"name": "standard_metadata", "id": 0, "header_type": "std", "metadata": True},
            {"name": "h", "id": 1, "header_type": "h_t", "metadata": False},
        ],
        "parsers": [
            {
                "name": "parser",
                "id": 0,
                "init_state": "start",
                "parse_states": [
                    {
                        "name": "start",
                        "id": 0,
                        "transition_key": [],
                        "parser_ops": [
                            {"op": "extract", "parameters": [{"type": "regular", "value": "h"}]}
                        ],
                        "transitions": [
                            {"type": "default", "value": None, "mask": None, "next_state": None}
                        ],
                    }
                ],
            }
        ],
        "deparsers": [{"name": "deparser", "id": 0, "order": ["h"], "primitives": []}],
        "actions": [
            {
                "name": "a",
                "id": 0,
                "runtime_data": list(parameters),
                "primitives": [send, *primitives],
            }
        ],
        "pipelines": [
            {
                "name": "ingress",
                "id": 0,
                "init_table": "t",
                "tables": [table],
                "action_profiles": [],
                "conditionals": [],
            },
            {
                "name": "egress",
                "id": 1,
                "init_table": None,
                "tables": [],
                "action_profiles": [],
                "conditionals": [],
            },
        ],
    }


class Maker:
    """Draws random expressions; each is (JSON, function of the field values)."""

    def __init__(self, rng: random.Random, fields: list[tuple[str, int, bool]]) -> None:
        self.rng = rng
        self.fields = fields

    def leaf(self) -> tuple[Json, Value]:
        rng = self.rng
        if rng.random() < 0.25:
            big = rng.getrandbits(rng.choice([8, 40, 100]))
            v = rng.choice([0, 1, 5, big, -rng.getrandbits(9)])
            return hexstr(v), lambda f, v=v: v
        i = rng.randrange(len(self.fields))
        return {"type": "field", "value": ["h", self.fields[i][0]]}, lambda f, i=i: f[i]

    def masked(self, depth: int) -> tuple[Json, Value]:
        """Arithmetic under a mask or a cast, as p4c writes it."""
        rng = self.rng
        j, v = self.arithmetic(depth)
        width = rng.choice(WIDTHS)
        if rng.random() < 0.3 and width > 1:
            half = 1 << width - 1
            return (
                expression("two_comp_mod", j, hexstr(width)),
                lambda f: (v(f) + half) % (2 * half) - half,
            )
        mask = (1 << width) - 1
        return expression("&", j, hexstr(mask)), lambda f: v(f) & mask

    def arithmetic(self, depth: int) -> tuple[Json, Value]:
        rng = self.rng
        if depth <= 0:
            return self.leaf()
        kind = rng.randrange(8)
        if kind == 0:
            return self.leaf()
        if kind == 1:
            j, v = self.arithmetic(depth - 1)
            return expression("~", None, j), lambda f: ~v(f)
        if kind == 2:
            n = rng.randrange(0, 140)
            j, v = self.masked(depth - 1)
            if rng.random() < 0.5:
                return expression("<<", j, hexstr(n)), lambda f: v(f) << n
            return expression(">>", j, hexstr(n)), lambda f: v(f) >> n
        if kind == 3:  # shift by a field
            j, v = self.masked(depth - 1)
            i = rng.randrange(len(self.fields))
            small = expression(
                "&", {"type": "field", "value": ["h", self.fields[i][0]]}, hexstr(0x7F)
            )
            if rng.random() < 0.5:
                return expression("<<", j, small), lambda f: v(f) << (f[i] & 0x7F)
            return expression(">>", j, small), lambda f: v(f) >> (f[i] & 0x7F)
        if kind == 4:
            c, cv = self.condition(depth - 1)
            a, av = self.masked(depth - 1)
            b, bv = self.masked(depth - 1)
            return expression("?", a, b, cond=c), lambda f: av(f) if cv(f) else bv(f)
        if kind == 5:
            a, av = self.masked(depth - 1)
            b, bv = self.masked(depth - 1)
            width = rng.choice([8, 32, 64, 100])
            if rng.random() < 0.5:
                top = (1 << width) - 1
                return (
                    expression("usat_cast", expression("-", a, b), hexstr(width)),
                    lambda f: max(0, min(top, av(f) - bv(f))),
                )
            half = 1 << width - 1
            return (
                expression("sat_cast", expression("+", a, b), hexstr(width)),
                lambda f: max(-half, min(half - 1, av(f) + bv(f))),
            )
        (a, av), (b, bv) = self.arithmetic(depth - 1), self.arithmetic(depth - 1)
        op = rng.choice("+-*&|^")
        fn = {
            "+": int.__add__,
            "-": int.__sub__,
            "*": int.__mul__,
            "&": int.__and__,
            "|": int.__or__,
            "^": int.__xor__,
        }[op]
        return expression(op, a, b), lambda f: fn(av(f), bv(f))

    def condition(self, depth: int) -> tuple[Json, Value]:
        rng = self.rng
        if depth > 0 and rng.random() < 0.3:
            a, av = self.condition(depth - 1)
            b, bv = self.condition(depth - 1)
            if rng.random() < 0.5:
                return expression("and", a, b), lambda f: av(f) and bv(f)
            return expression("or", a, expression("not", None, b)), lambda f: av(f) or not bv(f)
        a, av = self.masked(max(depth - 1, 0))
        b, bv = self.masked(max(depth - 1, 0))
        op = rng.choice(["==", "!=", "<", ">", "<=", ">="])
        fn = {
            "==": int.__eq__,
            "!=": int.__ne__,
            "<": int.__lt__,
            ">": int.__gt__,
            "<=": int.__le__,
            ">=": int.__ge__,
        }[op]
        return expression(op, a, b), lambda f: fn(av(f), bv(f))


def load_json(path: Path, text: Json) -> Program:
    path.write_text(json.dumps(text))
    return Program.load(path)


@pytest.mark.parametrize("seed", range(3))
def test_random_expressions(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    sources = [(f"s{i}", rng.choice(WIDTHS[1:]), rng.random() < 0.3) for i in range(8)]
    targets: list[tuple[str, int, bool]] = []
    primitives, values = [], []
    maker = Maker(rng, sources)
    while len(targets) < 80:
        name, width = f"d{len(targets)}", rng.choice(WIDTHS[1:])
        j, v = maker.masked(4) if rng.random() < 0.7 else maker.arithmetic(3)
        prim = {
            "op": "assign",
            "parameters": [
                {"type": "field", "value": ["h", name]},
                {"type": "expression", "value": j},
            ],
        }
        try:  # exact values of more than 128 bits are refused, never wrong
            probe = json.dumps(program([*sources, (name, width, False)], [prim]))
            codegen.generate(bmv2_json.parse(probe.encode(), "probe"), None)
        except UnsupportedProgram:
            continue
        targets.append((name, width, False))
        primitives.append(prim)
        values.append(v)
    fields = [*sources, *targets]
    sw = Switch(load_json(tmp_path / "p.json", program(fields, primitives)))
    bits = sum(w for _, w, _ in fields)
    size = (bits + 7) // 8
    for _ in range(60):
        raw = [
            rng.choice([0, 1, (1 << w) - 1, 1 << w - 1, rng.getrandbits(w)]) for _, w, _ in sources
        ]
        signed = [
            r - (1 << w) if s and r >> w - 1 else r
            for r, (_, w, s) in zip(raw, sources, strict=True)
        ]
        packed = 0
        for r, (_, w, _) in zip(raw, sources, strict=True):
            packed = packed << w | r
        packed <<= sum(w for _, w, _ in targets)
        data = (packed << 8 * size - bits).to_bytes(size, "big")
        [(_, out)] = sw.process(0, data)
        left = int.from_bytes(out, "big") >> 8 * size - bits
        for (name, w, _), v in reversed(list(zip(targets, values, strict=True))):
            assert left & (1 << w) - 1 == v(signed) & (1 << w) - 1, name
            left >>= w


def test_wide_fields_are_copied_compared_and_sliced(tmp_path: Path) -> None:
    fields = [
        ("a", 300, False),
        ("b", 300, False),
        ("low", 64, False),
        ("mid", 100, False),
        ("same", 1, False),
    ]
    f = {n: {"type": "field", "value": ["h", n]} for n, _, _ in fields}

    def assign(name: str, j: Json) -> Json:
        return {"op": "assign", "parameters": [f[name], {"type": "expression", "value": j}]}

    sw = Switch(
        load_json(
            tmp_path / "p.json",
            program(
                fields,
                [
                    assign("same", expression("b2d", None, expression("==", f["a"], f["b"]))),
                    {"op": "assign", "parameters": [f["b"], f["a"]]},
                    assign("low", expression("&", f["a"], hexstr((1 << 64) - 1))),
                    assign(
                        "mid",
                        expression(
                            "&", expression(">>", f["a"], hexstr(133)), hexstr((1 << 100) - 1)
                        ),
                    ),
                ],
            ),
        )
    )
    rng = random.Random(4)
    for same in (0, 1, 0, 1):
        a = rng.getrandbits(300)
        b = a if same else rng.getrandbits(300)
        value = (a << 300 | b) << 165 << 3
        [(_, out)] = sw.process(0, value.to_bytes(96, "big"))
        left = int.from_bytes(out, "big") >> 3
        assert left & 1 == same
        assert left >> 1 & (1 << 100) - 1 == a >> 133 & (1 << 100) - 1
        assert left >> 101 & (1 << 64) - 1 == a & (1 << 64) - 1
        assert left >> 165 == a << 300 | a


@pytest.mark.parametrize("widths", [(52, 52), (40, 40, 48), (1, 64), (64, 64), (7, 30, 33), (8, 8)])
@pytest.mark.parametrize("more", [0, 20])
def test_concatenations_are_compared_with_fields(
    tmp_path: Path, widths: tuple[int, ...], more: int
) -> None:
    """As p4c writes `a ++ b == whole`, with a field of as many bits and of more."""
    size = min(sum(widths) + more, 128)
    parts = [(f"p{i}", width, False) for i, width in enumerate(widths)]
    fields = [*parts, ("whole", size, False), ("same", 1, False), ("differs", 1, False)]
    f = {n: {"type": "field", "value": ["h", n]} for n, _, _ in fields}
    joined: Json = f["p0"]
    for width, (name, _, _) in zip(widths[1:], parts[1:], strict=True):
        ones = hexstr((1 << 128) - 1)
        up = expression("&", expression("<<", joined, hexstr(width)), ones)
        joined = expression("|", up, expression("&", f[name], hexstr((1 << width) - 1)))
    primitives = [
        {
            "op": "assign",
            "parameters": [
                f[to],
                {
                    "type": "expression",
                    "value": expression("b2d", None, expression(op, *sides)),
                },
            ],
        }
        for to, op, sides in (
            ("same", "==", (joined, f["whole"])),
            ("differs", "!=", (f["whole"], joined)),
        )
    ]
    sw = Switch(load_json(tmp_path / "p.json", program(fields, primitives)))
    rng = random.Random(5)
    total = sum(w for _, w, _ in fields)
    for case in range(40):
        value, right = 0, 0
        for width in widths:
            part = rng.choice([0, (1 << width) - 1, rng.getrandbits(width)])
            value, right = value << width | part, right << width | part
        if case % 3 == 1:
            right ^= 1 << rng.randrange(size)
        packed = (value << size | right) << 2
        octets = (total + 7) // 8
        [(_, out)] = sw.process(0, (packed << 8 * octets - total).to_bytes(octets, "big"))
        got = int.from_bytes(out, "big") >> 8 * octets - total & 3
        assert got == (0b10 if case % 3 != 1 else 0b01)


def refused(tmp_path: Path, text: Json) -> str:
    with pytest.raises(UnsupportedProgram) as e:
        load_json(tmp_path / "p.json", text)
    assert "\n" not in str(e.value)
    return str(e.value)


def test_refused_constructs_name_their_line(tmp_path: Path) -> None:
    info = {"filename": "x.p4", "line": 42, "column": 1, "source_fragment": "f(x)"}
    fields = [("a", 128, False), ("b", 256, False)]
    a, b = ({"type": "field", "value": ["h", n]} for n in "ab")
    base = program(fields, [])
    odd = {"op": "frobnicate", "parameters": [], "source_info": info}
    text = refused(tmp_path, program(fields, [odd]))
    assert "x.p4:42" in text
    assert "frobnicate" in text
    product = {
        "op": "assign",
        "source_info": info,
        "parameters": [
            a,
            {"type": "expression", "value": expression(">>", expression("*", a, a), hexstr(5))},
        ],
    }
    assert "x.p4:42" in refused(tmp_path, program(fields, [product]))
    total = {
        "op": "assign",
        "source_info": info,
        "parameters": [b, {"type": "expression", "value": expression("+", b, hexstr(1))}],
    }
    assert "256 bits of h.b" in refused(tmp_path, program(fields, [total]))
    meter = {"name": "m", "rate_count": 1, "type": "bytes", "size": 4, "source_info": info}
    assert "x.p4:42: " in refused(tmp_path, {**base, "meter_arrays": [meter]})
    extern = {**base, "extern_instances": [{"name": "e", "type": "mine", "source_info": info}]}
    assert "extern object 'e'" in refused(tmp_path, extern)
    sets = {**base, "parse_vsets": [{"name": "v", "compressed_bitwidth": 129}]}
    assert "value_set 'v' of 129 bits" in refused(tmp_path, sets)
    varbit = json.loads(json.dumps(base))
    varbit["header_types"][1]["fields"].append(["options", "*"])
    assert "varbit field h_t.options" in refused(tmp_path, varbit)
    hashed = {
        **base,
        "calculations": [{"name": "c", "algo": "random", "input": [], "source_info": info}],
    }
    assert "'random'" in refused(tmp_path, hashed)


def test_jumps_and_unknown_references(tmp_path: Path) -> None:
    fields = [("a", 8, False), ("b", 8, False)]
    a, b = ({"type": "field", "value": ["h", n]} for n in "ab")

    def add(j: Json, n: int) -> Json:
        return {
            "op": "assign",
            "parameters": [
                j,
                {
                    "type": "expression",
                    "value": expression("&", expression("+", j, hexstr(n)), hexstr(255)),
                },
            ],
        }

    # 1: if a == 0 leave; 2: a -= 2; 3: b += 3; 4: repeat, of an odd a without end
    loop = [
        {"op": "_jump_if_zero", "parameters": [a, hexstr(5)]},
        add(a, 254),
        add(b, 3),
        {"op": "_jump", "parameters": [hexstr(1)]},
    ]
    sw = Switch(load_json(tmp_path / "p.json", program(fields, loop)))
    assert sw.process(0, b"\x0a\x01") == [(1, b"\x00\x10")]
    with pytest.raises(
        canary_softswitch.SwitchFault, match="a loop in an action jumped more than 1,000,000 times"
    ):
        sw.process(0, b"\x05\x01")
    bad = program(
        fields, [{"op": "assign", "parameters": [{"type": "field", "value": ["h", "zz"]}, a]}]
    )
    with pytest.raises(SoftSwitchError, match="zz"):
        load_json(tmp_path / "q.json", bad)


@pytest.mark.parametrize(("behind", "error"), [(b"", 1), (b"\x00", 1), (b"\x00\x00", 0)])
def test_lookahead_beyond_the_end_stops_the_parser(
    tmp_path: Path, behind: bytes, error: int
) -> None:
    """12 bits are looked at in a select, from the fourth on: two bytes must be there."""
    made = program([("a", 8, False)], [])
    made["header_types"][0]["fields"].append(["parser_error", 32, False])
    made["errors"] = [["NoError", 0], ["PacketTooShort", 1]]
    made["parsers"][0]["parse_states"][0]["transition_key"] = [
        {"type": "lookahead", "value": [4, 12]}
    ]
    path = tmp_path / "p.json"
    path.write_text(json.dumps(made))
    sw = Switch(Program.load(path, observe="standard_metadata.parser_error"))
    assert sw.process(0, b"\x05" + behind) == [(1, b"\x05" + behind)]
    assert sw.observed == error


@pytest.mark.parametrize("copied_back", [False, True])
def test_mark_to_drop_writes_the_header_it_is_given(tmp_path: Path, copied_back: bool) -> None:
    """An action's inout argument is a copy: the packet goes only if the copy is copied back."""
    spec = {"type": "field", "value": ["standard_metadata", "egress_spec"]}
    own = {"type": "field", "value": ["own", "egress_spec"]}
    a = {"type": "field", "value": ["h", "a"]}
    primitives: list[Json] = [
        {"op": "assign", "parameters": [own, spec]},
        {"op": "mark_to_drop", "parameters": [{"type": "header", "value": "own"}]},
        {"op": "_jump_if_zero", "parameters": [a, hexstr(5)]},  # to the end
        {"op": "assign", "parameters": [spec, own]},
    ]
    made = program([("a", 8, False)], primitives)
    made["headers"].append({"name": "own", "id": 2, "header_type": "std", "metadata": True})
    data = bytes([copied_back])
    out = Switch(load_json(tmp_path / "p.json", made)).process(0, data)
    assert out == ([] if copied_back else [(1, data)])
