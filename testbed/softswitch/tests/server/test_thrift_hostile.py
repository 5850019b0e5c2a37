# SPDX-License-Identifier: Apache-2.0
"""What no client of BMv2 sends by Thrift: the service answers or hangs up, and goes on."""

from __future__ import annotations

import math
import random
import socket
import struct
from collections.abc import Iterator

import pytest

from canary_softswitch.thrift.server import Services
from testbed.softswitch.tests.server.client import PROGRAMS, Process
from testbed.softswitch.tests.server.thrift_client import RegisterClient
from tests.patience import PATIENCE_S

VERSION = 0x80010000
SIZES = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}
NAMES = (
    *(b"I.entries", b"I.array", b"I.note", b"I.own"),
    *(b"I.direct", b"I.hashed", b"I.set", b"I.send", b"ap", b"ecmp", b"NoAction"),
)
STRUCTS = (
    "08000100000000 0c0002 0b0001 00000001 01 00 00",  # an exact match
    "08000100000001 0c0003 0b0001 00000002 0001 080002 00000010 00 00",  # of a prefix
    "040001 3fb999999999999a 080002 00000005 00",  # a rate
    "0a0001 0000000000000001 0a0002 ffffffffffffffff 00",  # the value of a counter
)


def packed(kind: int, number: int) -> bytes:
    """A whole number as a value of a type."""
    return (number % (1 << 8 * SIZES[kind])).to_bytes(SIZES[kind], "big")


def value(rng: random.Random, kind: int, depth: int = 0) -> bytes:
    """A random value of a type of Thrift's binary protocol, often one that means something."""
    if kind in SIZES:
        top = 1 << 8 * SIZES[kind] - 1
        edge = rng.choice((0, 1, 2, 3, -1, top - 1, -top, rng.getrandbits(64)))
        if kind == 4 and rng.random() < 0.5:
            return struct.pack(">d", rng.choice((0.1, -1.0, 1e300, math.nan, math.inf)))
        return packed(kind, edge)
    if kind == 11:
        text = rng.choice((*NAMES, b"", b"\1", b"\0\1", b"01", rng.randbytes(20), bytes(300)))
        return struct.pack(">i", len(text)) + text
    if kind == 15:
        of = rng.choice((8, 11, 12, 4) if depth < 3 else (8, 11))
        n = rng.randrange(4)
        return struct.pack(">bi", of, n) + b"".join(value(rng, of, depth + 1) for _ in range(n))
    if rng.random() < 0.5:  # a match, a rate or the value of a counter
        return bytes.fromhex(rng.choice(STRUCTS))
    return fields(rng, depth + 1)


def fields(rng: random.Random, depth: int = 0) -> bytes:
    """A random struct."""
    out = b""
    for number in range(1, rng.randrange(1, 8)):
        kind = rng.choice((2, 4, 8, 8, 10, 11, 11, 15, 12) if depth < 3 else (8, 11))
        out += struct.pack(">bh", kind, number) + value(rng, kind, depth)
    return out + b"\0"


def arguments(rng: random.Random) -> bytes:
    """Random arguments. Most calls take a context, which is 0, and a name first."""
    if rng.random() < 0.3:
        return fields(rng)
    out = struct.pack(">bhi", 8, 1, 0)
    name = rng.choice(NAMES)
    out += struct.pack(">bhi", 11, 2, len(name)) + name
    for number in range(3, rng.randrange(3, 8)):
        kind = rng.choice((8, 8, 8, 10, 11, 15, 15, 12))
        out += struct.pack(">bh", kind, number) + value(rng, kind)
    return out + b"\0"


def message(name: str, arguments: bytes) -> bytes:
    text = name.encode()
    return struct.pack(">Ii", VERSION | 1, len(text)) + text + struct.pack(">i", 7) + arguments


def answer(port: int, data: bytes) -> bytes:
    """What comes back, b"" when the connection was closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as s:
        out = b""
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while part := s.recv(1 << 16):
                out += part
        except TimeoutError:
            raise
        except OSError:  # it had enough
            return b""
        return out


@pytest.fixture(scope="module")
def names() -> list[str]:
    """All calls that the service has."""
    from canary_softswitch.device.device import Device
    from canary_softswitch.ports.ports import Ports

    ports = Ports()
    device = Device(0, ports, 1)
    try:
        calls = Services(device, 0).names()
    finally:
        device.close()
        ports.close()
    assert len(calls) > 80
    return calls


def fuzz(program: str, names: list[str], seed: int, n: int) -> None:
    """Call everything with random arguments. A defect would be on stderr."""
    rng = random.Random(seed)
    with Process(str(PROGRAMS / f"{program}.json")) as p:
        for name in names:
            for _ in range(n):
                out = answer(p.thrift, message(name, arguments(rng)))
                assert struct.unpack_from(">I", out)[0] >> 16 == VERSION >> 16, name
        with RegisterClient(p.thrift) as r:
            assert len(r.config_md5()) == 16
    assert p.popen.returncode == 0 and not p.errors, p.errors[-2000:]


@pytest.mark.parametrize("program", ["rates", "selector"])
def test_calls_with_arguments_of_any_type(program: str, names: list[str]) -> None:
    fuzz(program, names, 7, 12)


@pytest.mark.nightly
@pytest.mark.parametrize("program", ["rates", "selector"])
@pytest.mark.parametrize("seed", range(8, 11))
def test_more_calls_with_arguments_of_any_type(program: str, seed: int, names: list[str]) -> None:
    fuzz(program, names, seed, 400)


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    """One process for what follows. A defect would be on stderr."""
    with Process(str(PROGRAMS / "rates.json")) as p:
        yield p
    assert p.popen.returncode == 0 and not p.errors, p.errors[-2000:]


@pytest.mark.parametrize("field", [2, 3, 4])
def test_numbers_that_are_none(field: int, process: Process) -> None:
    """A handle that is no whole number is refused before it is kept or sent back."""
    wrong = struct.pack(">bhd", 4, field, 0.5) + b"\0"
    for call in ("mgrp_create", "node_create", "node_associate", "node_destroy"):
        assert answer(process.thrift, message(f"simple_pre_lag:bm_mc_{call}", wrong))
    entries = answer(process.thrift, message("simple_pre_lag:bm_mc_get_entries", b"\0"))
    assert b"0.5" not in entries and b"mgrps" in entries


def test_bytes_of_any_kind(process: Process) -> None:
    rng = random.Random(8)
    whole = message("standard:bm_mt_add_entry", fields(rng))
    nested = message("standard:bm_mgmt_get_info", b"\x0c\0\1" * 100_000)
    for n in range(150):
        data = bytearray(whole[: rng.randrange(len(whole))] if n % 2 else whole)
        for _ in range(n % 5):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        answer(process.thrift, bytes(data))
    for data in (nested, b"\xff" * 1000, rng.randbytes(5000), bytes(10000)):
        answer(process.thrift, data)
    with RegisterClient(process.thrift) as r:
        assert len(r.config_md5()) == 16
