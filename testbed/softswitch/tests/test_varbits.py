# SPDX-License-Identifier: Apache-2.0
"""Fields of variable length: extraction, assignment, comparison, checksums and hashes."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canary_softswitch import InvalidProgram, Program, Switch, UnsupportedProgram

TOO_SHORT, TOO_LONG, ODD = 0x81, 0x82, 0x84


@pytest.fixture
def sw(load: Callable[..., Program]) -> Switch:
    return Switch(load("varbits"))


def head(op: int, bits: int, more: int = 0) -> bytes:
    return bytes([op, bits, more, 0]) + bytes(6)


def option(value: bytes, first: int = 1, last: int = 2) -> bytes:
    """The header whose field of variable length lies between two half bytes."""
    number = first << (8 * len(value) + 4) | int.from_bytes(value, "big") << 4 | last
    return number.to_bytes(len(value) + 1, "big")


def sent(sw: Switch, data: bytes) -> tuple[int, int, int, int, bytes]:
    """(packet length in egress, equal or the parser's error, checksum, hash, the rest)."""
    [(port, out)] = sw.process(0, data)
    assert port == 1
    return out[2], out[3], *struct.unpack(">HI", out[4:10]), out[10:]


@pytest.mark.parametrize("size", [0, 1, 5, 12])
def test_a_field_has_the_length_it_was_extracted_with(sw: Switch, size: int) -> None:
    value = bytes(range(1, size + 1))
    data = head(0, 8 * size) + option(value) + b"rest"
    assert sent(sw, data) == (len(data), 0, 0, zlib.crc32(option(value)), option(value) + b"rest")


def test_wrong_lengths(sw: Switch) -> None:
    assert sent(sw, head(0, 9) + bytes(20))[1] == ODD
    assert sent(sw, head(0, 104) + bytes(20))[1] == TOO_LONG
    assert sent(sw, head(0, 96) + bytes(12))[1] == TOO_SHORT
    assert sent(sw, head(0, 104) + bytes(12))[1] == TOO_SHORT  # before it is found to be too long


def test_comparison(sw: Switch) -> None:
    a, b = option(b"\x05\x06"), option(b"\x05\x07")
    assert sent(sw, head(0, 16, 16) + a + a)[1] == 1
    assert sent(sw, head(0, 16, 16) + a + b)[1] == 0
    longer = option(b"\x00\x05\x06")  # BMv2 compares numbers
    assert sent(sw, head(0, 16, 24) + a + longer)[1] == 1


def test_assignment_takes_the_length_along(sw: Switch) -> None:
    a, b = option(b"abc"), option(b"defgh", 3, 4)
    length, *_, rest = sent(sw, head(1, 24, 40) + a + b)
    assert rest == a + a
    assert length == 10 + 4 + 6  # as it arrived
    assert sent(sw, head(2, 24) + a)[-1] == a + option(b"abc", 7, 0)


def test_validity(sw: Switch) -> None:
    length, *_, rest = sent(sw, head(3, 24) + option(b"abc") + b"rest")
    assert (length, rest) == (10 + 4, b"rest")
    length, *_, rest = sent(sw, head(4, 24) + option(b"abc"))
    assert (length, rest) == (10 + 4, bytes(4))  # the length stays, as in BMv2


def test_checksum_and_hash_over_it(sw: Switch) -> None:
    a, b = option(b"abc", first=2), option(b"", 0, 0)
    tail = b"\x12\x34" + b"XY"
    _, _, csum, hashed, rest = sent(sw, head(7, 24, 0x80) + a + b + tail)
    assert rest == a + b + tail
    words = b"\x07abc\x12\x34XY"
    total = sum(struct.unpack(">4H", words))
    assert csum == ~(total % 0xFFFF) & 0xFFFF
    assert hashed == zlib.crc32(a + b"XY")


# ---- headers that compute their length from their own fields, as P4-14 has it ----

Json = dict[str, Any]
PROGRAMS = Path(__file__).parent / "programs"


def number(value: int) -> Json:
    return {"type": "hexstr", "value": hex(value)}


def own(index: int) -> Json:
    """A field of the header itself, by its number."""
    return {"type": "local", "value": index}


def compute(op: str, left: Json, right: Json) -> Json:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right}}


def with_length(length: Any) -> Json:
    """The program whose options give their own length: ``a`` is field 0, ``v`` 1 and ``b`` 2."""
    made = json.loads((PROGRAMS / "varbits.json").read_text())
    next(t for t in made["header_types"] if t["name"] == "opt_t")["length_exp"] = length
    for state in made["parsers"][0]["parse_states"]:
        for operation in state["parser_ops"]:
            if operation["op"] == "extract_VL" and operation["parameters"][0]["value"] in "op":
                operation.update(op="extract", parameters=operation["parameters"][:1])
    return made


BYTES = compute("*", own(0), number(8))
LESS = compute("-", number(8), BYTES)


