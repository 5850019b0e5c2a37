# SPDX-License-Identifier: Apache-2.0
"""P4Runtime's messages: the generated modules, errors, byte strings, and many messages at once.

The classes of the generated modules are made at import, so they have no types.

P4Runtime wants the status of a Write to hold an error for each update. It travels as metadata, and
gRPC's clients refuse metadata of more than 8 KiB unless they are told otherwise: then they would
learn nothing. So the list of a long batch stops where the metadata is full, and the message of the
status names the failed updates of the whole batch in a few words.

A message object of protobuf takes some microseconds and 3 kB. Messages of many cells or entries,
which differ in a few numbers, are made as columns of bytes instead: a ``Column`` has the bytes that
each of n messages has in one place, of which a message may leave out some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import google.protobuf.any_pb2 as _any
import google.rpc.code_pb2 as _code
import google.rpc.status_pb2 as _status
import numpy as np
import p4.config.v1.p4info_pb2 as _p4info
import p4.v1.p4data_pb2 as _p4data
import p4.v1.p4runtime_pb2 as _p4runtime
from numpy.typing import NDArray

from canary_softswitch import limits

any_pb2: Any = _any
code_pb2: Any = _code
status_pb2: Any = _status
p4info_pb2: Any = _p4info
p4data_pb2: Any = _p4data
p4runtime_pb2: Any = _p4runtime


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
    """A refused request: its canonical gRPC code and a message of one line."""

    def __init__(self, code: int, message: str) -> None:
        if len(message) > LONGEST:
            message = f"{message[:LONGEST]}..."
        super().__init__(message)
        self.code = code
        self.message = message


def encode(value: int) -> bytes:
    """Return P4Runtime's canonical byte string of a value: the shortest, big-endian."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode(data: bytes, width: int, what: str) -> int:
    """Return the value of a byte string; raise ``P4Error`` if it has more than ``width`` bits."""
    if not data:
        raise P4Error(INVALID_ARGUMENT, f"{what}: the byte string is empty")
    value = int.from_bytes(data, "big")
    if value >> width:
        raise P4Error(OUT_OF_RANGE, f"{what}: {value:#x} does not fit in {width} bits")
    return value


def one_of(what: str, known: Iterable[int], id_: int) -> None:
    """Raise NOT_FOUND unless an id is known."""
    if id_ not in known:
        raise P4Error(NOT_FOUND, f"no {what} has the id {id_}")


INT64_MAX = (1 << 63) - 1  # the largest count that P4Runtime and Thrift can say


