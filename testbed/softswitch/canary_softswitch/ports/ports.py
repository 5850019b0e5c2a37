# SPDX-License-Identifier: Apache-2.0
"""Packet ports of switches: AF_PACKET sockets served by threads in C, or pcap files."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from canary_softswitch.compiler.build import load_library, read_c
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.ports.namespaces import HERE, Namespace
from canary_softswitch.runtime.switch import Switch

PACKET, DIGEST, WAKE = 1, 2, 4
NO_PORT = 0xFFFFFFFF
MOST = 512  # PP_PORTS of ports.h
LONGEST = 16384  # bytes of a packet, PP_BUFFER of ports.h


@dataclass(frozen=True)
class Port:
    """A port number and the interface it is attached to."""

    number: int
    interface: str


@dataclass(frozen=True)
class PortCounters:
    """Counters of a port; ``rx_dropped`` includes packets that the kernel had no room for."""

    rx_packets: int
    rx_bytes: int
    rx_dropped: int
    tx_packets: int
    tx_bytes: int
    tx_dropped: int


PORTS_C = Path(__file__).with_name("ports.c")
FLAGS = ("-pthread",)

COUNTERS = tuple(PortCounters.__dataclass_fields__)


class _Counters(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in COUNTERS]


_P, _U32 = c_void_p, c_uint32
_SIGNATURES = {
    "pp_pool_create": (c_int, _U32, _P),
    "pp_pool_destroy": (None, _P),
    "pp_create": (_P, _P, _U32, _U32),
    "pp_destroy": (None, _P),
    "pp_lock": (None, _P),
    "pp_unlock": (None, _P),
    "pp_add": (c_int, _P, _U32, c_char_p, c_char_p, c_char_p),
    "pp_remove": (c_int, _P, _U32),
    "pp_log_to": (c_int, _P, c_int, c_char_p, c_int, c_uint64, c_uint64, _U32),
    "pp_log_line": (None, _P, c_int, c_char_p),
    "pp_queue_limits": (c_int, _P, _U32, _U32, c_int64, c_int64),
    "pp_switch": (None, _P, _P, _P, _P, _P, _P, _P),
    "pp_pause": (None, _P, c_int),
    "pp_inject": (None, _P, _U32, c_char_p, _U32),
    "pp_wait": (_U32, _P, c_int64),
    "pp_wake": (None, _P),
    "pp_now": (c_uint64, _P),
    "pp_take": (c_int64, _P, c_char_p, _U32),
    "pp_read": (None, _P, _U32, _P),
    "pp_read_totals": (None, _P, _P),
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the compiled packet loop of ``ports.c``."""
    return load_library(c_text(), _SIGNATURES, FLAGS)


def c_text() -> str:
    """Return all that is compiled for the packet loop."""
    return "#define _GNU_SOURCE\n" + read_c(PORTS_C)


@dataclass(frozen=True)
class Capture:
    """Where packets are recorded.

    If ``folder`` is given, each direction of each interface is written to a pcap file there. With
    ``files`` packets are sent to such files and no interface is used.
    """

    folder: str | None = None
    files: bool = False

    def paths(self, interface: str) -> tuple[str | None, str | None]:
        """Return the pcap files for what comes in and what goes out; None for one not written."""
        if self.files:
            return None, f"{interface}_out.pcap"
        if self.folder is None:
            return None, None
        stem = os.path.join(self.folder, interface)
        return f"{stem}_in.pcap", f"{stem}_out.pcap"


@dataclass(frozen=True)
class Log:
    """The settings of a log.

    Lines of ``level`` (one of ``LEVELS``) and above go to FILE.txt, or to stdout if ``file`` is
    None, with the first ``dump`` bytes of each packet.
    """

    file: str | None = None
    level: str = "trace"
    dump: int = 0
    max_size: int = 5 << 20
    max_files: int = 3


LEVELS = ("trace", "debug", "info", "warn", "error", "off")


class Workers:
    """The threads that forward the packets of a process's switches, some switches each.

    Raises:
        SoftSwitchError: Memory, files or threads are exhausted.
    """

    def __init__(self, n: int) -> None:
        self._lib = library()
        pool = c_void_p()
        error = self._lib.pp_pool_create(n, ctypes.byref(pool))
        if error:
            raise SoftSwitchError(f"cannot start the packet threads: {os.strerror(-error)}")
        self.handle: int = pool.value or 0

    def close(self) -> None:
        """End the threads; all their ports must have been closed."""
        self._lib.pp_pool_destroy(self.handle)


