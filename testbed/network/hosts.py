# SPDX-License-Identifier: Apache-2.0
"""The hosts' agents: they send the sources' frames in real time and count what arrives.

All hosts are served by two compiled threads of this process (`hosts.c`), on packet sockets opened
inside the hosts' namespaces; the counters are numpy arrays that those threads write.

The hosts' kernels receive these frames too and must not answer them. Frames with a size or TTL of
their own and deTector's probes are sent with a wrong TCP or UDP checksum, so that the kernel, which
verifies checksums, drops them silently. NetBouncer's probes come back with the host's own address
as their source, which the kernel drops as a martian. Real TCP between hosts is not affected.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from canary_softswitch.compiler.build import load_library, read_c
from testbed.network.namespaces import inside
from testbed.network.schedules import listed
from testbed.network.sources import REPLY, FedSource, Source

_STATISTICS = (
    "sent",
    "delivered",
    "misdelivered",
    "send_errors",
    "receive_drops",
    "replies",
    "strangers",
    "shims",
    "from_agents",
    "received",
    "last_arrival_ns",
)
_LATE_CLASSES = 16


class _Stats(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in _STATISTICS),
        ("late", ctypes.c_uint64 * _LATE_CLASSES),
    ]


class HostAgents:
    """Sends and counts for all hosts.

    Args:
        hosts: For each host, the id of a process in its namespace and its interface's name.
    """

    def __init__(self, hosts: list[tuple[int, str]]) -> None:
        self._library = _load()
        self._hosts = len(hosts)
        self._fed: list[FedSource] = []
        self._agents = self._library.agents_new(len(hosts))
        if not self._agents:
            raise MemoryError("there is not enough memory for the hosts' agents")
        for index, (pid, interface) in enumerate(hosts):
            with inside(pid):
                error = self._library.agents_open(self._agents, index, interface.encode())
            if error:
                self.close()
                raise OSError(-error, f"packet socket on {interface}")

    def add_source(self, source: Source) -> int:
        """Let hosts send a source's frames and return the source's number, below 8."""
        fed = FedSource(replace(source, packets=listed(source.packets)), self._hosts)
        number = self._library.agents_add_source(self._agents, ctypes.byref(fed.feeding))
        if number < 0:
            raise ValueError("the hosts can have at most 8 sources")
        self._fed.append(fed)
        return number

    def feed(self, number: int, source: Source) -> None:
        """Give a source its next frames, of the same flows; wait until it has sent the former."""
        fed = self._fed[number]
        feed = fed.begin(listed(source.packets))
        while self._library.agents_feed_source(self._agents, number, ctypes.byref(feed)):
            time.sleep(0.0002)
        fed.feeding = feed

    def start(self) -> None:
        """Start the threads: this moment is time 0, and frames are sent from now on."""
        if self._library.agents_start(self._agents):
            raise MemoryError("cannot start threads for the hosts' agents")

    def stop(self) -> None:
        """Stop sending and counting; the counters keep their values."""
        if self._agents:
            self._library.agents_stop(self._agents)

    def close(self) -> None:
        """Stop and close the sockets; afterwards only `sent` and `delivered` may be used."""
        if self._agents:
            self._library.agents_free(self._agents)
            self._agents = None

    @property
    def now_ns(self) -> int:
        """Return the time since `start` in ns, without the time that `hold` took."""
        return int(self._library.agents_now(self._agents))

    def hold(self, gate_ns: int) -> None:
        """Let the clock go on until ``gate_ns`` (ns since `start`) and stand still there.

        The sources send by this clock.
        """
        self._library.agents_hold(self._agents, gate_ns)

    @property
    def held_ns(self) -> int:
        """Return the real time, in ns, for which `hold` has made the clock stand still."""
        return int(self._library.agents_held(self._agents))

    @property
    def waiting(self) -> int:
        """Return how many frames the sources still have to send."""
        return int(self._library.agents_waiting(self._agents))

    def sent(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the packets that each flow of a source has sent, a live view, uint32[F]."""
        return self._fed[number].sent

    def delivered(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the packets of each flow that reached its destination, a live view, uint32[F]."""
        return self._fed[number].delivered

    def statistics(self) -> dict[str, int]:
        """Return the totals of all hosts so far, by name.

        ``received`` is all that came to hosts, ``strangers`` are packets of no source, ``shims``
        frames that still had the fabric's header, ``receive_drops`` frames that the sockets dropped
        because they arrived too fast, ``from_agents`` the delivered packets but for those of real
        TCP.
        """
        stats = self._stats()
        return {name: int(getattr(stats, name)) for name in _STATISTICS}

    def late(self) -> npt.NDArray[np.int64]:
        """Return the number of frames by delay, int64[16]: sent 0, 1, 2-3, 4-7, ... ms late."""
        return np.array(self._stats().late, np.int64)

    def receive_drops(self) -> npt.NDArray[np.int64]:
        """Return the frames that each host's socket dropped as they came too fast, int64[hosts]."""
        drops = np.zeros(self._hosts, np.int64)
        self._library.agents_receive_drops(self._agents, drops.ctypes.data)
        return drops

    def _stats(self) -> _Stats:
        stats = _Stats()
        self._library.agents_stats(self._agents, ctypes.byref(stats))
        return stats

    def replies(self) -> npt.NDArray[Any]:
        """Return a copy of the received ICMP time-exceeded messages, `REPLY` [n]."""
        n = int(self._library.agents_replies(self._agents, None, 0))
        replies = np.zeros(n, REPLY)
        if n:
            self._library.agents_replies(self._agents, replies.ctypes.data, n)
        return replies


FLAGS = ("-pthread",)


def c_text() -> str:
    """Return all that is compiled for the hosts."""
    return read_c(Path(__file__).with_name("hosts.c"))


def _load() -> ctypes.CDLL:
    pointer, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    return load_library(
        c_text(),
        {
            "agents_new": (pointer, u32),
            "agents_open": (ctypes.c_int, pointer, u32, ctypes.c_char_p),
            "agents_add_source": (ctypes.c_int, pointer, pointer),
            "agents_feed_source": (ctypes.c_int, pointer, u32, pointer),
            "agents_start": (ctypes.c_int, pointer),
            "agents_now": (u64, pointer),
            "agents_hold": (None, pointer, u64),
            "agents_held": (u64, pointer),
            "agents_waiting": (u64, pointer),
            "agents_stats": (None, pointer, pointer),
            "agents_receive_drops": (None, pointer, pointer),
            "agents_replies": (u64, pointer, pointer, u64),
            "agents_stop": (None, pointer),
            "agents_free": (None, pointer),
        },
        FLAGS,
    )