def counted(data: Any, what: str) -> tuple[int, int]:
    """Return packets and bytes of CounterData; ``P4Error`` for negative ones."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise P4Error(INVALID_ARGUMENT, f"{what}: a count is negative")
    return data.packet_count, data.byte_count


def fill_counter(unit: int, packets: int, size: int, data: Any) -> None:
    """Fill in the packets and bytes of CounterData, of which the unit may count one only."""
    data.SetInParent()
    if unit != p4info_pb2.CounterSpec.BYTES:
        data.packet_count = min(packets, INT64_MAX)
    if unit != p4info_pb2.CounterSpec.PACKETS:
        data.byte_count = min(size, INT64_MAX)


class ControllerHeader:
    """A controller header: id, name and bits of its fields in the order of the packet."""

    def __init__(self, fields: Sequence[tuple[int, str, int]] = ()) -> None:
        self.fields = fields  # id, name and bits of each
        self.bits = sum(width for _, _, width in self.fields)

    def pack(self, metadata: Any) -> bytes:
        """Return the bytes of a header from PacketMetadata, which must have every field."""
        values = {m.metadata_id: m.value for m in metadata}
        if len(metadata) != len(values) or set(values) != {f[0] for f in self.fields}:
            names = ", ".join(f[1] for f in self.fields) or "none"
            raise P4Error(
                INVALID_ARGUMENT, f"packet-out metadata must have each of these once: {names}"
            )
        value = 0
        for i, name, width in self.fields:
            value = value << width | decode(values[i], width, f"packet-out metadata {name!r}")
        padding = -self.bits % 8
        return (value << padding).to_bytes((self.bits + padding) // 8, "big")

    def unpack(self, data: bytes) -> Any:
        """Return the PacketIn of a packet that starts with the header."""
        n = (self.bits + 7) // 8
        value, left = int.from_bytes(data[:n], "big") >> -self.bits % 8, self.bits
        message = p4runtime_pb2.PacketIn(payload=data[n:])
        for i, _, width in self.fields:
            left -= width
            message.metadata.add(metadata_id=i, value=encode(value >> left & (1 << width) - 1))
        return message


MESSAGE_BYTES = 1000
OTHER_BYTES = 400  # of names and of what gRPC itself adds to the metadata


class BatchError(P4Error):
    """A Write of which some updates failed; ``errors`` has an item for each update.

    ``status`` is the google.rpc.Status of the call, serialized.
    """

    def __init__(self, errors: Sequence[P4Error | None]) -> None:
        super().__init__(UNKNOWN, "")
        self.message = summary(errors)
        status = status_pb2.Status(code=UNKNOWN, message=self.message)
        left = limits.STATUS_BYTES - OTHER_BYTES - len(self.message)  # it is there by itself, too
        left = left * 3 // 4 - len(self.message)  # the status travels as base64
        for e in errors:
            detail = _detail(e)
            left -= detail.ByteSize() + 4
            if left < 0:
                break
            status.details.append(detail)
        self.status: bytes = status.SerializeToString()


def _detail(e: P4Error | None) -> Any:
    error = p4runtime_pb2.Error(canonical_code=OK)
    if e is not None:
        error = p4runtime_pb2.Error(canonical_code=e.code, message=e.message)
    packed = any_pb2.Any()
    packed.Pack(error)
    return packed


def summary(errors: Sequence[P4Error | None]) -> str:
    """Return a line that says why updates failed and which ones, counted from 0, as far as it fits.

    Updates that failed for the same reason are named together.
    """
    indices: dict[tuple[int, str], list[int]] = {}
    for i, e in enumerate(errors):
        if e is not None:
            indices.setdefault((e.code, e.message), []).append(i)
    left = sum(map(len, indices.values()))
    line = f"{left} of {len(errors)} updates failed"
    separator = ". "
    for (code, message), failed in indices.items():
        line += f"{separator}{code_pb2.Code.Name(code)}, {message}: "
        line = line.encode("ascii", "backslashreplace").decode()  # metadata has no other text
        for n, (first, last) in enumerate(_runs(failed)):
            line += f"{', ' if n else ''}{first}" + (f" to {last}" if last > first else "")
            left -= last - first + 1
            if len(line) > MESSAGE_BYTES and left:
                return f"{line} and {left} more"
        separator = "; "
    return line


def _runs(indices: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of numbers that follow each other."""
    for _, run in groupby(enumerate(indices), lambda pair: pair[1] - pair[0]):
        numbers = [i for _, i in run]
        yield numbers[0], numbers[-1]


# ---- many messages at once ----

AT_ONCE = 1 << 11  # cells: their columns stay in the cache
ANSWER_BYTES = 1 << 16
"""The most bytes of a ReadResponse; pure-Python protobuf, as in many clients, parses it in 1 s."""
LENGTH_DELIMITED = 2


class Column(NamedTuple):
    """The bytes that each of n messages has in one place."""

    data: NDArray[np.uint8]
    """u8[n, w], or u8[1, w] where all messages have the same."""
    keep: NDArray[np.bool_] | None
    """Which of the bytes are there, bool[n, w] or bool[n, 1]; None: all."""
    size: Any
    """How many are there in each message, i64[n], or an int where all have as many."""


def constant(data: bytes) -> Column:
    """Return a column with the same bytes in each message."""
    return Column(np.frombuffer(data, np.uint8)[None], None, len(data))


