"""When hosts send what: packets that exist from shortly before they are sent until they have left.

A schedule hands out its packets in blocks, in the order of time: what is sent later costs nothing
yet.
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
"""Packets of a block, about: as much as the processor's cache holds."""


@dataclass(frozen=True)
class Packets:
    """P packets that are listed, and so a schedule of one block.

    Attributes:
        time_ns: When each leaves, uint64[P], sorted; ``flow`` uint32[P].
        size: Frame bytes uint16[P], or None when the flow's template is the whole frame.
        ttl: uint8[P] makes each frame a traceroute of its flow (TTL also in the IP ID), or None.
        until_ns: What leaves before is in this block, or in one before it.
    """

    time_ns: npt.NDArray[np.uint64]
    flow: npt.NDArray[np.uint32]
    size: npt.NDArray[np.uint16] | None = None
    ttl: npt.NDArray[np.uint8] | None = None
    until_ns: int = FOREVER

    def __len__(self) -> int:
        return len(self.time_ns)

    def blocks(self) -> Iterator[Packets]:
        """Itself."""
        yield replace(self, until_ns=FOREVER)

    def cut(self, n: int) -> Packets:
        """The first ``n``."""
        size = None if self.size is None else self.size[:n]
        ttl = None if self.ttl is None else self.ttl[:n]
        return Packets(self.time_ns[:n], self.flow[:n], size, ttl)


class Schedule(Protocol):
    """Packets in the order of time."""

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[Packets]:
        """All of them, once: at least one block, the last one until `FOREVER`."""
        ...


@dataclass(frozen=True)
class Rounds:
    """F flows that send one packet a round each, in the same order: probes.

    Attributes:
        flow: uint32[F], in that order.
        phase: Which share of the round has passed then, float64[F], sorted, 0 to below 1.
        rounds: How many.
        round_ns: Length of one.
    """

    flow: npt.NDArray[np.uint32]
    phase: npt.NDArray[np.float64]
    rounds: int
    round_ns: float

    def __len__(self) -> int:
        return self.rounds * len(self.flow)

    def blocks(self) -> Iterator[Packets]:
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
    """Where blocks end that are equally long, the last one at `FOREVER`."""
    step = max(1, duration_ns * _BLOCK // max(packets, 1))
    yield from range(step, duration_ns, step)
    yield FOREVER


def listed(schedule: Schedule) -> Packets:
    """All packets of a schedule at once."""
    blocks = list(schedule.blocks())
    if len(blocks) == 1:
        return blocks[0]

    def column(name: str) -> npt.NDArray | None:
        parts = [getattr(block, name) for block in blocks]
        return None if parts[0] is None else np.concatenate(parts)

    return Packets(*(column(name) for name in ("time_ns", "flow", "size", "ttl")))  # type: ignore[arg-type]
