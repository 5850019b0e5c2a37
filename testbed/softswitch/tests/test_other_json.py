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

from canary_softswitch import InvalidProgram, Program, Switch, UnsupportedProgram
from canary_softswitch.device.arrays import integers, store

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


SATURATING = ["add", "subtract", "add_to_field", "shift_left", "shift_right"]
TARGETS = {"d": PRIMITIVES, "e": PRIMITIVES, "u": SATURATING, "s": SATURATING}
FIELDS: list[list[Any]] = [
    ["d", 8, False],
    ["pad", 3, False],
    ["e", 5, False],
    ["u", 8, False, True],
    ["s", 8, True, True],
    ["a", 8, False],
    ["signed_a", 8, True],
    ["b", 8, False],
]


def arithmetic(fields: list[list[Any]]) -> Json:
    """A program with an action for each primitive and target, which all tests of them share."""
    actions = {}
    for target, names in TARGETS.items():
        operands = [field("signed_a" if target == "s" else "a"), field("b")]
        for op in names:
            parameters = [field(target), *operands[: 1 if op.endswith("_field") else 2]]
            actions[f"{op}_{target}"] = [{"op": op, "parameters": parameters}]
    return with_actions(fields, actions)


def computed(sw: Switch, target: str, values: bytes) -> int:
    """The byte of the target, before it and both operands given, when nothing else has changed."""
    (d, a, b), at = values, "deus".index(target)
    data = bytes([d, d, d, d, a, a, b])
    [(_, out)] = sw.process(1, data)
    assert out[:at] + out[at + 1 :] == data[:at] + data[at + 1 :]
    return out[at]


def packets(n: int) -> list[bytes]:
    some = random.Random(5)
    edges = [bytes(x) for x in itertools.product((0, 1, 127, 128, 255), repeat=3)]
    return edges + [some.randbytes(3) for _ in range(n)]


@pytest.mark.parametrize("width", [8, 5])
@pytest.mark.parametrize("op", PRIMITIVES)
def test_primitives(run: Callable[[Json], Switch], op: str, width: int) -> None:
    """The target keeps the low bits of the result; a destination may be an operand, too."""
    sw, target = run(arithmetic(FIELDS)), "d" if width == 8 else "e"
    sw.table("I.t").add([1], f"I.{op}_{target}")
    mask = (1 << width) - 1
    for data in packets(50):
        wanted = PRIMITIVES[op](data[0] & mask, data[1], data[2]) & mask
        assert computed(sw, target, data) == data[0] & ~mask & 255 | wanted


def test_a_sign_may_be_a_bit(run: Callable[[Json], Switch]) -> None:
    """p4c writes the sign of a field of type bool as 0."""
    sw = run(arithmetic([[name, width, int(sign), *rest] for name, width, sign, *rest in FIELDS]))
    sw.table("I.t").add([1], "I.add_d")
    assert computed(sw, "d", bytes([0, 200, 100])) == 44
    with pytest.raises(InvalidProgram, match=r"fields\[0\]\[2\].* boolean, not 2"):
        run(arithmetic([["d", 8, 2], *FIELDS[1:]]))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("op", SATURATING)
def test_saturating_fields(run: Callable[[Json], Switch], op: str, signed: bool) -> None:
    """They keep the nearest of their values."""
    sw, target = run(arithmetic(FIELDS)), "s" if signed else "u"
    sw.table("I.t").add([1], f"I.{op}_{target}")
    low, high = (-128, 127) if signed else (0, 255)

    def value(byte: int) -> int:
        return byte - 256 if signed and byte > 127 else byte

    for data in packets(50):
        wanted = PRIMITIVES[op](value(data[0]), value(data[1]), data[2])
        assert value(computed(sw, target, data)) == min(max(wanted, low), high)


# ---- wide registers and parameters ----


WIDE = [136, 256, 512, 1000]


def with_wide_parameters() -> Json:
    """A program with an action for each width; all of them are compiled at once."""
    byte = {"op": "assign", "parameters": [field("y"), {"type": "runtime_data", "value": 2}]}
    actions = {}
    for width in WIDE:
        value = {"type": "runtime_data", "value": 1}
        actions[f"act{width}"] = [{"op": "assign", "parameters": [field(f"x{width}"), value]}, byte]
    fields: list[list[Any]] = [[f"x{width}", width, False] for width in WIDE]
    made = with_actions([*fields, ["y", 8, False]], actions, (("n", 16), ("v", 0), ("w", 8)))
    for width, action in zip(WIDE, made["actions"][-len(WIDE) :], strict=True):
        action["runtime_data"][1]["bitwidth"] = width
    return made


