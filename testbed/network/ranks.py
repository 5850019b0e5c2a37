# SPDX-License-Identifier: Apache-2.0
"""Ranks of a collective, whose hosts wait for what they receive and send lost packets again.

`ranks.h` has the C side and says how they do so.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray, LongArray

Recovery = Literal["go-back-n", "selective-repeat"]

BTH = 12 + 4
"""Bytes of RoCEv2's header, with that of an acknowledgement, behind UDP's."""

_NOWHERE = 0xFFFFFFFF


@dataclass(frozen=True)
class Messages:
    """The M messages of an iteration on C connections between R ranks.

    Attributes:
        sender, receiver: The ranks of each connection, int32[C].
        connection: The connection of each message, int32[M], ascending: on a connection they are
            sent in this order.
        after: The messages that a message needs its rank to receive first, as pairs (the former,
            the latter), int32[P, 2].
    """

    sender: IntArray
    receiver: IntArray
    connection: IntArray
    after: IntArray


@dataclass(frozen=True)
class Ranks:
    """Hosts that carry out the iterations of a collective, one after another.

    The first F flows of their source are connections, and the next F their acknowledgements.

    Attributes:
        messages: The messages of an iteration.
        host: The host of each rank, int32[R].
        flow: The flow of each connection, int32[C]; -1 within a rack, where no packet is sent.
        chunk: The packets of a message.
        last_size, full_size: The bytes of a message's last frame and of the others.
        recovery: What senders do about lost packets.
        reorder: With selective repeat: the packets behind a missing one after which it is asked
            for; behind a message's last packet, as much time.
        frame_ns: The time in ns that a host's link takes for a full frame.
        timeout_ns: After this time in ns without an answer, packets are sent again.
        pause_ns: The time in ns between two iterations of a rank.
        near_ns: The time in ns that a message takes within a rack.
        end_ns: The time in ns from which on nothing is sent.
        most: The most iterations that are noted.
    """

    messages: Messages
    host: IntArray
    flow: IntArray
    chunk: int
    last_size: int
    full_size: int
    recovery: Recovery
    reorder: int
    frame_ns: int
    timeout_ns: int
    pause_ns: int
    near_ns: int
    end_ns: int
    most: int


@dataclass(frozen=True)
class Iterations:
    """What ranks noted.

    Attributes:
        begin_ns, end_ns: When the first rank began an iteration, and the last one ended it, int64,
            of each iteration that all ranks ended.
        resent: The packets of each flow with data that were sent again, int64[F].
    """

    begin_ns: LongArray
    end_ns: LongArray
    resent: LongArray


_NS = ("frame_ns", "timeout_ns", "pause_ns", "near_ns", "end_ns")
_NUMBERS = (
    *("source", "n_connections", "n_ranks", "n_messages", "chunk", "last_size", "full_size"),
    *("reorder", "selective", "most", "n_flows"),
)
_ARRAYS = (
    *("flow", "connection", "sender", "receiver", "host", "first", "of", "needs"),
    *("next_first", "next", "own_first", "own", "sends", "receives", "began", "ended", "resent"),
)


class _Given(ctypes.Structure):
    """The structure ``ranks`` of `ranks.h`."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in _NS),
        *((name, ctypes.c_uint32) for name in _NUMBERS),
        *((name, ctypes.c_void_p) for name in _ARRAYS),
    ]


class GivenRanks:
    """Ranks in arrays that the C code reads, and what it notes of their iterations.

    Args:
        ranks: The ranks.
        source: The network's number of their source.

    Attributes:
        structure: What is given to C.
    """

    def __init__(self, ranks: Ranks, source: int) -> None:
        messages, n = ranks.messages, len(ranks.host)
        of = messages.connection
        after = messages.after[np.argsort(messages.after[:, 0], kind="stable")]
        own = np.argsort(messages.sender, kind="stable")
        connections = np.arange(len(ranks.flow))
        with_flow = ranks.flow >= 0
        connection = np.zeros(int(with_flow.sum()), np.uint32)
        connection[ranks.flow[with_flow]] = connections[with_flow]
        self._connection = connection
        self._began, self._ended = np.zeros((2, n, ranks.most), np.uint64)
        self._resent = np.zeros(len(ranks.flow), np.uint64)
        arrays: dict[str, npt.NDArray[Any]] = {
            "flow": np.where(with_flow, ranks.flow, _NOWHERE),
            "connection": connection,
            "sender": messages.sender,
            "receiver": messages.receiver,
            "host": ranks.host,
            "first": _begins(of, len(connections)),
            "of": of,
            "needs": np.bincount(after[:, 1], minlength=len(of)),
            "next_first": _begins(after[:, 0], len(of)),
            "next": after[:, 1],
            "own_first": _begins(messages.sender[own], n),
            "own": own,
            "sends": np.bincount(messages.sender[of], minlength=n),
            "receives": np.bincount(messages.receiver[of], minlength=n),
        }
        self._held = {name: each.astype(np.uint32) for name, each in arrays.items()}
        self._held |= {"began": self._began, "ended": self._ended, "resent": self._resent}
        self.structure = _Given(
            **{name: getattr(ranks, name) for name in _NS},
            **{name: getattr(ranks, name) for name in ("chunk", "last_size", "full_size")},
            source=source,
            n_connections=len(connections),
            n_ranks=n,
            n_messages=len(of),
            reorder=ranks.reorder,
            selective=ranks.recovery == "selective-repeat",
            most=ranks.most,
            n_flows=len(connection),
            **{name: each.ctypes.data for name, each in self._held.items()},
        )

    def iterations(self) -> Iterations:
        """Return what ranks have noted by now."""
        whole = int((self._ended > 0).all(axis=0).sum())
        return Iterations(
            self._began[:, :whole].min(axis=0).astype(np.int64),
            self._ended[:, :whole].max(axis=0).astype(np.int64),
            self._resent[self._connection].astype(np.int64),
        )


def _begins(sorted_numbers: npt.NDArray[np.integer], n: int) -> LongArray:
    """Return where each of n numbers begins in a sorted array, and its end, int64[n + 1]."""
    return np.searchsorted(sorted_numbers, np.arange(n + 1))
