"""The few calls of BMv2's Thrift service that P4Runtime has no working counterpart for.

Thrift's binary protocol over one connection; methods are named ``standard:<method>``, as BMv2
multiplexes its services. Whole register arrays are read, so the replies are decoded by numpy.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CARRIED_BITS", "RegisterClient", "ThriftError"]

_VERSION = 0x80010000
_CALL, _REPLY = 1, 2
_I32, _I64, _STRING, _STRUCT, _LIST = 8, 10, 11, 12, 15
_CONTEXT = 0
_AT_ONCE = 64  # requests under way; they and their answers must fit into the sockets' buffers

CARRIED_BITS = 63
"""Wider register values do not survive: they travel as signed 64-bit numbers and saturate."""


class ThriftError(RuntimeError):
    """The switch refused a call, or answered what this client does not understand. One line."""


class RegisterClient:
    """Reads and writes register arrays over one connection, which this object owns from now on."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._stream = connection.makefile("rb")

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def read_all(self, names: Sequence[str]) -> list[npt.NDArray[np.int64]]:
        """Whole arrays."""
        calls = [(_i32(1, _CONTEXT) + _string(2, name)) for name in names]
        return self._calls("standard:bm_register_read_all", calls)

    def fill(self, names: Sequence[str], start: int, stop: int, value: int = 0) -> None:
        """Write one value into elements ``start`` to ``stop - 1`` of each array."""
        end = _i32(3, start) + _i32(4, stop) + _i64(5, value)
        calls = [_i32(1, _CONTEXT) + _string(2, name) + end for name in names]
        self._calls("standard:bm_register_write_range", calls)

    def reset(self, names: Sequence[str]) -> None:
        """Set whole arrays to zero."""
        calls = [_i32(1, _CONTEXT) + _string(2, name) for name in names]
        self._calls("standard:bm_register_reset", calls)

    def write(self, name: str, values: dict[int, int]) -> None:
        """Write single elements, by index."""
        start = _i32(1, _CONTEXT) + _string(2, name)
        calls = [start + _i32(3, index) + _i64(4, value) for index, value in values.items()]
        self._calls("standard:bm_register_write", calls)

    def queue_depth(self, packets: int) -> None:
        """Length of every egress queue of a simple_switch."""
        self._calls("simple_switch:set_all_egress_queue_depths", [_i32(1, packets)])

    def _calls(self, method: str, calls: list[bytes]) -> list[Any]:
        """Call a method many times; the requests leave together, so one round trip is paid."""
        name = method.encode()
        head = struct.pack(">Ii", _VERSION | _CALL, len(name)) + name
        results: list[Any] = []
        error = ""
        for at in range(0, len(calls), _AT_ONCE):
            some = calls[at : at + _AT_ONCE]
            numbers = range(at, at + len(some))
            self._socket.sendall(
                b"".join(
                    head + struct.pack(">i", number) + arguments + b"\0"
                    for number, arguments in zip(numbers, some, strict=True)
                )
            )
            for _ in some:
                kind, fields = self._answer()
                if kind != _REPLY or any(fields.keys() - {0}):
                    error = error or str(fields.get(1, "no such method"))
                results.append(fields.get(0))
        if error:
            raise ThriftError(f"{method} was refused: {error}")
        return results

    def _answer(self) -> tuple[int, dict[int, Any]]:
        version, length = struct.unpack(">Ii", self._take(8))
        if version & 0xFFFF0000 != _VERSION:
            raise ThriftError("this is no Thrift server")
        self._take(length + 4)
        return version & 0xFF, self._structure()

    def _structure(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        while kind := self._take(1)[0]:
            number = struct.unpack(">h", self._take(2))[0]
            fields[number] = self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        if kind == _I32:
            return struct.unpack(">i", self._take(4))[0]
        if kind == _STRING:
            return self._take(struct.unpack(">i", self._take(4))[0]).decode(errors="replace")
        if kind == _STRUCT:
            return self._structure()
        if kind == _LIST:
            element, n = struct.unpack(">bi", self._take(5))
            if element == _I64:
                return np.frombuffer(self._take(8 * n), ">i8").astype(np.int64)
        raise ThriftError(f"an answer with a value of type {kind}")

    def _take(self, n: int) -> bytes:
        data = self._stream.read(n)
        if len(data) < n:
            raise ConnectionError("the switch closed its Thrift connection")
        return data


def _i32(number: int, value: int) -> bytes:
    return struct.pack(">bhi", _I32, number, value)


def _i64(number: int, value: int) -> bytes:
    return struct.pack(">bhq", _I64, number, value)


def _string(number: int, value: str) -> bytes:
    data = value.encode()
    return struct.pack(">bhi", _STRING, number, len(data)) + data
