# SPDX-License-Identifier: Apache-2.0
"""What a stranger's BMv2 JSON cannot do: run code, write out of bounds, take all memory or time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canary_softswitch import (
    InvalidProgram,
    Program,
    SoftSwitchError,
    Switch,
    UnsupportedProgram,
)
from canary_softswitch.compiler.source import MAX_FILE, Source, translate
from testbed.softswitch.tests.conftest import PROGRAMS
from testbed.softswitch.tests.mutate import Step
from testbed.softswitch.tests.test_expressions import expression, hexstr, program

Json = dict[str, Any]
RUNS = (
    '99(void) {{}}\n__attribute__((constructor)) void own(void) {{ system("mkdir {}"); }}\nvoid a'
)
"""An id that is the end of a function and the beginning of another, with one between."""


def changed(name: str, at: tuple[Step, ...], value: Any) -> bytes:
    """A program of the tests with another value in one place."""
    root = json.loads((PROGRAMS / f"{name}.json").read_text())
    one = root
    for step in at[:-1]:
        one = one[step]
    one[at[-1]] = value
    return json.dumps(root).encode()


def shown(at: tuple[Step, ...]) -> str:
    """A place as messages write it."""
    return "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in at)[1:]


def read(data: bytes) -> Source:
    return translate(data, "stranger.json")


def refused(data: bytes, *words: str) -> str:
    """The one line in which a program is refused."""
    with pytest.raises(InvalidProgram) as e:
        read(data)
    message = str(e.value)
    assert message.isprintable() and all(word in message for word in words), message
    return message


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("copies", ("actions", 0, "id")),
        ("copies", ("field_lists", 0, "id")),
        ("copies", ("learn_lists", 0, "id")),
        ("state", ("register_arrays", 0, "size")),
        ("state", ("register_arrays", 0, "bitwidth")),
        ("router", ("counter_arrays", 0, "size")),
        ("meters", ("meter_arrays", 0, "size")),
        ("router", ("header_types", 0, "fields", 0, 1)),
        ("router", ("headers", 0, "id")),
        ("router", ("pipelines", 0, "tables", 0, "max_size")),
        ("router", ("pipelines", 0, "tables", 0, "action_ids", 0)),
        ("router", ("errors", 0, 1)),
        ("selector", ("pipelines", 0, "action_profiles", 0, "max_size")),
        ("meters", ("parse_vsets", 0, "compressed_bitwidth")),
    ],
)
@pytest.mark.parametrize(
    "value",
    [RUNS, "1", "0); abort(", -1, 2**32 + 1, 2**40, 10**400, 1.0, True, None, [1], {}],
    ids=["code", "text", "call", "-1", "2**32+1", "2**40", "10**400", "float", "bool", *"nal"],
)
def test_a_number_is_a_number_within_its_bounds(
    name: str, at: tuple[Step, ...], value: object
) -> None:
    words = f"stranger.json is not a valid BMv2 JSON: {shown(at)}: it"
    if value is None and at[-1] in ("size", "max_size"):  # which some have and some have not
        words = f"{at[0]}"
    refused(changed(name, at, value), words)


def test_no_code_of_a_program_runs(tmp_path: Path) -> None:
    root = json.loads((PROGRAMS / "state.json").read_text())
    action = {"name": "x", "runtime_data": [], "primitives": []}
    made = tmp_path / "made"
    root["actions"].append({**action, "id": RUNS.format(made)})
    path = tmp_path / "stranger.json"
    path.write_text(json.dumps(root))
    with pytest.raises(SoftSwitchError, match=r"actions\[\d+\]\.id"):
        Program.load(path)
    assert not made.exists()


def with_registers(sizes: list[int]) -> bytes:
    root = json.loads((PROGRAMS / "state.json").read_text())
    arrays = [{"name": f"I.x{i}", "bitwidth": 64, "size": n} for i, n in enumerate(sizes)]
    root["register_arrays"] += arrays
    return json.dumps(root).encode()


def test_memory_has_a_bound() -> None:
    assert read(with_registers([1 << 22] * 4)).code  # published programs have such
    refused(with_registers([1 << 25] * 5), "register_arrays", "at most 1073741824")
    refused(changed("router", ("counter_arrays", 0, "size"), 1 << 30), "counter_arrays", "at most")
    many = program([(f"f{i}", 65536, False) for i in range(40)], [])
    refused(json.dumps(many).encode(), "headers: they take", "at most")


def test_an_array_may_have_no_elements(tmp_path: Path) -> None:
    root = json.loads((PROGRAMS / "state.json").read_text())
    for one in root["register_arrays"]:
        one["size"] = 0
    path = tmp_path / "none.json"
    path.write_text(json.dumps(root))
    switch = Switch(Program.load(path))
    switch.process(1, bytes(100))
    assert {len(switch.register(name)) for name in switch.program.registers} == {0}


DEEP: list[Callable[[int], str]] = [
    lambda n: "[" * n + "]" * n,
    lambda n: '{"a":' * n + "1" + "}" * n,
    lambda n: '{"header_types":' + "[" * n + "]" * n + "}",
]


@pytest.mark.parametrize("nested", DEEP)
@pytest.mark.parametrize("levels", [410, 3000, 200_000])
def test_nesting_has_a_bound(nested: Callable[[int], str], levels: int) -> None:
    refused(nested(levels).encode(), "more than 400 levels")


def test_a_file_has_a_bound() -> None:
    refused(b" " * (MAX_FILE + 1), "more than 8 MiB")
    refused(b"[" + b"{}," * 2_000_000 + b"1]", "is not a BMv2 JSON")


def assigned(value: Json, fields: list[tuple[str, int, bool]]) -> bytes:
    """A program that assigns a value to the first of some fields."""
    target = {"type": "field", "value": ["h", fields[0][0]]}
    made = program(fields, [{"op": "assign", "parameters": [target, value]}])
    return json.dumps(made).encode()


def test_expressions_that_grow() -> None:
    """Values that are twice in C, in which others are twice, and so on."""
    fields = [("low", 32, False), ("w", 128, False)]
    wide = {"type": "field", "value": ["h", "w"]}
    shifts = wide
    for _ in range(60):
        shifts = expression(">>", wide, shifts)
    assert len(read(assigned(shifts, fields)).code) < 200_000
    product = wide
    for _ in range(11):
        product = expression("*", product, product)
    with pytest.raises(UnsupportedProgram, match="an expression of this size"):
        read(assigned(product, fields))


@pytest.mark.parametrize("levels", [95, 97, 120, 190, 260, 330])
def test_expressions_in_each_other(levels: int) -> None:
    """As many as any program has are read; beyond a bound they are refused in a line."""
    field = {"type": "field", "value": ["h", "a"]}
    wrapped, bare = field, field
    for i in range(levels):
        one = {"op": "&" if i % 2 else "+", "left": wrapped, "right": hexstr(i)}
        wrapped = {"type": "expression", "value": one}
        bare = {"op": "+", "left": field, "right": bare}
    for value, most in ((wrapped, 190), (bare, 190)):
        data = assigned(value, [("a", 32, False)])
        if levels <= most:
            assert read(data).code
        else:
            refused(data, "nested too deeply" if value is bare else "more than 400 levels")


def test_comparisons_within_comparisons() -> None:
    """Two headers of a stack are compared, where each index is such a comparison."""
    root = json.loads((PROGRAMS / "stacks.json").read_text())
    stack = {"type": "header_stack", "value": root["header_stacks"][0]["name"]}

    def element(index: Json) -> Json:
        return expression("dereference_header_stack", stack, index)

    index = hexstr(0)
    for _ in range(30):
        same = expression("==", element(index), element(index))
        index = {"type": "expression", "value": {"op": "b2d", "left": None, "right": same}}
        if len(json.dumps(index)) > 1_000_000:
            break
    root["pipelines"][0]["conditionals"][0]["expression"] = expression("==", index, hexstr(1))
    with pytest.raises((UnsupportedProgram, InvalidProgram), match="of this size|C statements"):
        read(json.dumps(root).encode())


def with_states(transitions: Callable[[int], list[str | None]], n: int) -> bytes:
    """A program whose parser has n states; ``transitions``: where each one goes."""
    made = program([("a", 8, False)], [])
    (first,) = made["parsers"][0]["parse_states"]
    states = []
    for i in range(n):
        ways = [
            {"type": "hexstr", "value": hex(j), "mask": None, "next_state": to}
            for j, to in enumerate(transitions(i))
        ]
        key = [{"type": "lookahead", "value": [0, 8]}]
        states.append(
            {"name": f"s{i}", "id": i, "parser_ops": [], "transition_key": key, "transitions": ways}
        )
    states[-1] = {**first, "name": f"s{n - 1}"}
    made["parsers"][0].update(parse_states=states, init_state="s0")
    return json.dumps(made).encode()


def test_a_parser_with_many_ways() -> None:
    """2**200 of them, each of which reads the same number of bytes."""
    source = read(with_states(lambda i: [f"s{min(i + 1, 200)}"] * 2, 201))
    assert source.head_bytes == 1
    assert read(with_states(lambda i: [f"s{(i + 1) % 3}", "s3"], 4)).head_bytes is None


def test_a_control_that_never_ends() -> None:
    root = json.loads((PROGRAMS / "router.json").read_text())
    pipe = root["pipelines"][0]
    first = pipe["init_table"]
    condition = pipe["conditionals"][0]
    condition["true_next"] = first
    refused(json.dumps(root).encode(), "pipelines[0].", "is in a cycle")


def test_a_program_of_too_many_statements() -> None:
    field = {"type": "field", "value": ["h", "a"]}
    one = {"op": "assign", "parameters": [field, expression("+", field, hexstr(1))]}
    made = program([("a", 8, False)], [one] * 10_000)
    refused(json.dumps(made).encode(), "C statements (at most")


@pytest.mark.parametrize(
    ("name", "at", "value", "words"),
    [
        ("router", ("headers", 0, "header_type"), "x", "no header type 'x'"),
        ("router", ("deparsers", 0, "order", 0), "x", "no header 'x'"),
        ("router", ("parsers", 0, "init_state"), "x", "no parse state 'x'"),
        ("router", ("pipelines", 0, "init_table"), "x", "no table or condition 'x'"),
        ("router", ("pipelines", 0, "tables", 0, "action_ids", 0), 999, "no action 999"),
        ("router", ("actions", 1, "id"), 0, "two of actions have the same id 0"),
        ("copies", ("field_lists", 1, "id"), 1, "two of field_lists have the same id 1"),
        ("router", ("field_aliases", 0, 1), ["standard_metadata", "x"], "no field 'x'"),
        ("stacks", ("header_stacks", 0, "header_ids", 0), 999, "no header 999"),
        ("unions", ("header_unions", 0, "header_ids"), [], "but its type has"),
        ("selector", ("pipelines", 0, "tables", 0, "action_profile"), "x", "no action profile 'x'"),
        ("state", ("checksums",), [{"type": "generic", "target": ["x", "y"]}], "no 'calculation'"),
    ],
)
def test_references_are_checked(name: str, at: tuple[Step, ...], value: object, words: str) -> None:
    refused(changed(name, at, value), "is not a valid BMv2 JSON: ", shown(at), words)


def test_a_line_says_what_is_wanted() -> None:
    refused(b'{"x": ' + b"9" * 5000 + b"}", "a number with too many digits")
    refused(changed("router", ("headers",), None), "headers: it should be an array, not null")
    refused(changed("router", ("headers", 1), [1]), "headers[1]: it should be an object, not an ar")
    at = ("pipelines", 0, "tables", 0, "next_tables")
    refused(changed("router", at, 3), f"{shown(at)}: it should be an object, not 3")


def test_what_is_not_read_is_ignored() -> None:
    root = json.loads((PROGRAMS / "router.json").read_text())
    root["more"] = root["actions"][0]["more"] = {"x": [1, -1.5, "y", None]}
    root["header_types"][0]["id"] = "of no use here"
    plain = read((PROGRAMS / "router.json").read_bytes())
    assert read(json.dumps(root).encode()).code == plain.code


@pytest.mark.parametrize("value", ["a\nb\x1b[2J", "x" * 100_000])
def test_names_do_not_break_a_line(value: str) -> None:
    refused(changed("router", ("headers", 0, "header_type"), value), "headers[0].header_type")
    action = json.loads((PROGRAMS / "router.json").read_text())["actions"][0]
    call = {"op": value[:900], "parameters": []}
    with pytest.raises((UnsupportedProgram, InvalidProgram)) as e:
        read(changed("router", ("actions", 0), {**action, "primitives": [call]}))
    assert str(e.value).isprintable() and len(str(e.value)) < 1100
