"""Fields of variable length: extraction, assignment, comparison, checksums and hashes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest

from testbed.softswitch import Program, Switch

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
