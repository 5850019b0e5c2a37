"""P4Runtime's messages of many cells at once, as bytes.

A message object of protobuf takes some microseconds and 3 kB. Cells that differ in a few numbers
are written as columns instead: column j has the bytes that each of n messages has in this place,
u8[n, w], and how many of them count, which may differ from cell to cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from testbed.softswitch.runtime.later import np
from testbed.softswitch.server.messages import p4runtime_pb2

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = tuple[NDArray[np.uint8], NDArray[np.int64]]

AT_ONCE = 1 << 11  # cells: their columns stay in the cache
ANSWER_BYTES = 1 << 16
"""Of a ReadResponse: protobuf's own Python, which many clients have, takes a second for it."""
LENGTH_DELIMITED = 2


def constant(n: int, data: bytes) -> Column:
    """The same bytes in each of n messages."""
    matrix = np.broadcast_to(np.frombuffer(data, np.uint8), (n, len(data)))
    return matrix, np.full(n, len(data), np.int64)


def varint(values: NDArray[Any]) -> Column:
    """Numbers of at most 64 bits in protobuf's form."""
    left = values.astype(np.uint64)
    most = max(1, -(-int(left.max(initial=0)).bit_length() // 7))
    matrix = np.empty((len(left), most), np.uint8)
    length = np.ones(len(left), np.int64)
    for i in range(most):
        matrix[:, i] = left & np.uint64(0x7F)
        left = left >> np.uint64(7)
        if i + 1 < most:
            more = left > 0
            matrix[:, i] |= more.astype(np.uint8) << 7
            length += more
    return matrix, length


def octets(matrix: NDArray[np.uint8]) -> Column:
    """Numbers as P4Runtime has them, big-endian without leading zeros, of u8[n, w] with those."""
    width = matrix.shape[1]
    some = matrix != 0
    some[:, -1] = True
    zeros = some.argmax(1)
    if zeros.any():
        at = np.minimum(np.arange(width) + zeros[:, None], width - 1)
        matrix = np.take_along_axis(matrix, at, 1)
    return matrix, width - zeros


def big_endian(values: NDArray[Any]) -> NDArray[np.uint8]:
    """u8[n, w] of unsigned numbers, (lo, hi) pairs, or what has that form already."""
    if values.ndim == 2:
        return values
    little = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    return little[:, ::-1]


def number(
    field: int, values: NDArray[Any], where: NDArray[np.bool_] | None = None
) -> list[Column]:
    """A field that is a number; protobuf leaves out those that are 0, and so are others."""
    there = values != 0 if where is None else where
    digits, length = varint(values)
    tag, one = constant(len(values), bytes([field << 3]))
    return [(tag, one * there), (digits, length * there)]


def message(
    field: int, columns: Sequence[Column], where: NDArray[np.bool_] | None = None
) -> list[Column]:
    """A field that is a message or a text of these columns; left out where ``where`` is False."""
    n = len(columns[0][1])
    size = sum((length for _, length in columns), np.zeros(n, np.int64))
    head = [constant(n, _tag(field)), varint(size)]
    whole = [*head, *columns]
    return whole if where is None else [(matrix, length * where) for matrix, length in whole]


def _tag(field: int) -> bytes:
    """The head of a length-delimited field."""
    value = field << 3 | LENGTH_DELIMITED
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80, value >> 7])


def joined(columns: Sequence[Column]) -> bytes:
    """The messages, one after the other."""
    length = sum((one for _, one in columns), np.zeros(len(columns[0][1]), np.int64))
    ends = np.cumsum(length)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    at = ends - length
    for matrix, one in columns:
        least = int(one.min(initial=0)) if len(one) else 0
        for i in range(matrix.shape[1]):
            if i < least:
                out[at + i] = matrix[:, i]
            else:
                some = one > i
                out[at[some] + i] = matrix[some, i]
        at = at + one
    return out.tobytes()


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
