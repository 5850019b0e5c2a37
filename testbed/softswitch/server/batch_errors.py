"""How a client learns which updates of a Write failed.

P4Runtime wants the status of the call to hold an error for each update. It travels as metadata, and
gRPC's clients refuse metadata of more than 8 KiB unless they are told otherwise: then they would
learn nothing. So the list of a long batch stops where the metadata is full, and the message of the
status names the failed updates of the whole batch in a few words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from testbed.softswitch.server import limits
from testbed.softswitch.server.messages import any_pb2, code_pb2, p4runtime_pb2, status_pb2
from testbed.softswitch.server.values import OK, UNKNOWN, P4Error

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
