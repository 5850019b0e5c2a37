# SPDX-License-Identifier: Apache-2.0
"""Schedules of packets: when hosts send which packet.

A schedule yields its packets in blocks, in the order of time, so that only the packets to be sent
soon take memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

FOREVER = 2**64 - 1

_BLOCK = 100_000
"""The approximate number of packets in a block, which fit into the processor's cache."""


@dataclass(frozen=True)
class Packets:
    """P packets in memory, which are a schedule of one block.

    Attributes:
        time_ns: When each packet is sent, uint64[P], sorted.
        flow: The flow of each packet, uint32[P].
        size: Bytes of each frame, uint16[P], or None if the flow's template is the whole frame.
        ttl: The TTL of each frame, uint8[P], also written to its IP ID, for traceroutes; or None.
        until_ns: All packets that are sent before this time are in this block or an earlier one.
    """

    time_ns: npt.NDArray[np.uint64]
    flow: npt.NDArray[np.uint32]
    size: npt.NDArray[np.uint16] | None = None
    ttl: npt.NDArray[np.uint8] | None = None
    until_ns: int = FOREVER

    def __len__(self) -> int:
        return len(self.time_ns)

    def blocks(self) -> Iterator[Packets]:
        """Yield these packets as the only block."""
        yield replace(self, until_ns=FOREVER)

    def cut(self, n: int) -> Packets:
        """Return the first ``n`` packets, or all if there are fewer; arrays are views."""
        size = None if self.size is None else self.size[:n]
        ttl = None if self.ttl is None else self.ttl[:n]
        return Packets(self.time_ns[:n], self.flow[:n], size, ttl)


class Schedule(Protocol):
    """Packets in the order of the times at which they are sent."""

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[Packets]:
        """Yield all packets once, in at least one block; the last has ``until_ns`` `FOREVER`."""
        ...


@dataclass(frozen=True)
class Rounds:
    """A schedule of probes: F flows that send one packet each in every round, in the same order.

    Attributes:
        flow: The flows in the order in which they send, uint32[F].
        phase: When in a round each sends, as a share of the round, float64[F], sorted, in [0, 1).
        rounds: The number of rounds.
        round_ns: The length of a round in nanoseconds.
    """

    flow: npt.NDArray[np.uint32]
    phase: npt.NDArray[np.float64]
    rounds: int
    round_ns: float

    def __len__(self) -> int:
        return self.rounds * len(self.flow)

    def blocks(self) -> Iterator[Packets]:
        """Yield the probes of all rounds in blocks, in the order of time."""
        begin = 0
        for until in block_ends(len(self), int(self.rounds * self.round_ns)):
            end = bisect_left(range(len(self)), until, key=lambda at: int(self._time(at)))
            at = np.arange(begin, end)
            flow = self.flow[at % max(len(self.flow), 1)]
            yield Packets(self._time(at), flow, until_ns=until)
            begin = end

    def _time(self, at: npt.NDArray[np.int64] | int) -> npt.NDArray[np.uint64]:
        nth, which = np.divmod(at, max(len(self.flow), 1))
        return ((nth + self.phase[which]) * self.round_ns).astype(np.uint64)


def block_ends(packets: int, duration_ns: int) -> Iterator[int]:
    """Yield the times in ns at which blocks of equal length end; the last is `FOREVER`."""
    step = max(1, duration_ns * _BLOCK // max(packets, 1))
    yield from range(step, duration_ns, step)
    yield FOREVER


def listed(schedule: Schedule) -> Packets:
    """Return all packets of a schedule in one block."""
    blocks = list(schedule.blocks())
    if len(blocks) == 1:
        return blocks[0]

    def column(name: str) -> npt.NDArray | None:
        """Return an array of all blocks as one, [P packets]; None if the blocks do not have it."""
        parts = [getattr(block, name) for block in blocks]
        return None if parts[0] is None else np.concatenate(parts)

    return Packets(*(column(name) for name in ("time_ns", "flow", "size", "ttl")))  # type: ignore[arg-type]
