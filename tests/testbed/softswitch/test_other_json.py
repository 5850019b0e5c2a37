# SPDX-License-Identifier: Apache-2.0
"""BMv2 JSON that others wrote: what BMv2 loads runs, and means the same."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.softswitch import InvalidProgram, Program, Switch, UnsupportedProgram
from testbed.softswitch.server.arrays import integers, store

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(p.stem for p in PROGRAMS.glob("*.json"))
Json = dict[str, Any]


def load(name: str) -> Json:
    return json.loads((PROGRAMS / f"{name}.json").read_text())


def field(name: str, header: str = "b") -> Json:
    return {"type": "field", "value": [header, name]}


def number(value: int) -> Json:
    return {"type": "hexstr", "value": hex(value)}


def program(
    fields: list[list[Any]],
    primitives: list[Json],
    parameters: tuple[tuple[str, int], ...] = (),
    registers: tuple[tuple[str, int, int], ...] = (),
) -> Json:
    """A repeater whose first header has these fields, and whose table runs these primitives."""
    return with_actions(fields, {"act": primitives}, parameters, registers)


def with_actions(
    fields: list[list[Any]],
    actions: dict[str, list[Json]],
    parameters: tuple[tuple[str, int], ...] = (),
    registers: tuple[tuple[str, int, int], ...] = (),
) -> Json:
    """A repeater whose first header has these fields, and whose table has these actions.

    Tests of one action each share the program, which is compiled once for all of them.
    """
    made = load("repeater")
    next(t for t in made["header_types"] if t["name"] == "byte_t")["fields"] = fields
    state = made["parsers"][0]["parse_states"][0]
    state["parser_ops"] = [{"op": "extract", "parameters": [{"type": "regular", "value": "b"}]}]
    ids = {f"I.{name}": 77 + number for number, name in enumerate(actions)}
    for (name, number), primitives in zip(ids.items(), actions.values(), strict=True):
        action = {
            "name": name,
            "id": number,
            "runtime_data": [{"name": n, "bitwidth": w} for n, w in parameters],
            "primitives": primitives,
        }
        made["actions"].append(action)
    ingress = next(p for p in made["pipelines"] if p["name"] == "ingress")
    table = {
        "name": "I.t",
        "id": 77,
        "key": [
            {
                "match_type": "exact",
                "name": "port",
                "target": ["standard_metadata", "ingress_port"],
                "mask": None,
            }
        ],
        "match_type": "exact",
        "type": "simple",
        "max_size": 16,
        "with_counters": False,
        "support_timeout": False,
        "direct_meters": None,
        "action_ids": [*ids.values()],
        "actions": [*ids],
        "base_default_next": ingress["init_table"],
        "next_tables": dict.fromkeys(ids, ingress["init_table"]),
    }
    ingress["tables"].append(table)
    ingress["init_table"] = "I.t"
    made["register_arrays"] = [
        {"name": n, "id": i, "bitwidth": w, "size": size}
        for i, (n, w, size) in enumerate(registers)
    ]
    return made


# ---- primitives of P4-14 ----

PRIMITIVES: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda d, a, b: a + b,
    "subtract": lambda d, a, b: a - b,
    "bit_xor": lambda d, a, b: a ^ b,
    "bit_or": lambda d, a, b: a | b,
    "bit_and": lambda d, a, b: a & b,
    "shift_left": lambda d, a, b: a << b,
    "shift_right": lambda d, a, b: a >> b,
    "add_to_field": lambda d, a, b: d + a,
    "subtract_from_field": lambda d, a, b: d - a,
}


def each(*names: str) -> dict[str, list[Json]]:
    """For each primitive an action that consists of it."""
    binary = [field("d"), field("a"), field("b")]
    unary = [field("d"), field("a")]
    return {
        op: [{"op": op, "parameters": unary if op.endswith("_field") else binary}] for op in names
    }


def packets(n: int) -> list[bytes]:
    some = random.Random(5)
    edges = [bytes(x) for x in itertools.product((0, 1, 127, 128, 255), repeat=3)]
    return edges + [some.randbytes(3) for _ in range(n)]


@pytest.mark.parametrize("width", [8, 5])
@pytest.mark.parametrize("op", PRIMITIVES)
def test_primitives(run: Callable[[Json], Switch], op: str, width: int) -> None:
    """The target keeps the low bits of the result; a destination may be an operand, too."""
    fields = [["pad", 8 - width, False], ["d", width, False], ["a", 8, False], ["b", 8, False]]
    sw = run(with_actions(fields if width < 8 else fields[1:], each(*PRIMITIVES)))
    sw.table("I.t").add([1], f"I.{op}")
    mask = (1 << width) - 1
    for data in packets(50):
        [(_, out)] = sw.process(1, data)
        wanted = PRIMITIVES[op](data[0] & mask, data[1], data[2]) & mask
        assert out == bytes([data[0] & ~mask & 255 | wanted]) + data[1:]


def test_a_sign_may_be_a_bit(run: Callable[[Json], Switch]) -> None:
    """p4c writes the sign of a field of type bool as 0."""
    add = [{"op": "add", "parameters": [field("d"), field("a"), field("b")]}]
    sw = run(program([["d", 8, 0], ["a", 8, False], ["b", 8, 0]], add))
    sw.table("I.t").add([1], "I.act")
    assert sw.process(1, bytes([0, 200, 100]))[0][1] == bytes([44, 200, 100])
    with pytest.raises(InvalidProgram, match=r"fields\[0\]\[2\].* boolean, not 2"):
        run(program([["d", 8, 2], ["a", 8, False], ["b", 8, 0]], add))


SATURATING = ["add", "subtract", "add_to_field", "shift_left", "shift_right"]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("op", SATURATING)
def test_saturating_fields(run: Callable[[Json], Switch], op: str, signed: bool) -> None:
    """They keep the nearest of their values."""
    fields = [["d", 8, signed, True], ["a", 8, signed], ["b", 8, False]]
    sw = run(with_actions(fields, each(*SATURATING)))
    sw.table("I.t").add([1], f"I.{op}")
    low, high = (-128, 127) if signed else (0, 255)

    def value(byte: int) -> int:
        return byte - 256 if signed and byte > 127 else byte

    for data in packets(50):
        [(_, out)] = sw.process(1, data)
        wanted = PRIMITIVES[op](value(data[0]), value(data[1]), data[2])
        assert value(out[0]) == min(max(wanted, low), high)


# ---- wide registers and parameters ----


@pytest.mark.parametrize("width", [136, 256, 512, 1000])
def test_wide_parameters(run: Callable[[Json], Switch], width: int) -> None:
    assign = {"op": "assign", "parameters": [field("x"), {"type": "runtime_data", "value": 1}]}
    byte = {"op": "assign", "parameters": [field("y"), {"type": "runtime_data", "value": 2}]}
    wide = (("n", 16), ("v", width), ("w", 8))
    sw = run(program([["x", width, False], ["y", 8, False]], [assign, byte], wide))
    table, some = sw.table("I.t"), random.Random(3)
    for port in range(1, 8):
        value = some.getrandbits(width) >> (port - 1) * width // 7
        handle = table.add([port], "I.act", [7, value, port])
        [(_, out)] = sw.process(port, bytes(width // 8 + 1))
        assert out == value.to_bytes(width // 8, "big") + bytes([port])
        entry = next(e for e in table.entries() if e.handle == handle)
        assert entry.params == (7, value, port)


@pytest.mark.parametrize("width", [8, 64, 100, 136])
@pytest.mark.parametrize("op", ["assign", "modify_field", "add_to_field"])
def test_a_parameter_is_not_assigned_to(run: Callable[[Json], Switch], op: str, width: int) -> None:
    to = {"op": op, "parameters": [{"type": "runtime_data", "value": 0}, field("x")]}
    with pytest.raises(UnsupportedProgram, match="assignment to a (runtime_data|local)"):
        run(program([["x", width, False], ["pad", -width % 8, False]], [to], (("v", width),)))


@pytest.mark.parametrize("width", [136, 256, 512, 1000])
def test_wide_registers(run: Callable[[Json], Switch], width: int) -> None:
    """Beside narrow ones of the same size, which lie in the same records."""
    registers = (("I.narrow", 32, 3), ("I.wide", width, 3), ("I.byte", 8, 3))

    def register(name: str) -> Json:
        return {"type": "register_array", "value": name}

    swap = [
        {"op": "register_read", "parameters": [field("old"), register("I.wide"), number(1)]},
        {"op": "register_write", "parameters": [register("I.wide"), number(1), field("x")]},
        {"op": "register_write", "parameters": [register("I.narrow"), number(1), number(9)]},
        {"op": "register_write", "parameters": [register("I.byte"), number(1), number(8)]},
    ]
    sw = run(program([["x", width, False], ["old", width, False]], swap, (), registers))
    sw.table("I.t").add([1], "I.act")
    some, size, before = random.Random(4), width // 8, bytes(width // 8)
    for _ in range(5):
        data = some.randbytes(size)
        [(_, out)] = sw.process(1, data + bytes(size))
        assert out == data + before
        before = data
    array = sw.register("I.wide")
    assert integers(array) == [0, int.from_bytes(before, "big"), 0]
    store(array, slice(0, 2), 5)
    assert integers(array) == [5, 5, 0]
    assert list(sw.register("I.narrow")) == [0, 9, 0] and list(sw.register("I.byte")) == [0, 8, 0]
    [(_, out)] = sw.process(1, bytes(2 * size))
    assert out[size:] == (5).to_bytes(size, "big")


# ---- how a file says it ----


def older(made: Json) -> Json:
    """The program as older compilers wrote it: no ids of actions in tables, no key `metadata`."""
    for pipe in made["pipelines"]:
        for table in pipe["tables"]:
            del table["action_ids"]
    for header in made["headers"]:
        if not header["metadata"]:
            del header["metadata"]
    made.pop("__meta__", None)
    return made


def unique(made: Json) -> bool:
    names = [a["name"] for a in made["actions"]]
    return len(set(names)) == len(names)


@pytest.mark.parametrize("name", [n for n in NAMES if unique(load(n))])
def test_tables_that_name_their_actions(run: Callable[[Json], Switch], name: str) -> None:
    new, old = Program.load(PROGRAMS / f"{name}.json"), run(older(load(name))).program
    assert old.generated.code == new.generated.code and old.tables == new.tables


def test_a_name_that_no_action_has(run: Callable[[Json], Switch]) -> None:
    made = older(load("repeater"))
    ingress = next(p for p in made["pipelines"] if p["tables"])
    ingress["tables"][0]["actions"] = ["nothing"]
    with pytest.raises(
        InvalidProgram, match=r"tables\[0\].actions\[0\]: there is no action 'nothing'"
    ):
        run(made)


def test_direct_counters_that_share_a_name(run: Callable[[Json], Switch]) -> None:
    made = load("matching")
    tables = [t for p in made["pipelines"] for t in p["tables"]][:3]
    for i, table in enumerate(tables):
        table["with_counters"] = True
        counter = {"name": "shared", "id": i, "is_direct": True, "binding": table["name"]}
        made["counter_arrays"].append(counter)
    sw = run(made)
    t = sw.table("I.exact_t")
    handle = t.add([0, 0], "I.set", [9])
    sw.process(0, bytes(44))
    assert t.counter(handle)[0] == 1


@pytest.mark.parametrize(("value", "width"), [(7, 8), (0x1234, 16), (1 << 70, 72), (3, None)])
def test_constants_in_lists(run: Callable[[Json], Switch], value: int, width: int | None) -> None:
    """A digest has them; a copy of a packet has them anyway."""
    constant = number(value) | ({"bitwidth": width} if width else {})
    made = load("hashes")
    made["learn_lists"][0]["elements"].append(constant)
    sw = run(made)
    assert sw.program.digests["sample_t"].fields[-1] == ("constant", width or 8)
    sw.process(0, bytes(15) + b"\x05\0")
    (sample,) = sw.digests()["sample_t"]
    found = sample["constant"]
    assert (int(found["lo"]) | int(found["hi"]) << 64 if width == 72 else int(found)) == value
    copies = load("copies")
    for one in copies["field_lists"]:
        one["elements"].append(constant)
    plain = Program.load(PROGRAMS / "copies.json")
    assert run(copies).program.generated.code == plain.generated.code


@pytest.mark.parametrize("version", [[3, 0], [1, 0], [2, 25], ["2", 0], [2, "x"]])
def test_versions_that_bmv2_refuses(run: Callable[[Json], Switch], version: list[Any]) -> None:
    with pytest.raises(InvalidProgram, match="version .*: 2.0 to 2.24 are read"):
        run(load("repeater") | {"__meta__": {"version": version}})


@pytest.mark.parametrize("meta", [{}, {"version": [2, 0]}, {"version": [2, 24]}, None, 5])
def test_versions_that_bmv2_takes(run: Callable[[Json], Switch], meta: Any) -> None:
    assert run(load("repeater") | {"__meta__": meta}).process(1, b"\0")
