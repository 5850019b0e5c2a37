# SPDX-License-Identifier: Apache-2.0
"""Packet sockets: writes the packets of a link to a file, and counts the packets that other
processes' sockets, such as BMv2's, had no room for."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO

from testbed.network.namespaces import inside

_PIDFD_GETFD = 438  # the same on every architecture
_SO_MEMINFO, _MEMINFO = 55, struct.Struct("9I")  # bytes used, bytes of room, ..., packets dropped
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 263, 6, 23
_STATISTICS = struct.Struct("2I")  # packets and drops since the last reading

_libc = ctypes.CDLL(None, use_errno=True)


class PacketSockets:
    """The sockets with which a process listens at the interfaces of a namespace.

    A socket that reads into a ring, as libpcap's do, has its drops only in statistics that a
    reading sets to 0; another keeps count. Both are asked through a copy of the socket
    (pidfd_getfd), which is closed at once: a socket that outlived its process would go on to take
    packets.

    Args:
        pid: The process.
        node: A process in the namespace, of which there may be several that it listens in.
        rings: Whether its sockets read into rings. These are set to ignore outgoing packets, which
            libpcap would receive only to discard them.
    """

    def __init__(self, pid: int, node: int, rings: bool) -> None:
        self._pid = pid
        self._rings = rings
        self._sockets = _listening(pid, node)
        self._dropped = dict.fromkeys(self._sockets, 0)
        if rings:
            for fd in self._sockets.values():
                with closing(_copy(pid, fd)) as copy:
                    copy.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)

    def dropped(self) -> dict[str, int]:
        """Return, by interface, the packets that its socket had no room for.

        If the socket is gone, the last known count is returned.
        """
        for interface, fd in self._sockets.items():
            try:
                with closing(_copy(self._pid, fd)) as copy:
                    if self._rings:
                        counts = copy.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
                        self._dropped[interface] += _STATISTICS.unpack(counts)[1]
                    else:
                        counts = copy.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
                        self._dropped[interface] = _MEMINFO.unpack(counts)[-1]
            except OSError:
                continue
        return dict(self._dropped)

    def used(self) -> float:
        """Return the used share of the fullest of the sockets' buffers, from 0 to 1; 0 for rings
        and for sockets that are gone."""
        most = 0.0
        for fd in () if self._rings else self._sockets.values():
            with suppress(OSError), closing(_copy(self._pid, fd)) as copy:
                found = copy.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
                used, room, *_ = _MEMINFO.unpack(found)
                most = max(most, used / max(room, 1))
        return most


def _listening(pid: int, node: int) -> dict[str, int]:
    """Return the file descriptors of a process's packet sockets, by interface.

    Only interfaces in the namespace of the process ``node`` count.
    """
    inodes: dict[int, str] = {}
    with inside(node):
        for line in Path("/proc/thread-self/net/packet").read_text().splitlines()[1:]:
            *_, interface, _, _, _, inode = line.split()
            if int(interface):
                inodes[int(inode)] = socket.if_indextoname(int(interface))
    found: dict[str, int] = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            what = os.readlink(entry)
        except OSError:
            continue
        inode = what.removeprefix("socket:[").removesuffix("]")
        if inode.isdigit() and int(inode) in inodes:
            found[inodes[int(inode)]] = int(entry.name)
    return found


def _copy(pid: int, fd: int) -> socket.socket:
    process = os.pidfd_open(pid)
    try:
        copy = _libc.syscall(_PIDFD_GETFD, process, fd, 0)
        if copy < 0:
            raise OSError(ctypes.get_errno(), f"socket {fd} of process {pid} cannot be copied")
    finally:
        os.close(process)
    return socket.socket(fileno=copy)


_ETH_P_ALL, _PACKET_OUTGOING = 3, 4
_ETHERNET = 1


CAPTURE_HEAD = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 0xFFFF, _ETHERNET)
"""The first bytes of each file that a `PacketDump` writes."""


class PacketDump:
    """Writes the frames that leave an interface to a pcap file, until `close`.

    Args:
        pid: A process in the interface's namespace.
        interface: The interface's name.
        path: The path of the file.
        file: The file, empty and open for writing; `close` closes it.

    Raises:
        OSError: The file cannot be written, or the interface is gone.
    """

    def __init__(self, pid: int, interface: str, path: Path, file: BinaryIO) -> None:
        from scapy.utils import RawPcapWriter  # which takes long, and writes into the home folder

        self.path = path
        self.packets = 0
        self._file = RawPcapWriter(file, linktype=_ETHERNET)
        try:
            self._file.write_header(None)
            with inside(pid):
                self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            self._socket.bind((interface, _ETH_P_ALL))
            self._socket.settimeout(0.1)
        except BaseException:
            self._file.close()
            raise
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="dump", daemon=True)
        self._thread.start()

    def close(self) -> int:
        """Stop writing, close the file and return how many packets it has."""
        self._closing.set()
        self._thread.join()
        self._socket.close()
        self._file.close()
        return self.packets

    def _write(self) -> None:
        while not self._closing.is_set():
            try:
                data, (_, _, kind, *_) = self._socket.recvfrom(65535)
            except OSError:
                continue
            if kind == _PACKET_OUTGOING:
                seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
                self._file.write_packet(data, sec=seconds, usec=microseconds)
                self.packets += 1
