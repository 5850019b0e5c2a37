"""Trains of back-to-back frames, as segmentation offload makes them from a flow's data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import LongArray
from testbed.network.schedules import Packets, block_ends
from testbed.traffic.flows import MAX_FRAME


@dataclass(frozen=True)
class Trains:
    """The packets of T trains, a schedule (`testbed.network.schedules`) of 16 bytes a train.

    Attributes:
        start_ns: When the first frame of each train is sent, int64[T], sorted.
        flow: The flow of each train, uint32[T].
        frames: The number of frames of each train, uint16[T], at least 1.
        last_size: The bytes of its last frame, uint16[T]; the others have `MAX_FRAME`.
        frame_ns: The time from frame to frame in ns.
    """

    start_ns: LongArray
    flow: npt.NDArray[np.uint32]
    frames: npt.NDArray[np.uint16]
    last_size: npt.NDArray[np.uint16]
    frame_ns: float

    def __len__(self) -> int:
        return int(self.frames.sum(dtype=np.int64))

    def blocks(self) -> Iterator[Packets]:
        """Yield the frames of all trains in blocks, in the order of time."""
        longest = int(self.frames.max(initial=1) * self.frame_ns) + 1
        end = int(self.start_ns.max(initial=0)) + longest
        begin = 0
        for until in block_ends(len(self), end):
            first, last = np.searchsorted(self.start_ns, (begin - longest, min(until, end)))
            yield self._block(slice(first, last), begin, min(until, end), until)
            begin = until

    def _block(self, some: slice, begin: int, end: int, until: int) -> Packets:
        """Return the frames of some trains that are sent from ``begin`` to before ``end`` (ns)."""
        start, frames = self.start_ns[some], self.frames[some]
        gone = frames_before(begin - start, frames, self.frame_ns)
        left = frames_before(end - start, frames, self.frame_ns)
        train, position = expand(left - gone)
        position += gone[train]
        time = start[train] + (position * self.frame_ns).astype(np.int64)
        size = np.full(len(time), MAX_FRAME, np.uint16)
        over = (left == frames) & (left > gone)
        size[np.cumsum(left - gone)[over] - 1] = self.last_size[some][over]
        order = _in_order(time, begin)
        return Packets(
            time[order].view(np.uint64), self.flow[some][train[order]], size[order], None, until
        )


def _in_order(time: LongArray, begin: int) -> LongArray:
    """Return the indices that sort ``time``, whose values are at least ``begin``, stably.

    It is a radix sort by 16 bits at a time, which takes a third of the time of a merge sort.
    """
    passed = (time - begin).view(np.uint64)
    order = np.argsort(passed.astype(np.uint16), kind="stable")
    for shift in range(16, int(passed.max(initial=0)).bit_length(), 16):
        digits = (passed >> np.uint64(shift)).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
    return order


def frames_before(
    passed_ns: LongArray, frames: npt.NDArray[np.integer], frame_ns: float
) -> LongArray:
    """Return how many frames of each train are sent within a time after its start, int64[T].

    Frame ``p`` is sent ``int(p * frame_ns)`` ns after the first.
    """
    n = np.ceil(passed_ns / frame_ns).astype(np.int64)
    n += (n * frame_ns).astype(np.int64) < passed_ns  # the quotient was rounded
    n -= ((n - 1) * frame_ns).astype(np.int64) >= passed_ns
    return np.clip(n, 0, frames)


def expand(counts: LongArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the owner, and the position within it, of each of ``counts.sum()`` items, int32[]."""
    owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    first = (np.cumsum(counts) - counts).astype(np.int32)
    return owner, np.arange(len(owner), dtype=np.int32) - first[owner]


def serialise(host: npt.NDArray[np.int32], ready_ns: LongArray, busy_ns: LongArray) -> LongArray:
    """Return when each train starts if a host sends one at a time, as they become ready, int64[T].

    This is Lindley's recursion without a loop: a train ends at the maximum, over the trains i up to
    it, of ready_i plus all work from i on. Hosts are placed one after another on one time axis, so
    far apart that they do not interact.

    Args:
        host: The host of each train, int32[T].
        ready_ns: When each train is ready, int64[T].
        busy_ns: How long it occupies the NIC, int64[T].
    """
    order = np.lexsort((ready_ns, host))
    apart = int(ready_ns.max(initial=0)) + int(busy_ns.sum()) + 1
    offset = host[order].astype(np.int64) * apart
    busy = busy_ns[order]
    before = np.cumsum(busy) - busy
    start = np.maximum.accumulate(ready_ns[order] + offset - before) + before - offset
    result = np.empty_like(start)
    result[order] = start
    return result