class Ports:
    """Interfaces, and the lock of the switch behind them.

    Hold ``lock()`` for every access to the switch once it is given to ``attach``.

    Args:
        ports: The ports that are attached from the start.
        cpu_port: The port of packets from and to the controller.
        priorities: The number of queues of a port.
        capture: Where packets are recorded; by default nowhere.
        log: The log, with a line for each packet; by default none.
        workers: The threads, one of which forwards the packets; by default a thread of its own.
        namespace: The network namespace of the interfaces.

    Raises:
        SoftSwitchError: A port cannot be attached, or a file cannot be written.
    """

    def __init__(
        self,
        ports: Sequence[Port] = (),
        cpu_port: int | None = None,
        priorities: int = 1,
        capture: Capture | None = None,
        log: Log | None = None,
        workers: Workers | None = None,
        namespace: Namespace = HERE,
    ) -> None:
        self.namespace = namespace
        self._ports: list[Port] = []
        self._removed: set[int] = set()  # places of ports that were let go
        self.cpu_port = cpu_port
        self.priorities = priorities
        self._capture = capture or Capture()
        self._switch: Switch | None = None
        self._lib = library()
        self._own = None if workers else Workers(1)
        pool = (workers or self._own).handle  # pyright: ignore[reportOptionalMemberAccess]
        cpu = NO_PORT if cpu_port is None else cpu_port
        handle = self._lib.pp_create(pool, cpu, priorities)
        if not handle:
            raise SoftSwitchError("cannot make ports: out of memory or files")
        self._handle: int = handle
        self._buffer = ctypes.create_string_buffer(1 << 16)
        self._closed = threading.Event()
        self._holder = 0  # the thread in ``lock``
        self._users = 0  # threads in ``_in_use``
        self._changing = threading.Condition()  # of these and of ``_closed``
        try:
            if log is not None:
                self._log_to(log)
            for port in ports:
                self.add(port)
        except SoftSwitchError:
            self.close()
            raise

    def _log_to(self, log: Log) -> None:
        error = self._lib.pp_log_to(
            self._handle,
            1,
            log.file.encode() if log.file else None,
            LEVELS.index(log.level),
            log.dump,
            log.max_size,
            log.max_files,
        )
        if error:
            theirs = "it exists and is no log of a switch: choose another name"
            why = theirs if -error == errno.EMEDIUMTYPE else os.strerror(-error)
            raise SoftSwitchError(f"cannot write {log.file}.txt: {why}")

    def say(self, level: str, text: str) -> None:
        """Put a line into the log, if there is one."""
        line = " ".join(text.splitlines())
        with suppress(SoftSwitchError), self._in_use() as handle:
            self._lib.pp_log_line(handle, LEVELS.index(level), line.encode())

    def add(self, port: Port) -> None:
        """Attach an interface; raise ``SoftSwitchError`` if it is missing or the number in use."""
        if not 0 <= port.number < MOST:
            raise SoftSwitchError(f"port {port.number} is not between 0 and {MOST - 1}")
        if port.number == self.cpu_port:
            raise SoftSwitchError(f"port {port.number} is the CPU port")
        paths = self._capture.paths(port.interface)
        with self._in_use() as handle, self.namespace.entered():
            error = self._lib.pp_add(
                handle,
                port.number,
                None if self._capture.files else port.interface.encode(),
                *(path.encode() if path else None for path in paths),
            )
        if error:
            what = {
                errno.EEXIST: "the port number is already in use",
                errno.EMEDIUMTYPE: "a file for its packets exists and is no capture of a switch: "
                "choose another --pcap folder",
            }.get(-error, os.strerror(-error))
            raise SoftSwitchError(f"cannot attach port {port.number} to {port.interface}: {what}")
        self._ports.append(port)

    def remove(self, number: int) -> None:
        """Detach the interface of the port with this number; its counters remain.

        Raises ``SoftSwitchError`` if there is no such port.
        """
        with self._in_use() as handle:
            error = self._lib.pp_remove(handle, number)
        if error:
            raise SoftSwitchError(f"there is no port {number}")
        places = [i for i, p in enumerate(self._ports) if p.number == number]
        self._removed.add(places[-1])

    @property
    def ports(self) -> tuple[Port, ...]:
        """Return the attached ports, in the order in which they were attached."""
        return tuple(p for i, p in enumerate(self._ports) if i not in self._removed)

    def limit_queues(
        self,
        port: int | None = None,
        priority: int | None = None,
        depth: int | None = None,
        rate: int | None = None,
    ) -> None:
        """Set depth (packets) and rate (packets a second, 0: unlimited) of one or all queues.

        An argument that is None is not changed. Raises ``SoftSwitchError`` for an unknown queue.
        """
        with self._in_use() as handle:
            error = self._lib.pp_queue_limits(
                handle,
                NO_PORT if port is None else port,
                NO_PORT if priority is None else priority,
                -1 if depth is None else depth,
                -1 if rate is None else rate,
            )
        if error:
            raise SoftSwitchError(f"there is no queue {priority or 0} at port {port}")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the switch's lock, so that no packet is processed; a thread may nest it.

        Raises:
            SoftSwitchError: The ports were closed.
        """
        if self._holder == threading.get_ident():
            yield
            return
        with self._in_use() as handle:
            self._lib.pp_lock(handle)
            self._holder = threading.get_ident()
            try:
                yield
            finally:
                self._holder = 0
                self._lib.pp_unlock(handle)

    @contextmanager
    def _in_use(self) -> Iterator[int]:
        """Give the handle of the ports, whose memory ``close`` does not free meanwhile.

        Raises:
            SoftSwitchError: The ports were closed.
        """
        if self._holder == threading.get_ident():
            yield self._handle
            return
        with self._changing:
            if self._closed.is_set():
                raise SoftSwitchError("the switch has stopped")
            self._users += 1
        try:
            yield self._handle
        finally:
            with self._changing:
                self._users -= 1
                self._changing.notify_all()

    def attach(self, switch: Switch) -> None:
        """Let ``switch`` process the packets of the ports, instead of an earlier one."""
        with self.lock():
            program = switch.program
            self._lib.pp_switch(
                self._handle,
                switch.handle,
                program.process_address,
                program.digests_pending_address,
                program.address("ss_priority"),
                program.address("ss_waits"),
                program.address("ss_log_to"),
            )
            self._switch = switch

    def pause(self, paused: bool) -> None:
        """Let packets wait in the sockets' buffers from now on, or process them again."""
        with self.lock():
            self._lib.pp_pause(self._handle, paused)

    def inject(self, port: int, data: bytes) -> None:
        """Process a packet as if it had arrived at a port."""
        with self._in_use() as handle:
            self._lib.pp_inject(handle, port, data, len(data))

    def wait(self, seconds: float | None) -> int:
        """Block until an event; return its bits PACKET, DIGEST and WAKE, or 0 after ``seconds``."""
        return self._lib.pp_wait(
            self._handle, -1 if seconds is None else max(0, round(seconds * 1000))
        )

    def now_us(self) -> int:
        """Return the switch's time: the microseconds since it was created."""
        with self._in_use() as handle:
            return self._lib.pp_now(handle)

    def wake(self) -> None:
        """Let the thread in ``wait`` return with WAKE."""
        with suppress(SoftSwitchError), self._in_use() as handle:
            self._lib.pp_wake(handle)

    def take(self) -> bytes | None:
        """Return the next packet that left by the CPU port, or None."""
        with self._in_use() as handle:
            n = self._lib.pp_take(handle, self._buffer, len(self._buffer))
        return None if n < 0 else self._buffer.raw[:n]

    def counters(self) -> dict[int, PortCounters]:
        """Return the counters of each port, by port number; detached ports are included."""
        out: dict[int, PortCounters] = {}
        with self._in_use() as handle:
            for place, port in enumerate(self._ports):
                c = _Counters()
                self._lib.pp_read(handle, place, ctypes.byref(c))
                out[port.number] = PortCounters(*(getattr(c, n) for n in COUNTERS))
        return out

    def totals(self) -> dict[str, int]:
        """Return the numbers of packets with a fault, to unknown ports, or lost at the CPU port."""
        values = (c_uint64 * 3)()
        with self._in_use() as handle:
            self._lib.pp_read_totals(handle, values)
        return dict(zip(("faults", "unknown_port", "cpu_dropped"), values, strict=True))

    def close(self) -> None:
        """Close the sockets; no thread may be in ``wait``."""
        with self._changing:
            if self._closed.is_set():
                return
            self._closed.set()
            self._changing.wait_for(lambda: not self._users)
        self._lib.pp_destroy(self._handle)
        if self._own is not None:
            self._own.close()
        self._switch = None
