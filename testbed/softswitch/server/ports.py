"""Packet ports of a switch process: AF_PACKET sockets served by a thread in C."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from testbed.softswitch.compiler.build import load_library, read_c
from testbed.softswitch.errors import SoftSwitchError
from testbed.softswitch.runtime.switch import Switch

PACKET, DIGEST, WAKE = 1, 2, 4
NO_PORT = 0xFFFFFFFF


@dataclass(frozen=True)
class Port:
    """A port number and the interface it is attached to."""

    number: int
    interface: str


@dataclass(frozen=True)
class PortCounters:
    """What passed a port; ``rx_dropped`` has what the kernel's buffer could not hold as well."""

    rx_packets: int
    rx_bytes: int
    rx_dropped: int
    tx_packets: int
    tx_bytes: int
    tx_dropped: int


PORTS_C = Path(__file__).with_name("ports.c")

COUNTERS = tuple(PortCounters.__dataclass_fields__)


class _Counters(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in COUNTERS]


_P, _U32 = c_void_p, c_uint32
_SIGNATURES = {
    "pp_create": (_P, _U32),
    "pp_destroy": (None, _P),
    "pp_lock": (None, _P),
    "pp_unlock": (None, _P),
    "pp_add": (c_int, _P, _U32, c_char_p),
    "pp_start": (c_int, _P),
    "pp_switch": (None, _P, _P, _P, _P),
    "pp_inject": (None, _P, _U32, c_char_p, _U32),
    "pp_wait": (_U32, _P, c_int64),
    "pp_wake": (None, _P),
    "pp_take": (c_int64, _P, c_char_p, _U32),
    "pp_read": (None, _P, _U32, _P),
    "pp_read_totals": (None, _P, _P),
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The compiled packet loop."""
    return load_library("#define _GNU_SOURCE\n" + read_c(PORTS_C), _SIGNATURES, ["-pthread"])


class Ports:
    """Interfaces, the thread that moves packets, and the lock of the switch behind them.

    Hold ``lock()`` for every access to the switch once it is given to ``attach``.
    """

    def __init__(self, ports: Sequence[Port] = (), cpu_port: int | None = None) -> None:
        self.ports = tuple(ports)
        self.cpu_port = cpu_port
        self._switch: Switch | None = None
        self._lib = library()
        handle = self._lib.pp_create(NO_PORT if cpu_port is None else cpu_port)
        if not handle:
            raise SoftSwitchError("cannot make the packet thread: out of memory or files")
        self._handle: int = handle
        self._buffer = ctypes.create_string_buffer(1 << 16)
        self._closed = threading.Event()
        try:
            for port in ports:
                self._add(port)
            error = self._lib.pp_start(handle)
            if error:
                raise SoftSwitchError(f"cannot start the packet thread: {os.strerror(-error)}")
        except SoftSwitchError:
            self.close()
            raise

    def _add(self, port: Port) -> None:
        if not 0 <= port.number < 511:
            raise SoftSwitchError(f"port {port.number} is not between 0 and 510")
        if port.number == self.cpu_port:
            raise SoftSwitchError(f"port {port.number} is the CPU port")
        error = self._lib.pp_add(self._handle, port.number, port.interface.encode())
        if error:
            what = {17: "the port number is used already"}.get(-error, os.strerror(-error))
            raise SoftSwitchError(f"cannot attach port {port.number} to {port.interface}: {what}")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps the packet thread off the switch; hold it briefly."""
        self._lib.pp_lock(self._handle)
        try:
            yield
        finally:
            self._lib.pp_unlock(self._handle)

    def attach(self, switch: Switch) -> None:
        """Put a switch behind the ports; the one before is let go."""
        with self.lock():
            program = switch.program
            self._lib.pp_switch(
                self._handle,
                switch.handle,
                program.process_address,
                program.digests_pending_address,
            )
            self._switch = switch

    def inject(self, port: int, data: bytes) -> None:
        """Run a packet as if it had come in at a port."""
        self._lib.pp_inject(self._handle, port, data, len(data))

    def wait(self, seconds: float | None) -> int:
        """Block until there is news: PACKET, DIGEST and WAKE bits; 0 when the time is over."""
        return self._lib.pp_wait(
            self._handle, -1 if seconds is None else max(0, round(seconds * 1000))
        )

    def wake(self) -> None:
        """Let ``wait`` return WAKE."""
        self._lib.pp_wake(self._handle)

    def take(self) -> bytes | None:
        """The next packet that left by the CPU port, or None."""
        n = self._lib.pp_take(self._handle, self._buffer, len(self._buffer))
        return None if n < 0 else self._buffer.raw[:n]

    def counters(self) -> dict[int, PortCounters]:
        """Counters by port number."""
        out: dict[int, PortCounters] = {}
        for place, port in enumerate(self.ports):
            c = _Counters()
            self._lib.pp_read(self._handle, place, ctypes.byref(c))
            out[port.number] = PortCounters(*(getattr(c, n) for n in COUNTERS))
        return out

    def totals(self) -> dict[str, int]:
        """Packets with a fault, for a port that does not exist, or lost to a slow controller."""
        values = (c_uint64 * 3)()
        self._lib.pp_read_totals(self._handle, values)
        return dict(zip(("faults", "unknown_port", "cpu_dropped"), values, strict=True))

    def close(self) -> None:
        """End the packet thread and close the sockets; nobody may be in ``wait``."""
        if not self._closed.is_set():
            self._closed.set()
            self._lib.pp_destroy(self._handle)
            self._switch = None