@pytest.mark.parametrize("width", WIDE)
def test_wide_parameters(run: Callable[[Json], Switch], width: int) -> None:
    sw = run(with_wide_parameters())
    table, some = sw.table("I.t"), random.Random(3)
    before, after = (bytes(sum(each) // 8) for each in parted(width))
    for port in range(1, 8):
        value = some.getrandbits(width) >> (port - 1) * width // 7
        handle = table.add([port], f"I.act{width}", [7, value, port])
        [(_, out)] = sw.process(port, bytes(sum(WIDE) // 8 + 1))
        assert out == before + value.to_bytes(width // 8, "big") + after + bytes([port])
        entry = next(e for e in table.entries() if e.handle == handle)
        assert entry.params == (7, value, port)


def parted(width: int) -> tuple[list[int], list[int]]:
    """The widths before one and behind it."""
    at = WIDE.index(width)
    return WIDE[:at], WIDE[at + 1 :]


@pytest.mark.parametrize("width", [8, 64, 100, 136])
@pytest.mark.parametrize("op", ["assign", "modify_field", "add_to_field"])
def test_a_parameter_is_not_assigned_to(run: Callable[[Json], Switch], op: str, width: int) -> None:
    to = {"op": op, "parameters": [{"type": "runtime_data", "value": 0}, field("x")]}
    with pytest.raises(UnsupportedProgram, match="assignment to a (runtime_data|local)"):
        run(program([["x", width, False], ["pad", -width % 8, False]], [to], (("v", width),)))


CELLS = {width: 3 + i for i, width in enumerate(WIDE)}


def with_wide_registers() -> Json:
    """A program with registers of each width; all of them are compiled at once."""

    def swap(width: int) -> list[Json]:
        def register(name: str) -> Json:
            return {"type": "register_array", "value": f"I.{name}{width}"}

        old, new = field(f"old{width}"), field(f"x{width}")
        return [
            {"op": "register_read", "parameters": [old, register("wide"), number(1)]},
            {"op": "register_write", "parameters": [register("wide"), number(1), new]},
            {"op": "register_write", "parameters": [register("narrow"), number(1), number(9)]},
            {"op": "register_write", "parameters": [register("byte"), number(1), number(8)]},
        ]

    registers = [
        (f"I.{name}{width}", bits, CELLS[width])
        for width in WIDE
        for name, bits in (("narrow", 32), ("wide", width), ("byte", 8))
    ]
    fields: list[list[Any]] = [
        [f"{name}{width}", width, False] for width in WIDE for name in ("x", "old")
    ]
    actions = {f"swap{width}": swap(width) for width in WIDE}
    return with_actions(fields, actions, (), tuple(registers))


@pytest.mark.parametrize("width", WIDE)
def test_wide_registers(run: Callable[[Json], Switch], width: int) -> None:
    """Beside narrow ones of the same size, which lie in the same records."""
    sw = run(with_wide_registers())
    sw.table("I.t").add([1], f"I.swap{width}")
    some, size, before = random.Random(4), width // 8, bytes(width // 8)
    head, tail = (bytes(2 * sum(each) // 8) for each in parted(width))
    rest = [0] * (CELLS[width] - 2)
    for _ in range(5):
        data = some.randbytes(size)
        [(_, out)] = sw.process(1, head + data + bytes(size) + tail)
        assert out == head + data + before + tail
        before = data
    array = sw.register(f"I.wide{width}")
    assert integers(array) == [0, int.from_bytes(before, "big"), *rest]
    store(array, slice(0, 2), 5)
    assert integers(array) == [5, 5, *rest]
    assert list(sw.register(f"I.narrow{width}")) == [0, 9, *rest]
    assert list(sw.register(f"I.byte{width}")) == [0, 8, *rest]
    [(_, out)] = sw.process(1, head + bytes(2 * size) + tail)
    assert out == head + bytes(size) + (5).to_bytes(size, "big") + tail


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


CONSTANTS = [(7, 8), (0x1234, 16), (1 << 70, 72), (3, None)]


def constant(value: int, width: int | None) -> Json:
    return number(value) | ({"bitwidth": width} if width else {})


def with_constants() -> Json:
    """A program whose digest has the constant of this number, beginning with 1, as a key says."""
    made = load("hashes")
    [sample] = made["learn_lists"]
    made["learn_lists"] = []
    [primitives] = [
        action["primitives"]
        for action in made["actions"]
        if any(one["op"] == "generate_digest" for one in action["primitives"])
    ]
    send = primitives.pop()  # behind what it sends
    end = number(len(primitives) + 2 * len(CONSTANTS))
    for i, one in enumerate(CONSTANTS, 1):
        elements = [*sample["elements"], constant(*one)]
        made["learn_lists"].append(sample | {"id": i, "name": f"sample{i}", "elements": elements})
        primitives.append(send | {"parameters": [send["parameters"][0], number(i)]})
        other = {"op": "^", "left": field("key", "h"), "right": number(i)}
        is_other = {"type": "expression", "value": other}
        primitives.append({"op": "_jump_if_zero", "parameters": [is_other, end]})
    return made


@pytest.mark.parametrize(("value", "width"), CONSTANTS)
def test_constants_in_lists(run: Callable[[Json], Switch], value: int, width: int | None) -> None:
    """A digest has them; a copy of a packet has them anyway."""
    key = 1 + CONSTANTS.index((value, width))
    sw, name = run(with_constants()), f"sample{key}"
    assert sw.program.digests[name].fields[-1] == ("constant", width or 8)
    sw.process(0, bytes(15) + bytes([key, 0]))
    (sample,) = sw.digests()[name]
    found = sample["constant"]
    assert (int(found["lo"]) | int(found["hi"]) << 64 if width == 72 else int(found)) == value
    copies = load("copies")
    for one in copies["field_lists"]:
        one["elements"].append(constant(value, width))
    plain = Program.load(PROGRAMS / "copies.json")
    assert run(copies).program.generated.code == plain.generated.code


@pytest.mark.parametrize("version", [[3, 0], [1, 0], [2, 25], ["2", 0], [2, "x"]])
def test_versions_that_bmv2_refuses(run: Callable[[Json], Switch], version: list[Any]) -> None:
    with pytest.raises(InvalidProgram, match="version .*: 2.0 to 2.24 are read"):
        run(load("repeater") | {"__meta__": {"version": version}})


@pytest.mark.parametrize("meta", [{}, {"version": [2, 0]}, {"version": [2, 24]}, None, 5])
def test_versions_that_bmv2_takes(run: Callable[[Json], Switch], meta: Any) -> None:
    assert run(load("repeater") | {"__meta__": meta}).process(1, b"\0")
