"""The hosts' agents: they send the sources' frames in real time and count what arrives.

All hosts are served by two compiled threads of this process (`hosts.c`), on packet sockets opened
inside the hosts' namespaces; the counters are numpy arrays that those threads write.

The hosts' kernels see these frames too and must not answer them: what has a size or TTL of its own,
and deTector's probes, leave with a wrong TCP or UDP checksum, which a kernel drops in silence as
its interfaces verify checksums themselves; NetBouncer's probes come back with the host's own
address as their source, which a kernel drops as a martian. Real TCP between hosts is not affected.
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.network.namespaces import inside
from testbed.network.virtual import Source
from testbed.softswitch.compiler.build import build

__all__ = ["REPLY", "HostAgents"]

REPLY = np.dtype([("time_ns", "<u8"), ("host", "<u4"), ("length", "<u4"), ("data", "u1", 96)])

_STATISTICS = (
    "sent",
    "delivered",
    "misdelivered",
    "send_errors",
    "receive_drops",
    "replies",
    "strangers",
    "shims",
    "last_arrival_ns",
    "worst_delay_ns",
)


class _Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _STATISTICS]


class _Source(ctypes.Structure):
    _fields_ = [
        ("n", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("time", ctypes.c_void_p),
        ("index", ctypes.c_void_p),
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
    ]


class _Fed:
    """A source with the arrays the C code points to."""

    def __init__(self, source: Source) -> None:
        flows = len(source.src_host)
        self.sent = np.zeros(flows, np.uint32)
        self.delivered = np.zeros(flows, np.uint32)
        self.src_host = np.ascontiguousarray(source.src_host, np.uint32)
        self.dst_host = np.ascontiguousarray(source.dst_host, np.uint32)
        self.templates = np.ascontiguousarray(source.templates, np.uint8)
        self.template_length = np.ascontiguousarray(source.template_length, np.uint16)
        self.arrays: list[npt.NDArray[Any]] = []

    def structure(self, source: Source) -> tuple[_Source, list[npt.NDArray[Any]]]:
        time_ns = np.ascontiguousarray(source.time_ns, np.uint64)
        flow = np.ascontiguousarray(source.flow, np.uint32)
        if len(time_ns) and (np.diff(time_ns.astype(np.int64)) < 0).any():
            raise ValueError("a source's packets must be sorted by time")
        size = None if source.size is None else np.ascontiguousarray(source.size, np.uint16)
        ttl = None if source.ttl is None else np.ascontiguousarray(source.ttl, np.uint8)
        for array in (flow, size, ttl):
            if array is not None and len(array) != len(time_ns):
                raise ValueError("a source's columns must be equally long")
        if len(flow) and flow.max() >= len(self.src_host):
            raise ValueError("a source's packets must be of its flows")
        if ttl is not None and not len(ttl):
            ttl = np.zeros(1, np.uint8)  # says that this source sends traceroutes
        structure = _Source(
            len(time_ns),
            0,
            time_ns.ctypes.data,
            flow.ctypes.data,
            None if size is None else size.ctypes.data,
            None if ttl is None else ttl.ctypes.data,
            self.templates.ctypes.data,
            self.template_length.ctypes.data,
            self.templates.shape[1],
            len(self.src_host),
            self.src_host.ctypes.data,
            self.dst_host.ctypes.data,
            self.sent.ctypes.data,
            self.delivered.ctypes.data,
        )
        return structure, [time_ns, flow] + [a for a in (size, ttl) if a is not None]


class HostAgents:
    """Sends and counts for all hosts.

    Args:
        hosts: For each host, the id of a process in its namespace and its interface's name.
    """

    def __init__(self, hosts: list[tuple[int, str]]) -> None:
        self._library = _load()
        self._fed: list[_Fed] = []
        self._agents = self._library.agents_new(len(hosts))
        if not self._agents:
            raise MemoryError("the hosts' agents do not fit into memory")
        for index, (pid, interface) in enumerate(hosts):
            with inside(pid):
                error = self._library.agents_open(self._agents, index, interface.encode())
            if error:
                self.close()
                raise OSError(-error, f"packet socket on {interface}")

    def add_source(self, source: Source) -> int:
        """Let hosts send a source's frames; returns its number."""
        fed = _Fed(source)
        structure, fed.arrays = fed.structure(source)
        self._fed.append(fed)
        number = self._library.agents_add_source(self._agents, ctypes.byref(structure))
        if number < 0:
            self._fed.pop()
            raise ValueError("the hosts take at most 8 sources")
        return number

    def feed(self, number: int, source: Source) -> None:
        """Give a source its next frames, over the same flows, once it has sent what it had."""
        fed = self._fed[number]
        structure, arrays = fed.structure(source)
        while self._library.agents_feed_source(self._agents, number, ctypes.byref(structure)):
            time.sleep(0.0002)
        fed.arrays = arrays

    def start(self) -> None:
        """Time 0: frames leave from here on."""
        if self._library.agents_start(self._agents):
            raise MemoryError("no threads for the hosts' agents")

    def stop(self) -> None:
        """Send and count no more; what was counted stays."""
        if self._agents:
            self._library.agents_stop(self._agents)

    def close(self) -> None:
        """Stop, and close the sockets. `sent`, `delivered` stay readable, nothing else."""
        if self._agents:
            self._library.agents_free(self._agents)
            self._agents = None

    @property
    def now_ns(self) -> int:
        """Nanoseconds since `start`."""
        return int(self._library.agents_now(self._agents))

    @property
    def waiting(self) -> int:
        """Frames that sources still have to send."""
        return int(self._library.agents_waiting(self._agents))

    def sent(self, number: int) -> npt.NDArray[np.uint32]:
        """Packets each flow of a source has sent, uint32[F], live."""
        return self._fed[number].sent

    def delivered(self, number: int) -> npt.NDArray[np.uint32]:
        """Packets of each flow that its destination host has got, uint32[F], live."""
        return self._fed[number].delivered

    def statistics(self) -> dict[str, int]:
        """Totals.

        ``strangers`` are packets of no source, ``shims`` frames that still had the fabric's header,
        ``receive_drops`` what arrived faster than it was counted, ``worst_delay_ns`` the longest
        that a frame was sent after its time.
        """
        stats = self._library.agents_stats(self._agents).contents
        return {name: int(getattr(stats, name)) for name in _STATISTICS}

    def replies(self) -> npt.NDArray[Any]:
        """ICMP time-exceeded messages: time, host, length and the first 96 bytes. A copy."""
        n = int(self._library.agents_replies(self._agents, None, 0))
        replies = np.zeros(n, REPLY)
        if n:
            self._library.agents_replies(self._agents, replies.ctypes.data, n)
        return replies


def _load() -> ctypes.CDLL:
    code = (Path(__file__).parent / "hosts.c").read_text()
    library = ctypes.CDLL(str(build(code, "", ("-pthread",))))
    pointer, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    signatures = {
        "agents_new": (pointer, [u32]),
        "agents_open": (ctypes.c_int, [pointer, u32, ctypes.c_char_p]),
        "agents_add_source": (ctypes.c_int, [pointer, pointer]),
        "agents_feed_source": (ctypes.c_int, [pointer, u32, pointer]),
        "agents_start": (ctypes.c_int, [pointer]),
        "agents_now": (u64, [pointer]),
        "agents_waiting": (u64, [pointer]),
        "agents_stats": (ctypes.POINTER(_Stats), [pointer]),
        "agents_replies": (u64, [pointer, pointer, u64]),
        "agents_stop": (None, [pointer]),
        "agents_free": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
