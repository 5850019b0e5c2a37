"""What no client of BMv2 sends by Thrift: the service answers or hangs up, and goes on."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from testbed.softswitch.server.thrift_service import Services
from tests.testbed.softswitch.server.client import PROGRAMS, Process
from tests.testbed.softswitch.server.thrift_client import RegisterClient

VERSION = 0x80010000
SIZES = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}


def value(rng: random.Random, kind: int, depth: int = 0) -> bytes:
    """A random value of a type of Thrift's binary protocol."""
    if kind in SIZES:
        return rng.choice((rng.randbytes(SIZES[kind]), bytes(SIZES[kind])))
    if kind == 11:
        text = rng.choice((b"", b"I.entries", b"I.array", b"I.note", rng.randbytes(20)))
        return struct.pack(">i", len(text)) + text
    if kind == 15:
        of = rng.choice((8, 11, 12, 4) if depth < 3 else (8, 11))
        n = rng.randrange(4)
        return struct.pack(">bi", of, n) + b"".join(value(rng, of, depth + 1) for _ in range(n))
    return fields(rng, depth + 1)


def fields(rng: random.Random, depth: int = 0) -> bytes:
    """A random struct."""
    out = b""
    for number in range(1, rng.randrange(1, 8)):
        kind = rng.choice((2, 4, 8, 8, 10, 11, 11, 15, 12) if depth < 3 else (8, 11))
        out += struct.pack(">bh", kind, number) + value(rng, kind, depth)
    return out + b"\0"


def message(name: str, arguments: bytes) -> bytes:
    text = name.encode()
    return struct.pack(">Ii", VERSION | 1, len(text)) + text + struct.pack(">i", 7) + arguments


def answer(port: int, data: bytes) -> bytes:
    """What comes back, b"" when the connection was closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
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
    from testbed.softswitch.server.device import Device
    from testbed.softswitch.server.ports import Ports

    ports = Ports()
    device = Device(0, ports, 1)
    try:
        calls = Services(device, 0).names()
    finally:
        device.close()
        ports.close()
    assert len(calls) > 80
    return calls


@pytest.mark.parametrize("program", ["rates", "selector"])
def test_calls_with_arguments_of_any_type(program: str, names: list[str]) -> None:
    rng = random.Random(7)
    with Process(str(PROGRAMS / f"{program}.json")) as p:
        for name in names:
            for _ in range(12):
                out = answer(p.thrift, message(name, fields(rng)))
                assert not out or struct.unpack_from(">I", out)[0] >> 16 == VERSION >> 16
        with RegisterClient(p.thrift) as r:
            assert len(r.config_md5()) == 16
    assert p.popen.returncode == 0 and not p.errors, p.errors[-2000:]


def test_bytes_of_any_kind() -> None:
    rng = random.Random(8)
    whole = message("standard:bm_mt_add_entry", fields(rng))
    nested = message("standard:bm_mgmt_get_info", b"\x0c\0\1" * 100_000)
    with Process(str(PROGRAMS / "rates.json")) as p:
        for n in range(150):
            data = bytearray(whole[: rng.randrange(len(whole))] if n % 2 else whole)
            for _ in range(n % 5):
                if data:
                    data[rng.randrange(len(data))] = rng.randrange(256)
            answer(p.thrift, bytes(data))
        for data in (nested, b"\xff" * 1000, rng.randbytes(5000), bytes(10000)):
            answer(p.thrift, data)
        with RegisterClient(p.thrift) as r:
            assert len(r.config_md5()) == 16
    assert p.popen.returncode == 0 and not p.errors, p.errors[-2000:]
