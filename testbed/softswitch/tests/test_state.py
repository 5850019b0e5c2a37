# SPDX-License-Identifier: Apache-2.0
"""Registers, hashes, random numbers, time; header stacks."""

from __future__ import annotations

import binascii
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary_softswitch import Program, Switch


@pytest.fixture
def sw(load: Callable[..., Program]) -> Switch:
    return Switch(load("state"))


def op(
    code: int, index: int = 0, wide: int = 0, value: int = 0, base: int = 0, top: int = 0
) -> bytes:
    return (
        bytes([code])
        + struct.pack(">I", index)
        + wide.to_bytes(13, "big")
        + struct.pack(">QHI", value, base, top)
    )


def value_of(data: bytes) -> int:
    return int.from_bytes(data[18:26], "big")


def test_register_views(sw: Switch) -> None:
    wide, value = 0x0102030405060708090A0B0C0D, 0xFEDCBA9876543211
    sw.process(0, op(0, 3, wide, value))
    sw.process(0, op(0, 8, wide, value))  # out of bounds: nothing happens
    assert sw.register("I.bits").tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert sw.register("I.r13")[3] == value & 0x1FFF
    assert sw.register("I.r32")[3] == value & 0xFFFFFFFF
    assert sw.register("I.r64")[3] == value
    r104, r128 = sw.register("I.r104"), sw.register("I.r128")
    assert (int(r104[3]["hi"]) << 64 | int(r104[3]["lo"])) == wide
    assert (int(r128[3]["hi"]), int(r128[3]["lo"])) == (value, value)
    assert [x.dtype.str for x in (sw.register("I.bits"), sw.register("I.r13"))] == ["|u1", "<u2"]
    r104[5] = (7, 1)
    sw.register("I.r64")[5] = 99
    [(_, data)] = sw.process(0, op(1, 5))
    assert int.from_bytes(data[5:18], "big") == 1 << 64 | 7
    assert value_of(data) == 99
    [(_, data)] = sw.process(0, op(1, 8, 5, 6))
    assert (int.from_bytes(data[5:18], "big"), value_of(data)) == (5, 6)


def test_registers_are_allocated_when_they_are_first_used(load: Callable[..., Program]) -> None:
    sw = Switch(load("state"))
    assert sw._lib.ss_register_bytes(sw.handle) == 0
    sw.process(0, op(0, 3, 1, 2))
    used = sw._lib.ss_register_bytes(sw.handle)
    assert used > 0
    assert sw.register("I.r64")[3] == 2
    assert sw._lib.ss_register_bytes(sw.handle) == used


def test_register_view_outlives_its_switch(load: Callable[..., Program]) -> None:
    view = Switch(load("state")).register("I.r64")
    view[:] = np.arange(8)
    assert view.sum() == 28


def csum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data + b'0') // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def crc16(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return crc


@settings(max_examples=60, deadline=None)
@given(
    wide=st.integers(0, (1 << 104) - 1),
    value=st.integers(0, (1 << 64) - 1),
    base=st.integers(0, 65535),
    top=st.integers(0, (1 << 32) - 1),
)
def test_hashes(load: Callable[..., Program], wide: int, value: int, base: int, top: int) -> None:
    sw = Switch(load("state"))
    [(_, data)] = sw.process(0, op(2, 0, wide, value, base, top), now_us=123456789012)
    crc32_, crc16_, csum_, xor, ident, bounded = struct.unpack(">IHHHQI", data[32:54])
    key = wide.to_bytes(13, "big") + value.to_bytes(8, "big")
    assert crc32_ == binascii.crc32(key)
    assert crc16_ == crc16(key)
    assert csum_ == csum(key)
    even = np.frombuffer(key + b"\0", dtype=">u2")
    assert xor == np.bitwise_xor.reduce(even)
    assert ident == value % (1 << 64) % 0xFFFFFFFFFFFFFFFF
    nibble = value.to_bytes(8, "big") + bytes([(value & 15) << 4])
    assert bounded == (binascii.crc32(nibble) % (top or 1) + base) & 0xFFFFFFFF
    assert int.from_bytes(data[54:60], "big") == 123456789012


def test_known_crc_values() -> None:
    assert binascii.crc32(b"123456789") == 0xCBF43926
    assert crc16(b"123456789") == 0xBB3D


def test_random_is_seeded_and_uniform(load: Callable[..., Program]) -> None:
    def draw(seed: int, n: int) -> list[tuple[int, int]]:
        sw = Switch(load("state"), seed=seed)
        out = [sw.process(0, op(3, value=6))[0][1] for _ in range(n)]
        return [(value_of(d), int.from_bytes(d[26:28], "big")) for d in out]

    a = draw(1, 2000)
    assert a == draw(1, 2000)
    assert a != draw(2, 2000)
    counts = np.bincount([x for x, _ in a], minlength=7)
    assert len(counts) == 7
    assert counts.min() > 200
    assert {y for _, y in a} == set(range(10, 20))


# ---- header stacks ----


@pytest.fixture
def stacks(load: Callable[..., Program]) -> Switch:
    return Switch(load("stacks"))


def labels(*values: int) -> bytes:
    return bytes(v << 1 | (i == len(values) - 1) for i, v in enumerate(values))


@pytest.mark.parametrize(
    ("data", "port", "out"),
    [
        (b"\0\0" + labels(1, 2, 3) + b"abcd", 3, None),
        (b"\0\0" + labels(1, 2, 3, 4, 5) + b"abc", 100, None),  # StackOutOfBounds
        (b"\0\0" + labels(1, 2) + b"ab", 101, None),  # PacketTooShort
        (b"\1\0" + labels(1, 2) + b"abc", 2, b"\1\0\xaa" + labels(1, 2) + b"abc"),
        (b"\1\0" + labels(1, 2, 3, 4) + b"abc", 4, b"\1\0\xaa\2\4\6abc"),
        (b"\2\0" + labels(1, 2) + b"abc", 2, b"\2\0" + labels(2) + b"abc"),
        (b"\3\1" + labels(1, 2, 3) + b"abc", 3, b"\3\1\2\xfe\7abc"),
        (b"\3\7" + labels(1, 2, 3) + b"abc", 3, None),  # index out of the stack
        (b"\4\0" + labels(1, 2, 3) + b"abc", 3, b"\4\0\4\4\7abc"),
        (b"\5\0" + labels(1) + b"\0\0\xff", 1, b"\5\0" + labels(1) + b"\0\1\0"),
        (b"\6\0" + labels(1, 2, 3) + b"abc", 3, b"\6\0\2\4abc"),
        (b"\7\0" + labels(1, 2, 3, 4) + b"abc", 4, b"\7\0\x09abc"),
        (b"\x09\x08X" + labels(1) + b"abc", 1, b"\x09\x08" + labels(1) + b"abc"),  # advance
        (b"\x09\x03X" + labels(1) + b"abc", 102, None),  # not whole bytes
        (b"\x09\xf8X", 101, None),
    ],
)
def test_stacks(stacks: Switch, data: bytes, port: int, out: bytes | None) -> None:
    assert stacks.process(0, data) == [(port, data if out is None else out)]