def varint(values: Any) -> Column:
    """Return a column of numbers (u[n] or one for all, at most 64 bits) as protobuf varints."""
    left = np.atleast_1d(np.asarray(values)).astype(np.uint64)
    most = max(1, -(-int(left.max(initial=0)).bit_length() // 7))
    if most == 1:
        return Column(left.astype(np.uint8)[:, None], None, 1)
    matrix = np.empty((len(left), most), np.uint8)
    length = np.ones(len(left), np.int64)
    for i in range(most):
        matrix[:, i] = left & np.uint64(0x7F)
        left = left >> np.uint64(7)
        if i + 1 < most:
            more = left > 0
            matrix[:, i] |= more.astype(np.uint8) << 7
            length += more
    if len(length) == 1 or (length == most).all():
        return Column(matrix, None, most)
    return Column(matrix, np.arange(most) < length[:, None], length)


def octets(matrix: NDArray[np.uint8]) -> Column:
    """Return a column of P4Runtime's canonical numbers from big-endian ones, u8[n, w].

    Leading zero bytes are left out.
    """
    width = matrix.shape[1]
    some = matrix != 0
    some[:, -1] = True
    zeros = some.argmax(1)
    if not zeros.any():
        return Column(matrix, None, width)
    return Column(matrix, np.arange(width) >= zeros[:, None], width - zeros)


def big_endian(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return unsigned numbers or (lo, hi) pairs as big-endian bytes, u8[n, w]."""
    if values.ndim == 2:
        return values
    little = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    return little[:, ::-1]


def number(field: int, values: Any, where: NDArray[np.bool_] | None = None) -> list[Column]:
    """Return a field that is a number: of each message, u[n], or the same in all, an int above 0.

    Without ``where`` the numbers that are 0 are left out, as protobuf leaves them out.
    """
    if where is None and not isinstance(values, int):
        where = values != 0
    return masked([constant(bytes([field << 3])), varint(values)], where)


def nested(
    field: int, columns: Sequence[Column], where: NDArray[np.bool_] | None = None
) -> list[Column]:
    """Return a field that is a message or a string of these columns, where ``where`` is True.

    ``where`` is bool[n], for n messages; None means all of them.
    """
    size = sum(c.size for c in columns)
    return masked([constant(_tag(field)), varint(size), *columns], where)


def masked(columns: list[Column], where: NDArray[np.bool_] | None) -> list[Column]:
    """Return the columns without their bytes in the messages where ``where``, bool[n], is False."""
    if where is None or where.all():
        return columns
    there = where[:, None]
    return [
        Column(c.data, there if c.keep is None else c.keep & there, c.size * where) for c in columns
    ]


def _tag(field: int) -> bytes:
    """Return the head of a length-delimited field."""
    value = field << 3 | LENGTH_DELIMITED
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80, value >> 7])


def one_column(columns: Sequence[Column], n: int) -> Column:
    """Return the columns of n messages as one, with the data u8[n, w]."""
    width = sum(c.data.shape[1] for c in columns)
    data = np.empty((n, width), np.uint8)
    keep = np.ones((n, width), np.bool_)
    at = 0
    for c in columns:
        end = at + c.data.shape[1]
        data[:, at:end] = c.data
        if c.keep is not None:
            keep[:, at:end] = c.keep
        at = end
    return Column(data, keep, sum(c.size for c in columns))


def either(n: int, parts: Sequence[tuple[NDArray[np.int64], Sequence[Column]]]) -> Column:
    """Return one column of n messages that are divided into parts.

    A part has the indices of its messages, int64[], and their columns.
    """
    alone = [(some, one_column(columns, len(some))) for some, columns in parts]
    width = max(c.data.shape[1] for _, c in alone)
    data = np.empty((n, width), np.uint8)
    keep = np.zeros((n, width), np.bool_)
    size = np.empty(n, np.int64)
    for some, c in alone:
        data[some, : c.data.shape[1]] = c.data
        keep[some, : c.data.shape[1]] = c.keep
        size[some] = c.size
    return Column(data, keep, size)


def joined(columns: Sequence[Column], n: int) -> bytes:
    """Return the bytes of n messages, one after the other."""
    whole = one_column(columns, n)
    return whole.data[whole.keep].tobytes()


def answers(pieces: Iterable[Any]) -> Iterator[bytes]:
    """Yield serialized ReadResponses of at most ``ANSWER_BYTES``, where a piece is not longer.

    Args:
        pieces: Entities, and bytes of such responses, which may be joined.
    """
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        if not isinstance(piece, bytes):
            piece = p4runtime_pb2.ReadResponse(entities=[piece]).SerializeToString()
        if waiting and size + len(piece) > ANSWER_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
        waiting.append(piece)
        size += len(piece)
    if waiting:
        yield b"".join(waiting)
