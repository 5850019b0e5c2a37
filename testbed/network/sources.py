# SPDX-License-Identifier: Apache-2.0
"""Traffic sources of hosts, in virtual and in real time, checked and handed to the C code.

`sources.h` has the C side: how a packet's frame is made from its flow's template.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.network.ranks import Ranks
from testbed.network.schedules import Packets, Schedule, listed

FRAME_MAX = 1600
"""The length of the longest frame on real links, in bytes."""

JUMBO_MAX = 9216
"""The length of the longest frame in virtual time, in bytes."""

IP_END = 34
"""The number of bytes from the beginning of a frame to the end of its IP header."""

REPLY = np.dtype([("time_ns", "<u8"), ("host", "<u4"), ("length", "<u4"), ("data", "u1", 96)])
"""An ICMP message that a host received, with its first 96 bytes."""


@dataclass(frozen=True)
class Source:
    """Frames that hosts send. Flow ``f`` has a header template, a source and a destination host.

    Attributes:
        packets: When each packet is sent, of which flow and of which size.
        templates: The header bytes of each flow's frames, uint8[F, stride].
        template_length: The number of bytes of each template, uint16[F].
        src_host, dst_host: The sender and the receiver of each flow, int32[F].
        ranks: Hosts that send on these flows as they receive, besides the packets; in virtual time
            only.
    """

    packets: Schedule
    templates: npt.NDArray[np.uint8]
    template_length: npt.NDArray[np.uint16]
    src_host: npt.NDArray[np.int32]
    dst_host: npt.NDArray[np.int32]
    ranks: Ranks | None = None

    def silent(self) -> Source:
        """Return a source with the same flows and no packets."""
        return replace(self, packets=next(iter(self.packets.blocks())).cut(0), ranks=None)

    def later(self, by_ns: int) -> Source:
        """Return a source that sends all its packets ``by_ns`` (ns) later."""
        packets = listed(self.packets)
        time_ns = packets.time_ns + np.uint64(by_ns)
        return replace(self, packets=replace(packets, time_ns=time_ns))


class Feed(ctypes.Structure):
    """The structure source_t of `sources.h`; ``held`` keeps the arrays alive that C reads."""

    _fields_ = [
        ("n", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("time", ctypes.c_void_p),
        ("flow", ctypes.c_void_p),
        ("size", ctypes.c_void_p),
        ("ttl", ctypes.c_void_p),
        ("templates", ctypes.c_void_p),
        ("template_length", ctypes.c_void_p),
        ("stride", ctypes.c_uint32),
        ("flows", ctypes.c_uint32),
        ("src_host", ctypes.c_void_p),
        ("dst_host", ctypes.c_void_p),
        ("sent", ctypes.c_void_p),
        ("delivered", ctypes.c_void_p),
        ("travelled", ctypes.c_void_p),
        ("heard", ctypes.c_uint64),
    ]
    held: tuple[npt.NDArray[Any] | None, ...]


class FedSource:
    """A source's flows in arrays that the C code reads, and the counters that it writes.

    Args:
        source: Its flows and their first packets, of which there may be none.
        hosts: The number of hosts.
        longest: The longest frame that the network takes, in bytes.
        timed: Whether to note how long packets travel, which only virtual time does.

    Attributes:
        sent, delivered: Packets of each flow that were sent, and that arrived, uint32[F].
        travelled: The time in ns that those that arrived took, together, uint64[F], if ``timed``.
        feeding: The block that the C code sends now; to be replaced when it is given another one.
        until_ns: All packets that are sent before this time are in ``feeding`` or earlier blocks.

    Raises:
        ValueError: The arrays of the flows do not fit together, or the packets are not sorted, are
            not of these flows, are too long, or their arrays differ in length.
    """

    def __init__(
        self, source: Source, hosts: int, longest: int = FRAME_MAX, *, timed: bool = False
    ) -> None:
        self._longest = longest
        flows = len(source.src_host)
        self.sent = np.zeros(flows, np.uint32)
        self.delivered = np.zeros(flows, np.uint32)
        self.travelled = np.zeros(flows, np.uint64) if timed else None
        self._heard = source.ranks is not None
        self._length = np.ascontiguousarray(source.template_length, np.uint16)
        if {len(source.templates), len(self._length), len(source.dst_host)} != {flows}:
            raise ValueError("a source needs a template and two hosts for each flow")
        longest = min(source.templates.shape[1], longest)
        if flows and int(self._length.max()) > longest:
            raise ValueError(f"a source's templates may have {longest} bytes")
        self._templates = _padded(source.templates, self._length)
        ends = np.concatenate((source.src_host, source.dst_host))
        if flows and not 0 <= int(ends.min()) <= int(ends.max()) < hosts:
            raise ValueError(f"the hosts of a source must be numbers below {hosts}")
        self._src = np.ascontiguousarray(source.src_host, np.uint32)
        self._dst = np.ascontiguousarray(source.dst_host, np.uint32)
        self.until_ns = 0
        self.feeding = self.begin(source.packets)

    def begin(self, packets: Schedule) -> Feed:
        """Return the first block of a new schedule of the same flows, for C.

        Raises:
            ValueError: The packets are invalid; see the class.
        """
        self._blocks = packets.blocks()
        return self.next_block()

    def next_block(self) -> Feed:
        """Return the block of packets after ``feeding``; not to be called after `FOREVER`."""
        block = next(self._blocks)
        self.until_ns = block.until_ns
        return self._feed(block)

    def _feed(self, packets: Packets) -> Feed:
        time = np.ascontiguousarray(packets.time_ns, np.uint64)
        flow = np.ascontiguousarray(packets.flow, np.uint32)
        size = None if packets.size is None else np.ascontiguousarray(packets.size, np.uint16)
        ttl = None if packets.ttl is None else np.ascontiguousarray(packets.ttl, np.uint8)
        if any(len(a) != len(time) for a in (flow, size, ttl) if a is not None):
            raise ValueError("the columns of a source must have equal lengths")
        if len(time) and (np.diff(time.astype(np.int64)) < 0).any():
            raise ValueError("a source's packets must be sorted by time")
        if len(flow) and flow.max() >= len(self._src):
            raise ValueError("the packets of a source must belong to its flows")
        if size is not None and len(size) and size.max() > self._longest:
            raise ValueError(f"a source's packets may have {self._longest} bytes")
        if not (size is None and ttl is None) and (self._length < IP_END).any():
            raise ValueError("a source's templates must have an IP header to change")
        if ttl is not None and not len(ttl):
            ttl = np.zeros(1, np.uint8)  # says that this source sends traceroutes
        feed = Feed(
            len(time),
            0,
            time.ctypes.data,
            flow.ctypes.data,
            None if size is None else size.ctypes.data,
            None if ttl is None else ttl.ctypes.data,
            self._templates.ctypes.data,
            self._length.ctypes.data,
            self._templates.shape[1],
            len(self._src),
            self._src.ctypes.data,
            self._dst.ctypes.data,
            self.sent.ctypes.data,
            self.delivered.ctypes.data,
            None if self.travelled is None else self.travelled.ctypes.data,
            self._heard,
        )
        feed.held = (time, flow, size, ttl)
        return feed


def _padded(
    templates: npt.NDArray[np.uint8], length: npt.NDArray[np.uint16]
) -> npt.NDArray[np.uint8]:
    """Return templates, uint8[F, L], as `sources.h` wants them: each row is zero from its length
    on, and its size is a multiple of 16 bytes."""
    flows, size = templates.shape
    padded = np.zeros((flows, -(-size // 16) * 16), np.uint8)
    padded[:, :size] = templates
    padded[np.arange(padded.shape[1]) >= length[:, None]] = 0
    return padded