# What BMv2 1.15 sends for these packets behind ten zeros.
FROZEN = [
    (BYTES, "30a0b0c2dd", "00000f00000099b877f930a0b0c2dd"),
    (BYTES, "02dd", "00000c0000003c0c8ea102dd"),
    (BYTES, "", "00000a81000000000000"),
    (own(0), "80aabb", "00000d0000004c59c04280aabb"),
    (own(0), "00aa", "00000c000000d202ef8d00aa"),
    (LESS, "00aabb", "00000d00000077da580900aabb"),
    (compute("*", own(2), number(8)), "bbcc", "00000c0000008eb18589bbcc"),  # a field behind it
]


@pytest.mark.parametrize(("length", "data", "wanted"), FROZEN)
def test_a_computed_length(
    run: Callable[[Json], Switch], length: Json, data: str, wanted: str
) -> None:
    sw = run(with_length(length))
    assert sw.process(0, bytes(10) + bytes.fromhex(data)) == [(1, bytes.fromhex(wanted))]


def test_computed_lengths_that_cannot_be(run: Callable[[Json], Switch]) -> None:
    """The parser stops with an error; BMv2 aborts, or takes a header beyond its greatest length."""
    sw = run(with_length(BYTES))
    assert sent(sw, bytes(10) + b"\xd0" + bytes(20))[1] == TOO_LONG
    assert sent(sw, bytes(10) + b"\xc0" + bytes(11))[1] == TOO_SHORT
    odd = run(with_length(own(0)))
    assert sent(odd, bytes(10) + b"\x10" + bytes(20))[1] == ODD
    less = run(with_length(LESS))
    assert sent(less, bytes(10) + b"\x20" + bytes(20))[1] == TOO_SHORT


def test_both_kinds_of_lengths_mean_the_same(
    run: Callable[[Json], Switch], load: Callable[..., Program]
) -> None:
    """The bits that the extraction is given, and the same number from the header itself."""
    given, computed = Switch(load("varbits")), run(with_length(BYTES))
    for op in range(8):
        for first, second in ((0, 0), (1, 5), (12, 12), (3, 0), (2, 15)):
            data = head(op, 8 * first, 8 * second) + option(bytes(range(first)), first)
            data += option(bytes(range(second)), second) + b"rest"
            assert sent(given, data)[1:] == sent(computed, data)[1:], (op, first, second)


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        (own(3), "length_exp.value: there is no field 3 in the header type"),
        (compute("*", own(7), number(8)), "length_exp.*there is no field 7"),
        ({"type": "field", "value": ["h", "bits"]}, "the header's own fields and constants"),
        ({"type": "lookahead", "value": [0, 8]}, "the header's own fields and constants"),
        ({"type": "local", "value": "0"}, "should be a valid integer"),
        (5.5, "should be an object"),
        (own(1), "varbit used as a number"),
        ({"type": "bool", "value": True}, "bool used as a number"),
        (compute("nothing", own(0), own(0)), "operator 'nothing'"),
        (None, "another number of lengths than it has"),
    ],
)
def test_a_length_that_cannot_be_computed(
    run: Callable[[Json], Switch], length: Any, reason: str
) -> None:
    with pytest.raises((InvalidProgram, UnsupportedProgram), match=reason):
        run(with_length(length))


def test_a_length_of_a_type_without_such_a_field_is_not_read(run: Callable[[Json], Switch]) -> None:
    made = with_length(BYTES)
    made["header_types"][0] |= {"length_exp": own(99), "max_length": None}
    assert sent(run(made), head(0, 0) + b"\x02")[1] == 0


def test_the_options_of_ipv4(run: Callable[[Json], Switch]) -> None:
    """As P4-14's compiler wrote them: `length : ihl * 4; max_length : 60`, in a stack."""
    bits = compute("-", compute("<<", compute("*", own(1), number(4)), number(3)), number(160))
    made = json.loads((PROGRAMS / "repeater.json").read_text())
    kind = next(t for t in made["header_types"] if t["name"] == "byte_t")
    kind |= {
        "fields": [["version", 4, False], ["ihl", 4, False], ["rest", 152, False], ["o", "*"]],
        "length_exp": bits,
        "max_length": 60,
    }
    [byte] = [h for h in made["headers"] if h["header_type"] == "byte_t"]
    numbers = [900, 901]
    made["headers"] += [byte | {"id": n, "name": f"s[{i}]"} for i, n in enumerate(numbers)]
    stack = {"name": "s", "id": 90, "header_type": "byte_t", "size": 2, "header_ids": numbers}
    made["header_stacks"] = [stack]
    made["deparsers"][0]["order"] = ["s[1]", "s[0]"]  # the other way round
    next_ = {"op": "extract", "parameters": [{"type": "stack", "value": "s"}]}
    made["parsers"][0]["parse_states"][0]["parser_ops"] = [next_, next_]
    sw = run(made)
    for ihl, second in ((5, 15), (15, 6), (7, 7), (5, 5)):
        one, two = (bytes([0x40 + n]) + bytes(range(1, 4 * n)) for n in (ihl, second))
        assert sw.process(1, one + two + b"rest")[0][1] == two + one + b"rest"
    one = b"\x45" + bytes(19)
    for wrong in (b"\x44" + bytes(30), b"\x46" + bytes(22)):  # too small, and cut off
        assert sw.process(1, one + wrong)[0][1] == one + wrong
