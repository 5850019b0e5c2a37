# SPDX-License-Identifier: Apache-2.0
"""Finds the TCP connections that have just retransmitted, for 007's agents (its section 4).

The kernel's tracepoint ``tcp:tcp_retransmit_skb`` reports every retransmission on the machine, in
any namespace, so one reader serves all hosts. It is read through perf, which leaves nothing behind
however this process ends. If the kernel or the processor's architecture does not support it, the
connections' own counters are read instead.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from testbed.traffic.sockets import TcpSockets

FlowKey = tuple[int, int, int, int]
"""Source and destination address, source and destination port."""

_TRACEFS = Path("/sys/kernel/tracing")
_EVENT = "events/tcp/tcp_retransmit_skb"
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_PAGES = 64  # of each processor's ring: some 2000 retransmissions between two reads

_ATTR = struct.Struct("=IIQQQQQIIQ")  # the first version of perf_event_attr
_TYPE_TRACEPOINT = 2
_SAMPLE_RAW = 1 << 10
_CLOSE_ON_EXEC = 8
_RECORD_SAMPLE = 9
_RECORD = struct.Struct("=IHH")
_HEAD, _TAIL = 0x400, 0x408  # in the ring's first page


class Retransmissions(Protocol):
    """A source of retransmissions; ``source`` names the kernel interface that is used."""

    source: str

    def read(self) -> set[FlowKey]:
        """Return the connections that have retransmitted since the last call."""
        ...

    def close(self) -> None:
        """Stop observing and free the kernel's resources."""
        ...


class TracepointError(RuntimeError):
    """The tracepoint cannot be read on this machine. The message is one line."""


def watch_retransmissions(sockets: TcpSockets) -> Retransmissions:
    """Return a reader of the tracepoint if it can be read, else one of the sockets' counters."""
    try:
        return TracedRetransmissions()
    except TracepointError:
        return PolledRetransmissions(sockets)


class PolledRetransmissions:
    """Compares the sockets' counters with their values at the last call.

    A connection that begins, retransmits and ends between two calls is missed.
    """

    source = "sock_diag"

    def __init__(self, sockets: TcpSockets) -> None:
        self._sockets = sockets
        self._known: dict[FlowKey, int] = {}

    def read(self) -> set[FlowKey]:
        """Return the connections that have retransmitted since the last call."""
        before = self._known
        self._known = {
            (one.src_ip, one.dst_ip, one.src_port, one.dst_port): one.retransmitted
            for one in self._sockets.open()
        }
        return {key for key, count in self._known.items() if count > before.get(key, 0)}

    def close(self) -> None:
        """Do nothing: the owner of the sockets closes them."""


class TracedRetransmissions:
    """Reads the tracepoint's perf rings.

    Raises:
        TracepointError: There is no such tracepoint, or it may not be read.
    """

    source = "tcp_retransmit_skb"

    def __init__(self) -> None:
        if platform.machine() not in _PERF_EVENT_OPEN:
            raise TracepointError(f"perf's system call is not known on {platform.machine()}")
        number, layout = _event()
        self._fields = _fields(layout)
        self._rings: list[tuple[int, mmap.mmap]] = []
        try:
            for cpu in _online():
                self._open(number, cpu)
        except OSError as e:
            self.close()
            raise TracepointError(f"perf cannot read {_EVENT}: {e.strerror}") from None

    def _open(self, number: int, cpu: int) -> None:
        attr = _ATTR.pack(_TYPE_TRACEPOINT, _ATTR.size, number, 1, _SAMPLE_RAW, 0, 0, 1 << 30, 0, 0)
        libc = ctypes.CDLL(None, use_errno=True)
        call = _PERF_EVENT_OPEN[platform.machine()]
        fd = libc.syscall(call, attr, -1, cpu, -1, ctypes.c_ulong(_CLOSE_ON_EXEC))
        if fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            ring = mmap.mmap(fd, (1 + _PAGES) * mmap.PAGESIZE)
        except OSError:
            os.close(fd)
            raise
        self._rings.append((fd, ring))

    def read(self) -> set[FlowKey]:
        """Return the connections that have retransmitted since the last call."""
        found = set()
        for _, ring in self._rings:
            for raw in _records(ring):
                if len(raw) < self._fields["end"]:
                    continue
                ports = (
                    struct.unpack_from("=H", raw, self._fields[name])[0]
                    for name in ("sport", "dport")
                )
                addresses = (
                    int.from_bytes(raw[at : at + 4], "big")
                    for at in (self._fields["saddr"], self._fields["daddr"])
                )
                found.add((*addresses, *ports))
        return found

    def close(self) -> None:
        """Close the perf rings, which ends the tracing."""
        for fd, ring in self._rings:
            ring.close()
            os.close(fd)
        self._rings = []


def _event() -> tuple[int, str]:
    """Return the event's number and the description of its records' format.

    If tracefs is not mounted, it is mounted briefly in a mount namespace of its own.
    """
    read = f"cat {_EVENT}/id {_EVENT}/format"
    if (_TRACEFS / "events").is_dir():
        command = ["sh", "-c", f"cd {_TRACEFS} && {read}"]
    else:
        mount = f"mount -t tracefs tracefs {_TRACEFS} && cd {_TRACEFS}"
        command = ["unshare", "--mount", "sh", "-c", f"{mount} && {read}"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        number, layout = text.split("\n", 1)
        return int(number), layout
    except (OSError, ValueError, subprocess.CalledProcessError):
        raise TracepointError(f"tracefs has no {_EVENT}, or may not be read") from None


def _fields(layout: str) -> dict[str, int]:
    """Return the byte offset of each field of a record, and as ``end`` the end of the last."""
    found = {
        name: (int(offset), int(size))
        for name, offset, size in re.findall(
            r"field:[^;]*?(\w+)(?:\[\d+\])?;\s*offset:(\d+);\s*size:(\d+);", layout
        )
    }
    wanted = {"sport": 2, "dport": 2, "saddr": 4, "daddr": 4}
    if any(found.get(name, (0, 0))[1] != size for name, size in wanted.items()):
        raise TracepointError(f"this kernel's {_EVENT} has other fields")
    offsets = {name: found[name][0] for name in wanted}
    return offsets | {"end": max(offsets[name] + size for name, size in wanted.items())}


def _records(ring: mmap.mmap) -> Iterator[bytes]:
    """Yield the raw samples of a ring and remove them from it."""
    (head,) = struct.unpack_from("=Q", ring, _HEAD)
    (tail,) = struct.unpack_from("=Q", ring, _TAIL)
    if tail == head:
        return
    size = len(ring) - mmap.PAGESIZE
    data = bytes(ring[mmap.PAGESIZE :])
    while tail < head:
        at = tail % size
        around = data[at : at + _RECORD.size]  # a header never wraps: records are 8-byte aligned
        kind, _, length = _RECORD.unpack(around)
        if kind == _RECORD_SAMPLE:
            record = data[at : at + length]
            record += data[: length - len(record)]
            (raw,) = struct.unpack_from("=I", record, _RECORD.size)
            yield record[_RECORD.size + 4 : _RECORD.size + 4 + raw]
        tail += length
    struct.pack_into("=Q", ring, _TAIL, head)


def _online() -> Iterator[int]:
    text = Path("/sys/devices/system/cpu/online").read_text().strip()
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
