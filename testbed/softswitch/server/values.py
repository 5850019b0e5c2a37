"""P4Runtime's errors and byte strings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from testbed.softswitch.server.messages import code_pb2, p4info_pb2

OK = code_pb2.OK
ALREADY_EXISTS = code_pb2.ALREADY_EXISTS
DEADLINE_EXCEEDED = code_pb2.DEADLINE_EXCEEDED
FAILED_PRECONDITION = code_pb2.FAILED_PRECONDITION
INTERNAL = code_pb2.INTERNAL
INVALID_ARGUMENT = code_pb2.INVALID_ARGUMENT
NOT_FOUND = code_pb2.NOT_FOUND
OUT_OF_RANGE = code_pb2.OUT_OF_RANGE
PERMISSION_DENIED = code_pb2.PERMISSION_DENIED
RESOURCE_EXHAUSTED = code_pb2.RESOURCE_EXHAUSTED
UNIMPLEMENTED = code_pb2.UNIMPLEMENTED
UNKNOWN = code_pb2.UNKNOWN


LONGEST = 400  # characters of a message: a client's own bytes may be in it


class P4Error(Exception):
    """A refused request: canonical code and a message of one line."""

    def __init__(self, code: int, message: str) -> None:
        if len(message) > LONGEST:
            message = f"{message[:LONGEST]}..."
        super().__init__(message)
        self.code = code
        self.message = message


def encode(value: int) -> bytes:
    """The shortest byte string of a value, as P4Runtime wants it."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode(data: bytes, width: int, what: str) -> int:
    """Value of a byte string, canonical or not, that must fit in ``width`` bits."""
    if not data:
        raise P4Error(INVALID_ARGUMENT, f"{what}: the byte string is empty")
    value = int.from_bytes(data, "big")
    if value >> width:
        raise P4Error(OUT_OF_RANGE, f"{what}: {value:#x} does not fit in {width} bits")
    return value


def one_of(what: str, known: Iterable[int], id_: int) -> None:
    """Error unless an id is known."""
    if id_ not in known:
        raise P4Error(NOT_FOUND, f"no {what} has the id {id_}")


INT64_MAX = (1 << 63) - 1  # the largest count that P4Runtime and Thrift can say


def counted(data: Any, what: str) -> tuple[int, int]:
    """Return packets and bytes of CounterData; ``P4Error`` for negative ones."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise P4Error(INVALID_ARGUMENT, f"{what}: a count is negative")
    return data.packet_count, data.byte_count


def fill_counter(unit: int, packets: int, size: int, data: Any) -> None:
    """Fill in CounterData; only what the unit counts."""
    data.SetInParent()
    if unit != p4info_pb2.CounterSpec.BYTES:
        data.packet_count = min(packets, INT64_MAX)
    if unit != p4info_pb2.CounterSpec.PACKETS:
        data.byte_count = min(size, INT64_MAX)
