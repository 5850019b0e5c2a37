"""P4Runtime's messages of many cells at once, as bytes.

A message object of protobuf takes some microseconds and 3 kB. Cells that differ in a few numbers
are written as columns instead: a ``Column`` has the bytes that each of n messages has in one place,
of which a message may leave out some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from testbed.softswitch.runtime.later import np
from testbed.softswitch.server.messages import p4runtime_pb2

if TYPE_CHECKING:
    from numpy.typing import NDArray

AT_ONCE = 1 << 11  # cells: their columns stay in the cache
ANSWER_BYTES = 1 << 16
"""Of a ReadResponse: protobuf's own Python, which many clients have, takes a second for it."""
LENGTH_DELIMITED = 2


class Column(NamedTuple):
    """The bytes that n messages have in one place."""

    data: NDArray[np.uint8]
    """u8[n, w], or u8[1, w] where all messages have the same."""
    keep: NDArray[np.bool_] | None
    """Which of the bytes are there, bool[n, w] or bool[n, 1]; None: all."""
    size: Any
    """How many are there in each message, i64[n], or an int where all have as many."""


def constant(data: bytes) -> Column:
    """Return the same bytes in each message."""
    return Column(np.frombuffer(data, np.uint8)[None], None, len(data))


def varint(values: Any) -> Column:
    """Return numbers of at most 64 bits, u[n] or one for all, in protobuf's form."""
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
    """Return numbers as P4Runtime has them, big-endian without leading zeros, of u8[n, w] with
    those."""
    width = matrix.shape[1]
    some = matrix != 0
    some[:, -1] = True
    zeros = some.argmax(1)
    if not zeros.any():
        return Column(matrix, None, width)
    return Column(matrix, np.arange(width) >= zeros[:, None], width - zeros)


def big_endian(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return u8[n, w] of unsigned numbers, (lo, hi) pairs, or what has that form already."""
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


def message(
    field: int, columns: Sequence[Column], where: NDArray[np.bool_] | None = None
) -> list[Column]:
    """Return a field that is a message or a text of these columns; left out where ``where`` is
    False."""
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
    """The head of a length-delimited field."""
    value = field << 3 | LENGTH_DELIMITED
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80, value >> 7])


def one_column(columns: Sequence[Column], n: int) -> Column:
    """Return the columns of n messages as one."""
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
    """Return one column of n messages, each of which is in one part: which ones, and their
    columns."""
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
    """Return n messages, one after the other."""
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
